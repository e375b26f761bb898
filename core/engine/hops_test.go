package engine_test

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/tool"
)

// hop delivers the next wake of the chain that a submission began, as a queue
// would. Nothing sweeps: a chain that breaks off has no next wake.
func (r *rig) hop(q *memqueue.Queue, a *engine.Attempter) (engine.Ended, bool) {
	r.t.Helper()
	if d, ok := q.TryReceive(queue.Attempt); ok {
		ended, err := a.Attempt(bg, d.Wake.Lane())
		if err != nil {
			r.t.Fatal(err)
		}
		return ended, true
	}
	if d, ok := q.TryReceive(queue.Settle); ok {
		if _, err := r.settler.Settle(bg, d.Wake.Lane()); err != nil {
			r.t.Fatal(err)
		}
		return "", true
	}
	return "", false
}

// chained is the services over one queue, with attempts so short that a
// handler of twelve seconds fits once.
func (r *rig) chained(q *memqueue.Queue) *engine.Attempter {
	r.t.Helper()
	cfg := engine.Config{Journal: r.journal, Queue: q, Boot: r.journal.Boot(), AttemptTimeout: 30 * time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	registry := r.registry(r.model)
	var err error
	if r.admitter, err = engine.NewAdmitter(cfg, registry.Manifest()); err != nil {
		r.t.Fatal(err)
	}
	if r.settler, err = engine.NewSettler(cfg); err != nil {
		r.t.Fatal(err)
	}
	a, err := engine.NewAttempter(cfg, registry)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// claimAndDie is attempts that claim the lane and leave no record, one after
// another.
func (r *rig) claimAndDie(times int) {
	r.t.Helper()
	for i := range times {
		owner, now := fmt.Sprint("dead-", i), time.Now()
		head, err := r.journal.Claim(bg, journal.ClaimRequest{Lane: r.lane, Owner: owner, Boot: r.journal.Boot(), Now: now, Lease: now.Add(time.Minute)})
		if err == nil {
			err = r.journal.Park(bg, journal.ReleaseRequest{Lane: r.lane, Epoch: head.Epoch, Owner: owner, To: journal.Ready, Due: now, Drained: head.Drained})
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// A run of more than forty attempts goes from one wake to the next to its end:
// each hop is a yield that wakes the lane itself, and no sweep helps.
//
// failure: A01
func TestManyHops(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const calls = 45
		c := &counter{}
		var script []modeltest.Step
		for range calls {
			script = append(script, modeltest.Calls(call("pay", 12)))
		}
		limits := agent.Policy{MaxTurns: calls + 1, MaxToolCalls: calls, MaxDuration: time.Hour}
		r := newRig(t, define(t, limits, handler(c, "pay", tool.Timeout(13*time.Second))), append(script, modeltest.Text("paid"))...)
		q := memqueue.New()
		attempt := r.chained(q)
		id := r.submit(kim)
		yields := 0
		for {
			ended, more := r.hop(q, attempt)
			if !more {
				break
			}
			if ended == engine.Yielded {
				yields++
			}
		}
		p := r.progress(id)
		must(t, p, "completed", "")
		if p.Attempts < 40 || yields != p.Attempts-1 || c.of("pay") != calls {
			t.Errorf("%d attempts, %d yields, %d calls of the tool", p.Attempts, yields, c.of("pay"))
		}
		r.verify()
	})
}

// A run that only ever wakes itself ends by its own count of attempts, which
// survives restarts, with an error of its own name.
//
// failure: A01
func TestEndlessHops(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{MaxDuration: 1000 * time.Hour}, handler(c, "pay", tool.Timeout(5*time.Minute))), // never fits
			modeltest.Calls(call("pay", 0)))
		q := memqueue.New()
		attempt := r.chained(q)
		id := r.submit(kim)
		for range 20 {
			r.hop(q, attempt)
		}
		r.claimAndDie(core.MaxAttempts - 40)
		r.reopen() // the queue is elsewhere, and stays
		attempt = r.chained(q)
		hops := 0
		for more := true; more; hops++ {
			if hops > 40 {
				t.Fatal("still going")
			}
			_, more = r.hop(q, attempt)
		}
		p := r.progress(id)
		must(t, p, "failed", core.AttemptLimit)
		if p.Attempts != 41 || c.of("pay") != 0 { // that left a record; the last only ends the run
			t.Errorf("%d attempts, %d calls of the tool", p.Attempts, c.of("pay"))
		}
	})
}
