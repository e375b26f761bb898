package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// careful is an uncertain tool that finishes what it began when its context
// ends.
func careful(name string) *tool.Tool {
	return tool.New(name, "Does it.", func(ctx context.Context, _ arg) (string, error) {
		<-ctx.Done()
		return name + " done", nil
	}, tool.Timeout(5*time.Minute))
}

// An attempt that loses its lane, or whose store fails it, first ends what it
// runs and then hands in every result it holds: the one whose record failed and
// those that came while it was dying. The next owner takes them as evidence,
// and nothing is unknown.
func TestResultsOfADyingAttemptAreHandedIn(t *testing.T) {
	for _, why := range []string{"fenced", "the store fails it"} {
		t.Run(why, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				const slow = 8
				tools := []*tool.Tool{tool.New("fast", "Is first.", func(context.Context, arg) (string, error) {
					time.Sleep(time.Minute)
					return strings.Repeat("x", 40<<10), nil
				}, tool.Timeout(5*time.Minute))}
				calls := []modeltest.Call{call("fast", 0)}
				for i := range slow {
					name := fmt.Sprintf("slow%d", i)
					tools, calls = append(tools, careful(name)), append(calls, call(name, 0))
				}
				r := newRig(t, define(t, agent.Policy{ToolConcurrency: slow + 1}, tools...), modeltest.Calls(calls...))
				id := r.submit(kim)
				full := times(1)
				r.journal.SetFault(func(op string, after bool) error {
					if op == "payload" && !after && why != "fenced" && full() != nil {
						return journal.ErrFull // an answer: nothing is unclear
					}
					return nil
				})
				first := r.skewed(&hooked{Journal: r.journal, deaf: true}, 0, r.model)
				second := r.skewed(r.journal, 20*time.Minute, modeltest.Script(modeltest.Text("done")))
				gone := make(chan error)
				var ended engine.Ended
				go func() { e, err := first.Attempt(bg, r.lane); ended = e; gone <- err }()
				time.Sleep(30 * time.Second)
				if why == "fenced" {
					if e, err := second.Attempt(bg, r.lane); e != engine.ParkedLane || err != nil {
						t.Fatalf("the second owner ended %q, %v", e, err)
					}
					if err := <-gone; ended != engine.FencedOff || err != nil {
						t.Fatalf("the first owner ended %q, %v", ended, err)
					}
				} else if err := <-gone; !errors.Is(err, journal.ErrFull) {
					t.Fatalf("the first owner ended %q, %v", ended, err)
				}
				_, entries, err := r.journal.Inbox(bg, r.lane, 1)
				if err != nil || len(entries) != slow+1 {
					t.Errorf("%d results handed in, %v", len(entries), err)
				}
				if _, err := second.Attempt(bg, r.lane); err != nil {
					t.Fatal(err)
				}
				r.settle()
				must(t, r.progress(id), "completed", "")
				for _, rec := range r.records(record.KindCallSettled) {
					if s := rec.(record.CallSettled); s.Source != "late" || s.Outcome != record.Succeeded {
						t.Errorf("call %s settled as %s by %q", s.Call, s.Outcome, s.Source)
					}
				}
				r.verify()
			})
		})
	}
}

// F8: where no exclusive lock certifies a death, the clock does: a probe's no
// counts from the prepared record plus the longest invocation plus the skew, and
// not a moment earlier. An attempt without a boot id has no such certificate,
// whatever boot id the dead one had.
func TestProbeIsBelievedByTheClock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		runs, asked := 0, 0
		var operations []string
		die := make(chan struct{})
		noteOperation := func(ctx context.Context) {
			info, _ := tool.CallInfo(ctx)
			operations = append(operations, info.Operation)
		}
		pay := tool.New("pay", "Pays.", func(ctx context.Context, _ arg) (string, error) {
			noteOperation(ctx)
			if runs++; runs == 1 {
				close(die)
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "paid", nil
		}, tool.Reconcile[arg, string](func(ctx context.Context, _ arg) (string, record.Resolution, error) {
			noteOperation(ctx)
			asked++
			return "", record.NotHappened, nil
		}))
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Calls(call("pay", 0)))
		id := r.submit(kim)
		short := func(c *engine.Config) { c.AttemptTimeout, c.Skew = 5*time.Minute, 40*time.Second }
		r.services(r.journal, short)
		dying, gone := r.attempt, make(chan struct{})
		began := time.Now()
		go func() { defer close(gone); _, _ = dying.Attempt(bg, r.lane) }()
		<-die
		r.journal, r.model = r.journal.restart(t), modeltest.Script(modeltest.Text("fine"))
		r.services(r.journal, func(c *engine.Config) { short(c); c.Boot = "" })
		if r.journal.Boot() == "" {
			time.Sleep(time.Until(r.head().Lease)) // the lane is nobody else's before
		}
		dead := began.Add(5*time.Minute + 40*time.Second)
		time.Sleep(20 * time.Second)
		r.once(engine.ParkedLane)
		if h := r.head(); !h.Due.Equal(dead) || asked != 1 || runs != 1 {
			t.Fatalf("looked at again at %s, want %s; asked %d times, ran %d times", h.Due, dead, asked, runs)
		}
		time.Sleep(time.Until(dead) - time.Millisecond)
		r.once(engine.NotClaimed)
		time.Sleep(time.Millisecond)
		r.once(engine.HandedOver)
		r.settle()
		must(t, r.progress(id), "completed", "")
		if runs != 2 || asked != 2 {
			t.Errorf("ran %d times, asked %d times", runs, asked)
		}
		// The operation id goes to the tool and to its probe alike.
		if slices.Contains(operations, "") || len(slices.Compact(operations)) != 1 {
			t.Errorf("operation ids %q", operations)
		}
		<-gone
	})
}

