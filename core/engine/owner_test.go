package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// I4: what a release says about the inbox is what the log has. Were it one
// more, settle would look above an entry nobody has read, and free the lane
// over acknowledged work. In both rows the attempt that ends the run drains
// nothing, so that the release before it is all that settle has to go by.
func TestReleaseDrainsNoMoreThanTheLog(t *testing.T) {
	c := &counter{}
	for name, row := range map[string]struct {
		policy agent.Policy
		steps  []modeltest.Step
		ended  engine.Ended
		state  journal.State
		due    time.Duration
	}{
		"a park": {agent.Policy{ApprovalExpiry: time.Hour}, []modeltest.Step{modeltest.Calls(call("pay", 0))}, engine.ParkedLane, journal.Parked, time.Hour},
		// The store does not answer the look before the settlement.
		"given back": {agent.Policy{MaxDuration: time.Hour}, []modeltest.Step{modeltest.Text("never recorded")}, "", journal.Ready, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, define(t, row.policy, handler(c, "pay", tool.RequireApproval())), append(row.steps, modeltest.Text("second"))...)
				looks, away := 0, row.state == journal.Ready
				r.services(&hooked{Journal: r.journal, inbox: func(*journal.Head, *[]journal.Entry) error {
					if looks++; away && looks > 1 {
						return errReset
					}
					return nil
				}}, nil)
				r.submit(kim)
				if ended, err := r.attempt.Attempt(bg, r.lane); ended != row.ended || (err != nil) != away {
					t.Fatalf("the attempt ended %q, %v", ended, err)
				}
				if h := r.head(); h.State != row.state || h.Drained != 1 || time.Until(h.Due) != row.due {
					t.Errorf("the lane is %s, drained to %d, due in %s", h.State, h.Drained, time.Until(h.Due))
				}
				away = false
				time.Sleep(2 * time.Hour)
				r.once(engine.HandedOver)
				second := r.submit(kim) // acknowledged while the outcome waits for settle
				r.settle()
				if h := r.head(); h.State != journal.Ready {
					t.Fatalf("the lane is %s over an acknowledged submission", h.State)
				}
				r.work()
				must(t, r.progress(second), "completed", "")
				r.verify()
			})
		})
	}
}

// F2, F6: what arrives between the last look and the park is not slept on. The
// park is refused because it names the version of that look, not of a later
// read, and the same attempt looks again and goes on.
func TestRefusedParkGoesOn(t *testing.T) {
	for _, at := range []string{"at the park", "right behind the look"} {
		t.Run(at, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
				id := r.submit(kim)
				r.once(engine.ParkedLane)
				// A command without effect makes an attempt look, with the approval still open.
				stray := journal.Entry{Kind: "hello", Key: "k", Digest: "d", Body: []byte("{}"), By: "kim"}
				if _, err := r.journal.Signal(bg, r.lane, stray, 0, time.Now(), time.Second); err != nil {
					t.Fatal(err)
				}
				parks, asked := 0, false
				approve := func() {
					if !asked {
						asked = true
						r.approve(0, true)
					}
				}
				j := &hooked{Journal: r.journal, deaf: true} // nothing but the refusal tells the attempt
				j.park = func(journal.ReleaseRequest) error {
					if parks++; parks == 1 && at == "at the park" {
						approve()
					}
					if parks > 5 {
						t.Error("the attempt parks again and again with what it knew before")
						return journal.ErrClosed
					}
					return nil
				}
				if at != "at the park" {
					j.inbox = func(*journal.Head, *[]journal.Entry) error { approve(); return nil }
				}
				r.services(j, nil)
				r.once(engine.HandedOver)
				if parks != 1 || c.of("pay") != 1 {
					t.Errorf("parked %d times, paid %d times", parks, c.of("pay"))
				}
				r.settle()
				must(t, r.progress(id), "completed", "")
				r.verify()
			})
		})
	}
}

// What an attempt has looked at is no reason to refuse its park, however often
// the inbox moved since its claim.
func TestParkNamesTheLastLook(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "look", tool.Readonly()), handler(c, "pay", tool.RequireApproval())),
			modeltest.Calls(call("look", 10)), modeltest.Calls(call("pay", 0)))
		parks := 0
		r.services(&hooked{Journal: r.journal, park: func(journal.ReleaseRequest) error {
			if parks++; parks > 3 {
				return journal.ErrClosed
			}
			return nil
		}}, nil)
		r.submit(kim)
		time.AfterFunc(5*time.Second, func() { r.submit(`{"name":"Ada"}`) })
		r.once(engine.ParkedLane)
		if parks != 1 {
			t.Errorf("parked %d times", parks)
		}
	})
}

