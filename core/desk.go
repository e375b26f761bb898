package core

import (
	"maps"
	"slices"
	"time"

	"github.com/layover-run/layover/core/record"
)

// Desk is what an attempt holds in its hands: volatile, empty in a new
// attempt. Losing it never loses a recorded fact. Note and Next own it.
type Desk struct {
	// Attempt is who this attempt is, from its claim.
	Attempt AttemptInfo

	looking bool // a ReadInbox is under way
	looked  bool // at least one look is done
	woken   bool // the head moved since the last look began
	version uint64
	seam    int // the turn whose seam has been looked at
	entries []InboxEntry

	decoded      *InputDecoded
	instructions *InstructionsReady
	prepared     *ContextPrepared
	pending      map[string]bool // single effects under way, by name

	response  *Response
	checks    []Check
	checked   bool
	concluded *Concluded
	final     bool // the look before the settlement is done
	failure   *ModelFailure
	retries   int

	verdicts  map[string]Authorized // of the host, by call
	asked     []string              // the calls of verdicts, in order
	acquiring []string              // calls that asked for a permit and have not started

	running   []string // calls whose handler this attempt started
	ended     []ToolEnded
	absorbed  []ToolEnded // by the last plan, until it is known to be recorded
	steps     []StepEnded
	probes    []probe
	stopping  bool
	cancelled bool
	faulted   *Faulted
	exceeded  *EventsExceeded

	labels []string // steps already labelled in this turn
	turn   int      // the turn the labels belong to
}

// AttemptInfo identifies an attempt.
type AttemptInfo struct {
	ID    string
	Boot  string
	Epoch uint64
	// Settled is the slot up to which terminal records were handed over when
	// the lane was claimed.
	Settled uint64
	// Version is the head version of the claim.
	Version uint64
	// Exclusive says one process holds the store: an attempt of another boot
	// is certainly dead (F8).
	Exclusive bool
	// Leaked names attempts of this very process whose handlers did not return
	// when their context ended: no clock can say that they are dead.
	Leaked []string
	// Authorizes says that the host decides about every call before it starts.
	Authorizes bool
	// Permits says that this process bounds handlers across its runs.
	Permits bool
}

// NewDesk is the empty desk of a fresh attempt.
func NewDesk(a AttemptInfo) *Desk {
	return &Desk{Attempt: a, version: a.Version, seam: -1, turn: -1, pending: map[string]bool{}}
}

// Clone shares nothing with d that Note or Next change: what it holds is the
// desk before a plan that may be discarded.
func (d *Desk) Clone() *Desk {
	c := *d
	c.Attempt.Leaked = slices.Clone(d.Attempt.Leaked)
	c.entries, c.checks = slices.Clone(d.entries), slices.Clone(d.checks)
	c.pending = maps.Clone(d.pending)
	c.running, c.labels = slices.Clone(d.running), slices.Clone(d.labels)
	c.ended, c.absorbed = slices.Clone(d.ended), slices.Clone(d.absorbed)
	c.steps, c.probes = slices.Clone(d.steps), slices.Clone(d.probes)
	if d.response != nil {
		r := *d.response
		c.response = &r
	}
	return &c
}

// Running lists the calls whose handlers run now.
func (d *Desk) Running() []string { return slices.Clone(d.running) }

// Busy reports whether any effect is under way.
func (d *Desk) Busy() bool {
	return len(d.running) > 0 || d.looking || len(d.pending) > 0
}

// Note puts a fact on the desk. It decides nothing.
func Note(d *Desk, f Fact) {
	switch f := f.(type) {
	case InboxRead:
		d.looking, d.looked, d.version = false, true, f.Version
		d.entries = append(d.entries, f.Entries...)
	case InputDecoded:
		d.end("decode")
		d.decoded = &f
	case InstructionsReady:
		d.end("instruct")
		d.instructions = &f
	case ContextPrepared:
		d.end("prepare")
		d.prepared = &f
	case ModelEnded:
		d.end("model")
		d.response, d.failure = f.Response, f.Failure
	case CallsChecked:
		d.end("check")
		d.checks, d.checked = f.Checks, true
	case Concluded:
		d.end("conclude")
		d.concluded = &f
	case Delayed:
		d.end("delay")
	case Reconciled:
		d.end("reconcile " + f.Call)
		if p := d.probe(f.Call); p != nil {
			p.answer = &f
		}
	case Authorized:
		d.noteAuthorized(f)
	case PermitHeld:
		d.notePermit(f)
	case StepEnded:
		d.steps = append(d.steps, f)
	case ToolEnded:
		if f.Leaked && !slices.Contains(d.Attempt.Leaked, d.Attempt.ID) {
			d.Attempt.Leaked = append(slices.Clone(d.Attempt.Leaked), d.Attempt.ID)
		}
		d.running = slices.DeleteFunc(d.running, func(id string) bool { return id == f.Call })
		d.ended = append(d.ended, f)
	case Woken:
		d.woken = true
	case Cancelled:
		d.cancelled = true
	case EventsExceeded:
		d.exceeded = &f
	case Faulted:
		d.end(nameOf(f.Of))
		d.looking = d.looking && nameOf(f.Of) != "look"
		d.faulted = &f
	}
}

