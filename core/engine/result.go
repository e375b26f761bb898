package engine

import (
	"encoding/json"
	"iter"
	"slices"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/record"
)

// EventStream is the events of one run in order. Its last pair holds no event
// and the error the run ended in, or there is none and the run completed.
type EventStream = iter.Seq2[event.Event, error]

// RunResult is how a run ended.
type RunResult struct {
	Run          string
	Conversation string
	Agent        string
	Definition   string // digest the run is pinned to
	State        RunState
	FinishReason string
	Exhausted    string
	Output       json.RawMessage
	Disposition  json.RawMessage
	Usage        record.Usage
	Turns        int
	Attempts     int
	// Approvals are the questions nobody has answered, of a suspended run.
	Approvals []OpenApproval
	// Undelivered are follow-ups the run did not take in. Only a handle's Await
	// knows them: no event tells of what did not happen.
	Undelivered []Undelivered
}

// Fold reads a stream to its end and says how the run ended: it is all that
// Run does. The error is a Failure, a *DefectError, or what the stream broke
// off with.
func Fold(events EventStream) (RunResult, error) {
	var f folding
	for e, err := range events {
		if err != nil {
			f.err = err
			break
		}
		f.add(e)
	}
	if f.err != nil && f.result.State == "" {
		f.result.State = StateFailed
	}
	return f.result, f.err
}

// folding is a Fold under way.
type folding struct {
	result RunResult
	err    error // of the terminal event
	joined []string
}

func (f *folding) add(e event.Event) {
	r := &f.result
	r.Run, r.Conversation, r.Agent = e.Run, e.Conversation, e.Agent
	switch d := e.Data.(type) {
	case event.RunStarted:
		r.Definition = d.Definition
	case event.ApprovalRequested:
		r.Approvals = append(r.Approvals, OpenApproval{ID: d.Approval, Call: e.Call, ApprovalRequested: d})
	case event.ApprovalResolved:
		r.Approvals = slices.DeleteFunc(r.Approvals, func(a OpenApproval) bool { return a.ID == d.Approval })
	case event.FollowUpApplied:
		f.joined = append(f.joined, d.Submission)
	case event.ResponseCompleted:
		r.Usage, r.Turns = r.Usage.Add(d.Usage), e.Turn
	case event.RunCompleted:
		r.State, r.FinishReason, r.Exhausted, r.Output, r.Disposition = StateCompleted, d.FinishReason, d.Exhausted, d.Output, d.Disposition
		f.ended(d.Usage, d.Turns, d.Attempts)
	case event.RunFailed:
		r.State, r.Exhausted = StateFailed, d.Exhausted
		f.ended(d.Usage, d.Turns, d.Attempts)
		f.err = failureOf(e, nil)
	case event.RunInterrupted:
		r.State = StateInterrupted
		f.ended(d.Usage, d.Turns, d.Attempts)
		f.err = failureOf(e, nil)
	case event.RunSuspended:
		r.State = StateSuspended
		f.err = failureOf(e, r.Approvals)
		return
	}
	if r.State == StateSuspended { // it went on
		r.State, f.err = "", nil
	}
}

func (f *folding) ended(usage record.Usage, turns, attempts int) {
	f.result.Usage, f.result.Turns, f.result.Attempts = usage, turns, attempts
	f.result.Approvals = nil
}