// F7: while a write is unclear the attempt writes nothing else: no other batch,
// no head, no evidence in the inbox. The end of its lease repairs the lane.
func TestNothingBehindAnUnclearWrite(t *testing.T) {
	for name, row := range map[string]struct {
		append int // which one stays unclear; 0 for the release
		err    error
	}{
		"the store is away for a response":      {2, errReset},
		"the store is away for a result":        {3, errReset},
		"the store is closed under a response":  {2, journal.ErrClosed},
		"the store is closed under a result":    {3, journal.ErrClosed},
		"the store is away for the release":     {0, errReset},
		"the store is closed under the release": {0, journal.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				tools := []tool.Option{}
				if row.append == 0 {
					tools = append(tools, tool.RequireApproval())
				}
				r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tools...)), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
				r.submit(kim)
				var batches []string
				var first *journal.ReleaseRequest
				unclear := false
				j := &hooked{Journal: r.journal}
				j.append = func(b record.Sealed) error {
					if len(batches) == 0 || batches[len(batches)-1] != b.ID {
						if unclear {
							t.Errorf("batch %d behind the unclear write", b.Slot)
						}
						batches = append(batches, b.ID)
					}
					if len(batches) == row.append {
						unclear = true
						return row.err
					}
					return nil
				}
				j.park = func(q journal.ReleaseRequest) error {
					if first == nil {
						first = &q
					}
					if row.append > 0 || q != *first {
						t.Errorf("the head is written behind the unclear write: %+v", q)
					}
					return row.err
				}
				j.signal = func(e journal.Entry) error { t.Errorf("%s in the inbox behind the unclear write", e.Kind); return nil }
				r.services(j, nil)
				if ended, err := r.attempt.Attempt(bg, r.lane); err == nil || !errors.Is(err, row.err) {
					t.Errorf("the attempt ended %q, %v", ended, err)
				}
				if h := r.head(); h.State != journal.Running {
					t.Errorf("the lane is %s", h.State)
				}
				if started := c.of("pay"); started != max(0, row.append-2) {
					t.Errorf("%d handlers started", started)
				}
			})
		})
	}
}

// No head write before the attempt's first batch is confirmed: an attempt that
// cannot even look has decided nothing, and leaves the lane to its lease.
func TestNoHeadWriteBeforeTheFirstBatch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("done"))
		id := r.submit(kim)
		j := &hooked{Journal: r.journal, inbox: func(*journal.Head, *[]journal.Entry) error { return errReset }}
		j.park = func(q journal.ReleaseRequest) error { t.Errorf("head written: %+v", q); return nil }
		r.services(j, nil)
		if _, err := r.attempt.Attempt(bg, r.lane); !errors.Is(err, errReset) {
			t.Errorf("the attempt ended with %v", err)
		}
		if h := r.head(); h.State != journal.Running || len(r.records()) != 0 {
			t.Errorf("the lane is %s with %d records", h.State, len(r.records()))
		}
		r.assemble()
		time.Sleep(15 * time.Minute)
		r.work()
		must(t, r.progress(id), "completed", "")
	})
}

// failure: A05
//
// F1: whoever reads an epoch above its own is fenced, at every fold. An owner
// that was paused between its claim and its first look at the log asks no
// model, starts no handler and appends nothing under the owner after it.
func TestOwnerPausedBeforeItsFoldIsFenced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}))
		id := r.submit(kim)
		slow, fast := modeltest.Script(modeltest.Text("of the first owner")), modeltest.Script(modeltest.Hang(), modeltest.Text("of the second owner"))
		paused := make(chan struct{})
		first := r.skewed(&hooked{Journal: r.journal, claimed: func() { <-paused }}, 0, slow)
		second := r.skewed(r.journal, 20*time.Minute, fast)
		gone := make(chan string)
		go func() { e, err := first.Attempt(bg, r.lane); gone <- fmt.Sprint(e, err) }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(bg)
		working := make(chan struct{})
		go func() { defer close(working); _, _ = second.Attempt(ctx, r.lane) }()
		time.Sleep(time.Second)
		close(paused)
		if got := <-gone; got != "fenced<nil>" {
			t.Errorf("the first owner ended %s", got)
		}
		if n := len(slow.Requests()); n != 0 {
			t.Errorf("it made %d requests", n)
		}
		cancel()
		<-working
		if _, err := second.Attempt(bg, r.lane); err != nil {
			t.Fatal(err)
		}
		r.settle()
		if p := r.progress(id); string(p.Output) != `"of the second owner"` {
			t.Errorf("the run ended %s with %s", p.Status, p.Output)
		}
		r.verify()
	})
}

// A batch of an older epoch where this attempt's first one should go is true
// history: the same attempt folds it and goes on, without another claim.
func TestOlderBatchIsFoldedNotFeared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}))
		id := r.submit(kim)
		old, let, over := modeltest.Script(modeltest.Text("of the first owner")), make(chan struct{}), make(chan struct{})
		var one, two atomic.Int64
		j := &hooked{Journal: r.journal}
		j.append = func(b record.Sealed) error {
			switch {
			case b.Epoch == 1 && one.Add(1) == 1:
				<-let // the old owner is slow with its very first batch
			case b.Epoch == 1:
				<-over
			case two.Add(1) == 1:
				close(let)
				time.Sleep(time.Second)
			}
			return nil
		}
		first, second := r.skewed(j, 0, old), r.skewed(j, 20*time.Minute, modeltest.Script(modeltest.Text("of the second owner")))
		gone := make(chan engine.Ended)
		go func() { e, _ := first.Attempt(bg, r.lane); gone <- e }()
		time.Sleep(time.Second)
		ended, err := second.Attempt(bg, r.lane)
		if h := r.head(); ended != engine.HandedOver || err != nil || h.Epoch != 2 {
			t.Fatalf("the second owner ended %q, %v in epoch %d", ended, err, h.Epoch)
		}
		close(over)
		if ended := <-gone; ended != engine.FencedOff {
			t.Errorf("the first owner ended %q", ended)
		}
		r.settle()
		if p := r.progress(id); string(p.Output) != `"of the second owner"` || p.Attempts != 2 {
			t.Errorf("the run is %s after %d attempts with %s", p.Status, p.Attempts, p.Output)
		}
		r.verify()
	})
}
