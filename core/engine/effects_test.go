package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// failure: A29
//
// What a provider asks for is waited for: in the attempt when it fits, else
// parked, and the record says why.
func TestRetryAfter(t *testing.T) {
	limited := func(d time.Duration) modeltest.Step {
		return modeltest.Fail(&model.Error{Class: model.RateLimited, Message: "429: slow down", RetryAfter: d})
	}
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), limited(8*time.Second), modeltest.Text("done"))
		began := time.Now()
		must(t, r.run(kim), "completed", "")
		if took := time.Since(began); took != 8*time.Second {
			t.Errorf("asked again after %s", took)
		}
	})
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), limited(time.Hour), modeltest.Text("done"))
		id := r.submit(kim)
		began := time.Now()
		r.once(engine.ParkedLane)
		if h := r.head(); time.Since(began) != 0 || h.Due.Sub(began) != time.Hour {
			t.Errorf("asked again after %s", h.Due.Sub(began))
		}
		if b := r.records(record.KindBackoffScheduled)[0].(record.BackoffScheduled); b.Message != "429: slow down" || b.Class != core.FailRateLimited {
			t.Errorf("recorded %+v", b)
		}
		time.Sleep(time.Hour)
		r.work()
		must(t, r.progress(id), "completed", "")
	})
}

// An attempt whose effects were told to end still hears commands: it could not
// rest otherwise.
func TestStoppedAttemptStillLooks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		stuck := make(chan struct{})
		do := tool.New("do", "Does it.", func(context.Context, arg) (string, error) { <-stuck; return "done", nil }, tool.Timeout(10*time.Minute))
		r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("do", 0)))
		id := r.submit(kim)
		gone := make(chan struct{})
		go func() { defer close(gone); r.once(engine.ParkedLane) }()
		for _, reason := range []string{"first", "second"} {
			time.Sleep(10 * time.Second)
			_, err := r.admitter.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: reason, Conversation: "c", Submission: id, Reason: reason})
			if err != nil {
				t.Fatal(err)
			}
		}
		<-gone
		if n := len(r.records(record.KindAbortRequested)); n != 2 {
			t.Errorf("%d aborts recorded", n)
		}
		stray := journal.Entry{Kind: "hello", Key: "k", Digest: "d", Body: []byte("{}"), By: "kim"}
		if _, err := r.journal.Signal(bg, r.lane, stray, 0, time.Now(), time.Second); err != nil {
			t.Fatal(err)
		}
		close(stuck)
		time.Sleep(time.Second)
		r.work()
		must(t, r.progress(id), "aborted", "Aborted")
		r.verify()
	})
}

// A panic that is no user function's ends the run as a defect of the engine.
func TestEnginePanicIsADefect(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("done"))
		looks := 0
		r.services(&hooked{Journal: r.journal, inbox: func(*journal.Head, *[]journal.Entry) error {
			if looks++; looks == 2 {
				panic("the adapter is broken")
			}
			return nil
		}}, nil)
		p := r.run(kim)
		must(t, p, "failed", core.Defect)
		if !strings.Contains(p.Outcome.Error.Message, "a defect in the engine") {
			t.Error(p.Outcome.Error.Message)
		}
		r.verify()
	})
}

// failure: A04
//
// An attempt that dies while a deaf handler runs remembers that, so that no
// later attempt of this process believes a no about its call: not by the clock,
// and not by its own boot id.
func TestDeadAttemptsHandlerIsRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var starts atomic.Int64
		stuck := make(chan struct{})
		pay := tool.New("pay", "Pays.", func(context.Context, arg) (string, error) {
			if starts.Add(1) == 1 {
				<-stuck
			}
			return "paid", nil
		}, tool.Timeout(10*time.Minute), tool.Reconcile[arg, string](func(context.Context, arg) (string, record.Resolution, error) {
			return "", record.NotHappened, nil
		}))
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, pay, handler(c, "look", tool.Readonly())), modeltest.Calls(call("pay", 0), call("look", 5)), modeltest.Text("fine"))
		id := r.submit(kim)
		n := 0
		j := &hooked{Journal: r.journal}
		j.append = func(record.Sealed) error {
			if n++; n >= 3 {
				return errReset
			}
			return nil
		}
		r.services(j, nil)
		if _, err := r.attempt.Attempt(bg, r.lane); err == nil {
			t.Fatal("the attempt went on")
		}
		j.append = nil
		r.model = modeltest.Script(modeltest.Text("fine"))
		for range 4 {
			time.Sleep(time.Hour)
			if _, err := r.attempt.Attempt(bg, r.lane); err != nil {
				t.Fatal(err)
			}
		}
		if starts.Load() != 1 {
			t.Errorf("pay was started %d times while its first handler lives", starts.Load())
		}
		close(stuck)
		time.Sleep(2 * time.Hour)
		r.work()
		must(t, r.progress(id), "completed", "")
		r.verify()
	})
}

// Two handlers of one attempt that do not stop are two leaks: the end of one
// says nothing about the other.
func TestTwoLeaksOfOneAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var starts [2]atomic.Int64
		stuck := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
		var tools []*tool.Tool
		for i, name := range []string{"one", "two"} {
			tools = append(tools, tool.New(name, "Does it.", func(context.Context, arg) (string, error) {
				if starts[i].Add(1) == 1 {
					<-stuck[i]
				}
				return "done", nil
			}, tool.Timeout(time.Minute), tool.Reconcile[arg, string](func(context.Context, arg) (string, record.Resolution, error) {
				return "", record.NotHappened, nil
			})))
		}
		r := newRig(t, define(t, agent.Policy{}, tools...), modeltest.Calls(call("one", 0), call("two", 0)), modeltest.Text("fine"))
		id := r.submit(kim)
		r.work()
		close(stuck[0])
		for range 3 {
			time.Sleep(time.Hour)
			r.work()
		}
		if starts[0].Load() != 1 || starts[1].Load() != 1 {
			t.Errorf("started %d and %d times, and the second one's first handler lives", starts[0].Load(), starts[1].Load())
		}
		close(stuck[1])
		time.Sleep(time.Hour)
		r.work()
		must(t, r.progress(id), "completed", "")
		r.verify()
	})
}

// A probe that is under way is not cut short by the end of its run: what it
// finds may save a person the question.
func TestAbortWaitsForTheProbe(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		die := make(chan struct{})
		pay := tool.New("pay", "Pays.", func(ctx context.Context, _ arg) (string, error) {
			close(die)
			<-ctx.Done()
			return "", ctx.Err()
		}, tool.Reconcile[arg, string](func(ctx context.Context, _ arg) (string, record.Resolution, error) {
			select {
			case <-time.After(10 * time.Second):
				return "paid", record.Happened, nil
			case <-ctx.Done():
				return "", "", ctx.Err()
			}
		}))
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Calls(call("pay", 0)))
		id := r.submit(kim)
		gone := r.attemptUntil(die)
		r.restart(nil)
		time.AfterFunc(5*time.Second, func() {
			if _, err := r.admitter.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c"}); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		r.once(engine.HandedOver)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("ended after %s", took)
		}
		if s := r.records(record.KindCallSettled)[0].(record.CallSettled); s.Source != "probe" || s.Outcome != record.Succeeded {
			t.Errorf("settled as %s by %q", s.Outcome, s.Source)
		}
		r.settle()
		must(t, r.progress(id), "aborted", "Aborted")
		r.verify()
		<-gone
	})
}
