package core

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/layover-run/layover/core/record"
)

// Ledger is what a store keeps of a conversation beside its log, read after the
// log: the head, then the inbox, then the rows.
type Ledger struct {
	Head  LaneHead
	Inbox []InboxSlot // from slot 1
	Rows  []Row       // of Checker.Submissions
}

// LaneHead is the head of a lane.
type LaneHead struct {
	Epoch   uint64
	State   string // idle, ready, running, parked
	Due     time.Time
	Lease   time.Time
	Settled uint64
	Drained uint64
}

// InboxSlot is one inbox entry: Key and Ref say what it is about.
type InboxSlot struct {
	Slot     uint64
	Kind     string
	Key, Ref string
}

// Row is one submission's row. Problem says why it cannot be had; then only
// Submission is set beside it.
type Row struct {
	Submission   string
	Problem      string
	Missing      bool
	Conversation string
	Outcome      *record.RunSettled
}

const (
	laneIdle, laneRunning, laneParked = "idle", "running", "parked"
	entrySubmit                       = "submit"
)

// Ledger checks what is kept beside the log against the log. It is called once,
// after the last batch.
func (c *Checker) Ledger(l Ledger) {
	if c.open != "" {
		c.counters(c.batches, c.open)
	}
	c.inbox(l.Inbox)
	if !c.head(l.Head) {
		return
	}
	c.rest(l.Head, len(l.Inbox)-int(min(c.cursor, uint64(len(l.Inbox)))))
	for _, row := range l.Rows {
		c.row(row, l.Head.Settled)
	}
}

// consumes says what an entry of each kind may become. A kind that is missing
// here is of a later build.
var consumes = map[string][]record.Kind{
	entrySubmit:   {record.KindSubmissionQueued},
	"decision":    {record.KindApprovalResolved},
	"abort":       {record.KindAbortRequested},
	"resolve":     {record.KindCallResolved},
	"lateOutcome": {record.KindCallSettled},
	"steer":       {record.KindSteeringQueued, record.KindSteeringDropped},
	"child":       {record.KindChildSettled},
}

// inbox holds what the log consumed against what stands in the inbox.
func (c *Checker) inbox(entries []InboxSlot) {
	for i, e := range entries {
		if e.Slot != uint64(i)+1 {
			c.report(RuleInbox, 0, "inbox entry %d stands where entry %d belongs", e.Slot, i+1)
			return
		}
	}
	for _, d := range c.drained {
		if d.entry > uint64(len(entries)) {
			c.report(RuleInbox, d.slot, "slot %d consumes inbox entry %d, and the inbox ends at %d", d.slot, d.entry, len(entries))
			return
		}
		c.consumed(d, entries[d.entry-1])
	}
}

func (c *Checker) consumed(d drained, e InboxSlot) {
	queued, isSubmission := d.record.(record.SubmissionQueued)
	decided, isDecision := d.record.(record.ApprovalResolved)
	fits := d.record.Kind() == record.KindEntryIgnored
	for _, k := range consumes[e.Kind] {
		fits = fits || d.record.Kind() == k
	}
	switch {
	case consumes[e.Kind] == nil && fits:
	case !fits, isSubmission && queued.Submission != e.Ref, isDecision && decided.Approval != e.Key:
		c.report(RuleInbox, d.slot, "slot %d consumes inbox entry %d as %s, and it is a %s of %s", d.slot, d.entry, d.record.Kind(), e.Kind, e.Key)
	case e.Kind == entrySubmit && c.runs[e.Ref] == nil:
		c.report(RuleInbox, d.slot, "slot %d passes over submission %s, which was accepted", d.slot, e.Ref)
	}
}

// head holds the head against the log. False means that the log ends before
// what the head has seen: how the lane rests, and what its rows say, cannot be
// judged then.
func (c *Checker) head(h LaneHead) bool {
	switch {
	case h.Epoch < c.epoch:
		c.report(RuleHead, 0, "the head is at epoch %d, the log at %d", h.Epoch, c.epoch)
	case h.Settled > c.batches:
		c.report(RuleHead, 0, "the head knows of slot %d, and the log ends at %d", h.Settled, c.batches)
	case h.State == laneIdle && h.Epoch > c.epoch && !c.left(h):
		c.report(RuleHead, 0, "the lane is idle at epoch %d, and the log ends in epoch %d", h.Epoch, c.epoch)
		return false
	case h.Drained > c.cursor:
		c.report(RuleHead, 0, "the head says inbox entry %d is in the log, which ends at entry %d", h.Drained, c.cursor)
	default:
		c.handedOver(h)
	}
	return true
}

