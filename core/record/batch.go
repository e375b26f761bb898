package record

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// FormatVersion is the version of the batch envelope this build writes.
const FormatVersion = 1

var formatVersion = strconv.Itoa(FormatVersion)

// Batch is one atomic write of a conversation's log.
type Batch struct {
	Tenant       string
	Conversation string
	Slot         uint64 // from 1, without gaps
	ID           string // fresh and random: it tells one's own write apart (F5)
	Epoch        uint64
	Attempt      string
	Prev         string // digest of the batch in the slot before; empty at slot 1
	Digest       string // of the sealed body
	At           time.Time
	Records      Records
}

// Sealed is a batch as it is stored: the canonical body and its digest.
type Sealed struct {
	Slot   uint64
	ID     string
	Epoch  uint64
	Digest string
	Body   []byte
}

// envelope is the sealed body. It does not hold its own digest.
type envelope struct {
	V            int       `json:"v"`
	Tenant       string    `json:"tenant"`
	Conversation string    `json:"conversation"`
	Slot         uint64    `json:"slot"`
	ID           string    `json:"batch"`
	Epoch        uint64    `json:"epoch"`
	Attempt      string    `json:"attempt"`
	Prev         string    `json:"prev"`
	At           time.Time `json:"at"`
	Records      Records   `json:"records"`

	shown string // the digest, where outsiders look
}

// Time is the precision of every persisted time: UTC milliseconds.
func Time(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func (b *Batch) encode(shown string) ([]byte, error) {
	c := coder{mode: encoding, out: make([]byte, 0, 1<<10)}
	c.body(&envelope{V: FormatVersion, Tenant: b.Tenant, Conversation: b.Conversation, Slot: b.Slot, ID: b.ID,
		Epoch: b.Epoch, Attempt: b.Attempt, Prev: b.Prev, At: Time(b.At), Records: b.Records, shown: shown}, nil)
	return c.out, c.err
}

// Seal encodes a batch for storage and fills its digest. It returns
// ErrTooLarge when values have to go aside first, and refuses every record
// that Open would refuse: a batch nobody can read would end its conversation.
func Seal(b *Batch) (Sealed, error) {
	if len(b.Records) == 0 || len(b.Records) > RecordLimit {
		return Sealed{}, fmt.Errorf("%w: %d records in one batch", ErrTooLarge, len(b.Records))
	}
	body, err := b.encode("")
	if err != nil {
		return Sealed{}, fmt.Errorf("record: batch does not seal: %w", err)
	}
	if len(body) > BatchLimit {
		return Sealed{}, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, len(body), BatchLimit)
	}
	b.At, b.Digest = Time(b.At), Digest(body)
	return Sealed{Slot: b.Slot, ID: b.ID, Epoch: b.Epoch, Digest: b.Digest, Body: body}, nil
}

// Open verifies a stored batch against its digest and its place, and decodes
// it. Every refusal is typed: ErrCorrupt, ErrForeign, ErrUnknownVersion,
// ErrUnknownKind.
func Open(s Sealed, tenant, conversation string) (Batch, error) {
	if Digest(s.Body) != s.Digest {
		return Batch{}, corrupt("slot %d does not match its digest", s.Slot)
	}
	c, err := decoder(s.Body)
	if err != nil {
		return Batch{}, fmt.Errorf("slot %d: %w", s.Slot, err)
	}
	if c.src[0] != '{' {
		return Batch{}, corrupt("slot %d holds no object", s.Slot)
	}
	if v := string(c.peek("v")); v != formatVersion {
		return Batch{}, fmt.Errorf("%w: batch v%s in slot %d; this build reads v%s", ErrUnknownVersion, orNone(v), s.Slot, formatVersion)
	}
	var e envelope
	if c.body(&e, nil); c.err != nil {
		return Batch{}, fmt.Errorf("slot %d: %w", s.Slot, c.err)
	}
	switch {
	case !bytes.Equal(c.src, s.Body):
		return Batch{}, corrupt("slot %d is not in canonical form", s.Slot)
	case e.Tenant != tenant || e.Conversation != conversation || e.Slot != s.Slot || e.ID != s.ID || e.Epoch != s.Epoch:
		return Batch{}, fmt.Errorf("%w: found %s/%s slot %d in slot %d of %s/%s",
			ErrForeign, e.Tenant, e.Conversation, e.Slot, s.Slot, tenant, conversation)
	case len(e.Records) == 0 || len(e.Records) > RecordLimit:
		return Batch{}, corrupt("slot %d holds %d records", s.Slot, len(e.Records))
	}
	return Batch{Tenant: e.Tenant, Conversation: e.Conversation, Slot: e.Slot, ID: e.ID, Epoch: e.Epoch,
		Attempt: e.Attempt, Prev: e.Prev, Digest: s.Digest, At: e.At, Records: e.Records}, nil
}

// JSON is the batch as outsiders see it: its sealed body with its digest.
func (b Batch) JSON() ([]byte, error) { return b.encode(b.Digest) }
