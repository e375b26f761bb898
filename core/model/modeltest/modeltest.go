// Package modeltest has a scripted model: a double for tests of agents and of
// the engine, which answers request after request as its script says.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// Provider and Name are the identity of scripted models.
const (
	Provider = "script"
	Name     = "script-1"
)

// Step answers one request, or is a Check in front of the step that does.
type Step struct {
	check  func(*model.Request) error
	answer func(ctx context.Context, response int, emit func(model.Part) error) error
}

// Emit sends exactly these parts and ends the stream.
func Emit(parts ...model.Part) Step {
	return Step{answer: func(ctx context.Context, _ int, emit func(model.Part) error) error {
		return send(ctx, emit, parts...)
	}}
}

func send(ctx context.Context, emit func(model.Part) error, parts ...model.Part) error {
	for _, p := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := emit(p); err != nil {
			return err
		}
	}
	return nil
}

// Text is a complete final answer.
func Text(s string) Step {
	return Step{answer: func(ctx context.Context, n int, emit func(model.Part) error) error {
		return send(ctx, emit, start(n), model.TextDelta{Text: s}, usage(), model.Finish{Reason: model.Stop, Raw: "stop"})
	}}
}

// Call is one tool call of a Calls step.
type Call struct {
	ID   string // defaults to call-RESPONSE-POSITION, see Script
	Tool string
	// Args is JSON text, or any value that is then encoded as JSON.
	Args any
}

// Calls is a complete response that calls tools.
func Calls(calls ...Call) Step {
	return Step{answer: func(ctx context.Context, n int, emit func(model.Part) error) error {
		parts := []model.Part{start(n)}
		for i, c := range calls {
			if c.ID == "" {
				c.ID = fmt.Sprintf("call-%d-%d", n, i+1)
			}
			args, err := arguments(c.Args)
			if err != nil {
				return fmt.Errorf("modeltest: arguments of %s: %w", c.ID, err)
			}
			parts = append(parts,
				model.ToolCallStart{Index: i, ID: c.ID, Tool: c.Tool},
				model.ToolArgsDelta{Index: i, JSON: args},
				model.ToolCallEnd{Index: i})
		}
		parts = append(parts, usage(), model.Finish{Reason: model.ToolCalls, Raw: "tool_calls"})
		return send(ctx, emit, parts...)
	}}
}

func arguments(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "{}", nil
	case string:
		return v, nil
	case json.RawMessage:
		return string(v), nil
	}
	raw, err := json.Marshal(v)
	return string(raw), err
}

// Fail ends the request with err, before any part.
func Fail(err error) Step {
	return Step{answer: func(context.Context, int, func(model.Part) error) error { return err }}
}

// Hang waits for the end of the request's context.
func Hang() Step {
	return Step{answer: func(ctx context.Context, _ int, _ func(model.Part) error) error {
		<-ctx.Done()
		return ctx.Err()
	}}
}

// errEnough ends a step that was asked for its first parts only.
var errEnough = errors.New("modeltest: enough")

// FailAfter answers as step does for the first n parts, and then fails with err:
// in the middle of the response, or, with every part of the step sent, when all
// seemed well.
func FailAfter(n int, err error, step Step) Step {
	return step.first(n, func(context.Context) error { return err })
}

// HangAfter answers as step does for the first n parts and then waits for the
// end of the request's context.
func HangAfter(n int, step Step) Step {
	return step.first(n, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
}

// CutAfter answers as step does for the first n parts and then ends the stream
// as if that were all.
func CutAfter(n int, step Step) Step {
	return step.first(n, func(context.Context) error { return nil })
}

func (s Step) first(n int, then func(context.Context) error) Step {
	return Step{check: s.check, answer: func(ctx context.Context, response int, emit func(model.Part) error) error {
		left := n
		err := s.answer(ctx, response, func(p model.Part) error {
			if left == 0 {
				return errEnough
			}
			left--
			return emit(p)
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		return then(ctx)
	}}
}

// Malform answers with what change makes of the step's parts.
func Malform(step Step, change func([]model.Part) []model.Part) Step {
	return Step{check: step.check, answer: func(ctx context.Context, response int, emit func(model.Part) error) error {
		var parts []model.Part
		if err := step.answer(ctx, response, func(p model.Part) error { parts = append(parts, p); return nil }); err != nil {
			return err
		}
		return send(ctx, emit, change(parts)...)
	}}
}

// Check looks at a request and lets the step after it answer. Its error ends
// the request in that step's place.
func Check(check func(*model.Request) error) Step { return Step{check: check} }

func start(n int) model.Part {
	return model.Start{ResponseID: fmt.Sprintf("resp-%d", n), Provider: Provider, Model: Name}
}

func usage() model.Part {
	in, out := int64(10), int64(5)
	return model.UsageReport{Usage: record.Usage{InputTokens: &in, OutputTokens: &out}}
}

// Model answers each request with the next step of its script, or with that of
// its turn. It is safe for
// concurrent use; concurrent requests take steps in the order they arrive.
type Model struct {
	mu       sync.Mutex
	steps    []Step
	next     int
	byTurn   bool
	requests []*model.Request
}

// Script makes a model of its steps. The ids it gives count responses from the
// conversation in the request, so that they stay unique when a second model
// goes on where the first one stopped.
func Script(steps ...Step) *Model { return &Model{steps: slices.Clone(steps)} }

// Turns makes a model whose nth step, with the checks in front of it, answers
// the nth response of a conversation, however often that is asked for: after a
// crash in which a response was lost, the same one comes again.
func Turns(steps ...Step) *Model { return &Model{steps: slices.Clone(steps), byTurn: true} }

// Identity names the model in records.
func (m *Model) Identity() (provider, name string) { return Provider, Name }

// Stream takes the next step, with the checks in front of it. A request past
// the end of the script is an error of class Refused that says so.
func (m *Model) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	n, steps := m.take(req)
	for _, step := range steps {
		if step.answer != nil {
			return step.answer(ctx, n, emit)
		}
		if err := step.check(req); err != nil {
			return err
		}
	}
	return &model.Error{Class: model.Refused,
		Message: fmt.Sprintf("modeltest: the script has no step left for response %d of the conversation", n)}
}

// take records a request and hands out the steps that answer it.
func (m *Model) take(req *model.Request) (int, []Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, copied(req))
	response := 1
	for _, msg := range req.Messages {
		if msg.Role == record.Assistant {
			response++
		}
	}
	if m.byTurn {
		m.next = 0
		for n := 1; n < response; n++ {
			m.step()
		}
	}
	return response, m.step()
}

// step moves on behind the next step that answers.
func (m *Model) step() []Step {
	first := m.next
	for m.next < len(m.steps) {
		m.next++
		if m.steps[m.next-1].answer != nil {
			break
		}
	}
	return m.steps[first:m.next]
}

// copied keeps a request as it was sent: the sender may reuse its slices.
func copied(req *model.Request) *model.Request {
	c := *req
	c.Messages, c.Tools = slices.Clone(req.Messages), slices.Clone(req.Tools)
	for i := range c.Messages {
		c.Messages[i].Parts = slices.Clone(c.Messages[i].Parts)
	}
	return &c
}

// Requests lists the requests so far.
func (m *Model) Requests() []*model.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Left is how many steps have not been taken.
func (m *Model) Left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.steps) - m.next
}
