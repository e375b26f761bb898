package ddbjournal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var (
	pointClaim   = newPoint("claim")
	pointRelease = newPoint("release")
)

var (
	errNoLease = errors.New("a claim needs a lease: a running lane must have a due time")
	errNoDue   = errors.New("a lane that is not idle must have a due time")
)

// Claim implements journal.Journal.
func (j *Journal) Claim(ctx context.Context, r journal.ClaimRequest) (journal.Head, error) {
	h, err := j.claim(ctx, r)
	if err != nil {
		return journal.Head{}, failed("claim", r.Lane, err)
	}
	return h, nil
}

func (j *Journal) claim(ctx context.Context, r journal.ClaimRequest) (journal.Head, error) {
	if r.Lease.IsZero() || r.Owner == "" {
		return journal.Head{}, errNoLease
	}
	r.Now, r.Lease = record.Time(r.Now), record.Time(r.Lease)
	h, err := j.head(ctx, r.Lane)
	if err != nil {
		return journal.Head{}, err
	}
	for t := j.try(); ; {
		// An owner id claims once, so a running lane of this owner is its own
		// claim, whose answer was lost (F4).
		if h.State == journal.Running && h.Owner == r.Owner {
			return h.Head, nil
		}
		if !claimable(h.Head, r.Now) {
			return journal.Head{}, journal.ErrNotClaimable
		}
		u := j.update(ctx, pointClaim, claimOf(h, r))
		if u.now == nil && u.err != nil {
			return journal.Head{}, u.err
		}
		was := h.Epoch
		if h, err = headOf(u.now, r.Lane); err != nil {
			return journal.Head{}, errors.Join(u.err, err)
		}
		mine := h.State == journal.Running && h.Owner == r.Owner && h.Epoch == was+1
		switch {
		case u.done || mine:
			return h.Head, nil
		case u.err != nil:
			return journal.Head{}, u.err
		case h.Epoch > was:
			return journal.Head{}, journal.ErrNotClaimable
		}
		if err := t.again(ctx, "the head of a busy lane"); err != nil {
			return journal.Head{}, err
		}
	}
}

func claimable(h journal.Head, now time.Time) bool {
	switch h.State {
	case journal.Ready:
		return true
	case journal.Running:
		return !h.Lease.After(now)
	case journal.Parked:
		return !h.Due.After(now)
	}
	return false
}

// claimOf raises the epoch while epoch, state, lease and, of a parked lane, the
// due time are as read. The version may move meanwhile: it is in the answer.
func claimOf(h head, r journal.ClaimRequest) *change {
	c := newChange(headKey(r.Lane))
	c.where(c.knownHead(r.Lane))
	c.where(c.is(attrEpoch, number(h.Epoch)))
	c.where(c.is(attrState, text(string(h.State))))
	c.where(c.same(attrLease, timeOrNil(h.Lease)))
	if h.State == journal.Parked {
		c.where(c.is(AttrDue, millis(h.Due)))
	}
	c.to(attrEpoch, number(h.Epoch+1))
	c.toText(attrOwner, r.Owner)
	c.toText(attrBoot, r.Boot)
	c.to(attrState, text(string(journal.Running)))
	c.to(attrLease, millis(r.Lease))
	c.due(r.Lane, r.Lease)
	return c
}

// Park implements journal.Journal. Owner and boot stay behind as evidence, and
// so does the nonce of this call: with it a release whose answer was lost is
// known again even after the next bump.
func (j *Journal) Park(ctx context.Context, r journal.ReleaseRequest) error {
	return failed("park", r.Lane, j.park(ctx, r))
}

func (j *Journal) park(ctx context.Context, r journal.ReleaseRequest) error {
	switch {
	case r.To != journal.Idle && r.To != journal.Parked && r.To != journal.Ready:
		return fmt.Errorf("no release to state %q", r.To)
	case r.To == journal.Idle:
		r.Due = time.Time{}
	case r.Due.IsZero():
		return errNoDue
	}
	mark := nonce()
	c := releaseOf(r.Lane, r.To, r.Due, r.Drained)
	c.where(c.is(attrEpoch, number(r.Epoch)))
	c.where(c.is(attrOwner, text(r.Owner)))
	c.where(c.is(attrState, text(string(journal.Running))))
	if r.To != journal.Ready {
		c.where(c.is(attrMoves, number(r.Version)))
	}
	c.to(attrReleased, text(mark))
	u := j.update(ctx, pointRelease, c)
	if u.done || u.now == nil && u.err != nil {
		return u.err
	}
	h, err := headOf(u.now, r.Lane)
	switch {
	case err != nil:
		return errors.Join(u.err, err)
	case h.released == mark:
		return nil
	case u.err != nil:
		return u.err
	case h.State == journal.Running && h.Epoch == r.Epoch && h.Owner == r.Owner:
		return journal.ErrRefused
	}
	return journal.ErrFenced
}

// releaseOf gives a lane back.
func releaseOf(lane journal.Lane, to journal.State, due time.Time, drained uint64) *change {
	c := newChange(headKey(lane))
	c.where(c.knownHead(lane))
	c.next(attrMoves)
	c.to(attrState, text(string(to)))
	c.to(attrDrained, number(drained))
	c.drop(attrLease)
	c.due(lane, record.Time(due))
	return c
}