// nameOf is the name under which an effect is pending.
func nameOf(e Effect) string {
	switch e := e.(type) {
	case ReadInbox:
		return "look"
	case DecodeInput:
		return "decode"
	case Instruct:
		return "instruct"
	case PrepareContext:
		return "prepare"
	case CallModel:
		return "model"
	case CheckCalls:
		return "check"
	case Conclude:
		return "conclude"
	case Delay:
		return "delay"
	case Authorize:
		return "authorize"
	case AcquirePermit:
		return "permit " + e.Call
	case Reconcile:
		return "reconcile " + e.Call
	}
	return ""
}

func (d *Desk) end(name string) { delete(d.pending, name) }

// newTurn clears what belonged to the turn that just closed.
func (d *Desk) newTurn() {
	d.prepared, d.response, d.checks, d.checked = nil, nil, nil, false
	d.concluded, d.final, d.failure, d.retries = nil, false, nil, 0
	d.verdicts, d.asked, d.acquiring = nil, nil, nil
	d.probes = nil // a provider may use a call id again in another response
}

// takeEnded hands out the results not yet recorded.
func (d *Desk) takeEnded() []ToolEnded {
	ended := d.ended
	d.ended, d.absorbed = nil, ended
	return ended
}

// LateResults are tool results a fenced attempt still holds: evidence for the
// inbox of the run that has another owner now.
func (d *Desk) LateResults(s *State) []Late {
	var late []Late
	if s.Run == nil {
		return nil
	}
	for _, e := range append(slices.Clone(d.absorbed), d.ended...) {
		c := s.Run.call(e.Call)
		if c == nil || e.Outcome == record.Interrupted || e.Defect || e.Leaked || e.NotStarted || e.TimedOut && c.Class == record.Uncertain {
			continue // no evidence of what happened
		}
		if c.Phase == Prepared || c.Phase == Unknown {
			late = append(late, Late{Run: s.Run.ID, Call: e.Call, Operation: c.Operation, Outcome: e.Outcome,
				Result: e.Result, Tag: e.Tag, Duration: e.Duration})
		}
	}
	return late
}

// probe is one question to a tool's probe. What it answers about a call counts
// as a no only if the preparing invocation was certainly dead when it was
// asked: an answer from before says nothing about what a paused owner did since.
type probe struct {
	call   string
	dead   bool
	answer *Reconciled
}

func (d *Desk) probe(call string) *probe {
	for i := range d.probes {
		if d.probes[i].call == call {
			return &d.probes[i]
		}
	}
	return nil
}

func (d *Desk) forgetProbe(call string) {
	d.probes = slices.DeleteFunc(d.probes, func(p probe) bool { return p.call == call })
}

// certainlyDead reports whether the invocation that prepared a call cannot
// start its handler any more: the one place where clocks carry safety (F8).
func certainlyDead(p Preparation, a AttemptInfo, c Clock) bool {
	switch {
	case a.Exclusive && p.Boot != a.Boot:
		return true
	case slices.Contains(a.Leaked, p.Attempt):
		return false
	}
	return c.LongestInvocation > 0 && !c.Now.Before(p.At.Add(c.LongestInvocation))
}

// deadAt is when certainlyDead will hold at the latest; zero means never by
// the clock alone.
func deadAt(p Preparation, c Clock) time.Time {
	if c.LongestInvocation <= 0 {
		return time.Time{}
	}
	return p.At.Add(c.LongestInvocation)
}
