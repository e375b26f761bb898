package embedded_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// searching is an agent whose provider may search the web itself.
func searching(t *testing.T, policy agent.Policy, enabled bool, tools ...*tool.Tool) *agent.Definition {
	t.Helper()
	c := agent.Config[lookIn]{Instructions: agent.Text[lookIn]("Help."), Tools: tools, Policy: policy}
	if enabled {
		c.ProviderTools = []model.ProviderTool{{Name: "web_search", Config: json.RawMessage(`{"max_uses": 3}`)}}
	}
	d, err := agent.Define[lookIn, string]("a", c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// response is a response of parts in blocks: "web ID" for a search the provider
// executed with a result of 100 KiB, "webfail ID" for one that failed, "call ID
// TOOL" for a call of ours, anything else for text.
func response(reason model.StopReason, blocks ...string) modeltest.Step {
	parts := []model.Part{model.Start{Provider: "test", Model: "m"}}
	i := 0
	for _, b := range blocks {
		f := strings.Fields(b)
		switch f[0] {
		case "web", "webfail":
			parts = append(parts, model.ToolCallStart{Index: i, ID: f[1], Tool: "web_search", ProviderExecuted: true}, model.ToolArgsDelta{Index: i, JSON: `{"q":"x"}`},
				model.ToolCallEnd{Index: i}, model.ProviderToolResult{Index: i + 1, Call: f[1], Failed: f[0] == "webfail", Opaque: []byte{0, 0xff},
					Result: json.RawMessage(fmt.Sprintf("%q", strings.Repeat("r", 100<<10)))})
			i++
		case "call":
			parts = append(parts, model.ToolCallStart{Index: i, ID: f[1], Tool: f[2]}, model.ToolArgsDelta{Index: i, JSON: "{}"}, model.ToolCallEnd{Index: i})
		default:
			parts = append(parts, model.TextDelta{Index: i, Text: b})
		}
		i++
	}
	return modeltest.Emit(append(parts, model.Finish{Reason: reason, Raw: string(reason)})...)
}

// One response of the provider's own calls and a final text ends the run in that
// turn; no handler of ours runs, although the agent has a tool of that sort, and
// the trace has a declaration and an end for each call, marked, and no start.
//
// conformance: PEX-01, PEX-02, PEX-06, CLS-05, RUN-022d @embedded @serverless
func TestProviderExecutedCallsEndTheRun(t *testing.T) {
	l := &log{}
	h := build(t, embedded.Config{Authorize: allowing(l)}, searching(t, agent.Policy{}, true, noting(l, "look")),
		response(model.Stop, "web w1", "webfail w2", "found it"))
	p := h.ends(h.submit("k"), "completed", "")
	if string(p.Output) != `"found it"` || p.Turns != 1 || len(l.all()) != 0 {
		t.Errorf("output %s after %d turns; %q", p.Output, p.Turns, l.all())
	}
	if len(h.records(record.KindCallPrepared, record.KindCallSettled)) != 0 {
		t.Error("the provider's calls have executions of ours")
	}
	want := []string{"ToolCallDeclared w1", "ToolCallSucceeded w1", "ToolCallDeclared w2", "ToolCallFailed w2"}
	if got := h.trace(event.KindToolCallDeclared, event.KindToolCallStarted, event.KindToolCallSucceeded, event.KindToolCallFailed); !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
	for _, e := range h.events() {
		raw, err := json.Marshal(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		if e.Call != "" && !strings.Contains(string(raw), `"providerExecuted":true`) {
			t.Errorf("%s %s does not say who executed it", e.Data.Kind(), e.Call)
		}
	}
	if req := h.model.Requests()[0]; len(req.ProviderTools) != 1 || string(req.ProviderTools[0].Config) != `{"max_uses":3}` {
		t.Errorf("the request enables %+v", req.ProviderTools)
	}
}

// Where another turn is needed the results stay in the assistant's message, whole
// and with their opaque bytes; only our call has a tool message, an execution, an
// authorization.
//
// conformance: PEX-01, PEX-04, PEX-05, PEX-07, RUN-022d, CLS-05, RUN-031a @embedded @serverless
func TestProviderResultsStayAssistantContent(t *testing.T) {
	l := &log{}
	h := build(t, embedded.Config{Authorize: allowing(l)}, searching(t, agent.Policy{}, true, noting(l, "look")),
		response(model.ToolCalls, "web w1", "call c1 look"), response(model.ToolCalls, "web w2"), response(model.Stop, "done"))
	h.ends(h.submit("k"), "completed", "")
	if got := l.all(); !slices.Equal(got, []string{"ask look", "start look"}) {
		t.Errorf("%q", got)
	}
	if n := len(h.records(record.KindCallPrepared)); n != 1 {
		t.Errorf("%d executions", n)
	}
	messages := h.model.Requests()[2].Messages
	roles := ""
	for _, m := range messages {
		roles += string(m.Role) + " "
		for _, part := range m.Parts {
			r, ok := part.(record.ToolResultPart)
			if !ok {
				continue
			}
			if r.ProviderExecuted != (m.Role == record.Assistant) {
				t.Errorf("the result of %s is in a message of the %s", r.Call, m.Role)
			}
			if opaque, err := r.Opaque.Bytes(); r.ProviderExecuted && (len(r.Result.Text()) != 100<<10 || err != nil || len(opaque) != 2 || r.Provider != "test") {
				t.Errorf("the result of %s came back with %d bytes, opaque %v, of %q", r.Call, len(r.Result.Text()), opaque, r.Provider)
			}
		}
	}
	if roles != "system user assistant tool assistant " {
		t.Errorf("the request is made of %s", roles)
	}
}

// A provider that executes what the agent did not enable has broken the protocol,
// and so has a mixed response that says stop.
//
// conformance: PEX-05, PEX-07 @embedded @serverless
func TestProviderExecutesOnlyWhatIsEnabled(t *testing.T) {
	for name, row := range map[string]struct {
		enabled bool
		step    modeltest.Step
	}{
		"not enabled":         {false, response(model.Stop, "web w1", "found")},
		"not enabled, mixed":  {false, response(model.ToolCalls, "web w1", "call c1 look")},
		"mixed and said stop": {true, response(model.Stop, "web w1", "call c1 look", "found")},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			h := build(t, embedded.Config{}, searching(t, agent.Policy{}, row.enabled, noting(l, "look")), row.step)
			h.ends(h.submit("k"), "failed", core.ModelProtocolError)
			if len(l.all()) != 0 || len(h.records(record.KindResponseRecorded)) != 0 {
				t.Errorf("started %q, recorded %v", l.all(), h.records(record.KindResponseRecorded))
			}
		})
	}
}

// What the provider executed counts against the limit of calls and against the
// turns (D-31).
//
// conformance: PEX-03 @embedded @serverless
func TestProviderExecutedCallsCount(t *testing.T) {
	for name, row := range map[string]struct {
		policy       agent.Policy
		steps        []modeltest.Step
		status, kind string
		exhausted    string
	}{
		"another call is due": {agent.Policy{MaxToolCalls: 2}, []modeltest.Step{response(model.ToolCalls, "web w1", "web w2"),
			response(model.ToolCalls, "call c1 look"), response(model.Stop, "so be it")}, "completed", "", core.DimToolCalls},
		"in one response": {agent.Policy{MaxToolCalls: 2}, []modeltest.Step{response(model.ToolCalls, "web w1", "web w2", "call c1 look"),
			response(model.Stop, "so be it")}, "completed", "", core.DimToolCalls},
		"another call is due, fail": {agent.Policy{MaxToolCalls: 2, OnExhaustion: agent.FailOnExhaustion}, []modeltest.Step{
			response(model.ToolCalls, "web w1", "web w2", "call c1 look")}, "failed", record.PolicyError, ""},
		"past the limit with an answer": {agent.Policy{MaxToolCalls: 1}, []modeltest.Step{response(model.Stop, "web w1", "web w2", "answer")},
			"completed", "", core.DimToolCalls},
		"at the limit with an answer": {agent.Policy{MaxToolCalls: 2}, []modeltest.Step{response(model.Stop, "web w1", "web w2", "answer")},
			"completed", "", ""},
		"the only turn": {agent.Policy{MaxTurns: 1}, []modeltest.Step{response(model.ToolCalls, "web w1"), response(model.Stop, "so be it")},
			"completed", "", core.DimTurns},
		"under constraint": {agent.Policy{MaxTurns: 1}, []modeltest.Step{response(model.ToolCalls, "web w1"), response(model.Stop, "web w2", "more")},
			"failed", core.ModelProtocolError, ""},
		"three failures in a row": {agent.Policy{}, []modeltest.Step{response(model.ToolCalls, "webfail w1", "webfail w2", "webfail w3")},
			"failed", record.PolicyError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			h := build(t, embedded.Config{}, searching(t, row.policy, true, noting(l, "look")), row.steps...)
			p := h.ends(h.submit("k"), row.status, row.kind)
			if p.Outcome.Exhausted != row.exhausted || len(l.all()) != 0 || h.model.Left() != 0 {
				t.Errorf("exhausted %q, started %q, %d steps left", p.Outcome.Exhausted, l.all(), h.model.Left())
			}
		})
	}
}
