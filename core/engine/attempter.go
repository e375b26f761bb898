package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
)

// Attempter works on lanes: one call of Attempt is one attempt.
type Attempter struct {
	cfg      Config
	registry *Registry
	leaks    *leaks
	permits  *permits
	sink     sink   // nil where nobody listens
	local    *local // of an ephemeral run
}

// NewAttempter needs the definitions it can run.
func NewAttempter(cfg Config, registry *Registry) (*Attempter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	at := &Attempter{cfg: cfg, registry: registry, leaks: &leaks{}, permits: newPermits(cfg.ToolLimits)}
	if cfg.Feed != nil {
		at.sink = feedSink{cfg.Feed}
	}
	return at, nil
}

// Ended says how an attempt went.
type Ended string

// The ends of an attempt.
const (
	NotClaimed Ended = "not-claimed" // a live owner, or nothing to do
	ParkedLane Ended = "parked"
	IdleLane   Ended = "idle"
	Yielded    Ended = "yielded"
	HandedOver Ended = "settled" // a terminal record waits for settle
	FencedOff  Ended = "fenced"  // a newer attempt owns the lane
)

// Attempt claims a lane and works on it until it settles, parks, yields, or
// ctx ends. It is over before ctx's deadline, if there is one. A lane with a
// live owner or without work is left alone. An error means the attempt died:
// what it knew for sure is handed back, and the end of its lease, or the next
// boot, repairs the rest.
func (at *Attempter) Attempt(ctx context.Context, lane journal.Lane) (Ended, error) {
	now := at.cfg.Now()
	fpClaimBefore.Hit()
	claim := journal.ClaimRequest{Lane: lane, Owner: at.cfg.NewID(), Boot: at.cfg.Boot, Now: now, Lease: now.Add(at.cfg.AttemptTimeout)}
	var head journal.Head
	_, err := untilClear(ctx, func() (err error) { head, err = at.cfg.Journal.Claim(ctx, claim); return err })
	if errors.Is(err, journal.ErrNotClaimable) {
		return NotClaimed, nil
	}
	if err != nil {
		return "", fmt.Errorf("engine: claim %s: %w", lane.Conversation, err)
	}
	fpClaimAfter.Hit()
	a := &attempt{cfg: at.cfg, registry: at.registry, leaks: at.leaks, permits: at.permits, lane: lane, head: head, end: at.invocationEnd(ctx, now),
		posted: make(chan posted, 64), out: newOutlet(at.sink, lane, head.Epoch, at.cfg), local: at.local, spans: newSpans(ctx, at.cfg)}
	defer at.local.enter(a)()
	a.out.begin()
	defer a.out.end()
	ended, err := a.run(ctx)
	a.spans.end(a, ended, err)
	return ended, err
}

// invocationEnd is when an attempt must be over: after AttemptTimeout, and
// before the deadline of its context, which is that of the invocation. An
// ephemeral run has none.
func (at *Attempter) invocationEnd(ctx context.Context, now time.Time) time.Time {
	if at.local != nil {
		return time.Time{}
	}
	end := now.Add(at.cfg.AttemptTimeout)
	if deadline, ok := ctx.Deadline(); ok {
		if d := now.Add(time.Until(deadline)); d.Before(end) {
			end = d
		}
	}
	return end
}

// posted is what an effect or a signal hands to the loop: a fact, or an error
// that ends the attempt because the store did not answer.
type posted struct {
	fact core.Fact
	err  error
}

// attempt is one claim of one lane. One goroutine, the caller of run, owns the
// state, the desk and the journal.
type attempt struct {
	cfg      Config
	registry *Registry
	leaks    *leaks
	permits  *permits
	held     held
	lane     journal.Lane
	head     journal.Head // as claimed
	end      time.Time    // of the invocation
	state    *core.State
	desk     *core.Desk
	posted   chan posted
	out      *outlet
	local    *local
	payloads payloads
	spans    spans
	planned  time.Time // the clock of the plan in hand

	effects  context.Context // of the running effects
	stop     context.CancelFunc
	running  sync.WaitGroup
	over     bool      // the run ends at its ceiling of events
	unclear  bool      // a write whose answer never came: write nothing more (F7)
	stopped  time.Time // when the effects were told to end
	handlers handlers
	request  *model.Request // prepared, for the next model call
}

