package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// Pins: an inbox that grew past RecordLimit can never be drained.
func TestManySubmissions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		steps := make([]modeltest.Step, 600)
		for i := range steps {
			steps[i] = modeltest.Text("ok")
		}
		r := newRig(t, define(t, agent.Policy{}), steps...)
		var first string
		for i := range 600 { // as many at once can: the bound is soft
			s := journal.Submission{Lane: r.lane, ID: fmt.Sprint("s", i), Key: fmt.Sprint(i), Digest: "d", Agent: "a", Principal: "kim", Input: []byte(kim), AdmittedAt: time.Now()}
			if _, err := r.journal.Admit(bg, s, time.Now(), time.Second); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = s.ID
			}
		}
		errs := r.drive(20, time.Minute)
		if p := r.progress(first); p.Status != "completed" {
			t.Errorf("after 20 attempts the first of 600 submissions is %s: %v", p.Status, errs[len(errs)-1])
		}
	})
}

// Pins: the reason of an abort has no bound.
func TestLongReason(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 0)))
		id := r.submit(kim)
		r.work()
		_, err := r.admitter.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c", Reason: strings.Repeat("x", 300<<10)})
		if err != nil {
			return // refused: fine
		}
		errs := r.drive(20, time.Minute)
		if p := r.progress(id); p.Status != "aborted" {
			t.Errorf("acknowledged abort, the run is %s: %v", p.Status, errs[len(errs)-1])
		}
	})
}

// Pins: a response with many calls cannot be recorded; the model is paid for ever.
func TestManyCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		calls := make([]modeltest.Call, 600)
		for i := range calls {
			calls[i] = call("look", 0)
		}
		step := modeltest.Calls(calls...)
		r := newRig(t, define(t, agent.Policy{}, handler(c, "look", tool.Readonly())), step, step, step, step, step, step, step, step, step, step, step)
		id := r.submit(kim)
		errs := r.drive(10, time.Minute)
		p := r.progress(id)
		if p.Outcome == nil && p.Turns == 0 {
			t.Errorf("%d requests paid, the run is %s in turn %d: %v", len(r.model.Requests()), p.Status, p.Turns, errs)
		}
	})
}

// Pins: a store that does not answer is not "no such submission".
func TestAbortUnavailable(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}))
		id := r.submit(kim)
		r.assembleOver(&faulty{Journal: r.journal, subErr: times(99)})
		_, err := r.admitter.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c", Submission: id})
		var e *engine.Error
		if !errors.As(err, &e) || e.Kind != engine.KindUnavailable {
			t.Errorf("kind %v: %v", e.Kind, err)
		}
	})
}

// Pins: the free text of an approval is taken for an engine constant.
func TestReasonTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		runs := 0
		die := make(chan struct{})
		pay := tool.New("pay", "Pays.", func(ctx context.Context, _ arg) (string, error) {
			if runs++; runs == 1 {
				close(die)
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "paid", nil
		}, tool.RequireApproval(), tool.Reconcile[arg, string](func(context.Context, arg) (string, record.Resolution, error) { return "", record.NotHappened, nil }))
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Calls(call("pay", 0)))
		r.submit(kim)
		r.work()
		all, _ := r.admitter.Approvals(bg, "t")
		if _, err := r.admitter.Decide(bg, engine.DecisionRequest{Tenant: "t", Principal: "kim", Approval: all[0].ID, Approve: true, Reason: "timeout"}); err != nil {
			t.Fatal(err)
		}
		gone := r.attemptUntil(die)
		r.restart(nil, modeltest.Text("fine"))
		r.work()
		if runs != 2 {
			t.Errorf("ran %d times: %+v", runs, r.records(record.KindCallSettled))
		}
		time.Sleep(time.Hour)
		<-gone
	})
}

// Pins: the probe of a lost call is not asked when its run is aborted.
func TestAbortAsksProbe(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		die := make(chan struct{})
		asked := 0
		pay := tool.New("pay", "Pays.", func(ctx context.Context, _ arg) (string, error) {
			close(die)
			<-ctx.Done()
			return "", ctx.Err()
		}, tool.Reconcile[arg, string](func(context.Context, arg) (string, record.Resolution, error) {
			asked++
			return "paid", record.Happened, nil
		}))
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Calls(call("pay", 0)))
		id := r.submit(kim)
		gone := r.attemptUntil(die)
		r.restart(nil)
		if _, err := r.admitter.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c"}); err != nil {
			t.Fatal(err)
		}
		r.drive(10, time.Hour)
		if p := r.progress(id); p.Status != "aborted" {
			t.Errorf("ten hours later the run is %s %+v; the probe was asked %d times", p.Status, p.Waits, asked)
		}
		<-gone
	})
}

// Pins: one damaged conversation hides every approval of its tenant.
func TestApprovalsWithOneDamagedLane(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 0)))
		r.submit(kim)
		r.work()
		if _, err := r.admitter.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Conversation: "d", Input: []byte(kim)}); err != nil {
			t.Fatal(err)
		}
		other := journal.Lane{Tenant: "t", Conversation: "d"}
		body := []byte(`{"v":1}`)
		if err := r.journal.Append(bg, other, record.Sealed{Slot: 1, ID: "x", Epoch: 1, Digest: record.Digest(body), Body: body}); err != nil {
			t.Fatal(err)
		}
		all, err := r.admitter.Approvals(bg, "t")
		if err != nil || len(all) != 1 {
			t.Errorf("%d approvals, %v", len(all), err)
		}
	})
}

