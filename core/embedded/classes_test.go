package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// logged is a log handler's output that can be read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) outcomes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, "tool call ended") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Each end of a handler has one class, one number of executions, and one line in
// the log or none: what Go's one error means (D-59).
//
// conformance: CLS-01, CLS-06, CLS-07, RET-02, RET-05 @embedded @serverless
func TestEachEndHasOneClass(t *testing.T) {
	secret := errors.New("password is hunter2")
	value := func(v any, err error) func(context.Context) (any, error) {
		return func(context.Context) (any, error) { return v, err }
	}
	for name, row := range map[string]struct {
		end          func(context.Context) (any, error)
		opts         []tool.Option
		status, kind string
		outcome      record.Outcome
		state        string // of the line in the log; none for an interruption
	}{
		"success":          {value("ok", nil), nil, "completed", "", record.Succeeded, "success"},
		"returned failure": {value("", tool.Failf("gone", "no such order")), nil, "completed", "", record.Failed, "failure"},
		"ordinary error":   {value("", secret), nil, "completed", "", record.Failed, "failure"},
		"value and error":  {value("ok", secret), nil, "completed", "", record.Failed, "failure"},
		"typed failure":    {value("", tool.Abort(secret)), nil, "failed", core.ToolAborted, record.Aborted, "failure"},
		"no encoding":      {value(math.NaN(), nil), nil, "completed", "", record.Infrastructure, "failure"},
		"panic":            {func(context.Context) (any, error) { panic(secret) }, nil, "failed", core.Defect, record.Infrastructure, "failure"},
		"time-out": {func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }, []tool.Option{tool.Timeout(10 * time.Millisecond)},
			"completed", "", record.Failed, "failure"},
		"interruption": {func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }, nil, "aborted", "Aborted", record.Interrupted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, lines := &log{}, &logged{}
			entered := make(chan struct{}, 8)
			do := tool.New("do", "Does it.", func(ctx context.Context, _ nothing) (any, error) {
				l.add("run")
				entered <- struct{}{}
				return row.end(ctx)
			}, append(row.opts, tool.Readonly())...)
			h := build(t, embedded.Config{Log: slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug}))},
				agentOf(t, agent.Policy{}, do), callOf("do"), modeltest.Text("ok"))
			id := h.submit("k")
			<-entered
			if row.status == "aborted" {
				if _, err := h.rt.RequestAbort(h.ctx(), engine.AbortRequest{Conversation: "c"}); err != nil {
					t.Fatal(err)
				}
			}
			h.ends(id, row.status, row.kind)
			settled := h.records(record.KindCallSettled)
			if l.count("run") != 1 || len(settled) != 1 || settled[0].(record.CallSettled).Outcome != row.outcome {
				t.Errorf("%d executions, settled %+v", l.count("run"), settled)
			}
			for _, b := range h.batches() {
				if sealed, err := record.Seal(&b); err != nil || strings.Contains(string(sealed.Body), "hunter2") {
					t.Errorf("a foreign error text reached slot %d, %v", b.Slot, err)
				}
			}
			got := lines.outcomes()
			switch {
			case row.state == "" && len(got) != 0, row.state != "" && len(got) != 1:
				t.Errorf("lines %q", got)
			case row.state != "" && (!strings.Contains(got[0], "state="+row.state) || len(got[0]) > 400 || strings.Contains(got[0], "hunter2")):
				t.Errorf("line %q", got[0])
			}
		})
	}
}

// A person's denial is a class of its own, decided before anything of the batch
// starts; the others then run.
//
// conformance: CLS-01, CLS-04, CLS-05, TOOL-05 @embedded @serverless
func TestDenialByAPerson(t *testing.T) {
	l := &log{}
	h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, noting(l, "look"), noting(l, "pay", tool.RequireApproval())),
		callOf("look", "pay"), modeltest.Text("ok"))
	id := h.submit("k")
	if p := h.await(id, engine.UntilParked); p.Status != "parked" || p.Waits.Reason != core.WaitApproval || len(l.all()) != 0 {
		t.Fatalf("%+v, %q", p, l.all())
	}
	pending, err := h.rt.Approvals(h.ctx(), "")
	if err != nil || len(pending) != 1 {
		t.Fatal(pending, err)
	}
	if _, err := h.rt.Decide(h.ctx(), engine.DecisionRequest{Approval: pending[0].ID, Approve: false, Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	h.ends(id, "completed", "")
	classes := map[string]record.Outcome{}
	for _, r := range h.records(record.KindCallSettled) {
		classes[r.(record.CallSettled).Call] = r.(record.CallSettled).Outcome
	}
	prepared := h.records(record.KindCallPrepared)
	if l.count("start pay") != 0 || l.count("start look") != 1 || classes["call-1-1"] != record.Succeeded || classes["call-1-2"] != record.DeniedCall ||
		len(prepared) != 1 || prepared[0].(record.CallPrepared).Call != "call-1-1" {
		t.Errorf("ran %q, classes %v, prepared %v", l.all(), classes, prepared)
	}
}

// An uncertain call that was lost with its process is unknown, and stays so: no
// restart, redelivery or sweep runs it again or gives it an end.
//
// conformance: CLS-02, CLS-03, RUN-013 @embedded @serverless
func TestLostUncertainCallStaysUnknown(t *testing.T) {
	l := &log{}
	entered, hold := make(chan struct{}, 1), make(chan struct{})
	defer close(hold)
	pay := tool.New("pay", "Pays.", func(context.Context, nothing) (string, error) {
		l.add("pay")
		entered <- struct{}{}
		<-hold
		return "paid", nil
	})
	h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, pay), callOf("pay"))
	id := h.submit("k")
	<-entered
	for range 3 {
		h.crash()
		if p := h.await(id, engine.UntilParked); p.Status != "parked" || p.Waits == nil || p.Waits.Reason != core.WaitUnknown {
			t.Fatalf("%+v", p)
		}
		lane := journal.Lane{Tenant: "local", Conversation: "c"}
		if ended, err := h.rt.Admit().Admitter().Status(h.ctx(), lane); err != nil || ended.State != journal.Parked {
			t.Fatalf("%+v, %v", ended, err)
		}
		if _, err := h.rt.Steer(h.ctx(), engine.SteerRequest{Conversation: "c", Text: "hurry"}); err != nil {
			t.Fatal(err) // wakes the lane
		}
		if p := h.await(id, engine.UntilParked); p.Status != "parked" {
			t.Fatalf("%+v", p)
		}
	}
	if l.count("pay") != 1 || len(h.records(record.KindCallSettled)) != 0 || len(h.records(record.KindCallUnknown)) != 1 {
		t.Errorf("%d executions; %v", l.count("pay"), h.records(record.KindCallSettled, record.KindCallUnknown))
	}
}

