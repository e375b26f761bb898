package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

func call(name string, n int) modeltest.Call { return modeltest.Call{Tool: name, Args: arg{n}} }

// conformance: TURN-01 @embedded @serverless
//
// An admitted input the attempt's own schema refuses settles failed at step 1
// (D-61): no instructions, no model, no tool.
func TestInputIsDecodedFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		instructed := 0
		define := func(strict bool) *agent.Definition {
			def, err := agent.Define[map[string]any, string]("a", agent.Config[map[string]any]{
				Instructions: func(context.Context, map[string]any) (string, error) { instructed++; return "Go.", nil },
			})
			if strict {
				type exact struct {
					N int `json:"n"`
				}
				def, err = agent.Define[exact, string]("a", agent.Config[exact]{
					Instructions: func(context.Context, exact) (string, error) { instructed++; return "Go.", nil },
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			return def
		}
		r := newRig(t, define(false))
		id := r.submit(`{"n":"not a number"}`)
		r.restart(define(true)) // the build that runs it knows better than the one that admitted it
		r.work()
		must(t, r.progress(id), "failed", core.InputError)
		if n := len(r.model.Requests()); instructed != 0 || n != 0 {
			t.Errorf("instructions evaluated %d times, %d requests made", instructed, n)
		}
	})
}

// conformance: TURN-02, TURN-03, TURN-05, RUN-028a, OUT-01 @embedded @serverless
func TestFirstRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		type out struct {
			Total int `json:"total"`
		}
		c := &counter{}
		def, err := agent.Define[input, out]("a", agent.Config[input]{
			Instructions: func(_ context.Context, in input) (string, error) { return "Help " + in.Name + ".", nil },
			Tools:        []*tool.Tool{handler(c, "look", tool.Readonly())},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, def, modeltest.Calls(call("look", 0)), modeltest.Text(`{"total":7}`))
		p := r.run(kim)
		must(t, p, "completed", "")
		if string(p.Output) != `{"total":7}` {
			t.Errorf("output %s", p.Output)
		}
		requests := r.model.Requests()
		if len(requests) != 2 {
			t.Fatalf("%d requests, want one for each turn", len(requests))
		}
		for i, req := range requests {
			messages := req.Messages
			if messages[0].Role != record.System || text(messages[0]) != "Help Kim." {
				t.Errorf("request %d does not begin with the evaluated instructions: %s", i, said(req))
			}
			if messages[1].Role != record.System || !strings.Contains(text(messages[1]), `"total"`) {
				t.Errorf("request %d does not show the output contract behind the last system message: %s", i, said(req))
			}
			if messages[2].Role != record.User || text(messages[2]) != kim {
				t.Errorf("request %d does not show the input: %s", i, said(req))
			}
		}
		for _, rec := range r.records(record.KindResponseRecorded) {
			if strings.Contains(string(compactRecord(t, rec)), "JSON Schema") {
				t.Error("the contract entered the log")
			}
		}
	})
}

func text(m record.Message) string {
	for _, p := range m.Parts {
		if t, ok := p.(record.TextPart); ok {
			return t.Text.Text()
		}
	}
	return ""
}

func compactRecord(t *testing.T, r record.Record) []byte {
	t.Helper()
	b := record.Batch{Slot: 1, Epoch: 1, At: time.Unix(0, 0), Records: record.Records{r}}
	out, err := b.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// conformance: TURN-04 @embedded @serverless
//
// An abort or a passed deadline at the seam is seen before model I/O.
func TestSeamIsCheckedBeforeTheModel(t *testing.T) {
	for name, end := range map[string]struct {
		before       func(*rig, string)
		status, kind string
	}{
		"aborted while it waits for a person": {func(r *rig, id string) {
			if _, err := r.admitter.RequestAbort(context.Background(), engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c", Submission: id}); err != nil {
				r.t.Fatal(err)
			}
		}, "aborted", "Aborted"},
		"past its deadline when it is resumed": {func(r *rig, _ string) {
			r.approve(0, true)
			time.Sleep(2 * time.Hour)
		}, "failed", record.PolicyError},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				r := newRig(t, define(t, agent.Policy{MaxDuration: time.Hour}, handler(c, "pay", tool.RequireApproval())),
					modeltest.Calls(call("pay", 0)), modeltest.Text("never asked for"))
				id := r.submit(kim)
				if ended := r.work(); ended != engine.ParkedLane {
					t.Fatalf("ended %s", ended)
				}
				end.before(r, id)
				r.work()
				must(t, r.progress(id), end.status, end.kind)
				if n := len(r.model.Requests()); n != 1 || c.of("pay") != 0 {
					t.Errorf("%d requests and %d handlers", n, c.of("pay"))
				}
				r.verify()
			})
		})
	}
}

