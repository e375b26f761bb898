package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// conformance: TOOL-05, REC-04, CLS-04, RUN-002a @embedded @serverless
//
// Approvals: no handler before every decision, the decision is bound to the
// exact call and made once, the denied call is answered and the others run.
func TestApprovals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "look", tool.Readonly()), handler(c, "pay", tool.RequireApproval())),
			modeltest.Calls(call("look", 0), call("pay", 1), call("pay", 2)), modeltest.Text("done"))
		id := r.submit(kim)
		if ended := r.work(); ended != engine.ParkedLane {
			t.Fatalf("ended %s", ended)
		}
		pending, err := r.admitter.Approvals(context.Background(), "t")
		if err != nil || len(pending) != 2 {
			t.Fatalf("%d pending, %v", len(pending), err)
		}
		decide := func(d engine.DecisionRequest) error {
			d.Tenant, d.Principal = "t", "kim"
			_, err := r.admitter.Decide(context.Background(), d)
			return err
		}
		expect := func(what string, err error, kind engine.ErrorKind) {
			t.Helper()
			var e *engine.Error
			if !errors.As(err, &e) || e.Kind != kind {
				t.Errorf("%s: %v, want %s", what, err, kind)
			}
		}
		first, second := pending[0].ID, pending[1].ID
		expect("another call's arguments", decide(engine.DecisionRequest{Approval: first, Approve: true, ArgsDigest: pending[1].ArgsDigest}), engine.KindConflict)
		expect("an unknown approval", decide(engine.DecisionRequest{Approval: first + "9", Approve: true}), engine.KindNotFound)
		expect("another run's approval", decide(engine.DecisionRequest{Approval: "s_other.1.0", Approve: true}), engine.KindNotFound)
		expect("not an approval", decide(engine.DecisionRequest{Approval: "nonsense", Approve: true}), engine.KindNotFound)
		if err := decide(engine.DecisionRequest{Approval: first, Approve: true, ArgsDigest: pending[0].ArgsDigest}); err != nil {
			t.Fatal(err)
		}
		expect("decided but not drained", decide(engine.DecisionRequest{Approval: first}), engine.KindDecided)
		r.work()
		if len(c.order) != 0 {
			t.Errorf("%v started before every decision was known", c.order)
		}
		expect("decided and drained", decide(engine.DecisionRequest{Approval: first}), engine.KindDecided)
		if err := decide(engine.DecisionRequest{Approval: second, Reason: "too much"}); err != nil {
			t.Fatal(err)
		}
		r.work()
		must(t, r.progress(id), "completed", "")
		if c.of("look") != 1 || c.of("pay") != 1 {
			t.Errorf("ran %v", c.calls)
		}
		if shown := said(r.model.Requests()[1]); !strings.Contains(shown, "denied this call: too much") {
			t.Errorf("the model is shown\n%s", shown)
		}
		expect("of a settled run", decide(engine.DecisionRequest{Approval: first}), engine.KindDecided)
		r.verify()
	})
}

// An approval that nobody answers ends the run under its own name, by the due
// time alone: no message is needed.
func TestApprovalExpires(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{ApprovalExpiry: time.Hour}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 1)))
		id := r.submit(kim)
		r.work()
		pending, err := r.admitter.Approvals(context.Background(), "t")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		if due, err := r.journal.Due(context.Background(), time.Now(), 10); err != nil || len(due) != 0 {
			t.Fatalf("due early: %v, %v", due, err)
		}
		time.Sleep(time.Minute)
		if due, err := r.journal.Due(context.Background(), time.Now(), 10); err != nil || len(due) != 1 {
			t.Fatalf("not due: %v, %v", due, err)
		}
		time.Sleep(time.Second)
		_, err = r.admitter.Decide(context.Background(), engine.DecisionRequest{Tenant: "t", Principal: "kim", Approval: pending[0].ID, Approve: true})
		var e *engine.Error
		if !errors.As(err, &e) || e.Kind != engine.KindExpired {
			t.Errorf("a late decision: %v", err)
		}
		r.work()
		must(t, r.progress(id), "failed", core.ApprovalExpired)
		if c.of("pay") != 0 {
			t.Error("the tool ran")
		}
		r.verify()
	})
}

