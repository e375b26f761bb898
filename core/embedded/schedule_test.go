package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/engine/enginetest"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// gauge counts how many are inside at once, by name, and holds each until as
// many are inside as can be, or a moment has passed.
type gauge struct {
	mu        sync.Mutex
	now, peak map[string]int
	order     []string
}

func (g *gauge) enter(names ...string) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now == nil {
		g.now, g.peak = map[string]int{}, map[string]int{}
	}
	g.order = append(g.order, names[0])
	for _, n := range names {
		g.now[n]++
		g.peak[n] = max(g.peak[n], g.now[n])
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, n := range names {
			g.now[n]--
		}
	}
}

// inside is a tool whose executions are counted by a gauge.
func inside(g *gauge, name string, opts ...tool.Option) *tool.Tool {
	return tool.New(name, "Does "+name+".", func(ctx context.Context, _ nothing) (string, error) {
		defer g.enter(name, "all")()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
		return name, ctx.Err()
	}, append(opts, tool.Readonly())...)
}

// The policy decides how many run at once, which ones never beside others, and
// that they start in the order they were declared.
//
// conformance: TURN-13, SCH-01, SCH-04, SCH-05, RUN-009 @embedded @serverless
func TestSchedulingWithinARun(t *testing.T) {
	for name, row := range map[string]struct {
		policy agent.Policy
		group  string
		opt    tool.Option
		peak   int
	}{
		"two at a time":   {agent.Policy{ToolConcurrency: 2}, "", nil, 2},
		"four by default": {agent.Policy{}, "", nil, 4},
		"sequential run":  {agent.Policy{Sequential: true}, "", nil, 1},
		"sequential tool": {agent.Policy{ToolConcurrency: 8}, "", tool.Sequential(), 1},
		"group of one":    {agent.Policy{ToolConcurrency: 8, GroupConcurrency: map[string]int{"db": 1}}, "db", nil, 1},
		"group of two":    {agent.Policy{ToolConcurrency: 8, GroupConcurrency: map[string]int{"db": 2}}, "db", nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gauge{}
			var opts []tool.Option
			if row.group != "" {
				opts = append(opts, tool.Group(row.group))
			}
			if row.opt != nil {
				opts = append(opts, row.opt)
			}
			names := []string{"a", "b", "c", "d", "e"}
			var tools []*tool.Tool
			for _, n := range names {
				tools = append(tools, inside(g, n, opts...))
			}
			h := build(t, embedded.Config{}, agentOf(t, row.policy, tools...), callOf(names...), modeltest.Text("ok"))
			h.ends(h.submit("k"), "completed", "")
			if g.peak["all"] != row.peak {
				t.Errorf("%d ran at once, want %d", g.peak["all"], row.peak)
			}
			if got := h.trace(event.KindToolCallStarted); !slices.IsSorted(got) || len(got) != 5 {
				t.Errorf("started %q", got)
			}
		})
	}
}

// batchThenText asks for these tools in one response, and answers the next.
type batchThenText []string

func (m batchThenText) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	step := callOf(m...)
	if req.Messages[len(req.Messages)-1].Role == record.Tool {
		step = modeltest.Text("ok")
	}
	return modeltest.Script(step).Stream(ctx, req, emit)
}

// Limits of the process hold across its runs: of all handlers, of an agent's, of
// a group's.
//
// conformance: RUN-009 @embedded
func TestLimitsOfTheProcess(t *testing.T) {
	oneProcess(t, "the runs are in several processes")
	for name, row := range map[string]struct {
		limits   engine.ToolLimits
		all, one int // peaks
	}{
		"process": {engine.ToolLimits{Process: 3}, 3, 3},
		"agent":   {engine.ToolLimits{Agents: map[string]int{"a": 2, "other": 1}}, 2, 2},
		"group":   {engine.ToolLimits{Groups: map[string]int{"db": 1}}, 16, 1},
		"both":    {engine.ToolLimits{Process: 2, Groups: map[string]int{"db": 1}}, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gauge{}
			def := agentOf(t, agent.Policy{}, inside(g, "one", tool.Group("db")), inside(g, "two"))
			h := buildOn(t, embedded.Config{ToolLimits: row.limits}, def, batchThenText{"one", "two", "one", "two"})
			const runs = 4
			var ids []string
			for i := range runs {
				r, err := h.rt.Submit(h.ctx(), engine.SubmitRequest{Agent: "a", Conversation: fmt.Sprint("c", i), Input: []byte(order)})
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, r.Submission)
			}
			for _, id := range ids {
				h.ends(id, "completed", "")
			}
			if g.peak["all"] > row.all || g.peak["one"] > row.one {
				t.Errorf("peaks %v, want at most %d and %d of one", g.peak, row.all, row.one)
			}
			if len(g.order) != 4*runs {
				t.Errorf("%d handlers ran", len(g.order))
			}
		})
	}
}

