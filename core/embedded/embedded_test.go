package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/engine/enginetest"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

func payer() *agent.Definition {
	pay := tool.New("pay", "Pays.", func(context.Context, lookIn) (lookOut, error) { return lookOut{4900}, nil }, tool.RequireApproval())
	return agent.MustDefine[lookIn, string]("payer", agent.Config[lookIn]{
		Instructions: agent.Text[lookIn]("Pay the order."), Tools: []*tool.Tool{pay},
	})
}

func closing(t *testing.T, rt interface{ Close(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := rt.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Every configuration that cannot work is refused with what to do, and leaves
// no directory behind that nobody asked for.
func TestOpenRefuses(t *testing.T) {
	slow := agent.MustDefine[lookIn, string]("slow", agent.Config[lookIn]{Instructions: agent.Text[lookIn]("Go."),
		Tools: []*tool.Tool{tool.New("wait", "Waits.", func(context.Context, lookIn) (lookOut, error) { return lookOut{}, nil }, tool.Timeout(time.Hour))}})
	dir := t.TempDir()
	for name, row := range map[string]struct {
		dir    string
		config embedded.Config
		says   string
	}{
		"no agents":         {dir, embedded.Config{Model: enginetest.Instant{}}, "no agents"},
		"no model":          {dir, embedded.Config{Agents: []*agent.Definition{payer()}}, "has no model"},
		"a nil agent":       {dir, embedded.Config{Agents: []*agent.Definition{nil}, Model: enginetest.Instant{}}, "Agents[0] is nil"},
		"a nil binding":     {dir, embedded.Config{Bindings: []*agent.Binding{nil}}, "Bindings[0] is nil"},
		"two of one name":   {dir, embedded.Config{Agents: []*agent.Definition{payer(), payer()}, Model: enginetest.Instant{}}, "two agents are named"},
		"a tool too slow":   {dir, embedded.Config{Agents: []*agent.Definition{slow}, Model: enginetest.Instant{}}, "an attempt of 15m0s leaves 14m45s"},
		"no name":           {"", embedded.Config{Agents: []*agent.Definition{payer()}, Model: enginetest.Instant{}}, "no name"},
		"a file, no folder": {"embedded_test.go", embedded.Config{Agents: []*agent.Definition{payer()}, Model: enginetest.Instant{}}, "embedded_test.go"},
	} {
		t.Run(name, func(t *testing.T) {
			rt, err := embedded.Open(row.dir, row.config)
			if err == nil {
				closing(t, rt)
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v, want a word of %q", err, row.says)
			}
		})
	}
}

// A program that embeds Layover: submit, wait for the park, be asked, decide,
// wait for the end; then the same directory again, and the end is still there.
func TestEmbedding(t *testing.T) {
	dir := t.TempDir()
	script := modeltest.Script(modeltest.Calls(modeltest.Call{Tool: "pay", Args: lookIn{"A-1"}}), modeltest.Text("paid"))
	config := embedded.Config{Bindings: []*agent.Binding{payer().Bind(script)}, Log: slog.New(slog.DiscardHandler)}
	rt, err := embedded.Open(dir, config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Open(dir, config); !errors.Is(err, journal.ErrInUse) {
		t.Errorf("a second runtime on the directory: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	receipt, err := rt.Submit(ctx, engine.SubmitRequest{Agent: "payer", Conversation: "c", Input: []byte(`{"order":"A-1"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := rt.Await(ctx, "", receipt.Submission, engine.UntilParked); err != nil || p.Status != "parked" || p.Waits == nil {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := rt.Await(ctx, "", receipt.Submission, "whenever"); err == nil {
		t.Error("waits until nonsense")
	}
	pending, err := rt.Approvals(ctx, "")
	if err != nil || len(pending) != 1 {
		t.Fatalf("%v, %v", pending, err)
	}
	if _, err := rt.Decide(ctx, engine.DecisionRequest{Approval: pending[0].ID, Approve: true, ArgsDigest: pending[0].ArgsDigest}); err != nil {
		t.Fatal(err)
	}
	if p, err := rt.Await(ctx, "", receipt.Submission, engine.UntilSettled); err != nil || p.Status != "completed" || string(p.Output) != `"paid"` {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := rt.RequestAbort(ctx, engine.AbortRequest{Conversation: "c"}); err == nil {
		t.Error("an abort of nothing was taken")
	}
	var refused *engine.Error
	err = rt.Resolve(ctx, engine.ResolveRequest{Conversation: "c", Call: "call-1-1", Resolution: record.SafeToRetry})
	if !errors.As(err, &refused) || refused.Kind != engine.KindNotFound {
		t.Errorf("a resolution of a call that is not unknown: %v", err)
	}
	closing(t, rt)
	if rt, err = embedded.Open(dir, config); err != nil {
		t.Fatal(err)
	}
	defer closing(t, rt)
	if st, err := rt.Status(ctx, "", "c"); err != nil || st.State != journal.Idle || st.Latest == nil || st.Latest.Status != "completed" {
		t.Errorf("%+v, %v", st, err)
	}
}

// Close lets a handler that has started finish: an uncertain effect is not cut
// in half by an orderly stop. The run goes on at the next Open.
//
// conformance: INT-08
func TestCloseIsOrderly(t *testing.T) {
	dir, started, finish := t.TempDir(), make(chan struct{}), make(chan struct{})
	effects := 0
	work := tool.New("work", "Works.", func(context.Context, lookIn) (lookOut, error) {
		close(started)
		<-finish
		effects++
		return lookOut{1}, nil
	})
	def := agent.MustDefine[lookIn, string]("worker", agent.Config[lookIn]{Instructions: agent.Text[lookIn]("Work."), Tools: []*tool.Tool{work}})
	open := func(steps ...modeltest.Step) *embedded.Runtime {
		rt, err := embedded.Open(dir, embedded.Config{Agents: []*agent.Definition{def}, Model: modeltest.Script(steps...), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return rt
	}
	rt := open(modeltest.Calls(modeltest.Call{Tool: "work", Args: lookIn{"A-1"}}))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	receipt, err := rt.Submit(ctx, engine.SubmitRequest{Agent: "worker", Input: []byte(`{"order":"A-1"}`)})
	if err != nil {
		t.Fatal(err)
	}
	<-started
	waiting, detach := context.WithCancel(ctx)
	detach() // a reader that goes away changes nothing
	if p, err := rt.Await(waiting, "", receipt.Submission, engine.UntilSettled); err != nil || p.Status != "running" {
		t.Errorf("%+v, %v", p, err)
	}
	closed := make(chan struct{})
	go func() { closing(t, rt); close(closed) }()
	close(finish)
	<-closed
	rt = open(modeltest.Text("done"))
	defer closing(t, rt)
	p, err := rt.Await(ctx, "", receipt.Submission, engine.UntilSettled)
	if err != nil || p.Status != "completed" || effects != 1 || p.Attempts != 2 {
		t.Errorf("%+v, %v with %d effects", p, err, effects)
	}
}
