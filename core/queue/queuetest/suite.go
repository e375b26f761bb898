// Package queuetest certifies a wake queue: Run holds it to what package queue
// promises, and the source of deliveries beside it to what the engine relies
// on. It assumes no order and no single delivery, because nobody may.
package queuetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
)

// Subject is one queue, empty, with both its sides.
type Subject struct {
	queue.Queue
	// Receive takes one visible wake of a kind. It waits for one as long as
	// wait says; ok is false when none came.
	Receive func(ctx context.Context, kind queue.Kind, wait time.Duration) (d Delivery, ok bool, err error)
	// Done acknowledges a delivery: it does not come again.
	Done func(ctx context.Context, d Delivery) error
	// Visibility is how long a delivery that is not done stays hidden, at
	// least one second. Zero: the queue does not deliver again.
	Visibility time.Duration
	// MaxReceives is how often a wake is delivered before it is a dead letter,
	// and Dead takes the dead letters of a kind. Zero and nil: there are none.
	MaxReceives int
	Dead        func(ctx context.Context, kind queue.Kind) ([]queue.Wake, error)
	// Copies makes the next send arrive so many times: 0 loses it. Nil where
	// the queue cannot be told to.
	Copies func(n int)
}

// Delivery is one delivered wake.
type Delivery struct {
	Wake     queue.Wake
	Receives int // how often it was received, from 1
	Token    any // what the adapter needs for Done
}

// Config says how to test an adapter.
type Config struct {
	// Open makes an empty queue and arranges for its end.
	Open func(t *testing.T) Subject
	// Around runs the body of each test: synctest.Test, for a queue that lives
	// in this process. Defaults to calling it, and the tests run in parallel.
	Around func(t *testing.T, body func(t *testing.T))
	// Late is how much later than promised something may come: what a round
	// trip costs on a loaded machine. Defaults to none.
	Late time.Duration
}

// Run runs the suite. It returns the tests that this adapter could not be put
// through, each with the reason: they are skipped, and the adapter's own test
// compares them with the list it expects.
func Run(t *testing.T, c Config) (notExercised map[string]string) {
	around := c.Around
	if around == nil {
		around = func(t *testing.T, body func(t *testing.T)) { t.Parallel(); body(t) }
	}
	var mu sync.Mutex
	notExercised = map[string]string{}
	t.Run("queue", func(t *testing.T) { // returns when the parallel ones have ended
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				around(t, func(t *testing.T) {
					f := &fixture{Subject: c.Open(t), t: t, ctx: t.Context(), late: c.Late}
					if test.needs != nil {
						if why := test.needs(f.Subject); why != "" {
							mu.Lock()
							notExercised[test.name] = why
							mu.Unlock()
							t.Skip("not exercised: " + why)
						}
					}
					test.run(f)
				})
			})
		}
	})
	return notExercised
}

type test struct {
	name  string
	needs func(Subject) string // what the subject lacks for it
	run   func(*fixture)
}

// fixture is a subject with the helpers that keep the tests readable.
type fixture struct {
	Subject
	t    *testing.T
	ctx  context.Context
	late time.Duration
}

func wake(kind queue.Kind, conversation string) queue.Wake {
	return queue.For(kind, journal.Lane{Tenant: "acme", Conversation: conversation})
}

func (f *fixture) send(w queue.Wake, delay time.Duration) {
	f.t.Helper()
	if err := f.Send(f.ctx, w, delay); err != nil {
		f.t.Fatalf("send %s: %v", w.Conversation, err)
	}
}

// receive takes a delivery that must come within the time.
func (f *fixture) receive(kind queue.Kind, within time.Duration) Delivery {
	f.t.Helper()
	d, ok, err := f.Receive(f.ctx, kind, within+f.late)
	if err != nil {
		f.t.Fatalf("receive: %v", err)
	}
	if !ok {
		f.t.Fatalf("no %s wake came within %s", kind, within+f.late)
	}
	return d
}

// none holds that nothing comes for as long as it says.
func (f *fixture) none(kind queue.Kind, wait time.Duration) {
	f.t.Helper()
	d, ok, err := f.Receive(f.ctx, kind, wait)
	if err != nil {
		f.t.Fatalf("receive: %v", err)
	}
	if ok {
		f.t.Fatalf("a %s wake for %q came, receive %d", kind, d.Wake.Conversation, d.Receives)
	}
}

func (f *fixture) done(d Delivery) {
	f.t.Helper()
	if err := f.Done(f.ctx, d); err != nil {
		f.t.Fatalf("done with %s: %v", d.Wake.Conversation, err)
	}
}

func (f *fixture) is(d Delivery, want queue.Wake, receives int) {
	f.t.Helper()
	if d.Wake != want || d.Receives != receives {
		f.t.Fatalf("received %+v, receive %d; want %+v, receive %d", d.Wake, d.Receives, want, receives)
	}
}