func (a *attempt) run(ctx context.Context) (Ended, error) {
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	defer func() { // or the timer of the effects lives on as long as they might have
		if a.stop != nil {
			a.stop()
		}
	}()
	go a.watch(watching)
	defer a.held.close(a.permits)
	// What is under way is carried to a safe boundary even when ctx ends: the
	// end is a fact for the core, not a reason for half a step.
	durable := context.WithoutCancel(ctx)
	ended, err := a.work(durable, ctx)
	unwatch()
	switch {
	case errors.Is(err, journal.ErrFenced):
		if a.desk != nil { // else fenced at its first fold: nothing was begun
			a.abandon()
			a.handInLate(durable)
		}
		return FencedOff, nil
	case err != nil && a.desk != nil:
		gone := a.abandon()
		if !a.unclear {
			a.handInLate(durable)
		}
		// Before its first batch an attempt has decided nothing, so it writes no
		// head either.
		if gone && !a.unclear && a.state.Epoch == a.head.Epoch {
			a.giveBack(durable)
		}
	}
	return ended, err
}

// work folds the log and runs the loop, again from the start when an older
// attempt's batch was found where this one's first should go, or when a plan
// does not fit a batch: the claim stays, the desk is new.
func (a *attempt) work(ctx, until context.Context) (Ended, error) {
	var first core.Fact
	for {
		if err := a.begin(ctx); err != nil {
			return "", err
		}
		if first != nil {
			core.Note(a.desk, first)
		}
		ended, err := a.loop(ctx, until)
		switch {
		case errors.Is(err, errRestart):
			continue
		case errors.Is(err, record.ErrTooLarge) && first == nil:
			// Asking again would only plan the same: the run ends here.
			a.logger().Error("a plan does not fit one batch", "error", err)
			if !a.abandon() {
				return "", err
			}
			first = core.Faulted{Where: "a batch that is too large to record"}
			continue
		}
		return ended, err
	}
}

// begin folds the log and lays out an empty desk.
func (a *attempt) begin(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, a.cfg.CleanupTimeout)
	defer cancel()
	var state *core.State
	if err := untilDone(reading, func() (err error) {
		a.out.rewind()
		state, err = fold(reading, a.cfg.Journal, a.lane, a.out.read)
		return err
	}); err != nil {
		return err
	}
	if state.Epoch > a.head.Epoch {
		return journal.ErrFenced
	}
	if err := a.recheck(reading, state); err != nil {
		return err
	}
	a.state = state
	a.desk = core.NewDesk(core.AttemptInfo{ID: a.head.Owner, Boot: a.cfg.Boot, Epoch: a.head.Epoch, Settled: a.head.Settled,
		Version: a.head.Version, Exclusive: a.cfg.Boot != "", Authorizes: a.cfg.Authorize != nil, Permits: a.cfg.ToolLimits.any()})
	if a.stop != nil {
		a.stop()
	}
	a.stopped = time.Time{}
	if a.local != nil {
		a.effects, a.stop = context.WithCancel(a.local.scope)
		return nil
	}
	// From that instant on nothing fits, so that no model is asked under a
	// context that is over.
	left := a.end.Sub(a.cfg.Now()) - core.YieldMargin
	a.effects, a.stop = context.WithTimeout(ctx, left)
	return nil
}

// loop is the interpreter: plan, append, fold, start, rest. until only says
// when the attempt should come to an end.
func (a *attempt) loop(ctx, until context.Context) (Ended, error) {
	done := until.Done()
	for {
		a.spans.begin(a)
		plan, err := a.withinCeiling()
		if err != nil {
			return "", err
		}
		if len(plan.Append) > 0 {
			if err := a.append(ctx, plan.Append); err != nil {
				return "", err
			}
		}
		noted := false
		for _, e := range plan.Then {
			noted = a.start(e) || noted
		}
		if len(plan.Append) > 0 || noted {
			continue
		}
		switch plan.Rest.Kind {
		case core.RestDone:
			a.send(ctx, queue.Settle, 0)
			return HandedOver, nil
		case core.RestPark, core.RestYield:
			ended, err := a.release(ctx, plan.Rest)
			if err != nil || ended != "" {
				return ended, err
			}
			core.Note(a.desk, core.Woken{})
			continue
		}
		if err := a.wait(done, plan.Rest.Wake); err != nil {
			return "", err
		}
		if done != nil && until.Err() != nil {
			core.Note(a.desk, core.Cancelled{})
			done = nil
		}
	}
}

