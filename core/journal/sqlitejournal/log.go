package sqlitejournal

import (
	"bytes"
	"context"
	"fmt"

	"github.com/layover-run/layover/core/failpoint"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var (
	pointAppendBefore  = failpoint.New("sqlite.append.before")
	pointAppendAfter   = failpoint.New("sqlite.append.after")
	pointPayloadBefore = failpoint.New("sqlite.payload.before")
	pointPayloadAfter  = failpoint.New("sqlite.payload.after")
)

// Append implements journal.Journal.
func (j *Journal) Append(ctx context.Context, lane journal.Lane, b record.Sealed) error {
	b.Body = bytes.Clone(b.Body)
	pointAppendBefore.Hit()
	if err := j.do(ctx, (&appendOp{lane, b}).run); err != nil {
		return failed("append", lane, err)
	}
	pointAppendAfter.Hit()
	return nil
}

type appendOp struct {
	lane  journal.Lane
	batch record.Sealed
}

func (a *appendOp) run(t *tx) error {
	l, err := t.lane(a.lane)
	if err != nil {
		return err
	}
	slot := a.batch.Slot
	switch {
	case slot == 0 || slot > l.log+1:
		return fmt.Errorf("slot %d leaves a gap: the last one is %d", slot, l.log)
	case slot <= l.log:
		return t.occupied(l, a.batch)
	}
	next := *l
	if l.id == 0 {
		// The log refers to a lane by its head's rowid, so there is a head now:
		// idle at epoch 0, which is what a lane without one is.
		if err := t.putHead(l, &next); err != nil {
			return err
		}
	}
	if err := t.putBatch(&next, a.batch); err != nil {
		return err
	}
	t.stage(a.lane, l, next)
	return nil
}

// occupied answers an append to a slot that is taken.
func (t *tx) occupied(l *lane, b record.Sealed) error {
	page, known := l.batchesFrom(b.Slot)
	if !known {
		var err error
		if page, err = loadBatches(t.w.batches, l.id, b.Slot, 1); err != nil {
			return t.fail(err)
		}
	}
	if len(page) == 0 {
		return fmt.Errorf("%w: log slot %d is missing", record.ErrCorrupt, b.Slot)
	}
	occupant := page[0]
	if occupant.ID == b.ID && occupant.Digest == b.Digest {
		return nil
	}
	occupant.Body = bytes.Clone(occupant.Body)
	return &journal.TakenError{Occupant: occupant}
}

// PutPayload implements journal.Journal.
func (j *Journal) PutPayload(ctx context.Context, tenant, digest string, body []byte) error {
	if record.Digest(body) != digest {
		return failedKey("put payload", tenant, digest, fmt.Errorf("%w: the bytes have another digest", record.ErrCorrupt))
	}
	body = bytes.Clone(body)
	pointPayloadBefore.Hit()
	err := j.do(ctx, func(t *tx) error {
		whole := false
		found, err := t.w.payloadFind.text(digest).text(tenant).one(func(r row) { whole = record.Digest(r.blob(0)) == digest })
		if err != nil {
			return t.fail(err)
		}
		if found && !whole {
			return fmt.Errorf("%w: other bytes are stored under this digest", record.ErrCorrupt)
		}
		if found {
			return nil
		}
		_, err = t.write(t.w.payloadInsert.text(digest).text(tenant).blob(body))
		return err
	})
	if err != nil {
		return failedKey("put payload", tenant, digest, err)
	}
	pointPayloadAfter.Hit()
	return nil
}
