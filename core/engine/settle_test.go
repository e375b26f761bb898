package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// I4, F3: what arrives while settle works is looked at again: the lane it frees
// is ready, due after the grace, and somebody is told.
func TestSettleLooksAgain(t *testing.T) {
	for name, row := range map[string]struct {
		before, between bool
		looks           int
	}{
		"a submission before the look":          {true, false, 1},
		"a submission between look and release": {false, true, 2},
		"nothing":                               {false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, define(t, agent.Policy{}), modeltest.Text("1"), modeltest.Text("2"))
				looks, finishes := 0, 0
				second := ""
				j := &hooked{Journal: r.journal}
				q := r.services(j, nil)
				first := r.submit(kim)
				r.once(engine.HandedOver)
				if q.take(queue.Settle, "c") != 1 {
					t.Error("nobody was told of the outcome")
				}
				if row.before {
					second = r.submit(kim)
				}
				j.inbox = func(*journal.Head, *[]journal.Entry) error { looks++; return nil }
				j.finish = func(f journal.FinishRequest) error {
					if finishes++; finishes == 1 && row.between {
						second = r.submit(kim)
					}
					if !f.At.Equal(time.Now()) {
						t.Errorf("settled at %s", f.At)
					}
					return nil
				}
				time.Sleep(time.Minute)
				q.take(queue.Attempt, "c")
				r.settle()
				must(t, r.progress(first), "completed", "")
				h, want, told := r.head(), journal.Idle, 0
				if second != "" {
					want, told = journal.Ready, 1
					if row.between {
						told++ // by the submission itself
					}
				}
				if h.State != want || looks != row.looks || h.Drained != 1 || q.take(queue.Attempt, "c") != told {
					t.Errorf("the lane is %s and drained to %d after %d looks, or not %d were told", h.State, h.Drained, looks, told)
				}
				if second == "" {
					if did, err := r.settler.Settle(bg, r.lane); did || err != nil {
						t.Errorf("settled once more: %v, %v", did, err)
					}
					return
				}
				if due := time.Until(h.Due); due != 2*time.Second {
					t.Errorf("due in %s", due)
				}
				r.work()
				must(t, r.progress(second), "completed", "")
				r.verify()
			})
		})
	}
}

// Two settles of one outcome: the one that comes too late changes nothing, even
// when the lane has moved on to another run since its look.
func TestLateSettleFreesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Text("1"), modeltest.Calls(call("pay", 0)), modeltest.Text("2"))
		j := &hooked{Journal: r.journal}
		first, second := r.submit(kim), r.submit(kim)
		r.once(engine.HandedOver)
		fast := r.settler
		r.services(j, nil)
		late := true
		overtake := func() {
			if late {
				late = false
				if did, err := fast.Settle(bg, r.lane); !did || err != nil {
					t.Errorf("settled %v, %v", did, err)
				}
				r.once(engine.ParkedLane)
			}
		}
		j.log = func(journal.Lane) error { overtake(); return nil }
		if did, err := r.settler.Settle(bg, r.lane); did || err != nil {
			t.Errorf("the late settle: %v, %v", did, err)
		}
		if h := r.head(); h.State != journal.Parked || h.Epoch != 2 {
			t.Errorf("the lane is %s in epoch %d under a run that waits for a person", h.State, h.Epoch)
		}
		must(t, r.progress(first), "completed", "")
		r.approve(0, true)
		r.work()
		must(t, r.progress(second), "completed", "")
		r.verify()
	})
}

// lanes fills a journal with one lane for each way a sweep can find one.
func lanes(t *testing.T) (r *rig, ids map[string]string) {
	t.Helper()
	c := &counter{}
	r = newRig(t, define(t, agent.Policy{ApprovalExpiry: time.Hour}, handler(c, "pay", tool.RequireApproval())))
	ids = map[string]string{}
	for i, name := range []string{"broken", "ready", "ended", "parked", "dead"} {
		step := modeltest.Text("done")
		if name == "parked" {
			step = modeltest.Calls(call("pay", 0))
		}
		receipt, err := r.admitter.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Conversation: name, Input: []byte(kim)})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = receipt.Submission
		r.restartModel(step)
		lane := journal.Lane{Tenant: "t", Conversation: name}
		switch name {
		case "ready":
		case "dead": // claimed, and then its process was killed
			_, err = r.journal.Claim(bg, journal.ClaimRequest{Lane: lane, Owner: "x", Now: time.Now(), Lease: time.Now().Add(15 * time.Minute)})
		default:
			_, err = r.attempt.Attempt(bg, lane)
		}
		if err != nil {
			t.Fatal(i, err)
		}
	}
	return r, ids
}

