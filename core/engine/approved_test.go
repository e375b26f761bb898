package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// paying is a tool that needs approval and remembers what it was called with.
func paying(paid *[]int, mu *sync.Mutex) *tool.Tool {
	return tool.New("pay", "Pays.", func(_ context.Context, in arg) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		*paid = append(*paid, in.N)
		return "paid", nil
	}, tool.RequireApproval())
}

// What runs after an approval is what was approved, once: with the arguments on
// record, whatever the model would say by now and however often, by whomever
// and about whatever else the question is answered.
//
// failure: A19
func TestWhatRunsIsWhatWasApproved(t *testing.T) {
	var mu sync.Mutex
	var paid []int
	play := func(t *testing.T) *rig {
		paid = nil
		r := newRig(t, define(t, agent.Policy{}, paying(&paid, &mu)), modeltest.Calls(call("pay", 7)))
		r.submit(kim)
		r.once(engine.ParkedLane)
		return r
	}
	decide := func(r *rig, who string, yes bool, change func(*engine.DecisionRequest)) error {
		all, err := r.admitter.Approvals(bg, "t")
		if err != nil || len(all) != 1 {
			t.Fatalf("%d approvals, %v", len(all), err)
		}
		request := engine.DecisionRequest{Tenant: "t", Principal: who, Approval: all[0].ID, Approve: yes, ArgsDigest: all[0].ArgsDigest}
		if change != nil {
			change(&request)
		}
		_, err = r.admitter.Decide(bg, request)
		return err
	}
	wants := func(t *testing.T, r *rig, want ...int) {
		t.Helper()
		r.restartModel(modeltest.Calls(call("pay", 1000)), modeltest.Text("done"))
		r.work()
		r.verify()
		if !slices.Equal(paid, want) {
			t.Errorf("paid %v, want %v", paid, want)
		}
	}
	for name, row := range map[string]func(t *testing.T){
		"another process, whose model says something else": func(t *testing.T) {
			r := play(t)
			if err := decide(r, "ann", true, nil); err != nil {
				t.Fatal(err)
			}
			r.restart(nil, modeltest.Text("done"))
			r.work()
			if !slices.Equal(paid, []int{7}) {
				t.Errorf("paid %v, want 7 once", paid)
			}
			r.verify()
		},
		"two people at once": func(t *testing.T) {
			r := play(t)
			answers := make([]error, 2)
			var both sync.WaitGroup
			for i, who := range []string{"ann", "bob"} {
				both.Go(func() { answers[i] = decide(r, who, true, nil) })
			}
			both.Wait()
			yes := slices.IndexFunc(answers, func(err error) bool { return err == nil })
			if yes < 0 {
				t.Fatalf("nobody's answer counts: %v", answers)
			}
			mustKind(t, "the other answer", answers[1-yes], engine.KindDecided)
			r.restart(nil, modeltest.Text("done"))
			r.work()
			if !slices.Equal(paid, []int{7}) {
				t.Errorf("paid %v, want 7 once", paid)
			}
		},
		"approved after it was denied": func(t *testing.T) {
			r := play(t)
			if err := decide(r, "ann", false, nil); err != nil {
				t.Fatal(err)
			}
			mustKind(t, "the second answer", decide(r, "bob", true, nil), engine.KindDecided)
			r.restart(nil, modeltest.Text("done"))
			r.work()
			if len(paid) > 0 {
				t.Errorf("paid %v although it was denied", paid)
			}
		},
		"about other arguments": func(t *testing.T) {
			r := play(t)
			err := decide(r, "ann", true, func(d *engine.DecisionRequest) { d.ArgsDigest = record.Digest([]byte("other")) })
			mustKind(t, "the answer", err, engine.KindConflict)
			wants(t, r)
		},
		"of another run": func(t *testing.T) {
			r := play(t)
			err := decide(r, "ann", true, func(d *engine.DecisionRequest) { d.Approval = "s_other.1.0" })
			mustKind(t, "the answer", err, engine.KindNotFound)
			wants(t, r)
		},
		"in the inbox, about other arguments": func(t *testing.T) {
			r := play(t)
			all, _ := r.admitter.Approvals(bg, "t")
			forged := journal.Entry{Kind: journal.EntryDecision, Key: all[0].ID, Digest: "d", By: "eve",
				Body: []byte(`{"approval":"` + all[0].ID + `","approve":true,"argsDigest":"sha256:other"}`)}
			if _, err := r.journal.Signal(bg, r.lane, forged, 0, time.Now(), time.Second); err != nil {
				t.Fatal(err)
			}
			wants(t, r)
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, row) })
	}
}

// Ten thousand answers of the store are lost, before or after the write they
// would have told about, item by item: no attempt takes itself for fenced, none
// dies of it, and nothing happens twice.
//
// failure: A14
func TestTenThousandLostAnswers(t *testing.T) {
	many := 10_000
	switch newJournal(t).(type) {
	case *embeddedJournal:
		t.Skip("an operation is one transaction: no answer is lost inside")
	case *serverlessJournal:
		many = 300
	}
	lost, seed := 0, uint64(1)
	for ; lost < many; seed++ {
		inBubble(t, func(t *testing.T) {
			var mu sync.Mutex
			var paid []int
			r := newRig(t, define(t, agent.Policy{}, paying(&paid, &mu), handler(&counter{}, "look", tool.Readonly())),
				modeltest.Calls(call("look", 0), call("look", 1)), modeltest.Calls(call("pay", 7)), modeltest.Text("done"))
			random, row := rand.New(rand.NewPCG(seed, 0)), 0
			loseItems(t, r.journal, func() error {
				mu.Lock()
				defer mu.Unlock()
				// Three times at most for one operation: more is a store that is away.
				if row < 3 && random.IntN(2) == 0 {
					row, lost = row+1, lost+1
					return errors.New("connection reset")
				}
				return nil
			})
			r.journal.SetFault(func(_ string, after bool) error {
				mu.Lock()
				defer mu.Unlock()
				if after {
					row = 0
				}
				return nil
			})
			id := r.submit(kim)
			r.once(engine.ParkedLane)
			r.approve(0, true)
			r.once(engine.HandedOver)
			r.settle()
			loseItems(t, r.journal, nil)
			r.journal.SetFault(nil)
			p := r.progress(id)
			must(t, p, "completed", "")
			if p.Attempts != 2 || !slices.Equal(paid, []int{7}) || r.head().Epoch != 2 {
				t.Errorf("seed %d: %d attempts, paid %v, epoch %d", seed, p.Attempts, paid, r.head().Epoch)
			}
			r.verify()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d answers lost in %d conversations", lost, seed-1)
}
