package embedded_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

type lookIn struct {
	Order string `json:"order"`
}

type lookOut struct {
	Cents int `json:"cents"`
}

// story is one run, told on every assembly.
type story struct {
	name   string
	policy agent.Policy
	steps  []modeltest.Step
	input  lookIn
	ends   engine.RunState
	kind   string // of a failure
}

func storyAgent(p agent.Policy) *agent.Definition {
	look := tool.New("look", "Looks an order up.", func(_ context.Context, in lookIn) (lookOut, error) {
		switch in.Order {
		case "none":
			return lookOut{}, tool.Failf("NoOrder", "there is no such order")
		case "abort":
			return lookOut{}, tool.Abort(tool.Failf("Closed", "the shop is closed"))
		}
		return lookOut{4900}, nil
	}, tool.Readonly())
	pay := tool.New("pay", "Pays.", func(context.Context, lookIn) (lookOut, error) { return lookOut{1}, nil }, tool.RequireApproval())
	return agent.MustDefine[lookIn, lookOut]("story", agent.Config[lookIn]{
		Instructions: func(_ context.Context, in lookIn) (string, error) {
			if in.Order == "no instructions" {
				return "", errors.New("nothing to say")
			}
			return "Look the order up.", nil
		},
		Tools: []*tool.Tool{look, pay}, ProviderTools: []model.ProviderTool{{Name: "search"}}, Policy: p,
	})
}

func looks(orders ...string) modeltest.Step {
	var calls []modeltest.Call
	for _, o := range orders {
		calls = append(calls, modeltest.Call{Tool: "look", Args: lookIn{o}})
	}
	return modeltest.Calls(calls...)
}

// asOne is a policy under which the events of parallel calls have one order.
func asOne(p agent.Policy) agent.Policy {
	p.ToolConcurrency = 1
	return p
}

func stories() []story {
	answer := modeltest.Text(`{"cents":7}`)
	return []story{
		{name: "an answer", steps: []modeltest.Step{answer}, ends: engine.StateCompleted},
		{name: "a tool", steps: []modeltest.Step{looks("A-1"), answer}, ends: engine.StateCompleted},
		{name: "two calls of a turn", policy: asOne(agent.Policy{}), steps: []modeltest.Step{looks("A-1", "none"), answer}, ends: engine.StateCompleted},
		{name: "a call that is invalid", steps: []modeltest.Step{modeltest.Calls(modeltest.Call{Tool: "lok", Args: lookIn{"A-1"}}), answer}, ends: engine.StateCompleted},
		{name: "a provider's own tool", steps: []modeltest.Step{modeltest.Emit(
			model.Start{Provider: "p", Model: "m", ResponseID: "r"},
			model.ToolCallStart{Index: 0, ID: "s1", Tool: "search", ProviderExecuted: true}, model.ToolArgsDelta{Index: 0, JSON: `{"q":"shoes"}`}, model.ToolCallEnd{Index: 0},
			model.ProviderToolResult{Index: 1, Call: "s1", Result: json.RawMessage(`"found"`)},
			model.TextDelta{Index: 2, Text: `{"cents":`}, model.TextDelta{Index: 2, Text: `7}`}, model.Finish{Reason: model.Stop, Raw: "end"})}, ends: engine.StateCompleted},
		{name: "no output", steps: []modeltest.Step{modeltest.Text("seven")}, ends: engine.StateFailed, kind: core.OutputError},
		{name: "no instructions", input: lookIn{"no instructions"}, ends: engine.StateFailed, kind: core.InstructionsError},
		{name: "a refusal", steps: []modeltest.Step{modeltest.Fail(&model.Error{Class: model.Refused, Message: "no credit"})}, ends: engine.StateFailed, kind: core.ModelRefused},
		{name: "a broken protocol", steps: []modeltest.Step{modeltest.Emit(model.TextDelta{Text: "x"})}, ends: engine.StateFailed, kind: core.ModelProtocolError},
		{name: "a stop without an answer", steps: []modeltest.Step{modeltest.Emit(model.Start{}, model.TextDelta{Text: "x"}, model.Finish{Reason: model.Length})},
			ends: engine.StateFailed, kind: core.ModelStopped},
		{name: "an aborting tool", steps: []modeltest.Step{looks("abort")}, ends: engine.StateFailed, kind: core.ToolAborted},
		{name: "turns used up", policy: agent.Policy{MaxTurns: 1, OnExhaustion: agent.FailOnExhaustion}, steps: []modeltest.Step{looks("A-1")},
			ends: engine.StateFailed, kind: record.PolicyError},
		{name: "failures in a row", policy: agent.Policy{RepeatedFailureLimit: 1}, steps: []modeltest.Step{looks("none")}, ends: engine.StateFailed, kind: record.PolicyError},
		{name: "an approval", steps: []modeltest.Step{modeltest.Calls(modeltest.Call{Tool: "pay", Args: lookIn{"A-1"}})}, ends: engine.StateSuspended},
	}
}