// Nothing of a batch runs unless all of it can: names and arguments are checked
// first, nobody is asked, and a handler only ever sees what it can decode.
//
// conformance: TOOL-02, TOOL-03, TOOL-06, RUN-003, TURN-10, TURN-11 @embedded @serverless
func TestBatchIsCheckedWhole(t *testing.T) {
	for name, bad := range map[string]modeltest.Call{
		"unknown":         {Tool: "nope"},
		"wrong type":      {Tool: "look", Args: `{"order":1}`},
		"missing":         {Tool: "look", Args: `{}`},
		"another field":   {Tool: "look", Args: `{"order":"A","more":1}`},
		"no object":       {Tool: "look", Args: `[]`},
		"null":            {Tool: "look", Args: `null`},
		"case of a field": {Tool: "look", Args: `{"Order":"A"}`},
	} {
		for _, policy := range []agent.Policy{{}, {OnInvalidToolCall: agent.FailInvalid}} {
			t.Run(name+" "+string(policy.OnInvalidToolCall), func(t *testing.T) {
				l := &log{}
				look := tool.New("look", "Looks.", func(_ context.Context, in lookIn) (lookOut, error) {
					l.add("look %s", in.Order)
					return lookOut{1}, nil
				}, tool.Readonly())
				h := build(t, embedded.Config{}, agentOf(t, policy, look, noting(l, "pay", tool.RequireApproval())),
					modeltest.Calls(modeltest.Call{Tool: "look", Args: lookIn{"A"}}, modeltest.Call{Tool: "pay"}, bad), modeltest.Text("ok"))
				id := h.submit("k")
				if policy.OnInvalidToolCall == agent.FailInvalid {
					h.ends(id, "failed", core.InvalidToolCall)
				} else {
					h.ends(id, "completed", "")
					if n := strings.Count(transcript(h.model.Requests()[1]), `"type":"toolResult"`); n != 3 {
						t.Errorf("%d of 3 calls are answered", n)
					}
				}
				if len(l.all()) != 0 || len(h.records(record.KindCallPrepared, record.KindApprovalRequested)) != 0 {
					t.Errorf("ran %q; %v", l.all(), h.records(record.KindCallPrepared, record.KindApprovalRequested))
				}
			})
		}
	}
}

// A result over its bound is its beginning, its end and its size, the same in the
// record and in the prompt; at the bound it is itself.
//
// conformance: RUN-022a, RUN-022b, RUN-022c @embedded @serverless
func TestResultBound(t *testing.T) {
	for _, bound := range []int{0, 300, 4000} {
		limit := bound
		if bound == 0 {
			limit = tool.DefaultResultBound
		}
		for _, over := range []int{0, 1} {
			text := strings.Repeat("é€", (limit-2)/5)
			text += strings.Repeat("z", limit-2+over-len(text))
			say := tool.New("say", "Says a lot.", func(context.Context, nothing) (string, error) { return text, nil }, tool.Readonly())
			h := build(t, embedded.Config{}, agentOf(t, agent.Policy{ToolResultBounds: bound}, say), callOf("say"), modeltest.Text("ok"))
			h.ends(h.submit("k"), "completed", "")
			settled := h.records(record.KindCallSettled)[0].(record.CallSettled)
			shown := h.model.Requests()[1].Messages
			result := shown[len(shown)-1].Parts[0].(record.ToolResultPart).Result
			if settled.Result.Digest() != result.Digest() {
				t.Errorf("bound %d: the prompt shows another value than the record holds", limit)
			}
			if size := len(text) + 2; over == 0 && (settled.Truncated != 0 || result.Text() != text) || over == 1 && settled.Truncated != size {
				t.Errorf("bound %d, %d bytes: truncated %d, shown %d bytes", limit, size, settled.Truncated, len(result.Inline))
			}
			if over == 1 {
				mustEnvelope(t, result.Inline, text, limit)
			}
		}
	}
}
