package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

var bg = context.Background()

// drive attempts and settles for so many rounds, an error being no end.
func (r *rig) drive(rounds int, pause time.Duration) (errs []error) {
	for range rounds {
		if _, err := r.attempt.Attempt(bg, r.lane); err != nil {
			errs = append(errs, err)
		}
		if _, err := r.settler.Settle(bg, r.lane); err != nil {
			errs = append(errs, err)
		}
		time.Sleep(pause)
	}
	return errs
}

// faulty is a journal whose reads can fail too.
type faulty struct {
	Journal
	readErr    func() error
	payloadErr func() error
	inboxErr   func() error
	subErr     func() error
	watchErr   func() error
	beforeApp  func(record.Sealed)
}

func call0(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (j *faulty) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		if err := call0(j.readErr); err != nil {
			yield(record.Sealed{}, err)
			return
		}
		for b, err := range j.Journal.Read(ctx, lane, from) {
			if !yield(b, err) {
				return
			}
		}
	}
}
func (j *faulty) Payload(ctx context.Context, tenant, digest string) ([]byte, error) {
	if err := call0(j.payloadErr); err != nil {
		return nil, err
	}
	return j.Journal.Payload(ctx, tenant, digest)
}
func (j *faulty) Inbox(ctx context.Context, lane journal.Lane, after uint64) (journal.Head, []journal.Entry, error) {
	if err := call0(j.inboxErr); err != nil {
		return journal.Head{}, nil, err
	}
	return j.Journal.Inbox(ctx, lane, after)
}
func (j *faulty) Submission(ctx context.Context, tenant, id string) (journal.Submission, error) {
	if err := call0(j.subErr); err != nil {
		return journal.Submission{}, err
	}
	return j.Journal.Submission(ctx, tenant, id)
}
func (j *faulty) Watch(ctx context.Context, lane journal.Lane, seen journal.Head) (journal.Head, error) {
	if err := call0(j.watchErr); err != nil {
		return journal.Head{}, err
	}
	return j.Journal.Watch(ctx, lane, seen)
}
func (j *faulty) Append(ctx context.Context, lane journal.Lane, b record.Sealed) error {
	if j.beforeApp != nil {
		j.beforeApp(b)
	}
	return j.Journal.Append(ctx, lane, b)
}

var errReset = errors.New("connection reset")

// times is a fault that fires n times.
func times(n int) func() error {
	var mu sync.Mutex
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		if n--; n >= 0 {
			return errReset
		}
		return nil
	}
}

// Pins: a recorded step whose payload cannot be read just now runs again.
func TestRecordedStepRunsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var charged, runs int
		die := make(chan struct{})
		do := tool.New("do", "Does it.", func(ctx context.Context, _ arg) (string, error) {
			runs++
			_, err := tool.Step(ctx, "charge", func(context.Context) (string, error) { charged++; return strings.Repeat("x", 40<<10), nil })
			if err != nil {
				return "", err
			}
			if runs == 1 {
				close(die)
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "done", err
		}, tool.Idempotent())
		r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("do", 0)))
		id := r.submit(kim)
		gone := r.attemptUntil(die)
		r.restart(nil, modeltest.Text("fine"), modeltest.Text("fine"))
		r.assembleOver(&faulty{Journal: r.journal, payloadErr: times(1)})
		errs := r.drive(3, time.Minute)
		if charged != 1 || r.progress(id).Status != "completed" {
			t.Errorf("charged %d times; the run is %s; %v", charged, r.progress(id).Status, errs)
		}
		time.Sleep(time.Hour)
		<-gone
	})
}

// Pins: one read that did not answer decides a run's outcome.
func TestPayloadReadFailsRun(t *testing.T) {
	for nth, what := range []string{"input decode", "history of a resumed run"} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				big := strings.Repeat("x", 40<<10)
				c := &counter{}
				r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
				id := r.submit(`{"name":"` + big + `"}`)
				j := &faulty{Journal: r.journal}
				r.assembleOver(j)
				if nth < 1 {
					// Queue and start in one attempt that dies, so that a second one has to read the payload.
					appends := 0
					ctx, cancel := context.WithCancel(bg)
					j.beforeApp = func(record.Sealed) {
						if appends++; appends == 1 {
							cancel()
						}
					}
					_, _ = r.attempt.Attempt(ctx, r.lane)
					j.beforeApp = nil
					j.payloadErr = times(1)
					r.work()
				} else {
					r.work()
					r.approve(0, true)
					j.payloadErr = times(1)
					r.work()
				}
				p := r.progress(id)
				if p.Status == "failed" {
					t.Errorf("one lost read settled the run: %+v", p.Outcome.Error)
				}
			})
		})
	}
}

