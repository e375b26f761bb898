package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// Every write of a run with an approval and a large result loses its answer
// once, before or after it happened. The run is never fenced by itself, its
// uncertain tool runs once, and no wait for a lease is needed.
//
// failure: A14
func TestLostAnswers(t *testing.T) {
	for _, op := range []string{"admit", "signal", "claim", "append", "park", "finish", "payload"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(op, " after=", after), func(t *testing.T) {
				for nth := 1; ; nth++ {
					if fired := loseAnswer(t, op, after, nth); t.Failed() || !fired {
						if nth == 1 {
							t.Errorf("the fault never fired")
						}
						return
					}
				}
			})
		}
	}
}

// loseAnswer plays the run with the nth answer of an operation lost, and says
// whether there was such an answer.
func loseAnswer(t *testing.T, op string, after bool, nth int) (fired bool) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		paid := 0
		big := tool.New("big", "Says a lot.", func(context.Context, arg) (string, error) { return strings.Repeat("x", 40<<10), nil }, tool.Readonly())
		pay := tool.New("pay", "Pays.", func(context.Context, arg) (string, error) { paid++; return "paid", nil }, tool.RequireApproval())
		r := newRig(t, define(t, agent.Policy{}, big, pay), modeltest.Calls(call("big", 0)), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		seen := 0
		r.journal.SetFault(func(at string, afterwards bool) error {
			if at == op && afterwards == after {
				if seen++; seen == nth {
					fired = true
					return errors.New("connection reset")
				}
			}
			return nil
		})
		began := time.Now()
		id := r.submit(kim)
		r.work()
		r.approve(0, true)
		r.work()
		must(t, r.progress(id), "completed", "")
		if took := time.Since(began); paid != 1 || took > time.Minute {
			t.Errorf("answer %d of %s lost (after=%v): paid %d times in %s", nth, op, after, paid, took)
		}
		if epochs := r.progress(id).Attempts; epochs != 2 {
			t.Errorf("answer %d of %s lost (after=%v): %d attempts", nth, op, after, epochs)
		}
		r.verify()
	})
	return fired
}

// A store that is away for good: the attempt gives up, appends nothing behind
// the unclear slot, and the end of its lease lets another go on.
func TestUnclearAppendEndsTheAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay")), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		id := r.submit(kim)
		appends := 0
		r.journal.SetFault(func(op string, after bool) error {
			if op == "append" && !after {
				if appends++; appends > 1 {
					return errors.New("no route to host")
				}
			}
			if op == "park" && appends > 1 {
				t.Error("the head was written while an append was unclear")
			}
			return nil
		})
		if _, err := r.attempt.Attempt(context.Background(), r.lane); err == nil {
			t.Fatal("the attempt did not fail")
		}
		if c.of("pay") != 0 {
			t.Error("a handler started before its record was confirmed")
		}
		r.journal.SetFault(nil)
		if ended := r.work(); ended != engine.NotClaimed {
			t.Fatalf("ended %s while the lease lasts", ended)
		}
		time.Sleep(15 * time.Minute)
		r.restartModel(modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		r.work()
		must(t, r.progress(id), "completed", "")
		if c.of("pay") != 1 {
			t.Errorf("ran %d times", c.of("pay"))
		}
		r.verify()
	})
}

// tampered is a journal whose log reads differently than it was written.
type tampered struct {
	Journal
	change func(*record.Sealed)
}

func (j tampered) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		for b, err := range j.Journal.Read(ctx, lane, from) {
			if err == nil {
				j.change(&b)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// conformance: REC-01 @embedded @serverless
//
// A log that was changed is refused before anything is written behind it:
// verify names the first bad slot, and an attempt dies without a batch, a hook,
// a model call or a handler.
func TestTamperedLog(t *testing.T) {
	reseal := func(b *record.Sealed, old, new string) {
		body := strings.Replace(string(b.Body), old, new, 1)
		if body == string(b.Body) {
			t.Fatalf("slot %d has no %s", b.Slot, old)
		}
		b.Body, b.Digest = []byte(body), record.Digest([]byte(body))
	}
	for name, change := range map[string]func(*record.Sealed){
		"a byte is flipped":            func(b *record.Sealed) { b.Body[len(b.Body)/2] ^= 1 },
		"the end is cut off":           func(b *record.Sealed) { b.Body = b.Body[:len(b.Body)-10] },
		"it is another tenant's":       func(b *record.Sealed) { reseal(b, `"tenant":"t"`, `"tenant":"u"`) },
		"it is from a newer build":     func(b *record.Sealed) { reseal(b, `"tenant":"t","v":1`, `"tenant":"t","v":2`) },
		"it has a newer record":        func(b *record.Sealed) { reseal(b, `"kind":"callPrepared"`, `"kind":"callPondered"`) },
		"it has a newer field":         func(b *record.Sealed) { reseal(b, `"kind":"callPrepared"`, `"kind":"callPrepared","mood":"good"`) },
		"it is rewritten and resealed": func(b *record.Sealed) { reseal(b, `"stop":"tool-calls"`, `"stop":"tool-Calls"`) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				r := newRig(t, define(t, agent.Policy{}, handler(c, "look", tool.Readonly()), handler(c, "pay", tool.RequireApproval())),
					modeltest.Calls(call("look", 0)), modeltest.Calls(call("pay", 0)))
				r.submit(kim)
				r.work()
				r.approve(0, true)
				writes := r.journal.Writes()
				r.model = modeltest.Script()
				r.assembleOver(tampered{r.journal, func(b *record.Sealed) {
					if b.Slot == 2 {
						change(b)
					}
				}})
				v, err := r.admitter.Verify(context.Background(), r.lane)
				if err != nil || v.OK || v.FirstBad < 2 || v.FirstBad > 3 {
					t.Errorf("verify: %+v, %v", v, err)
				}
				if _, err := r.attempt.Attempt(context.Background(), r.lane); err == nil {
					t.Error("the attempt went on")
				}
				if wrote := r.journal.Writes() - writes; wrote > 1 { // the claim
					t.Errorf("%d writes behind a log that does not hold", wrote)
				}
				if c.of("pay") != 0 || len(r.model.Requests()) != 0 {
					t.Errorf("%d handlers and %d requests", c.of("pay"), len(r.model.Requests()))
				}
			})
		})
	}
}

// The outcome is not handed over out of a log that does not hold, wherever
// behind the last hand-over that is.
func TestSettleRefusesATamperedLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("done"))
		id := r.submit(kim)
		r.once(engine.HandedOver)
		before := r.head()
		last := uint64(0)
		for _, err := range r.journal.Read(bg, r.lane, 1) {
			if err != nil {
				t.Fatal(err)
			}
			last++
		}
		for bad := uint64(1); bad <= last; bad++ {
			r.assembleOver(tampered{r.journal, func(b *record.Sealed) {
				if b.Slot == bad {
					b.Body = slices.Clone(b.Body)
					b.Body[len(b.Body)/2] ^= 1
				}
			}})
			if _, err := r.settler.Settle(bg, r.lane); !errors.Is(err, record.ErrCorrupt) {
				t.Errorf("slot %d of %d: %v", bad, last, err)
			}
			if row, err := r.journal.Submission(bg, "t", id); err != nil || row.Outcome != nil || r.head() != before {
				t.Errorf("slot %d of %d: %+v, %v; the lane is %+v", bad, last, row.Outcome, err, r.head())
			}
		}
		if last < 2 {
			t.Errorf("%d batches", last)
		}
		r.assemble()
		r.settle()
		must(t, r.progress(id), "completed", "")
	})
}
