package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/layover-run/layover/core/record"
)

// Limits of the transitions themselves.
const (
	// MaxAttempts ends a run that only ever gets claimed (F11).
	MaxAttempts = 1000
	// MaxBackoffs ends a run whose model stays unavailable.
	MaxBackoffs = 10
	// YieldMargin is kept free before an invocation ends.
	YieldMargin = 10 * time.Second
	// MaxBatchCalls is how many calls one response may declare: a response and
	// what is decided about it have to fit one batch.
	MaxBatchCalls = 100
)

// Next answers what to persist, what to do after that, and how to go on. With
// an empty Desk it is the recovery decision: there is no other classifier.
// Equal inputs give equal plans, byte for byte. Next marks on the Desk what it
// proposes, so that nothing is proposed twice.
//
// spec is the definition of the run in hand, or nil when this build has none.
func Next(spec *Spec, s *State, d *Desk, c Clock) Plan {
	d.absorbed = nil // asked again: what the last plan held is recorded
	p := &planner{spec: spec, s: s, d: d, c: c}
	p.decide()
	return p.plan
}

// Wanted names the agent whose Spec the next plan needs: that of the active
// run, else of the first queued submission.
func Wanted(s *State, d *Desk) (agent, definition string, ok bool) {
	if s.Run != nil {
		return s.Run.Agent, s.Run.Definition, true
	}
	if len(s.Queue) > 0 {
		return s.Queue[0].Agent, "", true
	}
	for _, e := range d.entries {
		if submit, is := e.Command.(Submit); is && e.Slot > s.Cursor {
			return submit.Submission.Agent, "", true
		}
	}
	return "", "", false
}

// planner builds one plan. Records it emits are folded into a fork of the
// state at once, so that every decision sees the decisions before it.
type planner struct {
	spec   *Spec
	s      *State
	d      *Desk
	c      Clock
	forked bool
	plan   Plan
}

// emit adds a record to the plan's batch and folds it. A record the fold
// refuses is a defect of the transitions and stops the attempt loudly.
func (p *planner) emit(r record.Record) {
	if !p.forked {
		p.s, p.forked = p.s.fork(), true
	}
	env := Envelope{Slot: p.s.Slot + 1, Epoch: p.d.Attempt.Epoch, Attempt: p.d.Attempt.ID, At: record.Time(p.c.Now)}
	if err := Reduce(p.s, env, r); err != nil {
		panic(fmt.Sprintf("core: planned %s: %v", r.Kind(), err))
	}
	p.plan.Append = append(p.plan.Append, r)
}

func (p *planner) then(e Effect) { p.plan.Then = append(p.plan.Then, e) }

// single proposes an effect of which only one runs at a time.
func (p *planner) single(name string, e Effect) {
	if !p.d.pending[name] {
		p.d.pending[name] = true
		p.then(e)
	}
}

// step labels the plan, once for each label and turn.
func (p *planner) step(label string) {
	turn := -1
	if p.s.Run != nil {
		turn = p.s.Run.Turn
	}
	if p.d.turn != turn {
		p.d.turn, p.d.labels = turn, nil
	}
	if !slices.Contains(p.d.labels, label) {
		p.d.labels = append(p.d.labels, label)
		p.plan.Steps = append(p.plan.Steps, label)
	}
}

// wait rests until a fact, or until the run's deadline or the end of the
// invocation.
func (p *planner) wait() {
	wake := time.Time{}
	if p.s.Run != nil && p.c.Now.Before(p.s.Run.Deadline) {
		wake = p.s.Run.Deadline
	}
	if end := p.c.InvocationEnd.Add(-YieldMargin); p.c.Now.Before(end) {
		wake = earliest(wake, end)
	}
	p.plan.Rest = Rest{Kind: RestWait, Wake: wake}
}

func (p *planner) decide() {
	p.wait()
	if p.s.Terminal > p.d.Attempt.Settled {
		p.handOver()
		return
	}
	if !p.d.looked || p.d.woken {
		p.look()
		if !p.d.looked {
			return
		}
	}
	p.open()
	if !p.drain() {
		return
	}
	p.absorb()
	if p.s.Run == nil && !p.startRun() {
		return
	}
	if p.ending() || p.held() {
		return
	}
	if len(p.s.Run.Calls) > 0 {
		p.batch()
		return
	}
	p.turn()
}

// handOver stops at a terminal record: nothing may be decided behind it until
// settle has told everybody (F3d).
func (p *planner) handOver() {
	if p.quiet() {
		p.plan.Rest = Rest{Kind: RestDone}
	}
}

// quiet reports that no effect runs, and asks for an end of those that do. A
// look at the inbox ends by itself.
func (p *planner) quiet() bool {
	if !p.d.Busy() {
		return true
	}
	if !p.d.stopping && len(p.d.running)+len(p.d.pending) > 0 {
		p.d.stopping = true
		p.then(StopEffects{})
	}
	return false
}

func (p *planner) look() {
	if p.d.looking {
		return
	}
	p.d.looking, p.d.woken = true, false
	p.d.seam = 0
	if r := p.s.Run; r != nil {
		if p.d.seam = r.Turn; len(r.Calls) > 0 {
			p.d.seam-- // the seam of this turn is still ahead
		}
	}
	p.then(ReadInbox{After: p.s.Cursor})
}

