package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// world is what outlives every process: the effects of tools, and what the
// model's provider has been sent.
type world struct {
	cell    *cell
	mu      sync.Mutex
	effects map[string]map[string]int // tool, operation: executions
	steps   map[string]int            // operation and step: executions of its body
	settled map[string]bool           // calls with a recorded result
	stepped map[string]bool           // operations and steps with a record
	change  chan struct{}             // closed when settled grows
	shown   map[string]string         // results the provider was sent, by call
	wrong   []string
}

func newWorld(c *cell) *world {
	return &world{cell: c, effects: map[string]map[string]int{}, steps: map[string]int{}, settled: map[string]bool{},
		stepped: map[string]bool{}, change: make(chan struct{}), shown: map[string]string{}}
}

func (w *world) complain(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// did is the effect of a handler: the one thing that must not happen twice.
func (w *world) did(name, operation string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.effects[name] == nil {
		w.effects[name] = map[string]int{}
	}
	w.effects[name][operation]++
}

// happened tells the truth about an operation.
func (w *world) happened(operation string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, operations := range w.effects {
		if operations[operation] > 0 {
			return true
		}
	}
	return false
}

// recorded hears of every batch that the process in hand made durable.
func (w *world) recorded(_ journal.Lane, b record.Batch) { w.read(b) }

func (w *world) read(b record.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range b.Records {
		switch r := r.(type) {
		case record.CallSettled:
			w.settled[r.Call] = true
		case record.StepRecorded:
			w.stepped[r.Call+" "+r.Step] = true
		}
	}
	close(w.change)
	w.change = make(chan struct{})
}

// turnOf holds a handler until the call before it has its result on record, so
// that handlers that run together end in one order.
func (w *world) turnOf(ctx context.Context, l *life, before string) error {
	for {
		w.mu.Lock()
		ready, change := before == "" || w.settled[before], w.change
		w.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-change:
		case <-l.over.Done():
			return errGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errGone = errors.New("the process is gone")

// args are those of every tool here.
type args struct {
	// After is the call whose result must be on record before this one ends.
	After string `json:"after,omitempty"`
	// Minutes the work takes.
	Minutes int `json:"minutes,omitempty"`
}

// effect is a tool with one effect.
func (c *cell) effect(name string, options ...tool.Option) *tool.Tool {
	return tool.New(name, "Does "+name+".", func(ctx context.Context, in args) (string, error) {
		l, info := c.worker(), callOf(ctx)
		if l.dead() {
			return "", errGone
		}
		if err := c.world.turnOf(ctx, l, in.After); err != nil {
			return "", err
		}
		c.world.did(name, info.Operation)
		c.pass(time.Duration(in.Minutes) * time.Minute)
		return "done " + info.Call, nil
	}, options...)
}

// stepper is a tool of three steps.
func (c *cell) stepper(name string, options ...tool.Option) *tool.Tool {
	return tool.New(name, "Does "+name+".", func(ctx context.Context, _ args) (string, error) {
		l, info := c.worker(), callOf(ctx)
		for _, step := range []string{"one", "two", "three"} {
			if _, err := tool.Step(ctx, step, func(context.Context) (string, error) {
				if l.dead() {
					return "", errGone
				}
				c.world.step(l, info, step)
				return step, nil
			}); err != nil {
				return "", err
			}
		}
		if l.dead() {
			return "", errGone
		}
		c.world.did(name, info.Operation)
		return "done " + info.Call, nil
	}, options...)
}

// step counts the body of a step. One that is on record must not run again,
// unless for somebody who was paused and cannot know.
func (w *world) step(l *life, info tool.Info, step string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stepped[info.Call+" "+step] && !l.revived() {
		w.wrong = append(w.wrong, fmt.Sprintf("step %s of call %s ran again although it is on record", step, info.Call))
	}
	w.steps[info.Operation+" "+step]++
}

// endless is a tool that ends when its run is aborted, and asks for that.
func (c *cell) endless(name string, options ...tool.Option) *tool.Tool {
	return tool.New(name, "Does "+name+" until it is told to stop.", func(ctx context.Context, _ args) (string, error) {
		l := c.worker()
		if l.dead() {
			return "", errGone
		}
		c.world.did(name, callOf(ctx).Operation)
		select {
		case c.started <- struct{}{}:
		case <-l.over.Done():
			return "", errGone
		case <-ctx.Done():
			return "", ctx.Err()
		}
		select {
		case <-l.over.Done():
			return "", errGone
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}, options...)
}

// truth is a probe that knows.
func (c *cell) truth() tool.Option {
	return tool.Reconcile(func(ctx context.Context, _ args) (string, tool.Resolution, error) {
		info := callOf(ctx)
		if c.worker().dead() {
			return "", "", errGone
		}
		if c.world.happened(info.Operation) {
			return "done " + info.Call, tool.Happened, nil
		}
		return "", tool.NotHappened, nil
	})
}

func callOf(ctx context.Context) tool.Info {
	info, _ := tool.CallInfo(ctx)
	return info
}

// answer is one model response: a text, or calls.
type answer struct {
	text  string
	calls []call
}

type call struct {
	tool string
	args args
}

func text(s string) answer          { return answer{text: s} }
func calls(list ...call) answer     { return answer{calls: list} }
func callID(response, n int) string { return fmt.Sprintf("call-%d-%d", response, n) }

// provider is a model that answers by the responses a request shows, so that
// any process gets the same answer to the same conversation. It refuses what
// real providers refuse: a call without its result, or a result that changes.
type provider struct{ cell *cell }

func (provider) Identity() (string, string) { return "scripted", "scripted-1" }

func (p provider) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	if p.cell.worker().dead() {
		return errGone
	}
	n := 1
	for _, m := range req.Messages {
		if m.Role == record.Assistant {
			n++
		}
	}
	p.cell.world.pairs(req.Messages)
	answers := p.cell.scenario.answers
	a := text("nothing more to do") // to what arrived
	switch {
	case n <= len(answers):
		a = answers[n-1]
	case p.cell.store.Death != Submission:
		p.cell.world.complain("the model is asked for response %d of %d", n, len(answers))
		return &model.Error{Class: model.Refused, Message: "no answer left"}
	}
	for _, part := range parts(n, a) {
		if err := emit(part); err != nil {
			return err
		}
	}
	return nil
}

func parts(n int, a answer) []model.Part {
	in, out := int64(10), int64(5)
	all := []model.Part{model.Start{ResponseID: fmt.Sprint("response-", n), Provider: "scripted", Model: "scripted-1"}}
	reason := model.Stop
	if a.text != "" {
		all = append(all, model.TextDelta{Text: a.text})
	}
	for i, c := range a.calls {
		reason = model.ToolCalls
		raw, _ := json.Marshal(c.args)
		all = append(all, model.ToolCallStart{Index: i, ID: callID(n, i+1), Tool: c.tool}, model.ToolArgsDelta{Index: i, JSON: string(raw)},
			model.ToolCallEnd{Index: i})
	}
	return append(all, model.UsageReport{Usage: record.Usage{InputTokens: &in, OutputTokens: &out}}, model.Finish{Reason: reason, Raw: string(reason)})
}

// pairs holds a request to what a provider wants: behind each message with
// calls one with exactly their results, the same as in every request before.
func (w *world) pairs(messages []record.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, m := range messages {
		if m.Role == record.Tool && (i == 0 || len(messages[i-1].Calls()) == 0) {
			w.wrong = append(w.wrong, fmt.Sprintf("message %d has results of no call", i))
		}
		var asked, answered []string
		for _, c := range m.Calls() {
			asked = append(asked, c.ID)
		}
		if len(asked) == 0 {
			continue
		}
		if i+1 < len(messages) {
			answered = w.results(messages[i+1])
		}
		if !slices.Equal(asked, answered) {
			w.wrong = append(w.wrong, fmt.Sprintf("the calls %v are answered by the results of %v", asked, answered))
		}
	}
}

func (w *world) results(m record.Message) (answered []string) {
	for _, part := range m.Parts {
		r, ok := part.(record.ToolResultPart)
		if !ok {
			continue
		}
		answered = append(answered, r.Call)
		result := string(r.Result.Inline)
		if before, known := w.shown[r.Call]; known && before != result {
			w.wrong = append(w.wrong, fmt.Sprintf("the result of %s was %s and is %s", r.Call, before, result))
		}
		w.shown[r.Call] = result
	}
	return answered
}