// next asks the core. A panic there is a defect of the transitions: the attempt
// dies with it and leaves the log as it was.
func (a *attempt) next() (plan core.Plan, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("engine: the transitions of %s panicked: %w", a.lane.Conversation,
				&DefectError{Where: "the transitions", Value: v, Stack: debug.Stack()})
		}
	}()
	var spec *core.Spec
	if agent, _, ok := core.Wanted(a.state, a.desk); ok {
		if d := a.registry.definition(agent); d != nil {
			spec = &d.Spec
		}
	}
	a.planned = a.cfg.Now()
	a.desk.Attempt.Leaked = a.leaks.list()
	return core.Next(spec, a.state, a.desk, core.Clock{Now: a.planned, InvocationEnd: a.end, LongestInvocation: a.cfg.longest()}), nil
}

// wait takes every fact that is ready, and at least one, unless the time to ask
// again or the end of the context comes first. An effect that does not end
// when it is told to, or outlives the invocation, is a leak: the attempt dies
// and its call stays prepared (D-26).
func (a *attempt) wait(done <-chan struct{}, wake time.Time) error {
	select {
	case p := <-a.posted:
		return a.noteAll(p)
	default:
	}
	if wake.IsZero() || !a.end.IsZero() && a.end.Before(wake) {
		wake = a.end
	}
	if wake.IsZero() {
		wake = a.cfg.Now().Add(localLease)
	}
	wait := wake.Sub(a.cfg.Now())
	if !a.stopped.IsZero() {
		wait = min(wait, a.cleanupLeft())
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case p := <-a.posted:
		return a.noteAll(p)
	case <-done:
	case <-timer.C:
		if !a.end.IsZero() && !a.cfg.Now().Before(a.end) || !a.stopped.IsZero() && a.cleanupLeft() <= 0 {
			return fmt.Errorf("engine: %s: calls %v did not end when they had to", a.lane.Conversation, a.desk.Running())
		}
	}
	return nil
}

// cleanupLeft is how long effects that were told to end may still take: twice
// CleanupTimeout, after which each handler is given up on its own. It is
// measured as those waits are, by the runtime's timers: were the two clocks
// different ones, a step of the wall clock would give up an attempt whose
// handlers are about to answer.
func (a *attempt) cleanupLeft() time.Duration {
	return 2*a.cfg.CleanupTimeout - time.Since(a.stopped)
}

// noteAll notes p and everything else that is ready.
func (a *attempt) noteAll(p posted) error {
	for {
		if p.err != nil {
			return p.err
		}
		core.Note(a.desk, p.fact)
		select {
		case p = <-a.posted:
		default:
			return nil
		}
	}
}

// stopEffects cancels every running effect.
func (a *attempt) stopEffects() {
	a.stopped = time.Now()
	a.stop()
}

// watch posts Woken whenever the head's version moves. A store that does not
// answer for a while must not make the attempt deaf for the rest of its life.
func (a *attempt) watch(ctx context.Context) {
	seen := a.head
	for wait := 50 * time.Millisecond; ; {
		head, err := a.cfg.Journal.Watch(ctx, a.lane, seen)
		switch {
		case ctx.Err() != nil, errors.Is(err, journal.ErrClosed):
			return
		case err != nil:
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			wait = min(2*wait, 5*time.Second)
			continue
		case head.Version != seen.Version:
			select {
			case a.posted <- posted{fact: core.Woken{}}:
			case <-ctx.Done():
			}
		}
		seen, wait = head, 50*time.Millisecond
	}
}