// Pins: an inbox that does not answer is asked as fast as the machine can, and
// the end of the process is not noticed.
func TestInboxHotLoop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("ok"))
		r.submit(kim)
		var looks atomic.Int64
		var ok atomic.Bool
		r.assembleOver(&faulty{Journal: r.journal, subErr: func() error {
			if ok.Load() {
				return nil
			}
			if looks.Add(1) > 1000 { // or no time would ever pass
				time.Sleep(time.Minute)
			}
			return fmt.Errorf("%w: a damaged row", record.ErrCorrupt)
		}})
		ctx, cancel := context.WithTimeout(bg, 300*time.Millisecond)
		defer cancel()
		gone := make(chan struct{})
		go func() { defer close(gone); _, _ = r.attempt.Attempt(ctx, r.lane) }()
		time.Sleep(time.Second)
		n := looks.Load()
		select {
		case <-gone:
		default:
			t.Errorf("0.7 s after its context ended the attempt still runs")
		}
		if n > 50 {
			t.Errorf("%d looks in a second", n)
		}
		ok.Store(true)
		<-gone
	})
}

// Pins: a result in hand is lost when its payload cannot be stored for 300 ms.
func TestPayloadOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		paid := 0
		pay := tool.New("pay", "Pays.", func(context.Context, arg) (string, error) { paid++; return strings.Repeat("x", 40<<10), nil })
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		id := r.submit(kim)
		var since time.Time
		r.journal.SetFault(func(op string, after bool) error {
			if op == "payload" && !after {
				if since.IsZero() {
					since = time.Now()
				}
				if time.Since(since) < 300*time.Millisecond {
					return errReset
				}
			}
			return nil
		})
		errs := r.drive(3, time.Minute)
		if p := r.progress(id); p.Status != "completed" {
			t.Errorf("paid %d times, the run is %s %+v after %v", paid, p.Status, p.Waits, errs)
		}
	})
}

// Pins: one lost read behind a claim costs a whole lease.
func TestReadAfterClaim(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("ok"))
		id := r.submit(kim)
		r.assembleOver(&faulty{Journal: r.journal, readErr: times(1)})
		errs := r.drive(2, time.Minute)
		if p := r.progress(id); p.Status != "completed" {
			head, _ := r.journal.Head(bg, r.lane)
			t.Errorf("two minutes later the submission is %s, the lane %s for %s: %v", p.Status, head.State, time.Until(head.Due), errs)
		}
	})
}

// Pins: after one failed Watch an abort is not heard any more.
func TestWatchDies(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "slow", tool.Readonly(), tool.Timeout(10*time.Minute))), modeltest.Calls(call("slow", 500)))
		id := r.submit(kim)
		r.assembleOver(&faulty{Journal: r.journal, watchErr: times(1)})
		go func() { _, _ = r.attempt.Attempt(bg, r.lane); _, _ = r.settler.Settle(bg, r.lane) }()
		time.Sleep(10 * time.Second)
		if _, err := r.admitter.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if p := r.progress(id); p.Status != "aborted" {
			t.Errorf("20 s after the abort the run is %s", p.Status)
		}
		time.Sleep(time.Hour)
	})
}

