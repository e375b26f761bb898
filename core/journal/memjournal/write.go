package memjournal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var (
	errNoLease = errors.New("a claim needs a lease: a running lane must have a due time")
	errNoDue   = errors.New("a lane that is not idle must have a due time")
)

// Admit implements journal.Journal. The entry's key and ref are the
// submission's ID.
func (j *Journal) Admit(ctx context.Context, sub journal.Submission, now time.Time, grace time.Duration) (a journal.Admission, err error) {
	err = j.write(ctx, "admit", sub.Lane, func(s *store) error {
		name := key{sub.Lane.Tenant, sub.ID}
		if known, found := s.subs[name]; found {
			if known.Digest != sub.Digest {
				return fmt.Errorf("%w: submission %s", journal.ErrConflict, sub.ID)
			}
			a = journal.Admission{Submission: cloneSubmission(known), Duplicate: true}
			return nil
		}
		l := s.lane(sub.Lane)
		stored := newSubmission(sub, now, uint64(len(l.inbox)))
		s.subs[name] = stored
		s.writes++
		s.putEntry(l, journal.Entry{
			Kind: journal.EntrySubmit, Key: sub.ID, Digest: sub.Digest, Ref: sub.ID, By: sub.Principal, At: record.Time(now),
		})
		s.putHead(l, bumped(l.head, now.Add(grace)))
		a = journal.Admission{Submission: cloneSubmission(stored)}
		return nil
	})
	if err != nil {
		return journal.Admission{}, err
	}
	return a, nil
}

func newSubmission(sub journal.Submission, now time.Time, tail uint64) journal.Submission {
	if sub.AdmittedAt.IsZero() {
		sub.AdmittedAt = now
	}
	sub.AdmittedAt = record.Time(sub.AdmittedAt)
	sub.Tail, sub.Outcome, sub.SettledAt = tail, nil, time.Time{}
	return cloneSubmission(sub)
}

// bumped is the head after an inbox write: work waits, and the lane is looked
// at by due at the latest. A running owner sees the version move.
func bumped(h journal.Head, due time.Time) journal.Head {
	due = record.Time(due)
	h.Version++
	switch {
	case h.State == journal.Idle, h.State == journal.Parked:
		h.State, h.Due = journal.Ready, due
	case h.State == journal.Ready && due.Before(h.Due):
		h.Due = due
	}
	return h
}

// Signal implements journal.Journal.
func (j *Journal) Signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (out journal.Signalled, err error) {
	err = j.write(ctx, "signal", lane, func(s *store) error {
		if len(e.Body) > journal.EntryLimit {
			return fmt.Errorf("%w: entry of %d bytes, limit %d", record.ErrTooLarge, len(e.Body), journal.EntryLimit)
		}
		l := s.lane(lane)
		for _, first := range above(l.inbox, after) {
			switch {
			case first.Key != e.Key:
			case first.Digest != e.Digest:
				return &journal.ConflictError{First: cloneEntry(first)}
			default:
				out = journal.Signalled{Slot: first.Slot, Duplicate: true}
				return nil
			}
		}
		e = cloneEntry(e)
		if e.At.IsZero() {
			e.At = now
		}
		e.At = record.Time(e.At)
		out = journal.Signalled{Slot: s.putEntry(l, e)}
		s.putHead(l, bumped(l.head, now.Add(grace)))
		return nil
	})
	if err != nil {
		return journal.Signalled{}, err
	}
	return out, nil
}

// above is the part of a gapless slot list, counted from 1, above a slot.
func above[T any](list []T, slot uint64) []T {
	return list[min(slot, uint64(len(list))):]
}

// Claim implements journal.Journal.
func (j *Journal) Claim(ctx context.Context, r journal.ClaimRequest) (h journal.Head, err error) {
	err = j.write(ctx, "claim", r.Lane, func(s *store) error {
		if r.Lease.IsZero() {
			return errNoLease
		}
		l := s.lane(r.Lane)
		h = l.head
		if h.State == journal.Running && h.Owner == r.Owner {
			// An owner id claims once, so this is its own claim, answered again.
			return nil
		}
		if !j.claimable(h, record.Time(r.Now)) {
			return journal.ErrNotClaimable
		}
		h.Epoch++
		h.Owner, h.Boot, h.State = r.Owner, r.Boot, journal.Running
		h.Lease, h.Due = record.Time(r.Lease), record.Time(r.Lease)
		s.putHead(l, h)
		return nil
	})
	if err != nil {
		return journal.Head{}, err
	}
	return h, nil
}