// A handler that was not entered before its own invocation's deadline is not
// entered at all: the next owner may have decided about it by then.
func TestNoHandlerStartsAfterItsInvocation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var entered atomic.Int64
		pay := tool.New("pay", "Pays.", func(context.Context, arg) (string, error) { entered.Add(1); return "paid", nil }, tool.Timeout(time.Second))
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		id := r.submit(kim)
		n := 0
		a := r.short(&faulty{Journal: r.journal, beforeApp: func(record.Sealed) {
			if n++; n == 2 {
				time.Sleep(25 * time.Second) // the store is slow with callPrepared
			}
		}}, 30*time.Second)
		if ended, err := a.Attempt(bg, r.lane); ended != engine.Yielded || err != nil || entered.Load() != 0 {
			t.Errorf("the attempt ended %q, %v; the handler was entered %d times", ended, err, entered.Load())
		}
		r.work()
		must(t, r.progress(id), "completed", "")
		if entered.Load() != 1 {
			t.Errorf("the handler was entered %d times", entered.Load())
		}
	})
}

// I4: an inbox entry that cannot be read now is not passed over: nothing above
// it is drained, and the lane does not rest, before it is.
func TestUnansweredEntryIsNotPassedOver(t *testing.T) {
	for _, submissions := range []int{1, 2} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, define(t, agent.Policy{}), modeltest.Text("1"), modeltest.Text("2"))
			var ids []string
			for range submissions {
				ids = append(ids, r.submit(kim))
			}
			fails := times(2)
			r.services(&hooked{Journal: r.journal, row: func(id string, _ *journal.Submission) error {
				if id == ids[0] {
					return fails()
				}
				return nil
			}}, nil)
			r.once(engine.HandedOver)
			r.settle()
			r.work()
			for i, rec := range r.records(record.KindSubmissionQueued) {
				if q := rec.(record.SubmissionQueued); q.Submission != ids[i] {
					t.Errorf("%s is number %d", q.Submission, i+1)
				}
				must(t, r.progress(ids[i]), "completed", "")
			}
			r.verify()
		})
	}
}

// A recorded step that is stored aside comes back as it was, and its body does
// not run again.
func TestLargeStepComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		big := strings.Repeat("x", 40<<10)
		charged, runs := 0, 0
		var got string
		die := make(chan struct{})
		do := tool.New("do", "Does it.", func(ctx context.Context, _ arg) (string, error) {
			runs++
			v, err := tool.Step(ctx, "charge", func(context.Context) (string, error) { charged++; return big, nil })
			if runs == 1 {
				close(die)
				<-ctx.Done()
				return "", ctx.Err()
			}
			got = v
			return "done", err
		}, tool.Idempotent())
		r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("do", 0)))
		id := r.submit(kim)
		gone := r.attemptUntil(die)
		r.restart(nil, modeltest.Text("fine"))
		r.work()
		must(t, r.progress(id), "completed", "")
		settled := r.records(record.KindCallSettled)[0].(record.CallSettled)
		if charged != 1 || runs != 2 || got != big || settled.Outcome != record.Succeeded {
			t.Errorf("charged %d times in %d executions; the step came back with %d bytes of %d; settled %s", charged, runs, len(got), len(big), settled.Outcome)
		}
		<-gone
	})
}

// A handler that outlives its attempt is remembered as long as it lives, and no
// longer: once it has returned without evidence, the probe's no is believed.
func TestLeakEndsWithItsHandler(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var starts atomic.Int64
		stuck := make(chan struct{})
		do := tool.New("do", "Does it.", func(context.Context, arg) (string, error) {
			if starts.Add(1) == 1 {
				<-stuck // deaf to its context
				return "", errors.New("no effect")
			}
			return "done", nil
		}, tool.Timeout(time.Minute), tool.Reconcile[arg, string](func(context.Context, arg) (string, record.Resolution, error) {
			return "", record.NotHappened, nil
		}))
		r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("do", 0)), modeltest.Text("fine"))
		id := r.submit(kim)
		for range 3 {
			r.work()
			time.Sleep(time.Hour)
		}
		status, err := r.admitter.Status(bg, r.lane)
		if err != nil || starts.Load() != 1 || status.Active == nil || status.Active.Waits == nil || status.Active.Waits.Reason != core.WaitUnknown {
			t.Fatalf("%d starts while the first handler lives; status %+v, %v", starts.Load(), status.Active, err)
		}
		close(stuck)
		synctest.Wait()
		time.Sleep(time.Hour)
		r.work()
		must(t, r.progress(id), "completed", "")
	})
}
