package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/layover-run/layover/core/record"
)

// batch works on the open calls of the turn: decisions first, then what an
// earlier attempt left, then permits in declaration order.
func (p *planner) batch() {
	if p.approvals() {
		return
	}
	p.recoverCalls()
	if p.authorize() {
		return
	}
	blocked := p.startCalls()
	if len(p.s.Run.Calls) == 0 {
		p.afterBatch()
		return
	}
	if p.d.cancelled && len(p.d.running) == 0 && p.d.waitsForHost() {
		p.quiet() // nothing has begun: there is nothing to let finish
	}
	if !p.d.Busy() {
		p.restOpen(blocked)
	}
}

// afterBatch goes on to the seam when the plan closed the batch.
func (p *planner) afterBatch() {
	p.step("15 advance")
	p.turn()
}

// approvals settles what is decided and rests while something is not: no
// handler starts before every decision is known (CLS-04). True means the plan
// is complete.
func (p *planner) approvals() bool {
	r := p.s.Run
	asked := false
	var until time.Time
	for _, c := range slices.Clone(r.Calls) {
		if c.Phase != Asked {
			continue
		}
		if !c.ExpiresAt.IsZero() && !p.c.Now.Before(c.ExpiresAt) {
			p.emit(record.ApprovalResolved{Approval: c.Approval, Call: c.ID, Decision: record.Expired, At: record.Time(p.c.Now)})
			continue
		}
		asked, until = true, earliest(until, c.ExpiresAt)
	}
	if p.s.Run.Failing != nil {
		return true // asked again, the run ends
	}
	if asked {
		p.park(WaitApproval, earliest(until, r.Deadline))
		return true
	}
	for _, c := range slices.Clone(p.s.Run.Calls) {
		if c.Phase != Denied {
			continue
		}
		if t, ok := p.spec.Tool(c.Tool); ok && t.DenyFails {
			message := "the call of " + c.Tool + " was denied"
			if c.DecidedBy != "" {
				message += " by " + c.DecidedBy
			}
			if p.closeCalls() {
				p.fail(&record.Error{Kind: ApprovalDenied, Message: message})
			}
			return true
		}
		p.emit(denied(c))
	}
	return false
}

// recoverCalls decides what to do about calls that were prepared and have no
// outcome: the recovery rule of the execution classes.
func (p *planner) recoverCalls() {
	for _, c := range slices.Clone(p.s.Run.Calls) {
		mine := c.Prepared.Attempt == p.d.Attempt.ID
		switch {
		case c.Phase == Prepared && !mine && c.Class == record.Uncertain:
			p.recoverUncertain(c)
		case c.Phase == Unknown && c.UnknownAs != record.DefectOutcome:
			p.recoverUncertain(c)
		}
	}
}

// recoverUncertain asks the probe, believes a yes at once, a no only when the
// preparing invocation is certainly dead, and nothing else (F8).
func (p *planner) recoverUncertain(c Call) {
	t, _ := p.spec.Tool(c.Tool)
	// The handler of a timed-out call has returned, so its attempt is as good
	// as dead for this call.
	dead := certainlyDead(c.Prepared, p.d.Attempt, p.c) ||
		c.UnknownAs == record.TimeoutOutcome && c.Prepared.Attempt == p.d.Attempt.ID
	asked := p.d.probe(c.ID)
	if asked != nil && asked.answer != nil && dead && !asked.dead {
		p.d.forgetProbe(c.ID) // too early to be a no: ask again
		asked = nil
	}
	if t.Probe && (asked == nil || asked.answer == nil) {
		if asked == nil && !p.d.cancelled {
			p.d.probes = append(p.d.probes, probe{call: c.ID, dead: dead})
			p.d.pending["reconcile "+c.ID] = true
			p.then(Reconcile{Call: c.ID, Tool: c.Tool, Operation: c.Operation, Args: c.Args})
		}
		return
	}
	var answer Reconciled
	if asked != nil {
		answer, dead = *asked.answer, asked.dead
	}
	switch {
	case answer.Resolution == record.Happened:
		p.emit(record.CallResolved{Call: c.ID, Resolution: record.Happened, Source: "probe"})
		p.emit(record.CallSettled{Call: c.ID, Outcome: answer.Outcome, Result: answer.Result, Source: "probe"})
	case answer.Resolution != "" && c.UnknownAs == record.TimeoutOutcome && dead:
		// It did not happen; a handler failure is never retried (RET-02).
		p.emit(record.CallResolved{Call: c.ID, Resolution: answer.Resolution, Source: "probe"})
		p.emit(record.CallSettled{Call: c.ID, Outcome: record.Failed, Tag: "timeout", Source: "probe",
			Result: failure("timeout", "the tool did not finish in time; it had no effect")})
	case answer.Resolution != "" && dead:
		p.emit(record.CallResolved{Call: c.ID, Resolution: answer.Resolution, Source: "probe"})
	case c.Phase == Prepared:
		p.emit(record.CallUnknown{Call: c.ID, Reason: record.LostOutcome})
	}
}

// start prepares a call and proposes its handler in the same plan: prepared is
// durable before the handler starts, in the invocation that wrote it.
func (p *planner) start(c Call, t ToolSpec) {
	operation := c.Operation
	if operation == "" {
		operation = fmt.Sprintf("%s.%d.%d", p.s.Run.ID, p.s.Run.Turn, p.index(c.ID))
	}
	p.step("13 run")
	p.emit(record.CallPrepared{Call: c.ID, Operation: operation})
	p.d.running = append(p.d.running, c.ID)
	p.d.acquiring = slices.DeleteFunc(p.d.acquiring, func(id string) bool { return id == c.ID })
	p.d.forgetProbe(c.ID)
	p.then(StartTool{Call: c.ID, Tool: c.Tool, Operation: operation, Args: c.Args, Steps: slices.Clone(c.Steps), Timeout: t.Timeout})
}

func (p *planner) index(id string) int {
	return slices.IndexFunc(p.s.Run.Calls, func(c Call) bool { return c.ID == id })
}

// restOpen rests with calls open and nothing running.
func (p *planner) restOpen(blocked string) {
	var due, since time.Time
	unknown := false
	for _, c := range p.s.Run.Calls {
		switch {
		case c.Phase == Unknown:
			unknown, since = true, c.UnknownAt
			due = earliest(due, deadAt(c.Prepared, p.c))
		case c.Phase == Declared && c.Starts > 0:
			unknown, since = true, c.UnknownAt
			due = earliest(due, deadAt(c.Prepared, p.c))
		}
	}
	switch {
	case unknown && blocked != "time" && blocked != "stop":
		if !due.After(p.c.Now) {
			due = p.recheck(since)
		}
		p.park(WaitUnknown, earliest(due, p.s.Run.Deadline))
	default:
		p.yield()
	}
}