// skewed is a second host whose clock runs ahead: it judges leases early.
func (r *rig) skewed(j journal.Journal, ahead time.Duration, m *modeltest.Model) *engine.Attempter {
	r.t.Helper()
	a, err := engine.NewAttempter(engine.Config{Journal: j, Queue: memqueue.New(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now: func() time.Time { return time.Now().Add(ahead) }}, r.registry(m))
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// Pins: the result whose append meets the fence is not handed in.
func TestLateOutcomeOfFencedAppend(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		paid := 0
		pay := tool.New("pay", "Pays.", func(context.Context, arg) (string, error) {
			time.Sleep(time.Minute)
			paid++
			return "paid", nil
		})
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Calls(call("pay", 0)))
		id := r.submit(kim)
		first := r.skewed(r.journal, 0, r.model)
		second := r.skewed(r.journal, 20*time.Minute, modeltest.Script(modeltest.Text("done")))
		gone := make(chan engine.Ended)
		go func() { e, _ := first.Attempt(bg, r.lane); gone <- e }()
		time.Sleep(30 * time.Second)
		if e, err := second.Attempt(bg, r.lane); e != engine.ParkedLane || err != nil {
			t.Fatalf("the second owner ended %s, %v", e, err)
		}
		if e := <-gone; e != engine.FencedOff {
			t.Fatalf("the first owner ended %s", e)
		}
		_, entries, _ := r.journal.Inbox(bg, r.lane, 1)
		_, _ = second.Attempt(bg, r.lane)
		_, _ = r.settler.Settle(bg, r.lane)
		if p := r.progress(id); p.Status != "completed" || len(entries) != 1 {
			t.Errorf("paid %d times, %d late outcomes in the inbox, the run is %s %+v", paid, len(entries), p.Status, p.Waits)
		}
	})
}

// Pins: an older batch in the slot of AttemptStarted leaves the lane to its lease.
func TestRestartStalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "look", tool.Readonly())), modeltest.Calls(call("look", 0)))
		r.submit(kim)
		j := &faulty{Journal: r.journal}
		let := make(chan struct{})
		n1, n2 := 0, 0
		j.beforeApp = func(b record.Sealed) {
			switch b.Epoch {
			case 1:
				if n1++; n1 == 2 {
					<-let // the old owner is slow in its append
				}
			case 2:
				if n2++; n2 == 1 {
					close(let)
					time.Sleep(time.Millisecond)
				}
			}
		}
		first := r.skewed(j, 0, r.model)
		second := r.skewed(j, 20*time.Minute, modeltest.Script(modeltest.Text("done")))
		go func() { _, _ = first.Attempt(bg, r.lane) }()
		time.Sleep(time.Second)
		ended, err := second.Attempt(bg, r.lane)
		head, _ := r.journal.Head(bg, r.lane)
		if ended == engine.NotClaimed && head.Epoch == 2 {
			t.Errorf("the owner of epoch %d left its own lane %s (%v); the next look is in %s", head.Epoch, head.State, err, head.Due.Sub(time.Now().Add(20*time.Minute)))
		}
		time.Sleep(time.Hour)
	})
}

// Pins: an attempt that was claimed before another one of this process leaked
// does not know of the leak: a second effect while the first may still happen.
func TestLeakAfterClaim(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var starts atomic.Int64
		stuck := make(chan struct{})
		pay := tool.New("pay", "Pays.", func(context.Context, arg) (string, error) {
			if starts.Add(1) == 1 {
				<-stuck // deaf to its context
			}
			return "paid", nil
		}, tool.Timeout(14*time.Minute+40*time.Second), tool.Reconcile[arg, string](func(context.Context, arg) (string, record.Resolution, error) {
			return "", record.NotHappened, nil
		}))
		c := &counter{}
		look := handler(c, "look", tool.Readonly(), tool.Timeout(5*time.Minute))
		r := newRig(t, define(t, agent.Policy{ToolConcurrency: 1}, pay, look), modeltest.Calls(call("pay", 0), call("look", 120)), modeltest.Text("fine"))
		r.submit(kim)
		go func() { _, _ = r.attempt.Attempt(bg, r.lane) }()
		time.Sleep(15*time.Minute + time.Millisecond)
		go func() { _, _ = r.attempt.Attempt(bg, r.lane) }()
		time.Sleep(10 * time.Minute)
		for b, _ := range r.admitter.Records(bg, r.lane) {
			for _, x := range b.Records {
				t.Logf("%s e%d %T %.150s", b.At.Format("15:04:05"), b.Epoch, x, fmt.Sprintf("%+v", x))
			}
		}
		if n := starts.Load(); n > 1 {
			t.Errorf("pay was started %d times while its first handler still runs", n)
		}
		close(stuck)
		time.Sleep(time.Hour)
	})
}

// Pins: a release on a closed store.
func TestReleaseOnClosedStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 0)))
		r.submit(kim)
		r.journal.SetFault(func(op string, after bool) error {
			if op == "park" && !after {
				_ = r.journal.Close()
			}
			return nil
		})
		began := time.Now()
		_, err := r.attempt.Attempt(bg, r.lane)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the attempt hangs on a closed store for %s: %v", took, err)
		}
	})
}
