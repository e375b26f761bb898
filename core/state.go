package core

import (
	"slices"
	"time"

	"github.com/layover-run/layover/core/record"
)

// State is the fold of a conversation's log. Reduce owns it; everybody else
// reads. Counters live here and nowhere else, so no restart gives a second
// budget (D-04).
type State struct {
	Slot    uint64 // last folded slot
	Digest  string // of the batch in it
	Epoch   uint64 // highest epoch folded
	Attempt string // owner of that epoch
	Boot    string
	Until   time.Time // when that attempt's invocation ends

	Cursor   uint64 // inbox slot up to which entries are consumed
	Queue    []Submission
	Aborts   []Abort // of submissions that have not started
	Steering []Steering
	Terminal uint64 // slot of the last terminal record
	Latest   *record.RunSettled
	Run      *Run
	History  []Entry // model-visible messages in order
}

// Submission is admitted work waiting in the log.
type Submission struct {
	ID, Agent, Principal, ReplyTo string
	Input                         record.Value
	Allowance                     record.Allowance
	Parent                        record.ParentLink
	FollowUp                      bool
	AdmittedAt                    time.Time
}

// Abort is a recorded wish to end a submission.
type Abort struct{ Submission, By, Reason string }

// Entry is one message of the history with the run it belongs to.
type Entry struct {
	Run string
	// Prefix marks the instructions and input of a run: only that run's own
	// requests show them (RUN-033).
	Prefix  bool
	Message record.Message
}

// Run is the fold of the active run.
type Run struct {
	Submission
	Definition string
	StartedAt  time.Time
	Deadline   time.Time
	MaxTurns   int
	MaxCalls   int
	BaseEpoch  uint64
	Attempts   int

	Turn      int    // responses recorded
	ToolCalls int    // calls admitted to run
	Foreign   int    // calls the provider executed itself
	Failures  int    // consecutive failed calls
	Peak      int    // highest value Failures reached (D-49)
	Exhausted string // the budget that forced finalization
	Prefixed  bool   // the first response is recorded
	Start     int    // where this run begins in History
	Usage     record.Usage
	Executed  []Executed
	Steered   int      // commands applied since the last response
	Joined    []string // follow-ups that settle with this run

	Calls   []Call // the open batch in declaration order; empty between turns
	Abort   *Abort
	Failing *record.Error // a recorded reason to fail once effects have ended
	Backoff *record.BackoffScheduled
	Held    *record.RunHeld
	HeldAt  time.Time
}

// Executed is a call of the open turn that the provider executed itself: behind
// how many of our calls it was declared, and how it ended.
type Executed struct {
	Behind int
	Failed bool
}

// Phase is where a call of the open batch stands.
type Phase string

// The phases of a call.
const (
	Declared Phase = "declared" // may start once it holds a permit
	Asked    Phase = "asked"    // an approval is pending
	Denied   Phase = "denied"   // decided against, not settled yet
	Lapsed   Phase = "lapsed"   // the approval expired
	Prepared Phase = "prepared" // its handler may have started
	Unknown  Phase = "unknown"  // prepared, outcome not known
	Settled  Phase = "settled"
)

// Call is one application call of the open batch.
type Call struct {
	ID, Tool, Version string
	Class             record.Class
	Args              record.Value
	ArgsDigest        string
	Phase             Phase

	Approval    string
	RequestedAt time.Time
	ExpiresAt   time.Time
	DecidedBy   string
	Reason      string // of the decision

	Operation string
	Prepared  Preparation
	Starts    int    // prepared records so far
	UnknownAs string // why the outcome is unknown
	UnknownAt time.Time
	// Unentered says that the last preparation started no handler.
	Unentered bool
	Steps     []Step

	Outcome   record.Outcome
	Result    record.Value
	Tag       string
	Synthetic string
}

// Preparation says which attempt prepared a call and how long it can live.
type Preparation struct {
	Attempt, Boot string
	Epoch         uint64
	At            time.Time
}

// Step is one recorded step of a handler.
type Step struct {
	Name   string
	Result record.Value
}

// fork copies what Reduce may change, so that a plan can be folded ahead of
// its append. History is shared up to its length.
func (s *State) fork() *State {
	f := *s
	f.Queue = slices.Clone(s.Queue)
	f.Aborts = slices.Clone(s.Aborts)
	f.Steering = slices.Clone(s.Steering)
	f.History = s.History[:len(s.History):len(s.History)]
	if s.Run != nil {
		r := *s.Run
		r.Calls = slices.Clone(r.Calls)
		r.Joined = slices.Clip(r.Joined)
		for i := range r.Calls {
			r.Calls[i].Steps = r.Calls[i].Steps[:len(r.Calls[i].Steps):len(r.Calls[i].Steps)]
		}
		f.Run = &r
	}
	return &f
}

func (r *Run) call(id string) *Call {
	for i := range r.Calls {
		if r.Calls[i].ID == id {
			return &r.Calls[i]
		}
	}
	return nil
}

func (s *State) queued(id string) int {
	return slices.IndexFunc(s.Queue, func(q Submission) bool { return q.ID == id })
}

// Pending lists the calls that wait for a person, in declaration order.
func (s *State) Pending() []Call {
	var pending []Call
	if s.Run != nil {
		for _, c := range s.Run.Calls {
			if c.Phase == Asked {
				pending = append(pending, c)
			}
		}
	}
	return pending
}

// Wait is why a run is parked, as outsiders see it.
type Wait struct {
	Reason string
	Since  time.Time
	Until  time.Time
	On     []string
	// Calls are the open calls behind an approval or an unknown outcome.
	Calls []Call
}

// The park reasons (versioned, open).
const (
	WaitApproval = "approval"
	WaitChild    = "child"
	WaitUnknown  = "unknown"
	WaitBackoff  = "backoff"
	WaitBudget   = "budget"
	WaitHeld     = "held"
)

// Waits says what the active run waits for, or nil.
func (s *State) Waits() *Wait {
	if s.Run == nil {
		return nil
	}
	r := s.Run
	if r.Held != nil {
		return &Wait{Reason: WaitHeld, Since: r.HeldAt, Until: r.Held.Until, On: []string{r.Held.Detail}}
	}
	var approval, unknown Wait
	for _, c := range r.Calls {
		switch c.Phase {
		case Asked:
			approval.On, approval.Calls = append(approval.On, c.Approval), append(approval.Calls, c)
			approval.Since = c.RequestedAt
			if until := earliest(c.ExpiresAt, r.Deadline); approval.Until.IsZero() || until.Before(approval.Until) {
				approval.Until = until
			}
		case Unknown:
			unknown.On, unknown.Calls = append(unknown.On, c.ID), append(unknown.Calls, c)
			unknown.Since = c.UnknownAt
		}
	}
	switch {
	case len(approval.On) > 0:
		approval.Reason = WaitApproval
		return &approval
	case len(unknown.On) > 0:
		unknown.Reason = WaitUnknown
		return &unknown
	case r.Backoff != nil:
		return &Wait{Reason: WaitBackoff, Since: r.StartedAt, Until: r.Backoff.Until, On: said(r.Backoff.Class, r.Backoff.Message)}
	}
	return nil
}

// said lists what there is to say.
func said(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

// earliest is the earlier of two times, a zero time being never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
