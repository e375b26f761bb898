package core

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/layover-run/layover/core/record"
)

// mustEnd reports whether the run ends whatever its calls still do: aborted,
// past its deadline, over its events, or hit by a defect outside any tool.
func (p *planner) mustEnd() bool {
	r := p.s.Run
	return r != nil && (r.Abort != nil || !p.c.Now.Before(r.Deadline) || p.d.faulted != nil || p.d.exceeded != nil)
}

// ending settles a run that something outside the turn loop ends. True means
// the plan is complete.
func (p *planner) ending() bool {
	r := p.s.Run
	settled := record.RunSettled{Status: record.StatusFailed}
	switch {
	case r.Abort != nil:
		settled.Status, settled.Error = record.StatusAborted, abortError(*r.Abort)
	case p.d.faulted != nil:
		settled.Error = &record.Error{Kind: Defect, Message: "a defect in " + p.d.faulted.Where + " ended the run",
			Hint: "the stack is in the server's log"}
	case p.d.exceeded != nil:
		settled.Error = &record.Error{Kind: ModelProtocolError, Message: fmt.Sprintf("the run made more than %d events", p.d.exceeded.Limit),
			Hint: "give the run less to do"}
	case !p.c.Now.Before(r.Deadline):
		settled.PolicyLimit = DimDuration
		settled.Error = policyError(DimDuration, fmt.Sprintf("the run passed its wall-clock limit of %s", r.Deadline.Sub(r.StartedAt)))
	case p.d.unanswered() != nil:
		settled.Error = p.d.unanswered()
	case r.Failing != nil:
		settled.Error = r.Failing
	case p.d.Attempt.Epoch-r.BaseEpoch >= MaxAttempts:
		settled.Error = &record.Error{Kind: AttemptLimit, Message: fmt.Sprintf("the run was claimed %d times without ending", MaxAttempts),
			Hint: "look at its records for attempts that do nothing; then submit again"}
	default:
		return false
	}
	// A typed failure lets siblings that have started finish: cancelling them
	// would only make unknown outcomes (D-25).
	if !p.mustEnd() && len(p.d.running) > 0 {
		return true
	}
	if !p.quiet() {
		return true
	}
	// What became of a lost call is asked also for a run that ends: it may save
	// a person the question.
	if p.spec != nil && p.spec.Agent == r.Agent {
		if p.recoverCalls(); p.d.Busy() {
			return true
		}
	}
	if !p.closeCalls() {
		return true
	}
	p.settle(settled)
	return true
}

// closeCalls settles the open calls of a run that ends. An uncertain call
// without an outcome keeps the run open: false, and the plan parks (D-33, D-44).
func (p *planner) closeCalls() bool {
	var unknown []Call
	for _, c := range append([]Call(nil), p.s.Run.Calls...) {
		switch {
		case c.Phase == Settled:
		case c.Phase == Unknown:
			unknown = append(unknown, c)
		case c.Phase == Prepared && c.Class == record.Uncertain:
			p.emit(record.CallUnknown{Call: c.ID, Reason: record.LostOutcome})
			unknown = append(unknown, c)
		case c.Starts > 0:
			p.emit(record.CallSettled{Call: c.ID, Outcome: record.Interrupted, Result: failure("interrupted", "the run ended before the tool did")})
		case c.Phase == Denied:
			p.emit(denied(c))
		}
	}
	if len(unknown) > 0 {
		p.park(WaitUnknown, p.recheck(unknown[0].UnknownAt))
		return false
	}
	for _, c := range append([]Call(nil), p.s.Run.Calls...) {
		if c.Phase != Settled {
			p.emit(record.CallSettled{Call: c.ID, Outcome: record.Interrupted, Synthetic: record.RunEnding,
				Result: failure("not-executed", "the run ended before the tool was started")})
		}
	}
	return true
}

// settle appends the one terminal record.
func (p *planner) settle(s record.RunSettled) {
	r := p.s.Run
	s.Run, s.Attempts, s.Turns, s.Queued = r.ID, r.Attempts, r.Turn, p.queuedAfter(0)
	s.Usage, s.Joined = r.Usage, slices.Clone(r.Joined)
	if p.d.response != nil { // paid for, though never recorded
		s.Usage = s.Usage.Add(p.d.response.Usage)
	}
	if s.Error != nil {
		clipped := *s.Error
		clipped.Message, clipped.Hint = clip(clipped.Message), clip(clipped.Hint)
		s.Error = &clipped
	}
	p.step("19 next")
	p.dropSteering(r.ID, "the run ended before another request")
	p.emit(s)
}

// fail settles the run as failed.
func (p *planner) fail(err *record.Error) {
	p.settle(record.RunSettled{Status: record.StatusFailed, Error: err})
}

// failPolicy settles the run as failed at a policy limit.
func (p *planner) failPolicy(dimension, message string) {
	p.settle(record.RunSettled{Status: record.StatusFailed, PolicyLimit: dimension, Error: policyError(dimension, message)})
}

func policyError(dimension, message string) *record.Error {
	return &record.Error{Kind: record.PolicyError, Limit: dimension, Message: message,
		Hint: "raise the agent's " + dimension + " limit, or give the run less to do"}
}

// clip bounds text that a record holds inline, at a rune border: a provider or
// a schema may have a lot to say, a batch has room for a page.
func clip(s string) string {
	const limit = 4 << 10
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

func abortError(a Abort) *record.Error {
	message := "aborted by " + a.By
	if a.Reason != "" {
		message += ": " + a.Reason
	}
	return &record.Error{Kind: "Aborted", Message: message}
}

// failure is a failed result as the model sees it.
func failure(tag, message string) record.Value {
	return record.MustValue(map[string]any{"error": map[string]string{"tag": tag, "message": message}})
}

func denied(c Call) record.CallSettled {
	message := "a person denied this call"
	if c.Reason != "" {
		message += ": " + c.Reason
	}
	return record.CallSettled{Call: c.ID, Outcome: record.DeniedCall, Synthetic: record.NotApproved, Tag: "denied",
		Result: failure("denied", message)}
}

// held keeps a run for a build that can work on it: its definition is not in
// this build, or has changed in a way its open calls depend on (D-45). True
// means the plan is complete.
func (p *planner) held() bool {
	r := p.s.Run
	detail := p.incompatible()
	if detail == "" {
		if r.Held != nil {
			p.emit(record.RunReleased{Reason: "this build can go on"})
		}
		return false
	}
	if !p.quiet() {
		return true
	}
	if r.Held == nil {
		p.emit(record.RunHeld{Reason: "definition", Detail: detail})
		return true
	}
	p.park(WaitHeld, earliest(p.recheck(r.HeldAt), r.Deadline))
	return true
}

// incompatible says why this build must not work on the run, or nothing. A run
// may go on under a changed definition as long as every call it has open means
// the same tool as before: nothing is replayed, so nothing else can differ.
func (p *planner) incompatible() string {
	r := p.s.Run
	if p.spec == nil || p.spec.Agent != r.Agent {
		return "agent " + r.Agent + " is not in this build"
	}
	if p.spec.Digest == r.Definition {
		return ""
	}
	for _, c := range r.Calls {
		if t, ok := p.spec.Tool(c.Tool); c.Phase != Settled && (!ok || t.Version != c.Version || t.Class != c.Class) {
			return "tool " + c.Tool + " of an open call is missing or has another version or class in this build"
		}
	}
	return ""
}
