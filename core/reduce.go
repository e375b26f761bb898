package core

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/layover-run/layover/core/record"
)

// ErrIllegal is what Reduce answers to a record that no correct writer appends
// after the records before it: a damaged or forged log, or a defect.
var ErrIllegal = errors.New("illegal record")

func illegal(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrIllegal, fmt.Sprintf(format, args...))
}

// Envelope is what Reduce needs of a record's batch.
type Envelope struct {
	Slot    uint64
	Epoch   uint64
	Attempt string
	At      time.Time
}

// Fold folds one batch: the next slot, chained to the digest before it, of an
// epoch that is not older than any before (I2).
func Fold(s *State, b record.Batch) error {
	switch {
	case b.Slot != s.Slot+1:
		return illegal("slot %d after slot %d", b.Slot, s.Slot)
	case b.Prev != s.Digest:
		return illegal("slot %d does not continue the digest chain", b.Slot)
	}
	env := Envelope{Slot: b.Slot, Epoch: b.Epoch, Attempt: b.Attempt, At: b.At}
	for i, r := range b.Records {
		if err := Reduce(s, env, r); err != nil {
			return fmt.Errorf("slot %d record %d (%s): %w", b.Slot, i, r.Kind(), err)
		}
	}
	s.Slot, s.Digest = b.Slot, b.Digest
	return nil
}

// Reduce folds one record into the state. It is the same fold live and on
// recovery. An error leaves the state unusable.
func Reduce(s *State, env Envelope, r record.Record) error {
	if start, ok := r.(record.AttemptStarted); ok {
		return s.attemptStarted(env, start)
	}
	if env.Epoch != s.Epoch || env.Attempt != s.Attempt {
		return illegal("epoch %d of attempt %s in the log of epoch %d", env.Epoch, env.Attempt, s.Epoch)
	}
	if entry := record.Drained(r); entry != 0 {
		if entry != s.Cursor+1 {
			return illegal("inbox entry %d after %d", entry, s.Cursor)
		}
		s.Cursor = entry
	}
	switch r := r.(type) {
	case record.SubmissionQueued:
		return s.submissionQueued(r)
	case record.AbortRequested:
		return s.abortRequested(r)
	case record.EntryIgnored:
		return nil
	case record.SteeringQueued:
		return s.steeringQueued(r)
	case record.SteeringDropped:
		return s.steeringDropped(r)
	case record.RunStarted:
		return s.runStarted(env, r)
	case record.RunSettled:
		return s.runSettled(env, r)
	}
	if s.Run == nil {
		return illegal("no run is active")
	}
	return s.Run.reduce(s, env, r)
}

func (s *State) attemptStarted(env Envelope, r record.AttemptStarted) error {
	if env.Epoch <= s.Epoch {
		return illegal("attempt of epoch %d after epoch %d", env.Epoch, s.Epoch)
	}
	s.Epoch, s.Attempt, s.Boot, s.Until = env.Epoch, env.Attempt, r.Boot, r.Until
	if s.Run != nil {
		s.Run.Attempts++
	}
	return nil
}

func (s *State) submissionQueued(r record.SubmissionQueued) error {
	if s.queued(r.Submission) >= 0 || s.Run != nil && (s.Run.ID == r.Submission || slices.Contains(s.Run.Joined, r.Submission)) {
		return illegal("submission %s queued twice", r.Submission)
	}
	s.Queue = append(s.Queue, Submission{
		ID: r.Submission, Agent: r.Agent, Principal: r.Principal, ReplyTo: r.ReplyTo, Input: r.Input,
		Allowance: r.Allowance, Parent: r.Parent, FollowUp: r.FollowUp, AdmittedAt: r.AdmittedAt,
	})
	return nil
}

func (s *State) abortRequested(r record.AbortRequested) error {
	a := Abort{Submission: r.Submission, By: r.By, Reason: r.Reason}
	if s.Run != nil && s.Run.ID == r.Submission {
		if s.Run.Abort == nil {
			s.Run.Abort = &a
		}
		return nil
	}
	s.Aborts = append(s.Aborts, a)
	return nil
}

func (s *State) abortOf(submission string) *Abort {
	for i := range s.Aborts {
		if s.Aborts[i].Submission == submission {
			return &s.Aborts[i]
		}
	}
	return nil
}

func (s *State) runStarted(env Envelope, r record.RunStarted) error {
	switch {
	case s.Run != nil:
		return illegal("run %s starts inside run %s", r.Run, s.Run.ID)
	case len(s.Queue) == 0 || s.Queue[0].ID != r.Run:
		return illegal("run %s is not the next submission", r.Run)
	case r.Duration <= 0 || r.Turns <= 0 || r.ToolCalls < 0:
		return illegal("run %s starts without limits", r.Run)
	}
	s.Run = &Run{
		Submission: s.Queue[0], Definition: r.Definition, StartedAt: env.At, Deadline: env.At.Add(r.Duration),
		MaxTurns: r.Turns, MaxCalls: r.ToolCalls, BaseEpoch: env.Epoch, Attempts: 1, Start: len(s.History),
	}
	s.Queue = s.Queue[1:]
	return nil
}