// conformance: TURN-08, RSP-12, RUN-004 @embedded @serverless
//
// A malformed response has no consequence: no tool, no history, a typed end.
func TestMalformedResponse(t *testing.T) {
	start := model.Start{Provider: "p", Model: "m"}
	for name, parts := range map[string][]model.Part{
		"no start":           {model.TextDelta{Text: "x"}, model.Finish{Reason: model.Stop}},
		"calls with a stop":  {start, model.ToolCallStart{ID: "1", Tool: "look"}, model.ToolArgsDelta{JSON: `{"n":0}`}, model.ToolCallEnd{}, model.Finish{Reason: model.Stop}},
		"open arguments":     {start, model.ToolCallStart{ID: "1", Tool: "look"}, model.ToolArgsDelta{JSON: `{"n":0}`}, model.Finish{Reason: model.ToolCalls}},
		"cut arguments":      {start, model.ToolCallStart{ID: "1", Tool: "look"}, model.ToolArgsDelta{JSON: `{"n":`}, model.ToolCallEnd{}, model.Finish{Reason: model.ToolCalls}},
		"content behind it":  {start, model.Finish{Reason: model.Stop}, model.TextDelta{Text: "x"}},
		"length with a call": {start, model.ToolCallStart{ID: "1", Tool: "look"}, model.ToolArgsDelta{JSON: `{"n":0}`}, model.ToolCallEnd{}, model.Finish{Reason: model.Length}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				r := newRig(t, define(t, agent.Policy{}, handler(c, "look", tool.Readonly())), modeltest.Emit(parts...))
				must(t, r.run(kim), "failed", core.ModelProtocolError)
				if c.of("look") != 0 || len(r.records(record.KindResponseRecorded)) != 0 {
					t.Errorf("%d handlers, responses %v", c.of("look"), r.records(record.KindResponseRecorded))
				}
				r.verify()
			})
		})
	}
}

// failure: A10
//
// A stream that just ends, without its completion, is asked for again and
// leaves nothing behind; one that stays broken parks the run instead of
// failing it.
func TestCutStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cut := modeltest.Emit(model.Start{Provider: "p", Model: "m"}, model.TextDelta{Text: "half an ans"})
		r := newRig(t, define(t, agent.Policy{}), cut, cut, modeltest.Text("whole"))
		p := r.run(kim)
		must(t, p, "completed", "")
		if string(p.Output) != `"whole"` || len(r.records(record.KindResponseRecorded)) != 1 {
			t.Errorf("output %s", p.Output)
		}
		for _, req := range r.model.Requests() {
			if strings.Contains(said(req), "half") {
				t.Error("a cut answer reached a later request")
			}
		}
	})
}

// conformance: TURN-09, OUT-04 @embedded @serverless
func TestFinalAnswerIsDecoded(t *testing.T) {
	type out struct {
		Total int `json:"total"`
	}
	for answer, want := range map[string][2]string{
		`{"total":7}`:       {"completed", ""},
		" {\"total\":7}\n":  {"completed", ""},
		`{"total":"seven"}`: {"failed", core.OutputError},
		`seven`:             {"failed", core.OutputError},
		`{"total":7} done`:  {"failed", core.OutputError},
		`{"total":7,"x":1}`: {"failed", core.OutputError},
		`{}`:                {"failed", core.OutputError},
	} {
		t.Run(answer, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				def, err := agent.Define[input, out]("a", agent.Config[input]{Instructions: agent.Text[input]("Count.")})
				if err != nil {
					t.Fatal(err)
				}
				r := newRig(t, def, modeltest.Text(answer))
				must(t, r.run(kim), want[0], want[1])
				if n := len(r.model.Requests()); n != 1 {
					t.Errorf("%d requests: a bad answer is not asked for again (D-18)", n)
				}
				if n := len(r.records(record.KindResponseRecorded)); n != 1 {
					t.Errorf("%d responses recorded", n)
				}
				r.verify()
			})
		})
	}
}

