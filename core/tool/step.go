package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// StepRecorder remembers the steps of one call. The engine places one in Call.
type StepRecorder interface {
	// Recorded is the result of a step that succeeded before, maybe in an
	// earlier attempt.
	Recorded(step string) (json.RawMessage, bool)
	// Record makes the success of a step durable. The step counts as done when
	// it returns nil.
	Record(ctx context.Context, step string, result json.RawMessage) error
}

// Info is what a handler knows about its own call.
type Info struct {
	Conversation string
	Run          string
	Call         string
	// Operation is the same for every execution of this call and unlike that
	// of any other: hand it to the outside world as the idempotency key.
	Operation string
}

// CallInfo tells a handler or a probe about its own call. It is false outside
// of them.
func CallInfo(ctx context.Context) (Info, bool) {
	x := executionOf(ctx)
	if x == nil {
		return Info{}, false
	}
	return Info{Conversation: x.call.Conversation, Run: x.call.Run, Call: x.call.ID, Operation: x.call.Operation}, true
}

// MaxStepName is the longest step name, in bytes.
const MaxStepName = 128

// Step runs one part of a handler and remembers its success: when the call
// runs again after a crash, the recorded result is returned and body is not
// run. So body runs at least once and has one recorded success; a crash
// between its effect and the record runs it again.
//
// A name is used once per call. T has to survive JSON: the value returned is
// the recorded one in every execution, and a number inside an any is a
// json.Number. Errors of body are returned unchanged and not recorded. Outside
// a handler Step is an error.
func Step[T any](ctx context.Context, name string, body func(ctx context.Context) (T, error)) (T, error) {
	var zero T
	x := executionOf(ctx)
	if x == nil || !x.steps {
		return zero, errors.New("tool: Step outside a handler: pass the handler's own context")
	}
	if err := x.enter(name); err != nil {
		return zero, err
	}
	recorder := x.call.Steps
	if recorder != nil {
		if raw, done := recorder.Recorded(name); done {
			return decodeStep[T](name, raw)
		}
	}
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	value, err := body(ctx)
	if err != nil {
		return zero, err
	}
	raw, err := Encode(value)
	if err != nil {
		return zero, fmt.Errorf("tool: the result of step %q does not encode: %w", name, err)
	}
	if recorder != nil {
		if err := recorder.Record(ctx, name, raw); err != nil {
			return zero, &recordingError{step: name, err: err}
		}
	}
	return decodeStep[T](name, raw)
}

func decodeStep[T any](name string, raw json.RawMessage) (T, error) {
	var v T
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		var zero T
		return zero, fmt.Errorf("tool: the recorded result of step %q is no %T: %w", name, zero, err)
	}
	return v, nil
}

// recordingError is a failure of the machinery, not of the tool.
type recordingError struct {
	step string
	err  error
}

func (e *recordingError) Error() string {
	return fmt.Sprintf("tool: step %q could not be recorded: %v", e.step, e.err)
}
func (e *recordingError) Unwrap() error { return e.err }

// execution is one entry into a handler or probe.
type execution struct {
	call  Call
	steps bool // false in a probe

	mu     sync.Mutex
	closed bool
	seen   map[string]bool
}

func (x *execution) enter(name string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return fmt.Errorf("tool: step %q after its handler returned", name)
	case name == "" || len(name) > MaxStepName:
		return fmt.Errorf("tool: a step name has 1 to %d bytes", MaxStepName)
	case x.seen[name]:
		return fmt.Errorf("tool: two steps of one call are named %q", name)
	}
	if x.seen == nil {
		x.seen = map[string]bool{}
	}
	x.seen[name] = true
	return nil
}

func (x *execution) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
}

type executionKey struct{}

func withExecution(ctx context.Context, x *execution) context.Context {
	return context.WithValue(ctx, executionKey{}, x)
}

func executionOf(ctx context.Context) *execution {
	x, _ := ctx.Value(executionKey{}).(*execution)
	return x
}
