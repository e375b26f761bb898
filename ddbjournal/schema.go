package ddbjournal

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// The table, as a template has to declare it. Persisted names never change.
const (
	// AttrPartition and AttrSort are the table's keys, both strings.
	AttrPartition = "pk"
	AttrSort      = "sk"
	// IndexDue is the one index: sparse, keys only, sharded. An item is in it
	// exactly as long as its lane is not idle.
	IndexDue = "due"
	// AttrShard (string) and AttrDue (number, unix milliseconds) are its keys.
	AttrShard = "dueShard"
	AttrDue   = "dueAt"
	// AttrExpiry is the table's TTL attribute, in unix seconds. Only settled
	// submission rows have it (F18): slots and heads live as long as their
	// conversation (F13).
	AttrExpiry = "ttl"
	// DueShards is the number of index partitions, so that one hot partition
	// of the index does not throttle the table.
	DueShards = 16
)

// Attributes that are no keys. An item carries its format version and the lane
// or tenant it belongs to, so that one found under a foreign key is refused.
const (
	attrVersion = "v"
	attrOf      = "of"
	attrNonce   = "nonce" // of the call that wrote: tells one's own write apart

	attrEpoch, attrOwner, attrBoot, attrState, attrMoves = "epoch", "owner", "boot", "state", "version"
	attrLease, attrSettled, attrDrained, attrReleased    = "leaseEnd", "settled", "drained", "released"

	attrID, attrDigest, attrBody = "id", "digest", "body"

	attrKind, attrKey, attrRef, attrBy, attrAt = "kind", "key", "ref", "actor", "at"

	attrConversation                                   = "conversation"
	attrAgent, attrPrincipal, attrInput, attrReplyTo   = "agent", "principal", "input", "replyTo"
	attrAllowance, attrParent, attrAdmittedAt          = "allowance", "parent", "admittedAt"
	attrTail, attrOutcome, attrSettledAt, attrWithdrew = "tail", "outcome", "settledAt", "tombstone"

	attrCount = "chunks"
)

// formatVersion is the version of every item this build writes. An item of
// another version is refused (journal.ErrNewer) before anything is written.
const formatVersion = 1

const (
	// ChunkSize is how many plain bytes of a payload one chunk item holds. It
	// is part of the format: a payload's chunks are at multiples of it.
	ChunkSize = 300_000
	// ItemLimit is the store's bound on an item, names and values, in bytes.
	ItemLimit = 400 << 10
	// inlineLimit is the largest input or outcome inside a submission row, in
	// bytes as stored; what is larger goes into chunks.
	inlineLimit = 64 << 10
	// plainLimit bounds what one stored body may decompress to.
	plainLimit = 1 << 20
	// keyLimit is the store's bound on a partition key, in bytes.
	keyLimit = 2048
)

// Table is the definition of the table, for tests and for a template to be
// compared with. TTL on AttrExpiry is switched on separately.
func Table(name string) *dynamodb.CreateTableInput {
	attr := func(name string, t types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: aws.String(name), AttributeType: t}
	}
	keys := func(hash, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: aws.String(hash), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(sort), KeyType: types.KeyTypeRange},
		}
	}
	return &dynamodb.CreateTableInput{
		TableName:   aws.String(name),
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			attr(AttrPartition, types.ScalarAttributeTypeS), attr(AttrSort, types.ScalarAttributeTypeS),
			attr(AttrShard, types.ScalarAttributeTypeS), attr(AttrDue, types.ScalarAttributeTypeN),
		},
		KeySchema: keys(AttrPartition, AttrSort),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: aws.String(IndexDue), KeySchema: keys(AttrShard, AttrDue),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}},
	}
}

// key is an item's place: the tenant leads every partition key, and head, log,
// inbox, row and chunks of a thing lie in different partitions, because rising
// sort keys in one partition cannot be split by heat.
type key struct{ partition, sort string }

// The letters that tell the partitions of one tenant apart.
const (
	letterHead, letterLog, letterInbox, letterRow, letterChunks = "H", "L", "I", "S", "B"
)

func partition(tenant, letter, name string) string {
	return escape(tenant) + "#" + letter + "#" + escape(name)
}

func headKey(l journal.Lane) key { return key{partition(l.Tenant, letterHead, l.Conversation), "H"} }

func logKey(l journal.Lane, slot uint64) key {
	return key{partition(l.Tenant, letterLog, l.Conversation), slotKey(slot)}
}

func inboxKey(l journal.Lane, slot uint64) key {
	return key{partition(l.Tenant, letterInbox, l.Conversation), slotKey(slot)}
}

func rowKey(tenant, id string) key { return key{partition(tenant, letterRow, id), "S"} }

func chunkKey(tenant, digest string, n int) key {
	return key{partition(tenant, letterChunks, digest), fmt.Sprintf("%06d", n)}
}

// slotKey sorts as its slot does, over the whole range of a slot.
func slotKey(slot uint64) string { return fmt.Sprintf("%020d", slot) }

// laneOfHead is headKey read backwards.
func laneOfHead(partition string) (journal.Lane, error) {
	parts := strings.Split(partition, "#")
	if len(parts) != 3 || parts[1] != letterHead {
		return journal.Lane{}, fmt.Errorf("%w: an index row points at %q, which is no head", record.ErrCorrupt, partition)
	}
	tenant, err := unescape(parts[0])
	if err != nil {
		return journal.Lane{}, err
	}
	conversation, err := unescape(parts[2])
	return journal.Lane{Tenant: tenant, Conversation: conversation}, err
}

// shardOf is the index partition of a lane: fixed, so that a due time moves
// within one partition.
func shardOf(l journal.Lane) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(headKey(l).partition))
	return shardName(int(h.Sum32() % DueShards))
}

func shardName(n int) string { return fmt.Sprintf("%02d", n) }

// escape keeps names apart from the separator and from each other: bytes that
// are no UTF-8 would otherwise all be stored as U+FFFD.
func escape(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		if r == '#' || r == '%' || r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, "%%%02X", name[i])
		} else {
			b.WriteString(name[i : i+size])
		}
		i += size
	}
	return b.String()
}

func unescape(name string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		if i+3 > len(name) {
			return "", fmt.Errorf("%w: key %q", record.ErrCorrupt, name)
		}
		n, err := strconv.ParseUint(name[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("%w: key %q", record.ErrCorrupt, name)
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), nil
}
