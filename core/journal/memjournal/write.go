package memjournal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var (
	errNoLease = errors.New("a claim needs a lease: a running lane must have a due time")
	errNoOwner = errors.New("a claim needs an owner: an id of this invocation alone")
	errNoDue   = errors.New("a lane that is not idle must have a due time")
)

// single is an operation of one item.
type single struct {
	op    string
	what  Item
	write func(*store) (bool, error)
}

// Step implements operation.
func (o single) Step(j *Journal) (bool, error) { return true, j.item(o.op, o.what, o.write) }

// Claim implements journal.Journal.
func (j *Journal) Claim(ctx context.Context, r journal.ClaimRequest) (h journal.Head, err error) {
	err = j.run(ctx, "claim", r.Lane, single{"claim", Head, func(s *store) (bool, error) {
		if r.Lease.IsZero() {
			return false, errNoLease
		}
		if r.Owner == "" {
			return false, errNoOwner
		}
		l := s.lane(r.Lane)
		h = l.head
		if h.State == journal.Running && h.Owner == r.Owner {
			// An owner id claims once, so this is its own claim, answered again.
			return false, nil
		}
		if !j.claimable(h, record.Time(r.Now)) {
			return false, journal.ErrNotClaimable
		}
		h.Epoch++
		h.Owner, h.Boot, h.State = r.Owner, r.Boot, journal.Running
		h.Lease, h.Due = record.Time(r.Lease), record.Time(r.Lease)
		s.putHead(l, h)
		return true, nil
	}})
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
	return j.run(ctx, "append", lane, single{"append", Batch, func(s *store) (bool, error) {
		l := s.lane(lane)
		last := uint64(len(l.log))
		if b.Slot == 0 || b.Slot > last+1 {
			return false, fmt.Errorf("slot %d leaves a gap: the last one is %d", b.Slot, last)
		}
		if b.Slot <= last {
			if occupant := l.log[b.Slot-1]; occupant.ID != b.ID || occupant.Digest != b.Digest {
				return false, &journal.TakenError{Occupant: cloneBatch(occupant)}
			}
			return false, nil
		}
		l.log = append(l.log, cloneBatch(b))
		s.keep(l)
		return true, nil
	}})
}

// Park implements journal.Journal.
func (j *Journal) Park(ctx context.Context, r journal.ReleaseRequest) error {
	return j.run(ctx, "park", r.Lane, single{"park", Head, func(s *store) (bool, error) {
		l := s.lane(r.Lane)
		h := l.head
		switch {
		case r.To != journal.Idle && r.To != journal.Parked && r.To != journal.Ready:
			return false, fmt.Errorf("no release to state %q", r.To)
		case r.To != journal.Idle && r.Due.IsZero():
			return false, errNoDue
		case h.State != journal.Running || h.Epoch != r.Epoch || h.Owner != r.Owner:
			return false, journal.ErrFenced
		case r.To != journal.Ready && h.Version != r.Version:
			return false, journal.ErrRefused
		}
		s.putHead(l, released(h, r.To, r.Due, r.Drained))
		return true, nil
	}})
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
	return j.run(ctx, "finish", r.Lane, &Finishing{Request: r})
}

// Finishing is a Finish one item at a time: the head is read, the rows are
// looked at and settled one by one, the head is freed. A copy is the same call
// at the same point.
type Finishing struct {
	Request journal.FinishRequest

	looked bool
	rows   int // settled so far
}

// Step implements one step; see the package comment.
func (o *Finishing) Step(j *Journal) (done bool, err error) {
	switch {
	case !o.looked:
		o.looked = true
		err = j.locked(func(s *store) error {
			done, err = o.look(s)
			return err
		})
		return done, err
	case o.rows < len(o.Request.Outcomes):
		return false, j.item("finish", Outcome, o.settleRow)
	}
	return true, j.item("finish", Head, o.free)
}

// look refuses what can never be done and finds what is done already.
func (o *Finishing) look(s *store) (done bool, err error) {
	r := &o.Request
	switch {
	case r.To != journal.Idle && r.To != journal.Ready:
		return false, fmt.Errorf("no release to state %q", r.To)
	case r.To == journal.Ready && r.Due.IsZero():
		return false, errNoDue
	case s.lane(r.Lane).head.Settled >= r.Settled:
		return true, nil
	}
	for _, out := range r.Outcomes {
		if _, found := s.subs[key{r.Lane.Tenant, out.Run}]; !found {
			return false, fmt.Errorf("%w: run %s has no submission row", record.ErrCorrupt, out.Run)
		}
	}
	return false, nil
}

// settleRow gives the next row its outcome, if it has none.
func (o *Finishing) settleRow(s *store) (bool, error) {
	out := cloneSettled(o.Request.Outcomes[o.rows])
	o.rows++
	name := key{o.Request.Lane.Tenant, out.Run}
	sub := s.subs[name]
	if sub.Outcome != nil {
		return false, nil
	}
	sub.Outcome, sub.SettledAt = &out, record.Time(o.Request.At)
	s.subs[name] = sub
	return true, nil
}

// free moves settled and gives the lane back.
func (o *Finishing) free(s *store) (bool, error) {
	r := &o.Request
	l := s.lane(r.Lane)
	switch h := l.head; {
	case h.Settled >= r.Settled:
		return false, nil
	case h.Settled != r.Was, r.To == journal.Idle && h.Version != r.Version:
		return false, journal.ErrRefused
	default:
		h = released(h, r.To, r.Due, r.Drained)
		h.Settled = r.Settled
		s.putHead(l, h)
		return true, nil
	}
}

// Writes says whether the next step may write.
func (o *Finishing) Writes() bool { return o.looked }

// AtHead says that only the head is left.
func (o *Finishing) AtHead() bool { return o.looked && o.rows == len(o.Request.Outcomes) }

// Next says what the next step reads or writes.
func (o *Finishing) Next() string {
	switch {
	case !o.looked:
		return "read the head and the rows"
	case o.rows < len(o.Request.Outcomes):
		return fmt.Sprintf("settle the row of %s", o.Request.Outcomes[o.rows].Run)
	}
	return "free the lane: " + string(o.Request.To)
}

// AppendPosition appends to b how far the call is: two calls with the same
// arguments and the same position go on alike.
func (o *Finishing) AppendPosition(b []byte) []byte {
	return binary.AppendUvarint(append(b, flag(o.looked)), uint64(o.rows))
}

// PutPayload implements journal.Journal.
func (j *Journal) PutPayload(ctx context.Context, tenant, digest string, body []byte) error {
	lane := journal.Lane{Tenant: tenant, Conversation: digest}
	return j.run(ctx, "payload", lane, single{"payload", Payload, func(s *store) (bool, error) {
		if record.Digest(body) != digest {
			return false, fmt.Errorf("%w: the bytes have another digest", record.ErrCorrupt)
		}
		name := key{tenant, digest}
		if _, found := s.payloads[name]; found {
			return false, nil
		}
		s.payloads[name] = slices.Clone(body)
		return true, nil
	}})
}

// putHead writes a lane's head and wakes whoever watches.
func (s *store) putHead(l *lane, h journal.Head) {
	l.head = h
	s.keep(l)
	s.wake(h.Lane)
}