// A limit that is no limit is refused where the process is built.
//
// conformance: RUN-009 @embedded
func TestLimitsAreFinite(t *testing.T) {
	for _, limits := range []engine.ToolLimits{{Process: -1}, {Agents: map[string]int{"a": 0}}, {Groups: map[string]int{"db": -1}}} {
		if _, err := embedded.Open(t.TempDir(), embedded.Config{Agents: []*agent.Definition{payer()}, Model: enginetest.Instant{}, ToolLimits: limits}); err == nil ||
			!strings.Contains(err.Error(), "ToolLimits") {
			t.Errorf("%+v: %v", limits, err)
		}
	}
	for _, p := range []agent.Policy{{ToolConcurrency: -1}, {GroupConcurrency: map[string]int{"db": 0}}, {GroupConcurrency: map[string]int{"nobody": 1}}} {
		if _, err := agent.Define[lookIn, string]("a", agent.Config[lookIn]{Instructions: agent.Text[lookIn]("Help."), Policy: p}); err == nil {
			t.Errorf("%+v is no limit", p)
		}
	}
}

// However a handler ends, its place is free again: under a process limit of one,
// each of these runs lets the next one in.
//
// conformance: SCH-03 @embedded
func TestPlacesAreGivenBackOnEveryExit(t *testing.T) {
	oneProcess(t, "the next run may be in another process, where the place is free")
	g := &gauge{}
	end := map[string]func(context.Context) error{
		"success": func(context.Context) error { return nil },
		"error":   func(context.Context) error { return errors.New("no") },
		"abort":   func(context.Context) error { return tool.Abort(errors.New("no")) },
		"panic":   func(context.Context) error { panic("no") },
		"goexit":  func(context.Context) error { runtime.Goexit(); return nil },
		"timeout": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"cancel":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	}
	var tools []*tool.Tool
	names := []string{"success", "error", "abort", "panic", "goexit", "timeout", "cancel"}
	entered := make(chan struct{}, 1)
	for _, name := range names {
		opts := []tool.Option{tool.Readonly()}
		if name == "timeout" {
			opts = append(opts, tool.Timeout(10*time.Millisecond))
		}
		tools = append(tools, tool.New(name, "Ends.", func(ctx context.Context, _ nothing) (string, error) {
			defer g.enter(name, "all")()
			if name == "cancel" {
				entered <- struct{}{}
			}
			return "ok", end[name](ctx)
		}, opts...))
	}
	var steps []modeltest.Step
	for _, name := range names {
		steps = append(steps, callOf(name))
		if name == "success" || name == "error" || name == "timeout" {
			steps = append(steps, modeltest.Text("ok"))
		}
	}
	before := runtime.NumGoroutine()
	h := build(t, embedded.Config{ToolLimits: engine.ToolLimits{Process: 1, Groups: map[string]int{"g": 1}}}, agentOf(t, agent.Policy{}, tools...),
		append(steps, callOf("success"), modeltest.Text("ok"))...)
	for round, name := range append(slices.Clone(names), "success") {
		id := h.submit(fmt.Sprint(name, round))
		if name == "cancel" {
			<-entered
			if _, err := h.rt.RequestAbort(h.ctx(), engine.AbortRequest{Conversation: "c", Submission: id}); err != nil {
				t.Fatal(err)
			}
		}
		if p := h.await(id, engine.UntilSettled); p.Outcome == nil {
			t.Fatalf("%s, run %d: %s: no place for it", name, round, p.Status)
		}
	}
	if len(g.order) != len(names)+1 || g.peak["all"] != 1 {
		t.Errorf("ran %q, at most %d at once", g.order, g.peak["all"])
	}
	closing(t, h.rt)
	h.rt = nil
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}

