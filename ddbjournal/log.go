package ddbjournal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var pointAppend = newPoint("append")

// tails remembers, for some lanes, a log slot that is certainly there. Slots
// are never deleted, so it cannot become wrong.
type tails struct {
	mu    sync.Mutex
	known map[journal.Lane]uint64
}

// tailsLimit bounds the lanes remembered.
const tailsLimit = 10_000

func (t *tails) note(lane journal.Lane, slot uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= tailsLimit {
		t.known = map[journal.Lane]uint64{}
	}
	t.known[lane] = max(t.known[lane], slot)
}

func (t *tails) reaches(lane journal.Lane, slot uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[lane] >= slot
}

// Append implements journal.Journal. Whoever has read the log, or appended to
// it, through this journal pays one write and no read.
func (j *Journal) Append(ctx context.Context, lane journal.Lane, b record.Sealed) error {
	return failed("append", lane, j.append(ctx, lane, b))
}

func (j *Journal) append(ctx context.Context, lane journal.Lane, b record.Sealed) error {
	if err := j.follows(ctx, lane, b.Slot); err != nil {
		return err
	}
	it := newItem(logKey(lane, b.Slot), ofLane(lane))
	it[attrID], it[attrEpoch], it[attrDigest] = text(b.ID), number(b.Epoch), text(b.Digest)
	it.setBody(attrBody, b.Body)
	occupant, err := j.put(ctx, pointAppend, it)
	if err != nil {
		return err
	}
	if occupant != nil {
		there, err := sealedOf(occupant, lane)
		if err != nil {
			return err
		}
		if there.ID != b.ID || there.Digest != b.Digest {
			return &journal.TakenError{Occupant: there}
		}
	}
	j.logs.note(lane, b.Slot)
	return nil
}

// follows refuses a slot that would leave a gap.
func (j *Journal) follows(ctx context.Context, lane journal.Lane, slot uint64) error {
	switch {
	case slot == 0:
		return errors.New("slots are counted from 1")
	case slot == 1 || j.logs.reaches(lane, slot-1):
		return nil
	}
	it, err := j.get(ctx, logKey(lane, slot-1))
	if err != nil {
		return err
	}
	if it == nil {
		return fmt.Errorf("slot %d leaves a gap: slot %d is empty", slot, slot-1)
	}
	if _, err := sealedOf(it, lane); err != nil {
		return err
	}
	j.logs.note(lane, slot-1)
	return nil
}

func sealedOf(it item, lane journal.Lane) (record.Sealed, error) {
	f, err := it.open(ofLane(lane))
	if err != nil {
		return record.Sealed{}, err
	}
	f.need(attrID, attrEpoch, attrDigest)
	slot, err := slotOf(it)
	if err != nil {
		return record.Sealed{}, err
	}
	b := record.Sealed{Slot: slot, ID: f.text(attrID), Epoch: f.number(attrEpoch), Digest: f.text(attrDigest), Body: f.body(attrBody)}
	return b, f.err
}

// errStop ends a query whose reader wants no more.
var errStop = errors.New("stop")

// Read implements journal.Journal, page by page.
func (j *Journal) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		next := max(from, 1)
		err := j.query(ctx, logKey(lane, next), func(it item) error {
			b, err := sealedOf(it, lane)
			if err != nil {
				return err
			}
			if b.Slot != next {
				return missing("log", next)
			}
			j.logs.note(lane, b.Slot)
			next++
			if !yield(b, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && err != errStop {
			yield(record.Sealed{}, failed("read", lane, err))
		}
	}
}