// failure: A18
//
// F10: a sweep settles an outcome on the spot, wakes an attempt for every other
// lane that is due, and goes on behind a lane it can do nothing for.
func TestSweep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, ids := lanes(t)
		var read []string
		j := &hooked{Journal: r.journal}
		j.log = func(lane journal.Lane) error {
			read = append(read, lane.Conversation)
			if lane.Conversation == "broken" {
				return fmt.Errorf("%w: a flipped bit", record.ErrCorrupt)
			}
			return nil
		}
		q := r.services(j, nil)
		look := func(want string) {
			t.Helper()
			n, err := r.settler.Sweep(bg, 100)
			got := fmt.Sprint(n, " lanes:")
			for _, name := range []string{"broken", "ready", "ended", "parked", "dead"} {
				if q.take(queue.Attempt, name) > 0 {
					got += " " + name
				}
			}
			if got != want {
				t.Errorf("after %s: %s; want %s", time.Since(bubbleStart), got, want)
			}
			if strings.Contains(got, "1 lanes") != (err == nil) || err != nil && !errors.Is(err, record.ErrCorrupt) {
				t.Errorf("after %s: %v", time.Since(bubbleStart), err)
			}
		}
		time.Sleep(2 * time.Second)
		look("1 lanes: ready") // its wake was lost
		if len(read) != 0 {
			t.Errorf("the log of %v was read for a lane that is ready", read)
		}
		time.Sleep(20 * time.Minute)
		look("4 lanes: ready dead")
		must(t, r.progress(ids["ended"]), "completed", "")
		time.Sleep(time.Hour)
		look("4 lanes: ready parked dead")
		if h, err := r.journal.Head(bg, journal.Lane{Tenant: "t", Conversation: "broken"}); err != nil || h.State != journal.Running {
			t.Errorf("the broken lane is %s, %v", h.State, err)
		}
		if n, err := r.settler.Sweep(bg, 2); n != 2 {
			t.Errorf("a sweep of at most 2 lanes looked at %d, %v", n, err)
		}
	})
}

// bubbleStart is midnight UTC 2000-01-01, where every bubble begins.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Run sweeps at once, then every interval, over all that is due, and ends with
// its context.
func TestSettlerRuns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}))
		q := r.services(r.journal, nil)
		for i := range 20 {
			_, err := r.admitter.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Conversation: fmt.Sprint("c", i), Input: []byte(kim)})
			if err != nil {
				t.Fatal(err)
			}
		}
		woken := func() (n int) {
			for i := range 20 {
				n += q.take(queue.Attempt, fmt.Sprint("c", i))
			}
			return n
		}
		woken()
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithCancel(bg)
		gone := make(chan struct{})
		go func() { defer close(gone); r.settler.Run(ctx, time.Minute) }()
		for i := range 3 {
			time.Sleep(time.Second)
			if n := woken(); n != 20 {
				t.Errorf("sweep %d woke %d lanes", i+1, n)
			}
			time.Sleep(58 * time.Second)
			if n := woken(); n != 0 {
				t.Errorf("%d lanes were woken between sweeps", n)
			}
			time.Sleep(time.Second)
		}
		cancel()
		<-gone
	})
}

// A run whose submission an earlier attempt drained leaves an idle lane: settle
// looks above everything that is drained, not only above what its own run read.
func TestSettleAfterAnEarlierDrain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("1"), modeltest.Text("2"))
		q := r.services(r.journal, nil)
		r.submit(kim)
		r.submit(kim)
		for _, want := range []journal.State{journal.Ready, journal.Idle} {
			r.once(engine.HandedOver)
			q.take(queue.Attempt, "c")
			r.settle()
			if h := r.head(); h.State != want || h.Drained != 2 || (q.take(queue.Attempt, "c") == 1) != (want == journal.Ready) {
				t.Errorf("the lane is %s and drained to %d, want %s", h.State, h.Drained, want)
			}
		}
		r.verify()
	})
}