// open writes the attempt's first record, before any other write or effect.
func (p *planner) open() {
	if p.s.Epoch >= p.d.Attempt.Epoch {
		return
	}
	start := record.AttemptStarted{Boot: p.d.Attempt.Boot}
	if !p.c.InvocationEnd.IsZero() {
		start.Until = record.Time(p.c.InvocationEnd)
	}
	if p.s.Run != nil && p.spec != nil {
		start.Definition = p.spec.Digest
	}
	p.emit(start)
}

// absorb records what ended: steps, and results in the order they ended (D-54).
func (p *planner) absorb() {
	steps := p.d.steps
	p.d.steps = nil
	for _, st := range steps {
		if c := p.openCall(st.Call); c != nil {
			p.emit(record.StepRecorded{Call: st.Call, Step: st.Step, Result: st.Result})
		}
		p.then(AckStep{Call: st.Call, Step: st.Step})
	}
	for _, e := range p.d.takeEnded() {
		c := p.openCall(e.Call)
		switch {
		case c == nil:
			// Settled by a late outcome or an operator meanwhile: the first wins.
		case e.NotStarted:
			p.emit(record.CallResolved{Call: e.Call, Resolution: record.NotHappened, Source: NotEntered})
		case e.Leaked && c.Class == record.Uncertain:
			p.emit(record.CallUnknown{Call: e.Call, Reason: record.LostOutcome})
		case e.Defect && c.Class == record.Uncertain:
			p.emit(record.CallUnknown{Call: e.Call, Reason: record.DefectOutcome})
		case e.TimedOut && c.Class == record.Uncertain:
			p.emit(record.CallUnknown{Call: e.Call, Reason: record.TimeoutOutcome})
		case e.Outcome == record.Interrupted && !p.mustEnd() && p.d.looking:
			p.d.ended = append(p.d.ended, e) // what is being read may say why
		case e.Outcome == record.Interrupted && !p.mustEnd():
			// The attempt ends, the run does not: the call stays prepared and
			// the next attempt decides by its class.
		default:
			p.step("14 encode")
			p.emit(record.CallSettled{Call: e.Call, Outcome: e.Outcome, Result: e.Result, Tag: e.Tag,
				Truncated: e.Bytes, Duration: e.Duration})
			if len(p.s.Run.Calls) == 0 {
				p.step("15 advance")
			}
		}
	}
}

// openCall finds a call that still waits for its handler.
func (p *planner) openCall(id string) *Call {
	if p.s.Run == nil {
		return nil
	}
	if c := p.s.Run.call(id); c != nil && c.Phase == Prepared {
		return c
	}
	return nil
}

// startRun begins the next queued submission. False means the plan is complete.
func (p *planner) startRun() bool {
	if len(p.s.Queue) == 0 {
		p.park("", time.Time{})
		return false
	}
	next := p.s.Queue[0]
	if abort := p.s.abortOf(next.ID); abort != nil {
		p.dropSteering(next.ID, "aborted before it began")
		p.emit(record.RunSettled{Run: next.ID, Status: record.StatusAborted, Queued: p.queuedAfter(1), Error: abortError(*abort)})
		return false
	}
	if p.spec == nil || p.spec.Agent != next.Agent {
		p.park(WaitHeld, p.recheck(next.AdmittedAt))
		return false
	}
	pol := p.spec.Policy
	p.emit(record.RunStarted{
		Run: next.ID, Agent: next.Agent, Definition: p.spec.Digest,
		Duration:  tighten(pol.MaxDuration, next.Allowance.Duration),
		Turns:     tighten(pol.MaxTurns, next.Allowance.Turns),
		ToolCalls: tighten(pol.MaxToolCalls, next.Allowance.ToolCalls),
	})
	return true
}

// tighten is min(limit, allowance) with an absent allowance ignored: no option
// widens a policy (RUN-021).
func tighten[N int | time.Duration](limit, allowance N) N {
	if allowance > 0 && allowance < limit {
		return allowance
	}
	return limit
}

func (p *planner) queuedAfter(n int) []string {
	var ids []string
	for _, q := range p.s.Queue[n:] {
		ids = append(ids, q.ID)
	}
	return ids
}

// park releases the lane until due; a zero due means idle.
func (p *planner) park(reason string, due time.Time) {
	if !p.quiet() {
		return
	}
	p.plan.Rest = Rest{Kind: RestPark, Reason: reason, Due: due, Version: p.d.version}
}

// recheck is when to look again at something with no due time of its own:
// after a minute, then ever longer, at most an hour (F12).
func (p *planner) recheck(since time.Time) time.Time {
	return p.c.Now.Add(min(max(p.c.Now.Sub(since), time.Minute), time.Hour))
}

func (p *planner) yield() {
	if p.quiet() {
		p.plan.Rest = Rest{Kind: RestYield}
	}
}

// fits reports whether work that takes at most d can end inside the invocation.
// At the instant at which effects are told to end, nothing fits any more.
func (p *planner) fits(d time.Duration) bool {
	return p.c.InvocationEnd.IsZero() || p.c.Now.Add(d+YieldMargin).Before(p.c.InvocationEnd)
}