// conformance: TURN-10, TURN-11, TOOL-02, TOOL-03, TOOL-06 @embedded @serverless
//
// The whole batch is validated before anything about it happens: one bad call
// and no handler runs, nobody is asked, every call is answered.
func TestBatchIsValidatedWhole(t *testing.T) {
	for name, bad := range map[string]modeltest.Call{
		"unknown tool":  {Tool: "nope", Args: arg{0}},
		"bad arguments": {Tool: "look", Args: `{"n":"one"}`},
		"extra field":   {Tool: "look", Args: `{"n":1,"m":2}`},
		"missing field": {Tool: "look", Args: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				tools := []*tool.Tool{handler(c, "look", tool.Readonly()), handler(c, "pay", tool.RequireApproval())}
				r := newRig(t, define(t, agent.Policy{}, tools...),
					modeltest.Calls(call("look", 0), call("pay", 0), bad), modeltest.Text("sorry"))
				must(t, r.run(kim), "completed", "")
				if len(c.order) != 0 || len(r.records(record.KindApprovalRequested, record.KindCallPrepared)) != 0 {
					t.Errorf("handlers %v; records %v", c.order, r.records(record.KindApprovalRequested, record.KindCallPrepared))
				}
				last := said(r.model.Requests()[1])
				if strings.Count(last, "result ") != 3 || !strings.Contains(last, "not executed") {
					t.Errorf("the next request does not answer every call:\n%s", last)
				}
				r.verify()
			})
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				r := newRig(t, define(t, agent.Policy{OnInvalidToolCall: agent.FailInvalid}, handler(c, "look", tool.Readonly())),
					modeltest.Calls(call("look", 0), bad))
				must(t, r.run(kim), "failed", core.InvalidToolCall)
				if len(c.order) != 0 {
					t.Errorf("handlers %v", c.order)
				}
			})
		})
	}
}

// conformance: TURN-13, SCH-01, SCH-04, SCH-05, RUN-009 @embedded @serverless
func TestScheduling(t *testing.T) {
	for name, row := range map[string]struct {
		policy agent.Policy
		opts   []tool.Option
		peak   int
		took   time.Duration
	}{
		"two at a time":    {agent.Policy{ToolConcurrency: 2}, nil, 2, 3 * time.Second},
		"one at a time":    {agent.Policy{ToolConcurrency: 1}, nil, 1, 5 * time.Second},
		"four by default":  {agent.Policy{}, nil, 4, 2 * time.Second},
		"sequential tools": {agent.Policy{}, []tool.Option{tool.Sequential()}, 1, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				var tools []*tool.Tool
				var calls []modeltest.Call
				for _, n := range []string{"a", "b", "c", "d", "e"} {
					tools = append(tools, handler(c, n, append(row.opts, tool.Readonly())...))
					calls = append(calls, call(n, 1))
				}
				r := newRig(t, define(t, row.policy, tools...), modeltest.Calls(calls...), modeltest.Text("done"))
				began := time.Now()
				must(t, r.run(kim), "completed", "")
				if took := time.Since(began); c.peak != row.peak || took != row.took {
					t.Errorf("at most %d at once in %s, want %d in %s", c.peak, took, row.peak, row.took)
				}
				if !slices.IsSorted(c.order[:min(row.peak, 5)]) && row.peak == 1 {
					t.Errorf("started in the order %v", c.order)
				}
			})
		})
	}
}