// conformance: CLS-02, CLS-03, RUN-013, RET-05 @embedded @serverless
//
// A call that was prepared by a process that died: readonly and idempotent run
// again with the same key, uncertain asks its probe, else an operator.
func TestLostCalls(t *testing.T) {
	type seen struct{ operations []string }
	for name, row := range map[string]struct {
		opts       []tool.Option
		probe      record.Resolution
		resolve    record.Resolution
		parks      bool
		executions int
	}{
		"readonly runs again":                    {opts: []tool.Option{tool.Readonly()}, executions: 2},
		"idempotent runs again":                  {opts: []tool.Option{tool.Idempotent()}, executions: 2},
		"uncertain waits, it happened":           {resolve: record.Happened, parks: true, executions: 1},
		"uncertain waits, it did not happen":     {resolve: record.NotHappened, parks: true, executions: 2},
		"uncertain waits, it is safe to retry":   {resolve: record.SafeToRetry, parks: true, executions: 2},
		"a probe knows that it happened":         {probe: record.Happened, executions: 1},
		"a probe knows that it did not happen":   {probe: record.NotHappened, executions: 2},
		"a probe that fails leaves it to people": {probe: "fails", resolve: record.Happened, parks: true, executions: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := &seen{}
				die := make(chan struct{})
				var alive atomic.Bool
				if row.probe != "" {
					row.opts = append(row.opts, tool.Reconcile[arg, string](func(context.Context, arg) (string, record.Resolution, error) {
						if row.probe == "fails" {
							return "", "", errors.New("no answer")
						}
						return "found", row.probe, nil
					}))
				}
				do := tool.New("do", "Does it.", func(ctx context.Context, _ arg) (string, error) {
					info, _ := tool.CallInfo(ctx)
					s.operations = append(s.operations, info.Operation)
					if !alive.Load() {
						close(die)
						<-ctx.Done() // the process is gone before it answers
						return "", ctx.Err()
					}
					return "done", nil
				}, row.opts...)
				def := define(t, agent.Policy{}, do)
				r := newRig(t, def, modeltest.Calls(call("do", 0)))
				id := r.submit(kim)
				gone := r.attemptUntil(die)
				alive.Store(true)
				r.restart(nil, modeltest.Text("fine"))
				ended := r.work()
				if (ended == engine.ParkedLane) != row.parks {
					t.Fatalf("ended %s", ended)
				}
				if row.parks {
					status, err := r.admitter.Status(context.Background(), r.lane)
					if err != nil || status.Active == nil || status.Active.Waits == nil || status.Active.Waits.Reason != core.WaitUnknown {
						t.Fatalf("status %+v, %v", status.Active, err)
					}
					for range 3 { // redeliveries and sweeps do not run it
						time.Sleep(2 * time.Minute)
						r.work()
					}
					if len(s.operations) != 1 {
						t.Fatalf("ran %d times without an operator", len(s.operations))
					}
					req := engine.ResolveRequest{Tenant: "t", Principal: "op", Conversation: "c", Call: status.Active.Waits.On[0], Resolution: row.resolve}
					if row.resolve == record.Happened {
						req.Result = []byte(`"seen"`)
					}
					if err := r.admitter.Resolve(context.Background(), req); err != nil {
						t.Fatal(err)
					}
					r.work()
				}
				must(t, r.progress(id), "completed", "")
				if len(s.operations) != row.executions {
					t.Errorf("%d executions, want %d", len(s.operations), row.executions)
				}
				for _, op := range s.operations {
					if op != s.operations[0] || op == "" {
						t.Errorf("operation ids %v", s.operations)
					}
				}
				r.verify()
				time.Sleep(time.Hour)
				<-gone
			})
		})
	}
}

// conformance: RET-05 @embedded @serverless
//
// A panic in an uncertain handler leaves its outcome unknown, and no restart
// runs it again, probe or not: its author has to look.
func TestPanickingUncertainHandler(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		runs := 0
		do := tool.New("do", "Does it.", func(context.Context, arg) (string, error) { runs++; panic("boom") },
			tool.Reconcile[arg, string](func(context.Context, arg) (string, record.Resolution, error) { return "", record.NotHappened, nil }))
		r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("do", 0)))
		id := r.submit(kim)
		for range 4 {
			r.work()
			time.Sleep(time.Hour)
			r.restart(nil)
		}
		if runs != 1 || r.progress(id).Status != "running" && r.progress(id).Status != "parked" {
			t.Errorf("ran %d times; the run is %s", runs, r.progress(id).Status)
		}
		r.verify()
	})
}