// A run that is aborted while its calls wait for a place takes none: the next
// run has it.
//
// conformance: SCH-03, TOOL-06 @embedded
func TestWaitingForAPlaceEndsWithTheRun(t *testing.T) {
	oneProcess(t, "the second run finds a place in another process")
	hold, entered := make(chan struct{}), make(chan string, 4)
	slow := tool.New("slow", "Is slow.", func(ctx context.Context, in lookIn) (string, error) {
		entered <- in.Order
		<-hold
		return "ok", nil
	}, tool.Readonly())
	h := buildOn(t, embedded.Config{ToolLimits: engine.ToolLimits{Process: 1}}, agentOf(t, agent.Policy{}, slow), nil,
		modeltest.Calls(modeltest.Call{Tool: "slow", Args: lookIn{"first"}}), modeltest.Calls(modeltest.Call{Tool: "slow", Args: lookIn{"second"}}),
		modeltest.Text("ok"))
	submit := func(c string) string {
		r, err := h.rt.Submit(h.ctx(), engine.SubmitRequest{Agent: "a", Conversation: c, Input: []byte(order)})
		if err != nil {
			t.Fatal(err)
		}
		return r.Submission
	}
	first := submit("one")
	if got := <-entered; got != "first" {
		t.Fatal(got)
	}
	second := submit("c")
	for len(h.model.Requests()) < 2 || len(h.records(record.KindResponseRecorded)) == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := h.rt.RequestAbort(h.ctx(), engine.AbortRequest{Conversation: "c"}); err != nil {
		t.Fatal(err)
	}
	h.ends(second, "aborted", "Aborted")
	if n := len(h.records(record.KindCallPrepared)); n != 0 || len(entered) != 0 {
		t.Errorf("%d calls prepared without a place", n)
	}
	close(hold)
	h.ends(first, "completed", "")
}

// Results are observed as they end; the message the model gets is in declaration
// order, the same bytes whatever ended first.
//
// conformance: SCH-06, RUN-006, TURN-14, TURN-15 @embedded @serverless
func TestResultsInDeclarationOrder(t *testing.T) {
	messages := map[string]bool{}
	for _, order := range [][]int{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} {
		done := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{}), "c": make(chan struct{})}
		var tools []*tool.Tool
		for _, n := range []string{"a", "b", "c"} {
			tools = append(tools, tool.New(n, "Does "+n+".", func(context.Context, nothing) (string, error) { <-done[n]; return n, nil }, tool.Readonly()))
		}
		h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, tools...), callOf("a", "b", "c"), modeltest.Text("ok"))
		id := h.submit("k")
		for n, i := range order {
			close(done[string(rune('a'+i-1))])
			for len(h.records(record.KindCallSettled)) < n+1 {
				time.Sleep(time.Millisecond)
			}
		}
		h.ends(id, "completed", "")
		var want []string
		for _, i := range order {
			want = append(want, fmt.Sprint("ToolCallSucceeded call-1-", i))
		}
		if got := h.trace(event.KindToolCallSucceeded); !slices.Equal(got, want) {
			t.Errorf("observed %q, want %q", got, want)
		}
		request := h.model.Requests()[1]
		messages[transcript(request)] = true
		for i, part := range request.Messages[len(request.Messages)-1].Parts {
			if got := part.(record.ToolResultPart); got.Call != fmt.Sprint("call-1-", i+1) {
				t.Errorf("result %d is that of %s", i+1, got.Call)
			}
		}
	}
	if len(messages) != 1 {
		t.Errorf("%d different requests for six orders of completion", len(messages))
	}
}

// A handler has its own validation, success and failure under the engine: what
// it gives when called directly is what is recorded.
//
// conformance: SCH-02 @embedded @serverless
func TestHandlersKeepTheirOwnEncodings(t *testing.T) {
	type in struct {
		N int `json:"n"`
	}
	type out struct {
		Half float64 `json:"half"`
	}
	halve := tool.New("halve", "Halves.", func(_ context.Context, v in) (out, error) {
		if v.N < 0 {
			return out{}, tool.Failf("negative", "%d is below zero", v.N)
		}
		return out{float64(v.N) / 2}, nil
	}, tool.Readonly())
	for args, outcome := range map[string]record.Outcome{`{"n":3}`: record.Succeeded, `{"n":-1}`: record.Failed} {
		h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, halve), modeltest.Calls(modeltest.Call{Tool: "halve", Args: args}), modeltest.Text("ok"))
		h.ends(h.submit("k"), "completed", "")
		direct := halve.Invoke(context.Background(), tool.Call{Args: []byte(args)})
		got := h.records(record.KindCallSettled)[0].(record.CallSettled)
		if got.Outcome != outcome || got.Outcome != direct.Outcome || got.Tag != direct.Tag || string(got.Result.Inline) != string(direct.Value) {
			t.Errorf("%s: recorded %+v, directly %+v", args, got, direct)
		}
	}
	if err := halve.Check([]byte(`{"n":"one"}`)); err == nil {
		t.Error("bad arguments pass the tool's own check")
	}
	h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, halve), modeltest.Calls(modeltest.Call{Tool: "halve", Args: `{"n":"one"}`}), modeltest.Text("ok"))
	h.ends(h.submit("k"), "completed", "")
	if got := h.records(record.KindCallSettled)[0].(record.CallSettled); got.Synthetic != record.InvalidBatch ||
		!strings.Contains(string(got.Result.Inline), halve.Check([]byte(`{"n":"one"}`)).Error()) {
		t.Errorf("the engine's refusal is not the tool's: %s", got.Result.Inline)
	}
}
