package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// job is one effect with what it may know: copies, never the state itself.
type job struct {
	a            *attempt
	def          *Definition
	run          string
	principal    string
	turn         int
	spans        spans
	conversation string
	effects      context.Context
}

// start runs one effect in a goroutine of the attempt. It posts exactly one
// fact, also when a user function panics (law 5). True means that the effect has
// ended already and its fact is noted.
func (a *attempt) start(e core.Effect) (noted bool) {
	var do func(context.Context) core.Fact
	switch e := e.(type) {
	case core.StopEffects:
		a.stopEffects()
		return false
	case core.AckStep:
		a.handlers.ack(e.Call, e.Step)
		return false
	case core.StartTool:
		a.handlers.open(e.Call)
	case core.AcquirePermit:
		held, wait := a.acquire(e, a.state.Run.Agent)
		if held {
			core.Note(a.desk, core.PermitHeld{Call: e.Call, Held: true})
			return true
		}
		do = wait
	}
	j := job{a: a, conversation: a.lane.Conversation, effects: a.effects, spans: a.spans}
	if _, probe := e.(core.Reconcile); probe {
		// A run that ends still asks what became of its lost calls.
		j.effects = context.WithoutCancel(a.effects)
	}
	if r := a.state.Run; r != nil {
		j.def, j.run, j.turn, j.principal = a.registry.definition(r.Agent), r.ID, turnOf(r), r.Principal
	}
	a.running.Add(1)
	go func() {
		defer a.running.Done()
		var p posted
		defer func() {
			if p.fact == nil && p.err == nil { // neither returned nor panicked: runtime.Goexit
				p.fact = j.faulted(e, errors.New("the goroutine was ended"), nil)
			}
			a.posted <- p
		}()
		if do != nil {
			p = posted{fact: do(j.effects)}
			return
		}
		p = j.guarded(e)
	}()
	return false
}

// guarded turns a panic into a fact, so that the core decides its outcome.
func (j job) guarded(e core.Effect) (p posted) {
	ctx, over := j.span(e)
	defer func() { over(p) }()
	defer func() {
		v := recover()
		if away, ok := v.(storeAway); ok {
			p = posted{err: away.err}
		} else if v != nil {
			p = posted{fact: j.faulted(e, fmt.Errorf("panic: %v", v), v)}
		}
	}()
	return posted{fact: j.do(ctx, e)}
}

// storeAway leaves an effect whose payload the store does not give out now: no
// fact may be made of that, because nothing is known.
type storeAway struct{ err error }

func (j job) do(ctx context.Context, e core.Effect) core.Fact {
	switch e := e.(type) {
	case core.ReadInbox:
		return j.readInbox(e)
	case core.DecodeInput:
		return j.decodeInput(ctx, e)
	case core.Instruct:
		return j.instruct(ctx, e)
	case core.PrepareContext:
		return j.prepareContext(ctx, e)
	case core.CallModel:
		return j.callModel(ctx)
	case core.CheckCalls:
		return j.checkCalls(ctx, e)
	case core.Authorize:
		return j.authorize(ctx, e)
	case core.StartTool:
		return j.startTool(ctx, e)
	case core.Reconcile:
		return j.reconcile(ctx, e)
	case core.Conclude:
		return j.conclude(ctx, e)
	case core.Delay:
		return j.delay(ctx, e)
	}
	panic(fmt.Sprintf("engine: unknown effect %T", e))
}

func (j job) decodeInput(ctx context.Context, e core.DecodeInput) core.Fact {
	in, err := j.resolve(ctx, e.Input)
	if err == nil {
		err = j.def.Hooks.Decode(in.Inline)
	}
	if err != nil {
		return core.InputDecoded{Problem: err.Error()}
	}
	return core.InputDecoded{}
}

func (j job) instruct(ctx context.Context, e core.Instruct) core.Fact {
	in, err := j.resolve(ctx, e.Input)
	if err != nil {
		return core.InstructionsReady{Err: payloadError(err)}
	}
	text, err := j.def.Hooks.Instruct(ctx, in.Inline)
	if err != nil {
		j.a.cfg.OnUserError(UserError{Conversation: j.conversation, Run: j.run, Where: "Config.Instructions", Err: err})
		return core.InstructionsReady{Err: &record.Error{Kind: core.InstructionsError, Message: "the agent's instructions could not be evaluated",
			Hint: "the server tells its cause to whoever runs it"}}
	}
	return core.InstructionsReady{Text: text}
}

func (j job) conclude(ctx context.Context, e core.Conclude) core.Fact {
	var text strings.Builder
	for _, p := range e.Message.Parts {
		if t, ok := p.(record.TextPart); ok {
			v, err := j.resolve(ctx, t.Text)
			if err != nil {
				return core.Concluded{Err: payloadError(err)}
			}
			text.WriteString(v.Text())
		}
	}
	out, err := j.def.Hooks.Conclude(text.String())
	if err != nil {
		return core.Concluded{Err: &record.Error{Kind: core.OutputError, Message: "the final answer is not a valid output: " + err.Error(),
			Hint: "the answer is in the run's records; check the output type and the instructions"}}
	}
	v, err := record.JSONValue(out)
	if err != nil {
		return core.Concluded{Err: &record.Error{Kind: core.OutputError, Message: err.Error()}}
	}
	return core.Concluded{Output: v}
}

func (j job) delay(ctx context.Context, e core.Delay) core.Fact {
	timer := time.NewTimer(e.For)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return core.Delayed{}
}

func payloadError(err error) *record.Error {
	return &record.Error{Kind: "StorageError", Message: "a stored payload could not be read", Hint: "run `layover verify`: " + err.Error()}
}

// checkCalls validates every call of a response: the tool exists and its
// arguments fit. All or none of them run.
func (j job) checkCalls(ctx context.Context, e core.CheckCalls) core.Fact {
	checks := make([]core.Check, 0, len(e.Calls))
	for _, c := range e.Calls {
		check := core.Check{Call: c.ID, ArgsDigest: c.Args.Digest()}
		args, err := j.resolve(ctx, c.Args)
		if err != nil {
			check.Problem = err.Error()
		} else if t := j.def.tool(c.Tool); t == nil {
			check.Problem = fmt.Sprintf("there is no tool %q; the tools are %s", c.Tool, j.def.toolNames())
		} else if err := t.Check(args.Inline); err != nil {
			check.Problem = err.Error()
		}
		checks = append(checks, check)
	}
	return core.CallsChecked{Checks: checks}
}
