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
	pointSettle = newPoint("settle")
	pointFinish = newPoint("finish")
)

// Finish implements journal.Journal. The rows stay settled when the head is
// refused: an outcome is decided in the log, not by who frees the lane.
func (j *Journal) Finish(ctx context.Context, r journal.FinishRequest) error {
	return failed("finish", r.Lane, j.finish(ctx, r))
}

func (j *Journal) finish(ctx context.Context, r journal.FinishRequest) error {
	switch {
	case r.To == journal.Idle:
		r.Due = time.Time{}
	case r.To != journal.Ready:
		return fmt.Errorf("no release to state %q", r.To)
	case r.Due.IsZero():
		return errNoDue
	}
	h, err := j.head(ctx, r.Lane)
	if err != nil || h.Settled >= r.Settled {
		return err
	}
	for _, o := range r.Outcomes {
		if err := j.settle(ctx, r.Lane.Tenant, o, r.At); err != nil {
			return err
		}
	}
	c := releaseOf(r.Lane, r.To, r.Due, r.Drained)
	c.where(c.is(attrSettled, number(r.Was)))
	if r.To == journal.Idle {
		c.where(c.is(attrMoves, number(r.Version)))
	}
	c.to(attrSettled, number(r.Settled))
	u := j.update(ctx, pointFinish, c)
	if u.done || u.now == nil && u.err != nil {
		return u.err
	}
	h, err = headOf(u.now, r.Lane)
	switch {
	case err != nil:
		return errors.Join(u.err, err)
	case h.Settled >= r.Settled:
		return nil
	case u.err != nil:
		return u.err
	}
	return journal.ErrRefused
}

// settle writes an outcome into its row, once: an outcome already there stays.
func (j *Journal) settle(ctx context.Context, tenant string, o record.RunSettled, at time.Time) error {
	at = record.Time(at)
	c := newChange(rowKey(tenant, o.Run))
	c.where(c.known(ownerOf(tenant, o.Run), attrTail, attrConversation))
	c.where("attribute_not_exists(" + c.name(attrSettledAt) + ")")
	c.where("attribute_not_exists(" + c.name(attrWithdrew) + ")")
	body, err := encode(o)
	if err != nil {
		return err
	}
	values := item{}
	if ref := values.setLarge(attrOutcome, body); ref != nil {
		if err := j.putPayload(ctx, tenant, ref.SHA256, body); err != nil {
			return err
		}
	}
	for attr, v := range values {
		c.to(attr, v)
	}
	c.to(attrSettledAt, millis(at))
	if j.cfg.Retention > 0 {
		c.to(AttrExpiry, seconds(at.Add(j.cfg.Retention)))
	}
	u := j.update(ctx, pointSettle, c)
	switch {
	case u.done:
		return nil
	case u.now == nil && u.err != nil:
		return u.err
	case u.now == nil:
		return fmt.Errorf("%w: run %s has no submission row", record.ErrCorrupt, o.Run)
	}
	known, err := rowOf(u.now, tenant, o.Run)
	switch {
	case err != nil:
		return errors.Join(u.err, err)
	case !known.sub.SettledAt.IsZero():
		return nil
	case u.err != nil:
		return u.err
	}
	return &StoreError{Err: fmt.Errorf("row %s refused its outcome", o.Run)}
}
