package ddbjournal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var pointEntry = newPoint("entry")

// entry is an inbox entry with the nonce of the call that wrote it.
type entry struct {
	journal.Entry
	nonce string
}

func (e entry) item(lane journal.Lane) item {
	it := newItem(inboxKey(lane, e.Slot), ofLane(lane))
	it[attrKind], it[attrNonce] = text(string(e.Kind)), text(e.nonce)
	it.setText(attrKey, e.Key)
	it.setText(attrDigest, e.Digest)
	it.setText(attrRef, e.Ref)
	it.setText(attrBy, e.By)
	it.setTime(attrAt, e.At)
	it.setBody(attrBody, e.Body)
	return it
}

func entryOf(it item, lane journal.Lane) (entry, error) {
	f, err := it.open(ofLane(lane))
	if err != nil {
		return entry{}, err
	}
	f.need(attrKind)
	slot, err := slotOf(it)
	if err != nil {
		return entry{}, err
	}
	e := entry{nonce: f.text(attrNonce), Entry: journal.Entry{Slot: slot, Kind: journal.EntryKind(f.text(attrKind)),
		Key: f.text(attrKey), Digest: f.text(attrDigest), Ref: f.text(attrRef), Body: f.body(attrBody), By: f.text(attrBy), At: f.time(attrAt)}}
	return e, f.err
}

// slotOf is the slot an item of a log or an inbox lies in.
func slotOf(it item) (slot uint64, err error) {
	sort := it.key().sort
	if _, err = fmt.Sscanf(sort, "%d", &slot); err != nil || slotKey(slot) != sort {
		return 0, fmt.Errorf("%w: %q is no slot", record.ErrCorrupt, sort)
	}
	return slot, nil
}

// missing is the error of a hole in a slot list.
func missing(what string, slot uint64) error {
	return fmt.Errorf("%w: %s slot %d is missing", record.ErrCorrupt, what, slot)
}

// entries reads the inbox from a slot on, which must be there unless the inbox
// ends before it.
func (j *Journal) entries(ctx context.Context, lane journal.Lane, from uint64) (list []entry, err error) {
	err = j.query(ctx, inboxKey(lane, from), func(it item) error {
		e, err := entryOf(it, lane)
		if err != nil {
			return err
		}
		if want := from + uint64(len(list)); e.Slot != want {
			return missing("inbox", want)
		}
		list = append(list, e)
		return nil
	})
	return list, err
}

// tail is the inbox's last slot, 0 when it is empty.
func (j *Journal) tail(ctx context.Context, lane journal.Lane) (uint64, error) {
	it, err := j.last(ctx, inboxKey(lane, 0).partition)
	if err != nil || it == nil {
		return 0, err
	}
	e, err := entryOf(it, lane)
	return e.Slot, err
}

// Inbox implements journal.Journal.
func (j *Journal) Inbox(ctx context.Context, lane journal.Lane, after uint64) (journal.Head, []journal.Entry, error) {
	h, err := j.head(ctx, lane)
	if err != nil {
		return journal.Head{}, nil, failed("inbox", lane, err)
	}
	list, err := j.entries(ctx, lane, after+1)
	if err != nil {
		return journal.Head{}, nil, failed("inbox", lane, err)
	}
	out := make([]journal.Entry, 0, len(list))
	for _, e := range list {
		out = append(out, e.Entry)
	}
	return h.Head, out, nil
}

// look is what an inbox writer knows before it writes.
type look struct {
	head  head
	tail  uint64
	first *entry // the first entry of the same key above the given slot
}

// look reads the head and, at the same time, the inbox. A head or an entry
// this build cannot read is refused here, before anything is written.
func (j *Journal) look(ctx context.Context, lane journal.Lane, inbox func() (tail uint64, first *entry, err error)) (look, error) {
	var l look
	var headErr, inboxErr error
	var reads sync.WaitGroup
	reads.Go(func() { l.head, headErr = j.head(ctx, lane) })
	l.tail, l.first, inboxErr = inbox()
	reads.Wait()
	if headErr != nil {
		return look{}, headErr
	}
	return l, inboxErr
}

// find looks for a key in the inbox above after and tells the tail. It reads
// the slot after itself too: only a slot that is there has no gap below it.
func (j *Journal) find(ctx context.Context, lane journal.Lane, key string, after uint64) (tail uint64, first *entry, err error) {
	list, err := j.entries(ctx, lane, max(after, 1))
	if err != nil {
		return 0, nil, err
	}
	if len(list) == 0 && after > 0 {
		tail, err = j.tail(ctx, lane)
		return tail, nil, err
	}
	for _, e := range list {
		tail = e.Slot
		if first == nil && e.Slot > after && e.Key == key {
			first = &e
		}
	}
	return tail, first, nil
}

// enter puts e into the next free slot, unless an entry of its key is found
// above after: then first is that one.
func (j *Journal) enter(ctx context.Context, lane journal.Lane, e entry, after, tail uint64) (slot uint64, first *entry, err error) {
	for t := j.try(); ; {
		e.Slot = tail + 1
		occupant, err := j.put(ctx, pointEntry, e.item(lane))
		if err != nil || occupant == nil {
			return e.Slot, nil, err
		}
		there, err := entryOf(occupant, lane)
		if err != nil {
			return 0, nil, err
		}
		if there.nonce == e.nonce {
			return e.Slot, nil, nil
		}
		if err := t.again(ctx, "an inbox slot"); err != nil {
			return 0, nil, err
		}
		if tail, first, err = j.find(ctx, lane, e.Key, after); err != nil || first != nil {
			return 0, first, err
		}
	}
}

// Signal implements journal.Journal.
func (j *Journal) Signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (journal.Signalled, error) {
	s, err := j.signal(ctx, lane, e, after, now, grace)
	if err != nil {
		return journal.Signalled{}, failed("signal", lane, err)
	}
	return s, nil
}

func (j *Journal) signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (out journal.Signalled, err error) {
	if len(e.Body) > journal.EntryLimit {
		return out, fmt.Errorf("%w: entry of %d bytes, limit %d", record.ErrTooLarge, len(e.Body), journal.EntryLimit)
	}
	if e.At.IsZero() {
		e.At = now
	}
	e.At = record.Time(e.At)
	seen, err := j.look(ctx, lane, func() (uint64, *entry, error) { return j.find(ctx, lane, e.Key, after) })
	if err != nil {
		return out, err
	}
	first := seen.first
	if first == nil {
		out.Slot, first, err = j.enter(ctx, lane, entry{e, nonce()}, after, seen.tail)
		if err != nil {
			return out, err
		}
	}
	if err := j.bumpFor(ctx, seen.head, first, now.Add(grace)); err != nil {
		return out, err
	}
	if first == nil {
		return out, nil
	}
	if first.Digest != e.Digest {
		return out, &journal.ConflictError{First: first.Entry}
	}
	return journal.Signalled{Slot: first.Slot, Duplicate: true}, nil
}
