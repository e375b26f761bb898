package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

func allowing(l *log) engine.Authorizer {
	return func(_ context.Context, r engine.AuthorizeRequest) (engine.Authorization, error) {
		l.add("ask %s", r.Tool)
		return engine.Authorization{Allow: true}, nil
	}
}

// Without a hook nothing is asked and nothing changes: the same records, and no
// meaning is read into a tool's name.
//
// conformance: AUTH-01, AUTH-05 @embedded @serverless
func TestNoAuthorizationByDefault(t *testing.T) {
	for _, name := range []string{"delete_x", "read_x"} {
		l := &log{}
		h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, noting(l, name)), callOf(name), modeltest.Text("ok"))
		h.ends(h.submit("k"), "completed", "")
		var kinds []string
		for _, b := range h.batches() {
			var batch []string
			for _, r := range b.Records {
				batch = append(batch, string(r.Kind()))
			}
			kinds = append(kinds, strings.Join(batch, "+"))
		}
		want := []string{"attemptStarted+submissionQueued+runStarted", "responseRecorded+callPrepared", "callSettled", "responseRecorded+runSettled"}
		if !slices.Equal(kinds, want) || l.count("start "+name) != 1 {
			t.Errorf("%s: batches %v, %d starts", name, kinds, l.count("start "+name))
		}
	}
}

// The hook sees every call in declaration order, after the approval, with the
// response already recorded, and before anything is prepared or started.
//
// conformance: RUN-031a, RUN-031b, AUTH-02, TURN-12 @embedded @serverless
func TestAuthorizationComesBetweenApprovalAndPreparation(t *testing.T) {
	l := &log{}
	var h *house
	ask := allowing(l)
	config := embedded.Config{Authorize: func(ctx context.Context, r engine.AuthorizeRequest) (engine.Authorization, error) {
		if n := len(h.records(record.KindApprovalResolved)); n != 1 {
			l.add("asked with %d approvals decided", n)
		}
		if n := len(h.records(record.KindCallPrepared)); n != 0 {
			l.add("asked with %d calls prepared", n)
		}
		time.Sleep(time.Duration(3-len(l.all())%3) * time.Millisecond) // the slower the earlier
		return ask(ctx, r)
	}}
	h = build(t, config, agentOf(t, agent.Policy{}, noting(l, "one"), noting(l, "two", tool.RequireApproval()), noting(l, "three")),
		callOf("one", "two", "three"), modeltest.Text("ok"))
	id := h.submit("k")
	if p := h.await(id, engine.UntilParked); p.Waits == nil || p.Waits.Reason != core.WaitApproval || len(l.all()) != 0 {
		t.Fatalf("%+v after %v", p, l.all())
	}
	pending, err := h.rt.Approvals(h.ctx(), "")
	if err != nil || len(pending) != 1 {
		t.Fatal(pending, err)
	}
	if _, err := h.rt.Decide(h.ctx(), engine.DecisionRequest{Approval: pending[0].ID, Approve: true}); err != nil {
		t.Fatal(err)
	}
	h.ends(id, "completed", "")
	got := l.all()
	if len(got) != 6 || !slices.Equal(got[:3], []string{"ask one", "ask two", "ask three"}) {
		t.Errorf("%q", got)
	}
}

