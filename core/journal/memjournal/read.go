package memjournal

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Head implements journal.Journal.
func (j *Journal) Head(ctx context.Context, lane journal.Lane) (h journal.Head, err error) {
	err = j.read(ctx, func(s *store) error {
		h = s.lane(lane).head
		return nil
	})
	return h, failed("head", lane, err)
}

// Inbox implements journal.Journal.
func (j *Journal) Inbox(ctx context.Context, lane journal.Lane, after uint64) (journal.Head, []journal.Entry, error) {
	o := Looking{Lane: lane, After: after}
	err := ctx.Err()
	for done := false; err == nil && !done; {
		done, err = o.Step(j)
	}
	if err != nil {
		return journal.Head{}, nil, failed("inbox", lane, err)
	}
	return o.Head, o.Entries, nil
}

// Looking is an Inbox one item at a time: first the head, then the entries. An
// entry whose writer bumps the head after that read is either among them or
// makes the version move. A copy is the same call at the same point.
type Looking struct {
	Lane  journal.Lane
	After uint64
	// Head is known after the first step, Entries once Step said done.
	Head    journal.Head
	Entries []journal.Entry

	haveHead bool
}

// Step implements one step; see the package comment.
func (o *Looking) Step(j *Journal) (done bool, err error) {
	done = o.haveHead
	return done, j.locked(func(s *store) error {
		l := s.lane(o.Lane)
		if !o.haveHead {
			o.Head, o.haveHead = l.head, true
			return nil
		}
		for _, e := range above(l.inbox, o.After) {
			o.Entries = append(o.Entries, cloneEntry(e))
		}
		return nil
	})
}

// HaveHead says whether the first step is done.
func (o *Looking) HaveHead() bool { return o.haveHead }

// Read implements journal.Journal.
func (j *Journal) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		var log []record.Sealed
		err := j.read(ctx, func(s *store) error {
			for _, b := range above(s.lane(lane).log, max(from, 1)-1) {
				log = append(log, cloneBatch(b))
			}
			return nil
		})
		if err != nil {
			yield(record.Sealed{}, failed("read", lane, err))
			return
		}
		for _, b := range log {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// Due implements journal.Journal. Lanes whose process is gone are due at once.
func (j *Journal) Due(ctx context.Context, until time.Time, limit int) (heads []journal.Head, err error) {
	until = record.Time(until)
	err = j.read(ctx, func(s *store) error {
		for _, l := range s.lanes {
			if l.head.State != journal.Idle && (!l.head.Due.After(until) || j.lost(l.head)) {
				heads = append(heads, l.head)
			}
		}
		return nil
	})
	slices.SortFunc(heads, func(a, b journal.Head) int {
		return cmp.Or(a.Due.Compare(b.Due), strings.Compare(a.Lane.Tenant, b.Lane.Tenant), strings.Compare(a.Lane.Conversation, b.Lane.Conversation))
	})
	return heads[:min(len(heads), max(limit, 0))], failed("due", journal.Lane{}, err)
}

// Watch implements journal.Journal.
func (j *Journal) Watch(ctx context.Context, lane journal.Lane, seen journal.Head) (journal.Head, error) {
	for {
		var h journal.Head
		var changed <-chan struct{}
		err := j.read(ctx, func(s *store) error {
			h, changed = s.lane(lane).head, s.next(lane)
			return nil
		})
		if err != nil || moved(seen, h) {
			return h, failed("watch", lane, err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return journal.Head{}, failed("watch", lane, ctx.Err())
		}
	}
}

func moved(a, b journal.Head) bool {
	return a.Epoch != b.Epoch || a.State != b.State || a.Version != b.Version || a.Settled != b.Settled
}

// Submission implements journal.Journal.
func (j *Journal) Submission(ctx context.Context, tenant, id string) (sub journal.Submission, err error) {
	err = j.read(ctx, func(s *store) error {
		found, ok := s.subs[key{tenant, id}]
		if !ok {
			return journal.ErrNotFound
		}
		sub = cloneSubmission(found)
		return nil
	})
	return sub, failed("submission", journal.Lane{Tenant: tenant, Conversation: id}, err)
}

// Payload implements journal.Journal.
func (j *Journal) Payload(ctx context.Context, tenant, digest string) (body []byte, err error) {
	err = j.read(ctx, func(s *store) error {
		found, ok := s.payloads[key{tenant, digest}]
		if !ok {
			return journal.ErrNotFound
		}
		if record.Digest(found) != digest {
			return record.ErrCorrupt
		}
		body = slices.Clone(found)
		return nil
	})
	return body, failed("payload", journal.Lane{Tenant: tenant, Conversation: digest}, err)
}
