package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"unicode/utf8"

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
//	panicked                             infrastructure  Defect, and Defect is set
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

// Defect is a recovered panic.
type Defect struct {
	Value string // rendered, at most 1 KiB
	Stack []byte // at most 16 KiB
}

func (d *Defect) Error() string { return "panic: " + d.Value }

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
// ended. It does not return before the handler does.
func (t *Tool) Invoke(ctx context.Context, call Call) Result {
	if err := t.Err(); err != nil {
		return failed(record.Infrastructure, TagToolError, fixedText, err)
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(caller, t.facts.Timeout)
	defer cancel()
	x := &execution{call: call, steps: true}
	defer x.close()
	value, err := t.enter(withExecution(ctx, x), call.Args)
	if encoding, ok := err.(*encodingError); ok {
		return failed(record.Infrastructure, TagResultEncoding, "the result of the tool could not be encoded", encoding.err)
	}
	if err != nil {
		r := classify(ctx, err)
		if r.Outcome == record.Interrupted && caller.Err() == nil {
			return failed(record.Interrupted, TagTimeout, fmt.Sprintf("the tool did not end within %s", t.facts.Timeout), err)
		}
		return r
	}
	return Result{Outcome: record.Succeeded, Value: value}
}

// enter runs user code: the handler and the encoding of its value.
func (t *Tool) enter(ctx context.Context, args json.RawMessage) (encoded json.RawMessage, err error) {
	defer recovered(&err)
	value, err := t.handle(ctx, args)
	if err != nil {
		return nil, err
	}
	if encoded, err = Encode(value); err != nil {
		return nil, &encodingError{err}
	}
	return encoded, nil
}

// Reconcile asks the probe about a call that may have started. An error means
// that the outcome stays unknown; the Result counts only for Happened.
func (t *Tool) Reconcile(ctx context.Context, call Call) (Result, record.Resolution, error) {
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
	resolution, encoded, err := t.ask(withExecution(ctx, x), call.Args)
	switch {
	case err != nil:
		return Result{}, "", err
	case resolution == record.Happened:
		return Result{Outcome: record.Succeeded, Value: encoded}, resolution, nil
	case resolution == record.NotHappened, resolution == record.SafeToRetry:
		return Result{}, resolution, nil
	}
	return Result{}, "", fmt.Errorf("tool %q: the probe answered %q; use record.Happened, NotHappened or SafeToRetry", t.facts.Name, resolution)
}

func (t *Tool) ask(ctx context.Context, args json.RawMessage) (resolution record.Resolution, encoded json.RawMessage, err error) {
	defer recovered(&err)
	value, resolution, err := t.probe(ctx, args)
	if err != nil {
		return "", nil, err
	}
	if resolution == record.Happened {
		if encoded, err = Encode(value); err != nil {
			return "", nil, &encodingError{err}
		}
	}
	return resolution, encoded, nil
}

type encodingError struct{ err error }

func (e *encodingError) Error() string { return "result does not encode: " + e.err.Error() }
func (e *encodingError) Unwrap() error { return e.err }

type invalidArguments struct{ err error }

func (e *invalidArguments) Error() string { return e.err.Error() }
func (e *invalidArguments) Unwrap() error { return e.err }

// recovered turns a panic into a *Defect.
func recovered(err *error) {
	v := recover()
	if v == nil {
		return
	}
	stack := debug.Stack()
	if len(stack) > 16<<10 {
		stack = stack[:16<<10]
	}
	*err = &Defect{Value: bounded(fmt.Sprint(v), 1<<10), Stack: stack}
}

// classify reads the table of Result. The methods of a foreign error are user
// code too: one that panics is a defect of the handler.
func classify(ctx context.Context, err error) Result {
	result, defect := outcomeOf(ctx, err)
	if defect != nil {
		result, _ = outcomeOf(ctx, defect)
	}
	return result
}

func outcomeOf(ctx context.Context, err error) (result Result, panicked error) {
	defer recovered(&panicked)
	var (
		defect  *Defect
		step    *recordingError
		abort   *abortError
		invalid *invalidArguments
	)
	switch {
	case errors.As(err, &defect):
		result = failed(record.Infrastructure, TagDefect, fixedText, err)
		result.Defect = defect
	case errors.As(err, &invalid):
		result = failed(record.Failed, TagInvalidArguments, invalid.Error(), invalid.err)
	case ctx.Err() != nil:
		result = failed(record.Interrupted, TagInterrupted, "the tool was interrupted", err)
	case errors.As(err, &step):
		result = failed(record.Infrastructure, TagStepRecording, fixedText, err)
	case errors.As(err, &abort):
		result = failed(record.Aborted, tagOf(abort.err, TagAborted), messageOf(abort.err), abort.err)
	default:
		result = failed(record.Failed, tagOf(err, TagToolError), messageOf(err), err)
	}
	return result, nil
}

func failed(outcome record.Outcome, tag, message string, err error) Result {
	type body struct {
		Message string `json:"message"`
		Tag     string `json:"tag"`
	}
	value, encodeErr := Encode(struct {
		Error body `json:"error"`
	}{body{bounded(message, maxMessage), tag}})
	if encodeErr != nil { // two strings always encode
		panic(encodeErr)
	}
	return Result{Outcome: outcome, Value: value, Tag: tag, Err: err}
}

// fixedText is all a model learns from an error that chose no message.
const fixedText = "the tool failed"

// maxMessage bounds what an error may tell the model, in bytes.
const maxMessage = 4 << 10

var validTag = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]{0,63}$`)

// tagOf is the error's own tag when it has a usable one.
func tagOf(err error, otherwise string) string {
	var tagged interface {
		error
		Tag() string
	}
	if errors.As(err, &tagged) {
		if tag := tagged.Tag(); validTag.MatchString(tag) {
			return tag
		}
	}
	return otherwise
}

func messageOf(err error) string {
	var chosen interface {
		error
		ModelMessage() string
	}
	if errors.As(err, &chosen) {
		if text := chosen.ModelMessage(); text != "" {
			return text
		}
	}
	return fixedText
}

// Failf is an error the model is told about: its tag, a short stable name such
// as order-not-found, and its message. Wrapped errors (%w) stay reachable.
func Failf(tag, format string, args ...any) error {
	return &toldError{tag: tag, err: fmt.Errorf(format, args...)}
}

type toldError struct {
	tag string
	err error
}

func (e *toldError) Error() string        { return e.tag + ": " + e.err.Error() }
func (e *toldError) Unwrap() error        { return errors.Unwrap(e.err) }
func (e *toldError) Tag() string          { return e.tag }
func (e *toldError) ModelMessage() string { return e.err.Error() }

// Abort wraps an error after which the run makes no sense: the run fails, and
// no model is asked again.
func Abort(err error) error {
	if err == nil {
		err = errors.New("aborted without an error")
	}
	return &abortError{err}
}

type abortError struct{ err error }

func (e *abortError) Error() string { return e.err.Error() }
func (e *abortError) Unwrap() error { return e.err }

// bounded cuts s to at most limit bytes at a rune border.
func bounded(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const ellipsis = "…"
	cut := limit - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}