// conformance: AUTH-03, AUTH-04, RUN-031a, RUN-031c @embedded @serverless
//
// The request is the same before and after a crash, byte for byte, and is about
// the calls that may still be executed.
func TestAuthorityIsRebuiltFromTheLog(t *testing.T) {
	l := &log{}
	started, hold := make(chan struct{}, 8), make(chan struct{})
	defer close(hold)
	slow := tool.New("slow", "Is slow.", func(ctx context.Context, in lookIn) (string, error) {
		l.add("start slow")
		started <- struct{}{}
		if l.count("start slow") <= 2 {
			<-hold // deaf: the process is gone before it answers
		}
		return "done", nil
	}, tool.Readonly())
	config := embedded.Config{Authorize: func(_ context.Context, r engine.AuthorizeRequest) (engine.Authorization, error) {
		raw, err := json.Marshal(r)
		if err != nil {
			t.Error(err)
		}
		l.add("%s", raw)
		return engine.Authorization{Allow: true}, nil
	}}
	h := build(t, config, agentOf(t, agent.Policy{}, noting(l, "quick", tool.Readonly()), slow),
		modeltest.Calls(modeltest.Call{Tool: "quick"}, modeltest.Call{Tool: "slow", Args: `{ "order" : "one" }`}, modeltest.Call{Tool: "slow", Args: `{"order":"two"}`}))
	id := h.submit("k")
	<-started
	<-started
	for len(h.records(record.KindCallSettled)) == 0 {
		time.Sleep(time.Millisecond)
	}
	requests := func(from int) (out []string) {
		for _, e := range l.all()[from:] {
			if strings.HasPrefix(e, "{") {
				out = append(out, e)
			}
		}
		return out
	}
	before := requests(0)
	at := len(l.all())
	h.crash(modeltest.Text("ok"))
	h.ends(id, "completed", "")
	after := requests(at)
	if len(before) != 3 || !slices.Equal(after, before[1:]) {
		t.Fatalf("asked %q\nand after the crash %q", before, after)
	}
	row, err := h.rt.Admit().Admitter().Await(h.ctx(), "local", id, engine.UntilSettled)
	if err != nil || row.Status != "completed" {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"tenant":"local","conversation":"c","principal":"kim","agent":"a","run":%q,"turnId":"%s.1","turn":1,"input":{"order":"A-1001"},"call":"call-1-2","tool":"slow","args":{"order":"one"},"class":"readonly"}`, id, id)
	if before[1] != want {
		t.Errorf("the request is\n%s\nwant\n%s", before[1], want)
	}
}

// A denial is a failed event for each denied call and the run's failure, naming
// the first; nothing is prepared, nothing starts, and nobody tries again.
//
// conformance: RUN-031d, RUN-031e, RUN-031f, TOOL-04, TOOL-06, CLS-04 @embedded @serverless
func TestDenialFailsTheRun(t *testing.T) {
	l := &log{}
	config := embedded.Config{Authorize: func(_ context.Context, r engine.AuthorizeRequest) (engine.Authorization, error) {
		l.add("ask %s", r.Tool)
		return engine.Authorization{Allow: r.Tool == "one", Reason: "not " + r.Tool}, nil
	}}
	h := build(t, config, agentOf(t, agent.Policy{}, noting(l, "one"), noting(l, "two"), noting(l, "three")), callOf("one", "two", "three"))
	id := h.submit("k")
	p := h.ends(id, "failed", core.AuthorizationDenied)
	if !strings.Contains(p.Outcome.Error.Message, "two") || strings.Contains(p.Outcome.Error.Message, "three") {
		t.Errorf("the error does not name the first: %s", p.Outcome.Error.Message)
	}
	if got := l.all(); !slices.Equal(got, []string{"ask one", "ask two", "ask three"}) {
		t.Errorf("%q", got)
	}
	if got := h.trace(event.KindToolCallStarted, event.KindToolCallFailed, event.KindRunFailed); !slices.Equal(got,
		[]string{"ToolCallFailed call-1-2", "ToolCallFailed call-1-3", "ToolCallFailed call-1-1", "RunFailed"}) {
		t.Errorf("events %q", got)
	}
	var denied []string
	for _, e := range h.events() {
		if f, ok := e.Data.(event.ToolCallFailed); ok && f.Outcome == record.DeniedCall {
			denied = append(denied, e.Call)
			if f.ExecutionStarted || !strings.Contains(string(f.Result), "not ") {
				t.Errorf("%s: %+v", e.Call, f)
			}
		}
	}
	if !slices.Equal(denied, []string{"call-1-2", "call-1-3"}) || len(h.records(record.KindCallPrepared)) != 0 {
		t.Errorf("denied %v; prepared %v", denied, h.records(record.KindCallPrepared))
	}
	h.crash(modeltest.Text("never asked"))
	if err := h.rt.Quiet(h.ctx()); err != nil {
		t.Fatal(err)
	}
	if n := len(h.records(record.KindAttemptStarted)); n != 1 || len(h.model.Requests()) != 0 {
		t.Errorf("%d attempts for a denied run", n)
	}
}

// A denial after a crash leaves what an earlier attempt prepared, and adds none.
//
// conformance: RUN-031e, RUN-031d @embedded @serverless
func TestDenialOnResume(t *testing.T) {
	l := &log{}
	started, hold := make(chan struct{}, 1), make(chan struct{})
	defer close(hold)
	slow := tool.New("slow", "Is slow.", func(context.Context, nothing) (string, error) {
		l.add("start")
		started <- struct{}{}
		<-hold
		return "done", nil
	}, tool.Readonly())
	config := embedded.Config{Authorize: func(context.Context, engine.AuthorizeRequest) (engine.Authorization, error) {
		return engine.Authorization{Allow: l.count("start") == 0}, nil
	}}
	h := build(t, config, agentOf(t, agent.Policy{}, slow), callOf("slow"))
	id := h.submit("k")
	<-started
	h.crash()
	h.ends(id, "failed", core.AuthorizationDenied)
	settled := h.records(record.KindCallSettled)[0].(record.CallSettled)
	if n := len(h.records(record.KindCallPrepared)); n != 1 || l.count("start") != 1 || settled.Outcome != record.DeniedCall || settled.Synthetic != "" {
		t.Errorf("%d preparations, %d starts, settled %+v", n, l.count("start"), settled)
	}
}

// A hook that fails or panics is no yes: the run fails typed, nothing starts, and
// its cause goes to whoever runs the host and to nobody else.
//
// conformance: AUTH-07 @embedded @serverless
func TestHookErrorsFailClosed(t *testing.T) {
	secret := errors.New("secret cause")
	for name, row := range map[string]struct {
		hook engine.Authorizer
		kind string
	}{
		"error": {func(context.Context, engine.AuthorizeRequest) (engine.Authorization, error) {
			return engine.Authorization{}, secret
		}, core.AuthorizationFailed},
		"error with yes": {func(context.Context, engine.AuthorizeRequest) (engine.Authorization, error) {
			return engine.Authorization{Allow: true}, secret
		}, core.AuthorizationFailed},
		"panic": {func(context.Context, engine.AuthorizeRequest) (engine.Authorization, error) { panic(secret) }, core.Defect},
		"zero": {func(context.Context, engine.AuthorizeRequest) (engine.Authorization, error) {
			return engine.Authorization{}, nil
		}, core.AuthorizationDenied},
	} {
		t.Run(name, func(t *testing.T) {
			l, heard := &log{}, make(chan error, 8)
			h := build(t, embedded.Config{Authorize: row.hook, OnUserError: func(e engine.UserError) { heard <- e.Err }},
				agentOf(t, agent.Policy{}, noting(l, "one"), noting(l, "two")), callOf("one", "two"))
			p := h.ends(h.submit("k"), "failed", row.kind)
			if len(l.all()) != 0 || len(h.records(record.KindCallPrepared)) != 0 || strings.Contains(p.Outcome.Error.Message+p.Outcome.Error.Hint, "secret") {
				t.Errorf("started %q; error %+v", l.all(), p.Outcome.Error)
			}
			if row.kind == core.AuthorizationFailed && !errors.Is(<-heard, secret) {
				t.Error("the host does not hear why")
			}
		})
	}
}
