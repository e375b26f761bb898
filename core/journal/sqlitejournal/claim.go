package sqlitejournal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/layover-run/layover/core/failpoint"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var (
	pointClaimBefore  = failpoint.New("sqlite.claim.before")
	pointClaimAfter   = failpoint.New("sqlite.claim.after")
	pointParkBefore   = failpoint.New("sqlite.park.before")
	pointParkAfter    = failpoint.New("sqlite.park.after")
	pointFinishBefore = failpoint.New("sqlite.finish.before")
	pointFinishAfter  = failpoint.New("sqlite.finish.after")
)

var (
	errNoLease = errors.New("a claim needs a lease: a running lane must have a due time")
	errNoOwner = errors.New("a claim needs an owner: an id of this invocation alone")
	errNoDue   = errors.New("a lane that is not idle must have a due time")
)

// Claim implements journal.Journal.
func (j *Journal) Claim(ctx context.Context, r journal.ClaimRequest) (journal.Head, error) {
	if r.Lease.IsZero() {
		return journal.Head{}, failed("claim", r.Lane, errNoLease)
	}
	if r.Owner == "" {
		return journal.Head{}, failed("claim", r.Lane, errNoOwner)
	}
	r.Now, r.Lease = record.Time(r.Now), record.Time(r.Lease)
	c := &claim{ClaimRequest: r}
	pointClaimBefore.Hit()
	if err := j.do(ctx, c.run); err != nil {
		return journal.Head{}, failed("claim", r.Lane, err)
	}
	pointClaimAfter.Hit()
	return c.head, nil
}

type claim struct {
	journal.ClaimRequest
	head journal.Head
}

func (c *claim) run(t *tx) error {
	l, err := t.lane(c.Lane)
	if err != nil {
		return err
	}
	h := l.head
	if h.State == journal.Running && h.Owner == c.Owner {
		// An owner id claims once, so this is its own claim, answered again.
		c.head = h
		return nil
	}
	if !t.w.j.claimable(h, c.Now) {
		return journal.ErrNotClaimable
	}
	next := *l
	next.head.Epoch++
	next.head.Owner, next.head.Boot, next.head.State = c.Owner, c.Boot, journal.Running
	next.head.Lease, next.head.Due = c.Lease, c.Lease
	if err := t.putHead(l, &next); err != nil {
		return err
	}
	t.stage(c.Lane, l, next)
	c.head = next.head
	return nil
}

func (j *Journal) claimable(h journal.Head, now time.Time) bool {
	switch h.State {
	case journal.Ready:
		return true
	case journal.Running:
		return !h.Lease.After(now) || j.lostBoot(h)
	case journal.Parked:
		return !h.Due.After(now)
	}
	return false
}

// Park implements journal.Journal.
func (j *Journal) Park(ctx context.Context, r journal.ReleaseRequest) error {
	if r.To == journal.Idle {
		r.Due = time.Time{}
	} else if r.Due.IsZero() {
		return failed("park", r.Lane, errNoDue)
	}
	if r.To != journal.Idle && r.To != journal.Parked && r.To != journal.Ready {
		return failed("park", r.Lane, fmt.Errorf("no release to state %q", r.To))
	}
	r.Due = record.Time(r.Due)
	pointParkBefore.Hit()
	if err := j.do(ctx, (&park{r}).run); err != nil {
		return failed("park", r.Lane, err)
	}
	pointParkAfter.Hit()
	return nil
}

type park struct{ journal.ReleaseRequest }

func (p *park) run(t *tx) error {
	l, err := t.lane(p.Lane)
	if err != nil {
		return err
	}
	h := l.head
	switch {
	case h.State != journal.Running || h.Epoch != p.Epoch || h.Owner != p.Owner:
		return journal.ErrFenced
	case p.To != journal.Ready && h.Version != p.Version:
		return journal.ErrRefused
	}
	next := *l
	release(&next.head, p.To, p.Due, p.Drained)
	if err := t.putHead(l, &next); err != nil {
		return err
	}
	t.stage(p.Lane, l, next)
	return nil
}

// release gives a lane back. Owner and boot stay as evidence.
func release(h *journal.Head, to journal.State, due time.Time, drained uint64) {
	h.Version++
	h.State, h.Due, h.Lease = to, due, time.Time{}
	h.Drained = max(h.Drained, drained)
}

// Finish implements journal.Journal.
func (j *Journal) Finish(ctx context.Context, r journal.FinishRequest) error {
	f, err := newFinish(r)
	if err != nil {
		return failed("finish", r.Lane, err)
	}
	pointFinishBefore.Hit()
	if err := j.do(ctx, f.run); err != nil {
		return failed("finish", r.Lane, err)
	}
	pointFinishAfter.Hit()
	return nil
}

type finish struct {
	journal.FinishRequest
	outcomes [][]byte // encoded, in order of Outcomes
}

func newFinish(r journal.FinishRequest) (*finish, error) {
	switch {
	case r.To == journal.Idle:
		r.Due = time.Time{}
	case r.To != journal.Ready:
		return nil, fmt.Errorf("no release to state %q", r.To)
	case r.Due.IsZero():
		return nil, errNoDue
	}
	r.At, r.Due = record.Time(r.At), record.Time(r.Due)
	f := &finish{FinishRequest: r}
	for _, o := range r.Outcomes {
		b, err := encode(o)
		if err != nil {
			return nil, err
		}
		f.outcomes = append(f.outcomes, b)
	}
	return f, nil
}

func (f *finish) run(t *tx) error {
	l, err := t.lane(f.Lane)
	if err != nil {
		return err
	}
	if l.head.Settled >= f.Settled {
		return nil
	}
	if err := f.settleRows(t); err != nil {
		return err
	}
	// The rows stay settled when the head is refused: an outcome is decided in
	// the log and does not depend on who frees the lane.
	if l.head.Settled != f.Was || f.To == journal.Idle && l.head.Version != f.Version {
		return journal.ErrRefused
	}
	next := *l
	release(&next.head, f.To, f.Due, f.Drained)
	next.head.Settled = f.Settled
	if err := t.putHead(l, &next); err != nil {
		return err
	}
	t.stage(f.Lane, l, next)
	return nil
}

// settleRows writes the outcomes of rows that have none. It finds all rows
// before it writes the first.
func (f *finish) settleRows(t *tx) error {
	rows := make([]*subRow, len(f.Outcomes))
	for i, o := range f.Outcomes {
		row, err := t.sub(subKey{f.Lane.Tenant, o.Run})
		if err != nil {
			return err
		}
		if row == nil {
			return fmt.Errorf("%w: run %s has no submission row", record.ErrCorrupt, o.Run)
		}
		rows[i] = row
	}
	for i, row := range rows {
		if row.outcome != nil {
			continue
		}
		key := subKey{f.Lane.Tenant, row.sub.ID}
		if _, err := t.write(t.w.subSettle.blob(f.outcomes[i]).int(millis(f.At)).text(key.id).text(key.tenant)); err != nil {
			return err
		}
		settled := subRow{sub: row.sub, outcome: f.outcomes[i]}
		settled.sub.SettledAt = f.At
		t.subs[key] = &settled
	}
	return nil
}