// left reports the one way in which an attempt ends without a batch: it found
// an outcome not handed over, and left it to settle.
func (c *Checker) left(h LaneHead) bool {
	return len(c.terminals) > 0 && c.terminals[len(c.terminals)-1].slot == c.batches && h.Settled == c.batches
}

// handedOver holds the settled slot against the terminal records: it is that of
// one of them, and at most one waits behind it.
func (c *Checker) handedOver(h LaneHead) {
	known, waits := h.Settled == 0, 0
	for _, t := range c.terminals {
		known = known || t.slot == h.Settled
		if t.slot > h.Settled {
			waits++
		}
	}
	switch {
	case !known:
		c.report(RuleHead, h.Settled, "the head says the outcome in slot %d is handed over, and no run ends there", h.Settled)
	case waits > 1:
		c.report(RuleHead, 0, "%d outcomes wait to be handed over; behind the first of them no run may open", waits)
	}
}

// rest holds the lane's state against what there is to do.
func (c *Checker) rest(h LaneHead, unread int) {
	pending := len(c.terminals) > 0 && c.terminals[len(c.terminals)-1].slot > h.Settled
	if pending && (h.State == laneIdle || h.State == laneParked) {
		c.report(RuleIdle, 0, "the lane is %s and the outcome in slot %d was not handed over", h.State, c.terminals[len(c.terminals)-1].slot)
	}
	if h.State == laneIdle && (c.open != "" || len(c.waiting) > 0) {
		c.report(RuleIdle, 0, "the lane is idle with an open run or queued work")
	}
	if unread > 0 && (h.State == laneIdle || h.State == laneParked) {
		c.report(RuleIdle, 0, "the lane is %s with %d unread inbox entries", h.State, unread)
	}
	switch {
	case h.State != laneIdle && h.Due.IsZero():
		c.report(RuleDue, 0, "the lane is %s and has no due time", h.State)
	case h.State == laneRunning && h.Lease.IsZero():
		c.report(RuleDue, 0, "the lane is running without a lease")
	}
}

// row holds one submission's row against its terminal record.
func (c *Checker) row(row Row, settled uint64) {
	var end *terminal
	for i := range c.terminals {
		if c.terminals[i].record.Run == row.Submission {
			end = &c.terminals[i]
		}
	}
	for i := range c.hosted {
		if c.hosted[i].record.Run == row.Submission {
			end = &c.hosted[i]
		}
	}
	switch {
	case row.Missing && end != nil:
		c.report(RuleRow, 0, "submission %s settled but has no row", row.Submission)
	case row.Missing:
		c.report(RuleRow, 0, "submission %s was accepted but has no row", row.Submission)
	case row.Problem != "":
		c.report(RuleRow, 0, "the row of submission %s cannot be read: %s", row.Submission, row.Problem)
	case row.Conversation != c.conversation:
		c.report(RuleRow, 0, "the row of submission %s belongs to conversation %q", row.Submission, row.Conversation)
	case end == nil && row.Outcome != nil:
		c.report(RuleRow, 0, "submission %s has not settled and its row says %s", row.Submission, row.Outcome.Status)
	case end != nil && row.Outcome == nil && end.slot <= settled, end != nil && row.Outcome == nil && end.slot != c.last().slot:
		c.report(RuleRow, 0, "submission %s settled as %s but its row does not say so", row.Submission, end.record.Status)
	case end != nil && row.Outcome != nil && row.Outcome.Status != end.record.Status:
		c.report(RuleRow, 0, "submission %s settled as %s but its row says %s", row.Submission, end.record.Status, row.Outcome.Status)
	case end != nil && row.Outcome != nil && !sameOutcome(*row.Outcome, end.record):
		c.report(RuleRow, 0, "the row of submission %s tells another outcome than slot %d", row.Submission, end.slot)
	}
}

func (c *Checker) last() *terminal { return &c.terminals[len(c.terminals)-1] }

func sameOutcome(a, b record.RunSettled) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}