// told is a story as one assembly tells it.
type told struct {
	events []event.Event // live ones too
	result engine.RunResult
	err    error
}

// trace is what both assemblies must agree about: the canonical events without
// what a clock says.
func (s told) trace(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, e := range s.events {
		if e.Provisional {
			continue
		}
		e.At = time.Time{}
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]any
		if err := json.Unmarshal(raw, &members); err != nil {
			t.Fatal(err)
		}
		for _, clock := range []string{"deadline", "durationMs", "expiresAt", "until"} {
			delete(members["data"].(map[string]any), clock)
		}
		if raw, err = json.Marshal(members); err != nil {
			t.Fatal(err)
		}
		out = append(out, string(raw))
	}
	return out
}

func (s told) path() []engine.RunState {
	var life engine.Lifecycle
	for _, e := range s.events {
		life.Add(e)
	}
	return life.Path()
}

const storyKey = "k1"

func (s story) order() lookIn {
	if s.input == (lookIn{}) {
		return lookIn{"A-1"}
	}
	return s.input
}

// ephemeral is what a story in memory is told with: fixed ids, a fresh script.
func (s story) ephemeral() (*agent.Binding, []agent.Option) {
	n := 0
	ids := func() string { n++; return fmt.Sprint("k", n) }
	return storyAgent(s.policy).Bind(modeltest.Script(s.steps...)),
		[]agent.Option{agent.InConversation("c"), agent.As("ada"), agent.IDs(ids), agent.Log(slog.New(slog.DiscardHandler))}
}

// timeless ignores what a clock says.
var timeless = gocmp.FilterPath(func(p gocmp.Path) bool { return p.Last().String() == ".ExpiresAt" }, gocmp.Ignore())

func collect(stream engine.EventStream) (s told) {
	s.result, s.err = engine.Fold(func(yield func(event.Event, error) bool) {
		for e, err := range stream {
			if err == nil {
				s.events = append(s.events, e)
			}
			if !yield(e, err) {
				return
			}
		}
	})
	return s
}

// durable tells a story in a house and reads it as anybody would.
func (s story) durable(h *house) (told, engine.Progress) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer cancel()
	input, err := json.Marshal(s.order())
	if err != nil {
		h.t.Fatal(err)
	}
	receipt, err := h.rt.Submit(ctx, engine.SubmitRequest{Agent: "story", Conversation: "c", Key: storyKey, Principal: "ada", Input: input})
	if err != nil {
		h.t.Fatal(err)
	}
	out := collect(func(yield func(event.Event, error) bool) {
		for n, err := range h.rt.Events(ctx, "", "c", engine.EventsOptions{Follow: true, Live: true}) {
			if !yield(n.Event, err) || err != nil {
				return
			}
			switch n.Event.Data.(type) {
			case event.RunCompleted, event.RunFailed, event.RunInterrupted, event.RunSuspended:
				return
			}
		}
	})
	p, err := h.rt.Await(ctx, "", receipt.Submission, engine.UntilParked)
	if err != nil {
		h.t.Fatal(err)
	}
	return out, p
}

// conformance: RUN-001a, LIFE-01, LIFE-02, RUN-002b, EV-02, EV-03, EV-05, EV-06, EV-07, EV-08, EV-09, EV-11 @embedded @serverless
//
// The same script gives the same trace, the same states and the same result,
// wherever it runs and however it is read: Run is a fold over Stream, and the
// events of a durable run fold to its recorded outcome.
func TestAssembliesAgree(t *testing.T) {
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			binding, opts := s.ephemeral()
			memory := collect(agent.Stream(t.Context(), binding, s.order(), opts...))
			disk, progress := s.durable(build(t, embedded.Config{}, storyAgent(s.policy), s.steps...))
			if diff := gocmp.Diff(memory.trace(t), disk.trace(t)); diff != "" {
				t.Errorf("the traces differ (-memory +disk):\n%s", diff)
			}
			for where, told := range map[string]told{"memory": memory, "disk": disk} {
				held(t, where, s, told)
			}
			binding, opts = s.ephemeral()
			ran, err := agent.Run[lookOut](t.Context(), binding, s.order(), opts...)
			if diff := gocmp.Diff(memory.result, ran.RunResult, timeless); diff != "" {
				t.Errorf("Run and a fold of Stream differ:\n%s", diff)
			}
			if diff := gocmp.Diff(memory.err, err, timeless); diff != "" {
				t.Errorf("Run and Stream end in different errors:\n%s", diff)
			}
			if diff := gocmp.Diff(memory.result, disk.result, timeless); diff != "" {
				t.Errorf("the results differ (-memory +disk):\n%s", diff)
			}
			recorded(t, disk, progress)
		})
	}
}