func (j *Journal) claimable(h journal.Head, now time.Time) bool {
	switch h.State {
	case journal.Ready:
		return true
	case journal.Running:
		return !h.Lease.After(now) || j.lost(h)
	case journal.Parked:
		return !h.Due.After(now)
	}
	return false
}

// lost tells that a lane's owner ran in a process that is gone.
func (j *Journal) lost(h journal.Head) bool {
	return h.State == journal.Running && h.Boot != "" && h.Boot != j.boot
}

// Append implements journal.Journal.
func (j *Journal) Append(ctx context.Context, lane journal.Lane, b record.Sealed) error {
	return j.write(ctx, "append", lane, func(s *store) error {
		l := s.lane(lane)
		last := uint64(len(l.log))
		if b.Slot == 0 || b.Slot > last+1 {
			return fmt.Errorf("slot %d leaves a gap: the last one is %d", b.Slot, last)
		}
		if b.Slot <= last {
			if occupant := l.log[b.Slot-1]; occupant.ID != b.ID || occupant.Digest != b.Digest {
				return &journal.TakenError{Occupant: cloneBatch(occupant)}
			}
			return nil
		}
		l.log = append(l.log, cloneBatch(b))
		s.keep(l)
		s.writes++
		return nil
	})
}

// Park implements journal.Journal.
func (j *Journal) Park(ctx context.Context, r journal.ReleaseRequest) error {
	return j.write(ctx, "park", r.Lane, func(s *store) error {
		l := s.lane(r.Lane)
		h := l.head
		switch {
		case r.To != journal.Idle && r.To != journal.Parked && r.To != journal.Ready:
			return fmt.Errorf("no release to state %q", r.To)
		case r.To != journal.Idle && r.Due.IsZero():
			return errNoDue
		case h.State != journal.Running || h.Epoch != r.Epoch || h.Owner != r.Owner:
			return journal.ErrFenced
		case r.To != journal.Ready && h.Version != r.Version:
			return journal.ErrRefused
		}
		s.putHead(l, released(h, r.To, r.Due, r.Drained))
		return nil
	})
}

// released is the head once it is given back. Owner and boot stay as evidence.
func released(h journal.Head, to journal.State, due time.Time, drained uint64) journal.Head {
	h.Version++
	h.State, h.Due, h.Lease = to, record.Time(due), time.Time{}
	if to == journal.Idle {
		h.Due = time.Time{}
	}
	h.Drained = max(h.Drained, drained)
	return h
}

// Finish implements journal.Journal. The rows stay settled when the head is
// refused: an outcome is decided in the log, not by who frees the lane.
func (j *Journal) Finish(ctx context.Context, r journal.FinishRequest) error {
	return j.write(ctx, "finish", r.Lane, func(s *store) error {
		l := s.lane(r.Lane)
		h := l.head
		switch {
		case r.To != journal.Idle && r.To != journal.Ready:
			return fmt.Errorf("no release to state %q", r.To)
		case r.To == journal.Ready && r.Due.IsZero():
			return errNoDue
		case h.Settled >= r.Settled:
			return nil
		}
		if err := s.settleRows(r); err != nil {
			return err
		}
		if h.Settled != r.Was || r.To == journal.Idle && h.Version != r.Version {
			return journal.ErrRefused
		}
		h = released(h, r.To, r.Due, r.Drained)
		h.Settled = r.Settled
		s.putHead(l, h)
		return nil
	})
}

func (s *store) settleRows(r journal.FinishRequest) error {
	for _, o := range r.Outcomes {
		if _, found := s.subs[key{r.Lane.Tenant, o.Run}]; !found {
			return fmt.Errorf("%w: run %s has no submission row", record.ErrCorrupt, o.Run)
		}
	}
	for _, o := range r.Outcomes {
		name := key{r.Lane.Tenant, o.Run}
		sub := s.subs[name]
		if sub.Outcome != nil {
			continue
		}
		o = cloneSettled(o)
		sub.Outcome, sub.SettledAt = &o, record.Time(r.At)
		s.subs[name] = sub
		s.writes++
	}
	return nil
}

// PutPayload implements journal.Journal.
func (j *Journal) PutPayload(ctx context.Context, tenant, digest string, body []byte) error {
	return j.write(ctx, "payload", journal.Lane{Tenant: tenant, Conversation: digest}, func(s *store) error {
		if record.Digest(body) != digest {
			return fmt.Errorf("%w: the bytes have another digest", record.ErrCorrupt)
		}
		if _, found := s.payloads[key{tenant, digest}]; !found {
			s.payloads[key{tenant, digest}] = slices.Clone(body)
			s.writes++
		}
		return nil
	})
}
