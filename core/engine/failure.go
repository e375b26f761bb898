package engine

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/record"
)

// Failure is how a run ends without an output. The set is closed: *RunError,
// *InterruptedError and *SuspendedError; find them with errors.As. A
// *DefectError is none of them: code broke, and nothing was expected.
type Failure interface {
	error
	failure()
}

// RunError is a typed failure: the run could not do what was asked, for a
// reason the runtime knows. Kind is one of core's names for it, such as
// core.OutputError; Limit is the dimension of a policy error.
type RunError struct {
	Kind, Message, Hint string
	Limit               string
	Exhausted           string // the budget that forced the end, if one did
}

func (e *RunError) Error() string { return e.Kind + ": " + e.Message }

// InterruptedError says that somebody ended the run: Cancel, the end of the
// caller's context, a consumer that stopped reading, or an abort.
type InterruptedError struct{ Message string }

func (e *InterruptedError) Error() string { return "the run was interrupted: " + e.Message }

// SuspendedError says that the run waits for something that did not come while
// this process waited. In memory nothing outlives that.
type SuspendedError struct {
	Reason    string // approval, or unknown: the outcome of a call is not known
	On        []string
	Approvals []OpenApproval
}

func (e *SuspendedError) Error() string {
	return fmt.Sprintf("the run is suspended: it waits for %s (%s)", e.Reason, strings.Join(e.On, ", "))
}

func (*RunError) failure()         {}
func (*InterruptedError) failure() {}
func (*SuspendedError) failure()   {}

// OpenApproval is one question nobody has answered.
type OpenApproval struct {
	ID   string
	Call string
	event.ApprovalRequested
}

// DefectError is code that broke: a panic, or a goroutine that ended itself.
// Its text names the place and what a runtime error says; any other panic value
// may hold anything, so it is in Value only.
type DefectError struct {
	Where string // such as "tool pay" or "the model adapter"
	Value any    // what was given to panic; nil without a panic
	Stack []byte
}

func (e *DefectError) Error() string { return "a defect in " + e.Where + ": " + e.rendered() }

func (e *DefectError) rendered() string {
	switch v := e.Value.(type) {
	case nil:
		return "its goroutine was ended"
	case runtime.Error:
		return clipped(v.Error())
	}
	return fmt.Sprintf("panic with a value of type %T", e.Value)
}

// Unwrap is the panic value, where it is an error.
func (e *DefectError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// clipped bounds text for an event or an error.
func clipped(s string) string {
	const limit = 512
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// ErrRunEnded answers what is asked of a run that has ended.
var ErrRunEnded = errors.New("the run has ended")

// failureOf is the failure a terminal event stands for; nil for RunCompleted.
func failureOf(e event.Event, open []OpenApproval) error {
	switch d := e.Data.(type) {
	case event.RunFailed:
		return &RunError{Kind: d.Error.Kind, Message: d.Error.Message, Hint: d.Error.Hint, Limit: limitOf(d), Exhausted: d.Exhausted}
	case event.RunInterrupted:
		return &InterruptedError{Message: messageOf(d.Error)}
	case event.RunSuspended:
		return &SuspendedError{Reason: d.Reason, On: d.On, Approvals: open}
	}
	return nil
}

func limitOf(d event.RunFailed) string {
	if d.PolicyLimit != "" {
		return d.PolicyLimit
	}
	return d.Error.Limit
}

func messageOf(err *record.Error) string {
	if err == nil {
		return ""
	}
	return err.Message
}

// WithTerminalDefectEvent lets the events of a stream tell of a defect too: a
// stream that ends in one gets a last RunFailed of kind Defect, whose text is
// bounded and never the panic value, and then ends in the same error. It takes
// the run's identity from the event before; without one there is nothing to
// say. Typed failures and interruptions pass through unchanged.
func WithTerminalDefectEvent(events EventStream) EventStream {
	return func(yield func(event.Event, error) bool) {
		var last event.Event
		for e, err := range events {
			var defect *DefectError
			if err != nil && errors.As(err, &defect) && last.Data != nil {
				failed := event.Event{Run: last.Run, Conversation: last.Conversation, Agent: last.Agent, Sequence: last.Sequence + 1,
					Epoch: last.Epoch, At: last.At, Data: event.RunFailed{Error: record.Error{Kind: defectTag, Message: clipped(defect.Error())}}}
				if !yield(failed, nil) {
					return
				}
			}
			if !yield(e, err) {
				return
			}
			if err == nil {
				last = e
			}
		}
	}
}
