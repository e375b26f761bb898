package engine

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// startTool runs a handler once. Its call was prepared by this attempt.
func (j job) startTool(ctx context.Context, e core.StartTool) core.Fact {
	defer j.a.handlers.close(e.Call)
	giveBack, entered := j.a.giveBackOf(e.Call), false
	defer func() {
		if !entered {
			giveBack()
		}
	}()
	ended := core.ToolEnded{Call: e.Call}
	args, err := j.resolve(ctx, e.Args)
	if err != nil {
		ended.Outcome, ended.Tag, ended.Result = record.Infrastructure, "StorageError", unreadable
		return ended
	}
	// Recorded steps are in hand before the handler is entered: a step whose
	// result cannot be read now is not a step that never ran.
	for _, step := range e.Steps {
		v, err := j.resolve(ctx, step.Result)
		if err != nil {
			ended.Outcome, ended.Tag, ended.Result = record.Infrastructure, "StorageError", unreadable
			return ended
		}
		j.a.handlers.recall(e.Call, step.Name, v)
	}
	fpToolStart.Hit()
	if !j.inTime(ctx) {
		ended.NotStarted = true
		return ended
	}
	began := time.Now()
	results := make(chan tool.Result, 1)
	entered = true
	go func() {
		defer giveBack()
		r := j.def.tool(e.Tool).Invoke(ctx, tool.Call{
			Conversation: j.conversation, Run: j.run, ID: e.Call, Attempt: j.a.head.Owner, Operation: e.Operation,
			Args: args.Inline, Steps: &stepRecorder{a: j.a, ctx: ctx, call: e.Call},
			Progress: func(ctx context.Context, said string) {
				j.a.out.live(ctx, e.Call, event.ToolCallProgress{Tool: e.Tool, Message: said})
			},
		})
		giveBack()
		results <- r
	}()
	result, ok := j.await(ctx, e, results)
	if !ok {
		return j.leaked(ctx, e, results, time.Since(began))
	}
	fpToolEnd.Hit()
	ended.Outcome, ended.Tag = result.Outcome, result.Tag
	ended.Result, ended.Bytes = j.bounded(result)
	ended.Duration = time.Since(began).Round(time.Microsecond)
	ended.TimedOut = result.Outcome == record.Interrupted && ctx.Err() == nil
	if ended.TimedOut {
		ended.Outcome = record.Failed
	}
	j.tellOutcome(e, ended)
	where := "tool " + e.Tool
	switch {
	case result.Defect != nil:
		ended.Defect, ended.Tag = true, core.Defect
		j.defect(where, e.Call, result.Defect, result.Defect.Panic, result.Defect.Stack)
	case result.Err != nil && result.Outcome != record.Interrupted:
		j.a.cfg.OnUserError(UserError{Conversation: j.conversation, Run: j.run, Call: e.Call, Where: where, Err: result.Err})
	}
	return ended
}

var unreadable = record.MustValue(map[string]any{"error": map[string]string{"tag": "StorageError", "message": "a stored value of the call could not be read"}})

// bounded is a result as the records and the model get it: bounded once, where
// its call ends (RUN-022).
func (j job) bounded(r tool.Result) (record.Value, int) {
	limit := tool.DefaultResultBound
	if j.def != nil {
		limit = j.def.Spec.Policy.ResultBound
	}
	bounded, original := tool.Bound(r.Value, limit)
	return record.Value{Inline: bounded}, original
}

// reconcile asks a tool's probe. A probe that fails leaves the outcome unknown.
func (j job) reconcile(ctx context.Context, e core.Reconcile) core.Fact {
	answer := core.Reconciled{Call: e.Call}
	args, err := j.resolve(ctx, e.Args)
	if err != nil {
		return answer
	}
	fpProbeStart.Hit()
	result, resolution, err := j.def.tool(e.Tool).Reconcile(ctx, tool.Call{
		Conversation: j.conversation, Run: j.run, ID: e.Call, Attempt: j.a.head.Owner, Operation: e.Operation, Args: args.Inline,
	})
	fpProbeEnd.Hit()
	if err != nil {
		j.logger(e.Call).Warn("probe could not say what became of a call", "tool", e.Tool)
		j.a.cfg.OnUserError(UserError{Conversation: j.conversation, Run: j.run, Call: e.Call, Where: "the reconcile probe of tool " + e.Tool, Err: err})
		return answer
	}
	answer.Resolution = resolution
	if resolution == record.Happened {
		answer.Outcome = result.Outcome
		answer.Result, _ = j.bounded(result)
	}
	return answer
}

// handlers holds the steps of running handlers: what is recorded, and who
// waits for a record to become durable.
type handlers struct {
	mu     sync.Mutex
	byCall map[string]*callSteps
}

type callSteps struct {
	recorded map[string]record.Value // inline
	acks     map[string]chan struct{}
}

func (h *handlers) open(call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byCall == nil {
		h.byCall = map[string]*callSteps{}
	}
	h.byCall[call] = &callSteps{recorded: map[string]record.Value{}, acks: map[string]chan struct{}{}}
}

// recall remembers a step an earlier execution completed.
func (h *handlers) recall(call, step string, result record.Value) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.byCall[call]; c != nil {
		c.recorded[step] = result
	}
}

func (h *handlers) close(call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byCall, call)
}

func (h *handlers) recorded(call, step string) (v record.Value, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.byCall[call]; c != nil {
		v, ok = c.recorded[step]
	}
	return v, ok
}

// await registers a step that is about to be recorded.
func (h *handlers) await(call, step string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	done := make(chan struct{})
	if c := h.byCall[call]; c != nil {
		c.acks[step] = done
	}
	return done
}

func (h *handlers) ack(call, step string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.byCall[call]; c != nil && c.acks[step] != nil {
		close(c.acks[step])
		delete(c.acks, step)
	}
}

// stepRecorder records the steps of one call through the attempt's loop.
type stepRecorder struct {
	a    *attempt
	ctx  context.Context // of the attempt's effects
	call string
}

// Recorded finds a step an earlier execution of the call completed.
func (s *stepRecorder) Recorded(step string) (json.RawMessage, bool) {
	v, ok := s.a.handlers.recorded(s.call, step)
	return v.Inline, ok
}

var errStepNotRecorded = errors.New("engine: the attempt ended before the step was recorded")

// Record returns once the step is durable.
func (s *stepRecorder) Record(ctx context.Context, step string, result json.RawMessage) error {
	v, err := record.JSONValue(result)
	if err != nil {
		return err
	}
	done := s.a.handlers.await(s.call, step)
	select {
	case s.a.posted <- posted{fact: core.StepEnded{Call: s.call, Step: step, Result: v}}:
	case <-s.ctx.Done():
		return errStepNotRecorded
	}
	select {
	case <-done:
		return nil
	case <-s.ctx.Done():
		return errStepNotRecorded
	}
}
