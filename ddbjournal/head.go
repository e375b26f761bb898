package ddbjournal

import (
	"context"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var pointBump = newPoint("bump")

// head is a lane head with what only this adapter keeps.
type head struct {
	journal.Head
	released string // nonce of the release that last gave the lane back
}

// headOf decodes a head; no item is a lane never used.
func headOf(it item, lane journal.Lane) (head, error) {
	if it == nil {
		return head{Head: journal.Head{Lane: lane, State: journal.Idle}}, nil
	}
	f, err := it.open(ofLane(lane))
	if err != nil {
		return head{}, err
	}
	f.need(needed...)
	h := head{released: f.text(attrReleased), Head: journal.Head{
		Lane: lane, Epoch: f.number(attrEpoch), Owner: f.text(attrOwner), Boot: f.text(attrBoot), State: journal.State(f.text(attrState)),
		Version: f.number(attrMoves), Due: f.time(AttrDue), Lease: f.time(attrLease), Settled: f.number(attrSettled), Drained: f.number(attrDrained),
	}}
	switch h.State {
	case journal.Running:
		f.need(AttrDue, AttrShard, attrLease, attrOwner)
	case journal.Ready, journal.Parked:
		f.need(AttrDue, AttrShard)
	case journal.Idle:
		if f.has(AttrDue) {
			f.fail(AttrDue, "stands on an idle lane")
		}
	default:
		f.fail(attrState, "is %q", h.State)
	}
	return h, f.err
}

func (j *Journal) head(ctx context.Context, lane journal.Lane) (head, error) {
	it, err := j.get(ctx, headKey(lane))
	if err != nil {
		return head{}, err
	}
	return headOf(it, lane)
}

// Head implements journal.Journal.
func (j *Journal) Head(ctx context.Context, lane journal.Lane) (journal.Head, error) {
	h, err := j.head(ctx, lane)
	return h.Head, failed("head", lane, err)
}

// Watch implements journal.Journal: one consistent read each Config.Watch, the
// first one interval from now, so that a short attempt pays for none.
func (j *Journal) Watch(ctx context.Context, lane journal.Lane, seen journal.Head) (journal.Head, error) {
	ticker := time.NewTicker(j.cfg.Watch)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return journal.Head{}, failed("watch", lane, ctx.Err())
		}
		h, err := j.head(ctx, lane)
		if err != nil || moved(seen, h.Head) {
			return h.Head, failed("watch", lane, err)
		}
	}
}

func moved(a, b journal.Head) bool {
	return a.Epoch != b.Epoch || a.State != b.State || a.Version != b.Version || a.Settled != b.Settled
}

// bumpFor bumps the head for an entry that this call has put, or for first,
// which was there: its writer may have died before its bump. One that the log
// already has needs none.
func (j *Journal) bumpFor(ctx context.Context, h head, first *entry, due time.Time) error {
	if first != nil && first.Slot <= h.Drained {
		return nil
	}
	return j.bump(ctx, h, due)
}

// bump is what every inbox writer does to the head once its entry is in: work
// waits, and the lane is looked at by due at the latest. A running owner sees
// the version move. h is the head as last read: which of the three updates is
// tried first. Repeating it moves the version once more, which harms nothing.
func (j *Journal) bump(ctx context.Context, h head, due time.Time) error {
	due = record.Time(due)
	for t := j.try(); ; {
		u := j.update(ctx, pointBump, bumpOf(h, due))
		if u.done || u.err != nil {
			return u.err
		}
		tried := h
		var err error
		if h, err = headOf(u.now, h.Lane); err != nil {
			return err
		}
		if !slices.Equal(bumpOf(tried, due).when, bumpOf(h, due).when) {
			continue // another state, another update
		}
		// The lane changed and changed back: others are at it.
		if err := t.again(ctx, "the head of a busy lane"); err != nil {
			return err
		}
	}
}

// bumpOf is the update that fits a head's state.
func bumpOf(h head, due time.Time) *change {
	c := newChange(headKey(h.Lane))
	c.next(attrMoves)
	known := c.knownHead(h.Lane)
	switch {
	case h.State == journal.Running, h.State == journal.Ready && !due.Before(h.Due):
		c.where(known)
		c.where("(" + c.is(attrState, text(string(journal.Running))) + " OR " +
			c.name(attrState) + " = " + c.value("ready", text(string(journal.Ready))) +
			" AND " + c.name(AttrDue) + " <= " + c.value("due", millis(due)) + ")")
	case h.State == journal.Ready:
		c.where(known)
		c.where(c.is(attrState, text(string(journal.Ready))))
		c.where(c.name(AttrDue) + " > " + c.value("due", millis(due)))
		c.to(AttrDue, millis(due))
	default: // idle, parked, or never used: then this makes the head
		c.where("(attribute_not_exists(" + c.name(AttrPartition) + ") OR " + known + " AND " + c.name(attrState) + " IN (" +
			c.value("idle", text(string(journal.Idle))) + ", " + c.value("parked", text(string(journal.Parked))) + "))")
		c.to(attrVersion, number(formatVersion))
		c.to(attrOf, text(ofLane(h.Lane)))
		for _, attr := range []string{attrEpoch, attrSettled, attrDrained} {
			c.start(attr, number(0))
		}
		c.to(attrState, text(string(journal.Ready)))
		c.due(h.Lane, due)
	}
	return c
}

// needed are the attributes every head has.
var needed = []string{attrEpoch, attrState, attrMoves, attrSettled, attrDrained}

func (c *change) knownHead(lane journal.Lane) string { return c.known(ofLane(lane), needed...) }

// due sets when a sweep looks at the lane: both keys of the index, or none.
func (c *change) due(lane journal.Lane, at time.Time) {
	if at.IsZero() {
		c.drop(AttrDue)
		c.drop(AttrShard)
		return
	}
	c.to(AttrDue, millis(at))
	c.to(AttrShard, text(shardOf(lane)))
}

// timeOrNil is a time as read, for a condition that it is still so.
func timeOrNil(t time.Time) types.AttributeValue {
	if t.IsZero() {
		return nil
	}
	return millis(t)
}