// Pins: a timeout that just fits an attempt on paper never does in life.
func TestTimeoutAsLongAsTheAttempt(t *testing.T) {
	c := &counter{}
	look := handler(c, "look", tool.Readonly(), tool.Timeout(time.Second))
	r := newRig(t, define(t, agent.Policy{}, look), modeltest.Calls(call("look", 0)), modeltest.Text("ok"))
	registry, err := engine.NewRegistry(11*time.Second, r.def.Bind(r.model).Engine())
	if err != nil {
		return // refused: fine
	}
	a, err := engine.NewAttempter(engine.Config{Journal: r.journal, Queue: memqueue.New(), Boot: r.journal.Boot(), AttemptTimeout: 11 * time.Second,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, registry)
	if err != nil {
		return
	}
	id := r.submit(kim)
	for range 1100 {
		e, err := a.Attempt(bg, r.lane)
		if err != nil {
			t.Fatal(err)
		}
		if e == engine.HandedOver {
			break
		}
	}
	_, _ = r.settler.Settle(bg, r.lane)
	p := r.progress(id)
	if p.Status != "completed" {
		t.Errorf("after %d attempts and %d handlers the run is %s %+v", p.Attempts, c.of("look"), p.Status, p.Outcome)
	}
}

// Pins: an attempt shorter than the margin is accepted and works on nothing.
func TestShortAttempt(t *testing.T) {
	r := newRig(t, define(t, agent.Policy{}), modeltest.Text("ok"))
	registry, err := engine.NewRegistry(5*time.Second, r.def.Bind(r.model).Engine())
	if err != nil {
		return
	}
	a, err := engine.NewAttempter(engine.Config{Journal: r.journal, Queue: memqueue.New(), Boot: r.journal.Boot(), AttemptTimeout: 5 * time.Second,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, registry)
	if err != nil {
		return
	}
	id := r.submit(kim)
	for range 1100 {
		if e, err := a.Attempt(bg, r.lane); err != nil || e == engine.HandedOver {
			break
		}
	}
	_, _ = r.settler.Settle(bg, r.lane)
	if p := r.progress(id); p.Status != "completed" {
		t.Errorf("the run is %s %+v, requests %d", p.Status, p.Outcome, len(r.model.Requests()))
	}
}

// Pins: the sweep sends a wake a second for a lane that waits for a place.
func TestSweepPilesUpWakes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("ok"))
		q := memqueue.New()
		s, err := engine.NewSettler(engine.Config{Journal: r.journal, Queue: q})
		if err != nil {
			t.Fatal(err)
		}
		r.submit(kim)
		time.Sleep(3 * time.Second)
		for range 600 { // ten minutes of saturation at the default sweep
			_, _ = s.Sweep(bg, 1000)
			time.Sleep(time.Second)
		}
		if n := q.Len(queue.Attempt); n > 2 {
			t.Errorf("one ready lane that waits ten minutes for a place has %d wakes in the queue", n)
		}
	})
}

// Pins: the invocation ends with its context's deadline; a handler that does not
// fit before it must not start.
func TestInvocationDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.Timeout(5*time.Minute))), modeltest.Calls(call("pay", 120)), modeltest.Text("done"))
		r.submit(kim)
		ctx, cancel := context.WithTimeout(bg, time.Minute) // what Lambda gives a handler
		defer cancel()
		began := time.Now()
		ended, err := r.attempt.Attempt(ctx, r.lane)
		if took := time.Since(began); c.of("pay") != 0 || took > time.Minute {
			t.Errorf("the attempt ended %q (%v) after %s of an invocation of 1m; an uncertain handler with a time-out of 5m was started %d times", ended, err, took, c.of("pay"))
		}
	})
}

// Pins: a handler that was certainly not entered is left as if it may have run.
func TestNotStartedIsKnown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.Timeout(time.Second))), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		id := r.submit(kim)
		j := &faulty{Journal: r.journal}
		n := 0
		j.beforeApp = func(record.Sealed) {
			if n++; n == 2 {
				time.Sleep(29 * time.Second) // the store is slow with callPrepared
			}
		}
		a := r.short(j, 30*time.Second)
		_, _ = a.Attempt(bg, r.lane)
		r.drive(3, time.Minute)
		if p := r.progress(id); p.Status != "completed" {
			t.Errorf("ran %d times; the run is %s %+v", c.of("pay"), p.Status, p.Waits)
		}
	})
}

func (r *rig) short(j *faulty, timeout time.Duration) *engine.Attempter {
	a, err := engine.NewAttempter(engine.Config{Journal: j, Queue: memqueue.New(), Boot: r.journal.Boot(), AttemptTimeout: timeout,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, r.registry(r.model))
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// Pins: a stop reason of any length goes into the record as it is.
func TestLongStopReason(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Emit(model.Start{Provider: "p", Model: "m"}, model.TextDelta{Text: "x"},
			model.Finish{Reason: model.Stop, Raw: strings.Repeat("y", 300<<10)}), modeltest.Text("2"))
		r.submit(kim)
		if errs := r.drive(2, time.Minute); len(errs) > 0 {
			t.Errorf("%v", errs)
		}
	})
}
