package core

import (
	"slices"

	"github.com/layover-run/layover/core/record"
)

// drain turns every inbox entry on the desk into a record, in order. The log
// alone is history: an entry without effect is consumed by a record that says
// so, and never fails the lane (F14).
//
// It reports whether all of them are drained: what does not fit one batch stays
// on the desk, and nothing else is decided before it is in the log too.
func (p *planner) drain() bool {
	entries := p.d.entries
	p.d.entries = nil
	for i, e := range entries {
		if e.Slot <= p.s.Cursor {
			continue
		}
		if len(p.plan.Append) >= drainBatch {
			p.d.entries = entries[i:]
			return false
		}
		p.step("16 steering")
		switch cmd := e.Command.(type) {
		case Submit:
			p.drainSubmit(e, cmd.Submission)
		case Decide:
			p.drainDecision(e, cmd)
		case AbortRun:
			p.drainAbort(e, cmd)
		case Steer:
			p.drainSteering(e, cmd)
		case Resolve:
			p.drainResolution(e, cmd)
		case Late:
			p.drainLate(e, cmd)
		case Unreadable:
			p.ignore(e, cmd.What, clip(cmd.Reason))
		}
	}
	return true
}

// drainBatch bounds the records of one drain: far below what a batch holds.
const drainBatch = 100

func (p *planner) ignore(e InboxEntry, what, reason string) {
	p.emit(record.EntryIgnored{Entry: e.Slot, What: what, Reason: reason})
}

func (p *planner) drainSubmit(e InboxEntry, s Submission) {
	if p.s.queued(s.ID) >= 0 || p.s.Run != nil && (p.s.Run.ID == s.ID || slices.Contains(p.s.Run.Joined, s.ID)) {
		p.ignore(e, "submit", "already in the log")
		return
	}
	p.emit(record.SubmissionQueued{
		Entry: e.Slot, Submission: s.ID, Agent: s.Agent, Input: s.Input, Principal: s.Principal, ReplyTo: s.ReplyTo,
		Allowance: s.Allowance, FollowUp: s.FollowUp, Parent: s.Parent, AdmittedAt: s.AdmittedAt,
	})
}

// drainDecision takes the first decision about an approval, bound to the exact
// call; a later one, or one made after the expiry, has no effect.
func (p *planner) drainDecision(e InboxEntry, cmd Decide) {
	var c *Call
	if p.s.Run != nil {
		for i := range p.s.Run.Calls {
			if p.s.Run.Calls[i].Approval == cmd.Approval {
				c = &p.s.Run.Calls[i]
			}
		}
	}
	switch {
	case c == nil:
		p.ignore(e, "decision", "no such approval is pending")
	case c.Phase != Asked:
		p.ignore(e, "decision", "already decided")
	case cmd.ArgsDigest != "" && cmd.ArgsDigest != c.ArgsDigest:
		p.ignore(e, "decision", "made about other arguments")
	case !c.ExpiresAt.IsZero() && e.At.After(c.ExpiresAt):
		p.ignore(e, "decision", "made after the approval expired")
	default:
		decision := record.Denied
		if cmd.Approve {
			decision = record.Approved
		}
		p.emit(record.ApprovalResolved{Entry: e.Slot, Approval: c.Approval, Call: c.ID, Decision: decision,
			By: e.By, Reason: clip(cmd.Reason), At: record.Time(e.At)})
	}
}

func (p *planner) drainAbort(e InboxEntry, cmd AbortRun) {
	if p.s.Latest != nil && p.s.Latest.Run == cmd.Submission {
		p.ignore(e, "abort", "the run has already ended")
		return
	}
	if p.s.Run != nil && slices.Contains(p.s.Run.Joined, cmd.Submission) {
		p.ignore(e, "abort", "it has joined run "+p.s.Run.ID+" and ends with it")
		return
	}
	p.emit(record.AbortRequested{Entry: e.Slot, Submission: cmd.Submission, By: e.By, Reason: clip(cmd.Reason)})
}

// drainResolution takes an operator's answer about an unknown call. A negative
// answer is recorded at once and counts once the preparing invocation is
// certainly dead (F8); until then evidence that arrives late still beats it.
func (p *planner) drainResolution(e InboxEntry, cmd Resolve) {
	var c *Call
	if p.s.Run != nil && (cmd.Run == "" || cmd.Run == p.s.Run.ID) {
		c = p.s.Run.call(cmd.Call)
	}
	if c == nil || c.Phase != Unknown {
		p.ignore(e, "resolve", "no such call is unknown")
		return
	}
	p.emit(record.CallResolved{Entry: e.Slot, Call: c.ID, Resolution: cmd.Resolution, Source: "operator", By: e.By, Reason: clip(cmd.Reason)})
	if cmd.Resolution == record.Happened {
		p.emit(record.CallSettled{Call: c.ID, Outcome: record.Succeeded, Result: cmd.Result, Source: "operator"})
	}
}

func (p *planner) drainLate(e InboxEntry, cmd Late) {
	var c *Call
	if p.s.Run != nil && cmd.Run == p.s.Run.ID {
		c = p.s.Run.call(cmd.Call)
	}
	if c == nil || c.Phase == Settled || c.Starts == 0 || c.Operation != cmd.Operation {
		p.ignore(e, "late outcome", "the call is not open")
		return
	}
	p.emit(record.CallSettled{Entry: e.Slot, Call: c.ID, Outcome: cmd.Outcome, Result: cmd.Result, Tag: cmd.Tag,
		Source: "late", Duration: cmd.Duration})
}