// conformance: SCH-06, RUN-006 @embedded @serverless
//
// Results are recorded as they end; the message shows them as declared.
func TestResultsInDeclarationOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "slow", tool.Readonly()), handler(c, "fast", tool.Readonly())),
			modeltest.Calls(call("slow", 3), call("fast", 1)), modeltest.Text("done"))
		must(t, r.run(kim), "completed", "")
		var ended []string
		for _, rec := range r.records(record.KindCallSettled) {
			ended = append(ended, rec.(record.CallSettled).Result.Text())
		}
		if !slices.Equal(ended, []string{"fast 1", "slow 3"}) {
			t.Errorf("recorded as %v", ended)
		}
		shown := said(r.model.Requests()[1])
		if strings.Index(shown, "result slow") > strings.Index(shown, "result fast") {
			t.Errorf("shown as\n%s", shown)
		}
	})
}

// conformance: CLS-01, CLS-06, RET-02, RET-05, EV-11 @embedded @serverless
//
// What a handler's end means, one row for each Go outcome (D-59).
func TestHandlerOutcomes(t *testing.T) {
	secret := errors.New("password is hunter2")
	for name, row := range map[string]struct {
		fail         func(context.Context) error
		opts         []tool.Option
		status, kind string
		outcome      record.Outcome
		shown        string
	}{
		"an ordinary error": {func(context.Context) error { return secret }, nil, "completed", "", record.Failed, "the tool failed"},
		"a chosen message":  {func(context.Context) error { return tool.Failf("not-found", "no order %d", 7) }, nil, "completed", "", record.Failed, "no order 7"},
		"an abort":          {func(context.Context) error { return tool.Abort(secret) }, nil, "failed", core.ToolAborted, record.Aborted, ""},
		"a panic, readonly": {func(context.Context) error { panic(secret) }, []tool.Option{tool.Readonly()}, "failed", core.Defect, record.Infrastructure, ""},
		"its own time-out":  {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []tool.Option{tool.Readonly(), tool.Timeout(time.Second)}, "completed", "", record.Failed, "did not end within"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				runs := 0
				do := tool.New("do", "Does it.", func(ctx context.Context, _ arg) (string, error) { runs++; return "", row.fail(ctx) }, row.opts...)
				r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("do", 0)), modeltest.Text("ok"))
				p := r.run(kim)
				must(t, p, row.status, row.kind)
				settled := r.records(record.KindCallSettled)
				if runs != 1 || len(settled) != 1 || settled[0].(record.CallSettled).Outcome != row.outcome {
					t.Fatalf("%d executions, settled %+v", runs, settled)
				}
				for _, rec := range r.records() {
					if strings.Contains(string(compactRecord(t, rec)), "hunter2") {
						t.Errorf("a foreign error text reached the log: %s", compactRecord(t, rec))
					}
				}
				if row.shown != "" && !strings.Contains(said(r.model.Requests()[1]), row.shown) {
					t.Errorf("the model is shown\n%s", said(r.model.Requests()[1]))
				}
				r.verify()
			})
		})
	}
}

// conformance: RET-01 @embedded @serverless
func TestTransientFailuresAreAskedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		down := modeltest.Fail(&model.Error{Class: model.Transient, Message: "503"})
		r := newRig(t, define(t, agent.Policy{}), down, down, modeltest.Text("up"))
		must(t, r.run(kim), "completed", "")
		r = newRig(t, define(t, agent.Policy{}), down, down, down, modeltest.Text("up"))
		id := r.submit(kim)
		if ended := r.work(); ended != engine.ParkedLane {
			t.Fatalf("ended %s, want parked: waiting costs nothing", ended)
		}
		time.Sleep(time.Minute)
		r.work()
		must(t, r.progress(id), "completed", "")
		r = newRig(t, define(t, agent.Policy{}), modeltest.Fail(&model.Error{Class: model.Refused, Message: "401"}))
		must(t, r.run(kim), "failed", core.ModelRefused)
		r = newRig(t, define(t, agent.Policy{}), modeltest.Fail(&model.Error{Class: model.ContextOverflow, Message: "too long"}))
		must(t, r.run(kim), "failed", core.ContextOverflow)
	})
}
