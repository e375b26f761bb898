package memqueue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/queue/queuetest"
)

// subject is a queue with its receiving side as the suite wants it.
func subject(o memqueue.Options) queuetest.Subject {
	var copies atomic.Int64
	copies.Store(1)
	o.Copies = func(queue.Wake) int { return int(copies.Load()) }
	q := memqueue.NewWith(o)
	s := queuetest.Subject{
		Queue: q, Visibility: o.Visibility, MaxReceives: o.MaxReceives,
		Copies: func(n int) { copies.Store(int64(n)) },
		Receive: func(ctx context.Context, kind queue.Kind, wait time.Duration) (queuetest.Delivery, bool, error) {
			if d, ok := q.TryReceive(kind); ok || wait == 0 {
				return queuetest.Delivery{Wake: d.Wake, Receives: d.Receives, Token: d}, ok, nil
			}
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			d, err := q.Receive(ctx, kind)
			if ctx.Err() != nil {
				err = nil
			}
			return queuetest.Delivery{Wake: d.Wake, Receives: d.Receives, Token: d}, d.Receives > 0, err
		},
		Done: func(_ context.Context, d queuetest.Delivery) error { q.Done(d.Token.(memqueue.Delivery)); return nil },
	}
	if o.MaxReceives > 0 {
		s.Dead = func(_ context.Context, kind queue.Kind) (wakes []queue.Wake, _ error) {
			for _, d := range q.TakeDead(kind) {
				wakes = append(wakes, d.Wake)
			}
			return wakes, nil
		}
	}
	return s
}

// The queue passes the certification as a service would be set up, and as one
// process uses it.
func TestCertified(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts memqueue.Options
		less []string
	}{
		{"service", memqueue.Options{Visibility: 30 * time.Second, MaxReceives: 5}, nil},
		{"no limit", memqueue.Options{Visibility: 30 * time.Second},
			[]string{"too many receives make a dead letter", "a dead letter leaves the others alone"}},
		{"one process", memqueue.Options{}, []string{
			"too many receives make a dead letter", "a dead letter leaves the others alone",
			"a delivery that is not done comes again after its visibility timeout", "a delivery knows how often it was received",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// A bubble's time is its own: nothing is late in it, but what comes at
			// the very end of a wait needs a moment more.
			got := queuetest.Run(t, queuetest.Config{
				Open: func(*testing.T) queuetest.Subject { return subject(tt.opts) }, Around: synctest.Test, Late: time.Millisecond})
			for _, name := range tt.less {
				if got[name] == "" {
					t.Errorf("%q was exercised: the list is too long", name)
				}
				delete(got, name)
			}
			for name, why := range got {
				t.Errorf("%q was not exercised: %s", name, why)
			}
		})
	}
}
