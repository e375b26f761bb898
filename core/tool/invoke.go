package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/layover-run/layover/core/record"
)

// Call is one execution of one declared call.
type Call struct {
	Conversation string
	Run          string
	ID           string // the call
	Attempt      string
	// Operation is the runtime-minted key of the effect: the same for every
	// execution of this call.
	Operation string
	Args      json.RawMessage
	// Steps remembers the steps inside the handler; nil where nothing outlives
	// the process: steps then simply run.
	Steps StepRecorder
	// Progress takes what the handler says about itself, while ctx lasts; nil
	// where nobody listens.
	Progress func(ctx context.Context, message string)
}

// Result is how a call ended.
//
//	the handler                          Outcome         Tag
//	returned a value                     success         ""
//	returned an error                    failure         the error's, or ToolError
//	returned Abort(err)                  typed-failure   the error's, or Aborted
//	returned an error, its ctx over      interrupted     Interrupted
//	returned an error, its time over     interrupted     Timeout
//	returned a value that has no JSON    infrastructure  ResultEncoding
//	was failed by a step's recording     infrastructure  StepRecording
//	panicked, or called runtime.Goexit   infrastructure  Defect, and Defect is set
//	was not entered: bad arguments       failure         InvalidArguments
type Result struct {
	Outcome record.Outcome
	// Value is canonical JSON for the model: the handler's value, or
	// {"error":{"message":…,"tag":…}}.
	Value json.RawMessage
	Tag   string
	// Err is the original error. It is neither shown to the model nor logged:
	// only its author knows what is in it.
	Err    error
	Defect *Defect
}

// The tags this package gives.
const (
	TagToolError        = "ToolError"
	TagAborted          = "Aborted"
	TagInterrupted      = "Interrupted"
	TagTimeout          = "Timeout"
	TagResultEncoding   = "ResultEncoding"
	TagStepRecording    = "StepRecording"
	TagDefect           = "Defect"
	TagInvalidArguments = "InvalidArguments"
)

// Invoke runs the handler once, under its timeout, and classifies how it
// ended. It does not return before the handler does. The handler has a
// goroutine of its own.
func (t *Tool) Invoke(ctx context.Context, call Call) Result {
	if err := t.Err(); err != nil {
		return failed(record.Infrastructure, TagToolError, fixedText, err)
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(caller, t.facts.Timeout)
	defer cancel()
	x := &execution{call: call, steps: true}
	defer x.close()
	var result Result
	if defect := apart(func() { result = t.enter(withExecution(ctx, x), call.Args) }); defect != nil {
		return defective(defect, defect)
	}
	if result.Outcome == record.Interrupted && caller.Err() == nil {
		return failed(record.Interrupted, TagTimeout, fmt.Sprintf("the tool did not end within %s", t.facts.Timeout), result.Err)
	}
	return result
}

// enter runs code of the author: the handler, the encoding of its value, and
// the methods of its error.
func (t *Tool) enter(ctx context.Context, args json.RawMessage) Result {
	value, err := t.handle(ctx, args)
	if err != nil {
		return classify(ctx, err)
	}
	encoded, err := Encode(value)
	if err != nil {
		return failed(record.Infrastructure, TagResultEncoding, "the tool ran; its result could not be encoded", err)
	}
	return Result{Outcome: record.Succeeded, Value: encoded}
}

// Reconcile asks the probe about a call that may have started. An error means
// that the outcome stays unknown; the Result counts only for Happened.
func (t *Tool) Reconcile(ctx context.Context, call Call) (Result, Resolution, error) {
	if err := t.Err(); err != nil {
		return Result{}, "", err
	}
	if t.probe == nil {
		return Result{}, "", fmt.Errorf("tool %q has no reconcile probe", t.facts.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, t.facts.Timeout)
	defer cancel()
	x := &execution{call: call}
	defer x.close()
	var (
		resolution Resolution
		encoded    json.RawMessage
		err        error
	)
	if defect := apart(func() { resolution, encoded, err = t.ask(withExecution(ctx, x), call.Args) }); defect != nil {
		err = defect
	}
	switch {
	case err != nil:
		return Result{}, "", err
	case resolution == Happened:
		return Result{Outcome: record.Succeeded, Value: encoded}, resolution, nil
	case resolution == NotHappened, resolution == SafeToRetry:
		return Result{}, resolution, nil
	}
	return Result{}, "", fmt.Errorf("tool %q: the probe answered %q; use tool.Happened, NotHappened or SafeToRetry", t.facts.Name, resolution)
}

func (t *Tool) ask(ctx context.Context, args json.RawMessage) (Resolution, json.RawMessage, error) {
	value, resolution, err := t.probe(ctx, args)
	if err != nil || resolution != Happened {
		return resolution, nil, err
	}
	encoded, err := Encode(value)
	if err != nil {
		return "", nil, fmt.Errorf("the probe's result does not encode: %w", err)
	}
	return resolution, encoded, nil
}

type invalidArguments struct{ err error }

func (e *invalidArguments) Error() string { return e.err.Error() }
func (e *invalidArguments) Unwrap() error { return e.err }

// classify reads the table of Result.
func classify(ctx context.Context, err error) Result {
	var (
		defect  *Defect
		step    *recordingError
		abort   *abortError
		invalid *invalidArguments
	)
	switch {
	case errors.As(err, &defect):
		return defective(defect, err)
	case errors.As(err, &invalid):
		return failed(record.Failed, TagInvalidArguments, invalid.Error(), invalid.err)
	case ctx.Err() != nil:
		return failed(record.Interrupted, TagInterrupted, "the tool was interrupted", err)
	case errors.As(err, &step):
		return failed(record.Infrastructure, TagStepRecording, fixedText, err)
	case errors.As(err, &abort):
		return failed(record.Aborted, tagOf(abort.err, TagAborted), messageOf(abort.err), abort.err)
	}
	return failed(record.Failed, tagOf(err, TagToolError), messageOf(err), err)
}

func defective(defect *Defect, err error) Result {
	result := failed(record.Infrastructure, TagDefect, fixedText, err)
	result.Defect = defect
	return result
}
