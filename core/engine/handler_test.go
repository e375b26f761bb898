package engine_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// failure: A04
//
// An uncertain handler that ignores its context: its run parks as unknown soon
// after its timeout, the probe's no is not believed while it lives, and when it
// returns after all, its result is the evidence: one effect.
func TestHandlerThatDoesNotStop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		effects, stuck := 0, make(chan struct{})
		do := tool.New("do", "Does it.", func(context.Context, arg) (string, error) {
			<-stuck // deaf to its context
			effects++
			return "done", nil
		}, tool.Timeout(time.Minute), tool.Reconcile[arg, string](func(context.Context, arg) (string, record.Resolution, error) {
			return "", record.NotHappened, nil
		}))
		r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("do", 0)), modeltest.Text("fine"))
		began := time.Now()
		id := r.submit(kim)
		if ended := r.work(); ended != engine.ParkedLane || time.Since(began) > 2*time.Minute {
			t.Fatalf("ended %s after %s, want parked as unknown soon after the timeout", ended, time.Since(began))
		}
		for range 3 {
			time.Sleep(time.Hour)
			if ended := r.work(); ended != engine.ParkedLane || effects != 0 {
				t.Fatalf("ended %s with %d effects", ended, effects)
			}
		}
		close(stuck)
		synctest.Wait()
		r.work()
		must(t, r.progress(id), "completed", "")
		if effects != 1 {
			t.Errorf("%d effects", effects)
		}
		if settled := r.records(record.KindCallSettled)[0].(record.CallSettled); settled.Source != "late" || settled.Result.Text() != "done" {
			t.Errorf("settled by %q with %s", settled.Source, settled.Result.Inline)
		}
		r.verify()
	})
}

// conformance: INT-05 @embedded @serverless
//
// A readonly handler that ignores its context does not keep its run: not from
// its own timeout, not from an abort, not from the run's deadline.
func TestDeafHandlerDoesNotKeepTheRun(t *testing.T) {
	for name, row := range map[string]struct {
		policy       agent.Policy
		timeout      time.Duration
		abort        bool
		status, kind string
		within       time.Duration
	}{
		"its own timeout": {agent.Policy{}, time.Minute, false, "completed", "", 2 * time.Minute},
		"an abort":        {agent.Policy{}, 10 * time.Minute, true, "aborted", "Aborted", time.Minute},
		"the deadline":    {agent.Policy{MaxDuration: 5 * time.Minute}, 5 * time.Minute, false, "failed", record.PolicyError, 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				stuck, entered := make(chan struct{}), make(chan struct{})
				do := tool.New("do", "Does it.", func(context.Context, arg) (string, error) {
					close(entered)
					<-stuck
					return "late", nil
				}, tool.Readonly(), tool.Timeout(row.timeout))
				r := newRig(t, define(t, row.policy, do), modeltest.Calls(call("do", 0)), modeltest.Text("fine"))
				id := r.submit(kim)
				began := time.Now()
				if row.abort {
					go func() {
						<-entered
						if _, err := r.admitter.RequestAbort(context.Background(), engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c"}); err != nil {
							t.Error(err)
						}
					}()
				}
				r.work()
				must(t, r.progress(id), row.status, row.kind)
				if took := time.Since(began); took > row.within {
					t.Errorf("took %s, want at most %s", took, row.within)
				}
				r.verify()
				close(stuck)
				synctest.Wait()
				r.work()
				r.verify()
			})
		})
	}
}

// Errors of user code reach the one who runs the server and nobody else.
func TestUserErrors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		secret := errors.New("dial tcp: token=hunter2")
		fail := tool.New("do", "Does it.", func(context.Context, arg) (string, error) { return "", secret })
		r := newRig(t, define(t, agent.Policy{}, fail), modeltest.Calls(call("do", 0)), modeltest.Fail(secret), modeltest.Text("fine"))
		must(t, r.run(kim), "completed", "")
		if len(r.heard) != 2 || r.heard[0].Where != "tool do" || r.heard[1].Where != "the model adapter" || !errors.Is(r.heard[0].Err, secret) {
			t.Errorf("heard %+v", r.heard)
		}
		for _, rec := range r.records() {
			if strings.Contains(string(compactRecord(t, rec)), "hunter2") {
				t.Errorf("the log holds %s", compactRecord(t, rec))
			}
		}
	})
}

// A handler or instructions that end their goroutine are a defect like a panic.
func TestGoexit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		def, err := agent.Define[input, string]("a", agent.Config[input]{
			Instructions: func(context.Context, input) (string, error) { runtime.Goexit(); return "", nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		must(t, newRig(t, def).run(kim), "failed", core.Defect)
	})
}

// The same key without a conversation is the same submission.
func TestMintedConversation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("done"))
		req := engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Key: "order-17", Input: []byte(kim)}
		first, err := r.admitter.Submit(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		again, err := r.admitter.Submit(context.Background(), req)
		if err != nil || !again.Duplicate || again.Submission != first.Submission || again.Conversation != first.Conversation {
			t.Errorf("%+v, then %+v, %v", first, again, err)
		}
		req.Key = ""
		one, _ := r.admitter.Submit(context.Background(), req)
		two, _ := r.admitter.Submit(context.Background(), req)
		if one.Conversation == two.Conversation {
			t.Error("two submissions without a key share a conversation")
		}
	})
}