// recorded holds what the events of a durable run fold to to what the journal
// says about it.
func recorded(t *testing.T, disk told, p engine.Progress) {
	t.Helper()
	state := map[string]engine.RunState{"completed": engine.StateCompleted, "failed": engine.StateFailed, "parked": engine.StateSuspended}[p.Status]
	if disk.result.State != state || string(disk.result.Output) != string(p.Output) || disk.result.Turns != p.Turns {
		t.Errorf("the events fold to %+v, the outcome is %+v", disk.result, p)
	}
	if p.Outcome == nil || p.Outcome.Error == nil {
		return
	}
	var failed *engine.RunError
	if !errors.As(disk.err, &failed) || failed.Kind != p.Outcome.Error.Kind || failed.Message != p.Outcome.Error.Message {
		t.Errorf("the events end in %v, the outcome is %+v", disk.err, p.Outcome.Error)
	}
}

// held holds one trace to what every trace promises.
func held(t *testing.T, where string, s story, told told) {
	t.Helper()
	var failed *engine.RunError
	if told.result.State != s.ends || errors.As(told.err, &failed) != (s.kind != "") || failed != nil && failed.Kind != s.kind {
		t.Errorf("%s: ends %s, %v", where, told.result.State, told.err)
	}
	want := []engine.RunState{engine.StateCreated, engine.StatePreparing, engine.StateRunning, s.ends}
	if got := told.path(); !slices.Equal(got, want) {
		t.Errorf("%s: the run went through %v", where, got)
	}
	ends := 0
	for i, e := range told.events {
		if e.Run == "" || e.Conversation != "c" || e.Agent != "story" || e.Run != told.events[0].Run {
			t.Errorf("%s: event %d is of run %q in %q by %q", where, i, e.Run, e.Conversation, e.Agent)
		}
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back event.Event
		if err := json.Unmarshal(raw, &back); err != nil || !strings.HasPrefix(string(raw), `{"v":1,"kind":"`) {
			t.Errorf("%s: event %d: %s: %v", where, i, raw, err)
		}
		if diff := gocmp.Diff(e, back); diff != "" {
			t.Errorf("%s: event %d does not survive JSON:\n%s", where, i, diff)
		}
		if i > 0 && !before(told.events[i-1], e) {
			t.Errorf("%s: event %d (%d.%d.%d) is out of order", where, i, e.Epoch, e.Sequence, e.Sub)
		}
		belongs(t, where, e)
		switch e.Data.(type) {
		case event.RunCompleted, event.RunFailed, event.RunInterrupted, event.RunSuspended:
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("%s: %d ends", where, ends)
	}
	if last := told.events[len(told.events)-1]; last.Turn != 0 || last.Provisional {
		t.Errorf("%s: the last event is %+v", where, last)
	}
}

func before(a, b event.Event) bool {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Sub, b.Sub)) < 0
}

// belongs holds turn and call to the events that belong to one (EV-05), and
// the events of a call to say who executes it (EV-07, EV-08).
func belongs(t *testing.T, where string, e event.Event) {
	t.Helper()
	var turn, call bool
	byProvider, says := false, true
	switch d := e.Data.(type) {
	case event.TurnStarted, event.TextDelta, event.ReasoningDelta, event.ResponseCompleted:
		turn = true
	case event.ToolCallDeclared:
		turn, call, byProvider = true, true, d.ProviderExecuted
		if !json.Valid(d.Args) {
			t.Errorf("%s: a declared call with parameters %q", where, d.Args)
		}
	case event.ToolCallSucceeded:
		turn, call, byProvider = true, true, d.ProviderExecuted
	case event.ToolCallFailed:
		turn, call, byProvider = true, true, d.ProviderExecuted
	case event.ToolCallStarted, event.ApprovalRequested, event.ApprovalResolved:
		turn, call, says = true, true, false
	}
	if (e.Turn > 0) != turn || (e.Call != "") != call {
		t.Errorf("%s: %s has turn %d and call %q", where, e.Data.Kind(), e.Turn, e.Call)
	}
	if call && says && byProvider != (e.Call == "s1") {
		t.Errorf("%s: %s of call %q says providerExecuted=%v", where, e.Data.Kind(), e.Call, byProvider)
	}
}