// A recorded step does not run again when its handler does.
func TestStepsRunOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var charged, shipped, runs int
		die := make(chan struct{})
		do := tool.New("do", "Does it.", func(ctx context.Context, _ arg) (string, error) {
			runs++
			id, err := tool.Step(ctx, "charge", func(context.Context) (int, error) { charged++; return 40 + charged, nil })
			if err != nil {
				return "", err
			}
			if runs == 1 {
				close(die)
				<-ctx.Done()
				return "", ctx.Err()
			}
			_, err = tool.Step(ctx, "ship", func(context.Context) (int, error) { shipped++; return id, nil })
			return "done", err
		}, tool.Idempotent())
		r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("do", 0)))
		id := r.submit(kim)
		gone := r.attemptUntil(die)
		r.restart(nil, modeltest.Text("fine"))
		r.work()
		must(t, r.progress(id), "completed", "")
		if charged != 1 || shipped != 1 || runs != 2 {
			t.Errorf("charged %d times, shipped %d times in %d executions", charged, shipped, runs)
		}
		r.verify()
		time.Sleep(time.Hour)
		<-gone
	})
}

// conformance: RUN-033a, RUN-033b, CTX-02, CTX-05 @embedded @serverless
//
// A later run sees the earlier one's answers, not its instructions and input; a
// resumed run sees its own, as recorded.
func TestHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		pay := handler(c, "pay", tool.RequireApproval())
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Text("first answer"), modeltest.Calls(call("pay", 0)))
		must(t, r.run(kim), "completed", "")
		id := r.submit(`{"name":"Ada"}`)
		r.work()
		// The resumed run's build has other instructions: the log's text holds.
		changed, err := agent.Define[input, string]("a", agent.Config[input]{Instructions: agent.Text[input]("Something else."), Tools: []*tool.Tool{pay}})
		if err != nil {
			t.Fatal(err)
		}
		before := r.model.Requests()[1]
		r.restart(changed, modeltest.Text("second answer"))
		r.approve(0, true)
		r.work()
		must(t, r.progress(id), "completed", "")
		want := "assistant: first answer\nsystem: Help Ada.\nuser: {\"name\":\"Ada\"}\n"
		if said(before) != want {
			t.Errorf("the second run's first request is\n%s", said(before))
		}
		after := said(r.model.Requests()[0])
		if !strings.HasPrefix(after, want) {
			t.Errorf("the resumed request does not begin with the same bytes:\n%s", after)
		}
	})
}

// conformance: LIFE-03 @embedded @serverless
//
// Submissions to one conversation run one after another, in the order they
// were admitted (I5), whatever wakes what.
func TestQueueIsFIFO(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("1"), modeltest.Text("2"), modeltest.Text("3"))
		var ids []string
		for _, name := range []string{`{"name":"1"}`, `{"name":"2"}`, `{"name":"3"}`} {
			ids = append(ids, r.submit(name))
		}
		r.work()
		for i, id := range ids {
			p := r.progress(id)
			must(t, p, "completed", "")
			if string(p.Output) != `"`+string(rune('1'+i))+`"` {
				t.Errorf("run %d answered %s", i+1, p.Output)
			}
		}
		if started := r.records(record.KindRunStarted); len(started) != 3 {
			t.Errorf("%d runs started", len(started))
		}
		r.verify()
		head, err := r.journal.Head(context.Background(), r.lane)
		if err != nil || head.State != journal.Idle {
			t.Errorf("head %+v, %v", head, err)
		}
	})
}

// conformance: INT-07, INT-09 @embedded @serverless
//
// An abort is durable: it holds when the process dies before it is carried out,
// and it is told apart from a detached reader.
func TestAbortSurvivesRestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 0)))
		id := r.submit(kim)
		r.work()
		if _, err := r.admitter.RequestAbort(context.Background(), engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c", Reason: "changed my mind"}); err != nil {
			t.Fatal(err)
		}
		r.restart(nil)
		r.work()
		must(t, r.progress(id), "aborted", "Aborted")
		_, err := r.admitter.RequestAbort(context.Background(), engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c", Submission: id})
		var e *engine.Error
		if !errors.As(err, &e) || e.Kind != engine.KindSettled {
			t.Errorf("a second abort: %v", err)
		}
		r.verify()
	})
}

// Large payloads go aside and come back: no size loses work.
func TestLargePayloads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		big := strings.Repeat("x", 900<<10)
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "look", tool.Readonly())), modeltest.Calls(call("look", 0)), modeltest.Text(big))
		p := r.run(`{"name":"` + big + `"}`)
		must(t, p, "completed", "")
		if string(p.Output) != `"`+big+`"` {
			t.Errorf("an output of %d bytes came back with %d", len(big)+2, len(p.Output))
		}
		for i, req := range r.model.Requests() {
			if !strings.Contains(said(req), big) {
				t.Errorf("request %d does not show the whole input", i)
			}
		}
		for b, err := range r.journal.Read(context.Background(), r.lane, 1) {
			if err != nil || len(b.Body) > record.BatchLimit {
				t.Errorf("batch %d has %d bytes, %v", b.Slot, len(b.Body), err)
			}
		}
		r.verify()
	})
}