func (s *State) runSettled(env Envelope, r record.RunSettled) error {
	switch {
	case s.Run == nil && len(s.Queue) > 0 && s.Queue[0].ID == r.Run && r.Status == record.StatusAborted:
		s.Queue = s.Queue[1:]
	case s.Run == nil || s.Run.ID != r.Run:
		return illegal("run %s settles but is not active", r.Run)
	case len(s.Run.Calls) > 0:
		return illegal("run %s settles with open calls", r.Run)
	case !slices.Equal(s.Run.Joined, r.Joined):
		return illegal("run %s settles without the submissions that joined it", r.Run)
	}
	if len(s.steering(r.Run)) > 0 {
		return illegal("run %s settles with steering unanswered", r.Run)
	}
	s.Run, s.Terminal, s.Latest = nil, env.Slot, &r
	s.Aborts = slices.DeleteFunc(s.Aborts, func(a Abort) bool { return a.Submission == r.Run })
	return nil
}

func (r *Run) reduce(s *State, env Envelope, rec record.Record) error {
	switch rec := rec.(type) {
	case record.ResponseRecorded:
		return r.responseRecorded(s, rec)
	case record.BackoffScheduled:
		r.Backoff = &rec
		return nil
	case record.RunHeld:
		r.Held, r.HeldAt = &rec, env.At
		return nil
	case record.RunReleased:
		r.Held = nil
		return nil
	case record.SteeringApplied:
		return r.steeringApplied(s, rec)
	case record.FollowUpApplied:
		return r.followUpApplied(s, rec)
	case record.BudgetWarned, record.BudgetAnswered, record.CompactionCreated, record.ChildLinked, record.ChildSettled, record.CallWaiting, record.BudgetReserved, record.BudgetReleased:
		// In the format, not yet produced: a log that holds them needs a build
		// that knows what they do to a run.
		return illegal("%s is not supported by this build", rec.Kind())
	}
	if err := r.reduceCall(s, env, rec); err != nil {
		return err
	}
	r.closeBatch(s)
	return nil
}

func (r *Run) responseRecorded(s *State, rec record.ResponseRecorded) error {
	switch {
	case len(r.Calls) > 0:
		return illegal("a response while calls are open")
	case rec.Turn != r.Turn+1:
		return illegal("turn %d after turn %d", rec.Turn, r.Turn)
	case (len(rec.Prefix) > 0) != !r.Prefixed:
		return illegal("the run's prefix belongs to its first response")
	}
	if len(rec.Prefix) > 0 {
		prefix := make([]Entry, len(rec.Prefix), len(rec.Prefix)+1)
		for i, m := range rec.Prefix {
			prefix[i] = Entry{Run: r.ID, Prefix: true, Message: m}
		}
		s.History = slices.Insert(slices.Clip(s.History), r.Start, prefix...)
	}
	s.History = append(s.History, Entry{Run: r.ID, Message: rec.Message})
	r.Turn, r.Prefixed, r.Backoff, r.Steered = rec.Turn, true, nil, 0
	r.Usage = r.Usage.Add(rec.Usage)
	if r.Exhausted == "" {
		r.Exhausted = rec.Exhausted
	}
	r.Executed = nil
	at := 0
	for _, part := range rec.Message.Parts {
		if result, ok := part.(record.ToolResultPart); ok { // the provider's own
			r.Executed = append(r.Executed, Executed{Behind: at, Failed: result.Failed})
			continue
		}
		c, ok := part.(record.ToolCallPart)
		switch {
		case ok && c.ProviderExecuted: // its result may come with a later response
			r.Foreign++
			continue
		case !ok:
			continue
		}
		if at >= len(rec.Calls) || rec.Calls[at].ID != c.ID {
			return illegal("call %s is not pinned", c.ID)
		}
		d := rec.Calls[at]
		r.Calls = append(r.Calls, Call{ID: c.ID, Tool: d.Tool, Version: d.Version, Class: d.Class,
			Args: c.Args, ArgsDigest: d.ArgsDigest, Phase: Declared})
		at++
	}
	if at != len(rec.Calls) {
		return illegal("pinned calls the message does not declare")
	}
	if at == 0 {
		r.countFailures()
	}
	return nil
}

// closeBatch ends the turn when its last call is settled: the tool message is
// the projection of the results in declaration order (RUN-006, D-54).
func (r *Run) closeBatch(s *State) {
	if len(r.Calls) == 0 {
		return
	}
	parts := make(record.Parts, 0, len(r.Calls))
	for _, c := range r.Calls {
		if c.Phase != Settled {
			return
		}
		parts = append(parts, record.ToolResultPart{Call: c.ID, Tool: c.Tool, Result: c.Result, Failed: c.Outcome != record.Succeeded})
	}
	r.countFailures()
	s.History = append(s.History, Entry{Run: r.ID, Message: record.Message{Role: record.Tool, Parts: parts}})
	r.Calls = nil
}

// countFailures folds a closed batch into the run-level counter in declaration
// order, what the provider executed included (D-31): any success resets, a batch refused for the budget does not count, an
// invalid batch counts once (POL-09, RUN-018f, D-28).
func (r *Run) countFailures() {
	invalid, executed := false, r.Executed
	count := func(failed bool) {
		if !failed {
			r.Failures = 0
			return
		}
		r.Failures++
		r.Peak = max(r.Peak, r.Failures)
	}
	before := func(call int) { // what the provider executed in front of a call of ours
		for len(executed) > 0 && executed[0].Behind <= call {
			count(executed[0].Failed)
			executed = executed[1:]
		}
	}
	for i, c := range r.Calls {
		before(i)
		switch {
		case c.Synthetic == record.OverBudget:
			continue
		case c.Synthetic == record.InvalidBatch:
			if invalid {
				continue
			}
			invalid = true
			count(true)
		default:
			count(c.Outcome != record.Succeeded)
		}
	}
	before(len(r.Calls))
	r.Executed = nil
}
