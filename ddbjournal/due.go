package ddbjournal

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

const (
	pageLimit  = 1000 // index rows asked for at once
	batchLimit = 100  // heads in one BatchGetItem, the store's bound
)

// candidate is an index row: a head that was due when the index last heard.
type candidate struct {
	key item
	due uint64
}

// Due implements journal.Journal. The index may be late in both directions, so
// each row of it is checked against its head, read strongly consistent: what
// is not due any more is left out, what the index has not heard of yet is
// found by a later sweep.
func (j *Journal) Due(ctx context.Context, until time.Time, limit int) ([]journal.Head, error) {
	if limit <= 0 {
		return nil, nil
	}
	heads, err := j.due(ctx, record.Time(until), limit)
	return heads, failed("due", journal.Lane{}, err)
}

func (j *Journal) due(ctx context.Context, until time.Time, limit int) ([]journal.Head, error) {
	rows, err := j.candidates(ctx, until, limit)
	if err != nil {
		return nil, err
	}
	var heads []journal.Head
	for len(rows) > 0 && len(heads) < limit {
		n := min(len(rows), batchLimit, limit-len(heads))
		items, err := j.heads(ctx, rows[:n])
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			lane, err := laneOfHead(it.key().partition)
			if err != nil {
				return nil, err
			}
			h, err := headOf(it, lane)
			if err != nil {
				// One lane must not keep the others from being swept: whoever acts
				// on it reads the head and is told.
				heads = append(heads, journal.Head{Lane: lane})
				continue
			}
			if h.State != journal.Idle && !h.Due.After(until) {
				heads = append(heads, h.Head)
			}
		}
		rows = rows[n:]
	}
	slices.SortFunc(heads, func(a, b journal.Head) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Lane.Tenant, b.Lane.Tenant), cmp.Compare(a.Lane.Conversation, b.Lane.Conversation))
	})
	return heads, nil
}

// candidates asks every shard of the index, oldest first.
func (j *Journal) candidates(ctx context.Context, until time.Time, limit int) ([]candidate, error) {
	var shards sync.WaitGroup
	var found [DueShards][]candidate
	var errs [DueShards]error
	for n := range DueShards {
		shards.Go(func() { found[n], errs[n] = j.shard(ctx, shardName(n), until, limit) })
	}
	shards.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err // the others tend to say the same
		}
	}
	rows := slices.Concat(found[:]...)
	slices.SortFunc(rows, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.key.key().partition, b.key.key().partition))
	})
	return once(rows), nil
}

// once leaves out a lane that the index shows again: its due time moved on
// between two pages, or the index has not let go of the old one. The store
// refuses to be asked for an item twice in one batch.
func once(rows []candidate) []candidate {
	seen := make(map[key]bool, len(rows))
	return slices.DeleteFunc(rows, func(c candidate) bool {
		k := c.key.key()
		again := seen[k]
		seen[k] = true
		return again
	})
}

func (j *Journal) shard(ctx context.Context, shard string, until time.Time, limit int) (rows []candidate, err error) {
	in := &dynamodb.QueryInput{
		TableName: &j.cfg.Table, IndexName: aws.String(IndexDue), Limit: aws.Int32(int32(min(limit, pageLimit))),
		KeyConditionExpression:    aws.String(AttrShard + " = :shard AND " + AttrDue + " <= :until"),
		ExpressionAttributeValues: item{":shard": text(shard), ":until": millis(until)},
	}
	for {
		out, err := j.api.Query(ctx, in)
		if err != nil {
			return nil, unanswered(ctx, err)
		}
		for _, it := range out.Items {
			f := fields{it: it}
			rows = append(rows, candidate{due: f.number(AttrDue), key: item(it).key().attributes()})
		}
		if len(out.LastEvaluatedKey) == 0 || len(rows) >= limit {
			return rows, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// heads reads up to batchLimit heads, strongly consistent. The store may leave
// some of them unprocessed; they are asked for again, for as long as an
// operation may compete with others.
func (j *Journal) heads(ctx context.Context, rows []candidate) (items []item, err error) {
	keys := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
	for _, r := range rows {
		keys.Keys = append(keys.Keys, r.key)
	}
	for t := j.try(); ; {
		out, err := j.api.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{j.cfg.Table: keys}})
		if err != nil {
			return nil, unanswered(ctx, err)
		}
		for _, it := range out.Responses[j.cfg.Table] {
			items = append(items, it)
		}
		left := out.UnprocessedKeys[j.cfg.Table]
		if len(left.Keys) == 0 {
			return items, nil
		}
		keys.Keys = left.Keys
		if err := t.again(ctx, "the head of a due lane"); err != nil {
			return nil, err
		}
	}
}
