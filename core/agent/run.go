package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/tool"
)

// Run runs an agent in this process, keeps nothing, and answers with its
// output:
//
//	result, err := agent.Run[Advice](ctx, advisor.Bind(model), Question{City: "Oslo"})
//
// In and Out are the types the agent was defined with. The error is a Failure
// (*RunError, *InterruptedError, *SuspendedError) or a *DefectError, and the
// result then says how far the run came; any other error means that no run
// began. The end of ctx interrupts the run.
//
// Run is a Fold over Stream and nothing more.
func Run[Out, In any](ctx context.Context, b *Binding, in In, opts ...Option) (Result[Out], error) {
	if err := answers[Out](b); err != nil {
		return Result[Out]{}, err
	}
	return Fold[Out](Stream(ctx, b, in, opts...))
}

// Stream runs an agent in this process and yields its events as they happen:
// canonical ones, and provisional ones such as TextDelta, which later events
// make certain or take back (event.Display). Ranging over it starts the run,
// each time a new one. A slow consumer slows the run; one that leaves
// interrupts it, and gets control back once nothing of the run is left, unless
// the run is Detached. The last pair holds the error the run ended in, if any.
func Stream[In any](ctx context.Context, b *Binding, in In, opts ...Option) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		r, req, err := prepare(b, in, opts)
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		r.Events(ctx, req)(yield)
	}
}

// Start begins a run in this process and hands out a handle to watch, steer to
// an end, and await it. Nobody has to read its events. The end of ctx
// interrupts the run, unless it is Detached.
func Start[Out, In any](ctx context.Context, b *Binding, in In, opts ...Option) (*RunHandle[Out], error) {
	if err := answers[Out](b); err != nil {
		return nil, err
	}
	r, req, err := prepare(b, in, opts)
	if err != nil {
		return nil, err
	}
	h, err := r.Start(ctx, req)
	if err != nil {
		return nil, err
	}
	return &RunHandle[Out]{RunHandle: h}, nil
}

// RunHandle is a started run: see engine.RunHandle for watching it, deciding
// its approvals and cancelling it.
type RunHandle[Out any] struct{ *engine.RunHandle }

// Await waits for the end of the run; see engine.RunHandle.
func (h *RunHandle[Out]) Await(ctx context.Context) (Result[Out], error) {
	return decoded[Out](h.RunHandle.Await(ctx))
}

// FollowUp queues another input of the agent, which joins the run where it would
// otherwise complete; see engine.RunHandle.
func (h *RunHandle[Out]) FollowUp(ctx context.Context, in any) (engine.Receipt, error) {
	raw, err := tool.Encode(in)
	if err != nil {
		return engine.Receipt{}, fmt.Errorf("agent: the input does not encode: %w", err)
	}
	return h.RunHandle.FollowUp(ctx, raw)
}

// Result is how a run ended, with its output as the agent's own type.
type Result[Out any] struct {
	engine.RunResult
	Output Out // the zero value unless the run completed
}

// Fold reads a stream to its end and says how the run ended.
func Fold[Out any](events iter.Seq2[event.Event, error]) (Result[Out], error) {
	return decoded[Out](engine.Fold(events))
}

func decoded[Out any](r engine.RunResult, err error) (Result[Out], error) {
	result := Result[Out]{RunResult: r}
	if r.State == engine.StateCompleted {
		if err := json.Unmarshal(r.Output, &result.Output); err != nil {
			return result, fmt.Errorf("agent %q: its output is no %s: %w", r.Agent, reflect.TypeFor[Out](), err)
		}
	}
	return result, err
}

// ephemeralDuration bounds a run in memory whose author set no MaxDuration
// (D-28).
const ephemeralDuration = 5 * time.Minute

// prepare turns a call into what the engine runs.
func prepare[In any](b *Binding, in In, opts []Option) (*engine.Runner, engine.RunRequest, error) {
	none := engine.RunRequest{}
	if b == nil {
		return nil, none, fmt.Errorf("agent: a nil binding: use Definition.Bind")
	}
	input, err := encoded(b.definition, in)
	if err != nil {
		return nil, none, err
	}
	o := options{request: engine.RunRequest{Definition: b.Engine(), Input: input}}
	o.runner.Open = func() (journal.Journal, string) { j := memjournal.New(); return j, j.Boot() }
	if b.definition.patient {
		o.request.Allowance.Duration = ephemeralDuration
	}
	for _, option := range opts {
		option(&o)
	}
	r, err := engine.NewRunner(o.runner)
	return r, o.request, err
}

// encoded is the input as the agent's own type reads it. Raw JSON passes as it
// is: the run decodes it first of all.
func encoded[In any](d *Definition, in In) (json.RawMessage, error) {
	if raw, ok := any(in).(json.RawMessage); ok {
		return raw, nil
	}
	if t := reflect.TypeFor[In](); t != d.in {
		return nil, fmt.Errorf("agent %q takes %s, not %s", d.Name(), d.in, t)
	}
	raw, err := tool.Encode(in)
	if err != nil {
		return nil, fmt.Errorf("agent %q: the input does not encode: %w", d.Name(), err)
	}
	return raw, nil
}

// answers holds Out to the definition's own type.
func answers[Out any](b *Binding) error {
	if b == nil {
		return nil
	}
	if t := reflect.TypeFor[Out](); t != b.definition.out {
		return fmt.Errorf("agent %q answers with %s, not %s", b.definition.Name(), b.definition.out, t)
	}
	return nil
}

// The ways in which a run ends without an output, and what it can ask.
type (
	// Failure is the closed set of typed endings; find them with errors.As.
	Failure = engine.Failure
	// RunError is a typed failure.
	RunError = engine.RunError
	// InterruptedError says that somebody ended the run.
	InterruptedError = engine.InterruptedError
	// SuspendedError says that the run waits for something that did not come.
	SuspendedError = engine.SuspendedError
	// DefectError is code that broke, with the panic value and the stack.
	DefectError = engine.DefectError
	// BufferLimits tighten the ceilings of a run.
	BufferLimits = engine.BufferLimits
)

// ErrRunEnded answers what is asked of a run that has ended.
var ErrRunEnded = engine.ErrRunEnded

// WithTerminalDefectEvent lets a stream's events tell of a defect too; see
// engine.WithTerminalDefectEvent.
func WithTerminalDefectEvent(events iter.Seq2[event.Event, error]) iter.Seq2[event.Event, error] {
	return engine.WithTerminalDefectEvent(events)
}

// allowed tightens an allowance.
func allowed[N int | time.Duration](now *N, limit N) {
	if limit > 0 && (*now <= 0 || limit < *now) {
		*now = limit
	}
}
