package memqueue_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/memqueue"
)

func wake(kind queue.Kind, conversation string) queue.Wake {
	return queue.For(kind, journal.Lane{Tenant: "t", Conversation: conversation})
}

func send(t *testing.T, q *memqueue.Queue, w queue.Wake, delay time.Duration) {
	t.Helper()
	if err := q.Send(t.Context(), w, delay); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, q *memqueue.Queue, kind queue.Kind) memqueue.Delivery {
	t.Helper()
	d, err := q.Receive(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A wake is not seen before its delay is over, and then at once.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := memqueue.New(), time.Now()
		send(t, q, wake(queue.Attempt, "late"), 15*time.Minute)
		if n := q.Len(queue.Attempt); n != 1 {
			t.Errorf("%d wakes before their time, want 1", n)
		}
		if d := receive(t, q, queue.Attempt); d.Wake != wake(queue.Attempt, "late") || d.Receives != 1 {
			t.Errorf("%+v", d)
		}
		if waited := time.Since(start); waited != 15*time.Minute {
			t.Errorf("seen after %s", waited)
		}
		if n := q.Len(queue.Attempt); n != 0 {
			t.Errorf("%d wakes left", n)
		}
	})
}

// A receiver that waits for a late wake takes an earlier one that comes in.
func TestEarlierWakeOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := memqueue.New(), time.Now()
		send(t, q, wake(queue.Attempt, "late"), time.Hour)
		go func() {
			time.Sleep(time.Second)
			_ = q.Send(t.Context(), wake(queue.Attempt, "soon"), time.Second)
		}()
		if d := receive(t, q, queue.Attempt); d.Wake.Conversation != "soon" || time.Since(start) != 2*time.Second {
			t.Errorf("%s after %s", d.Wake.Conversation, time.Since(start))
		}
		if d := receive(t, q, queue.Attempt); d.Wake.Conversation != "late" || time.Since(start) != time.Hour {
			t.Errorf("%s after %s", d.Wake.Conversation, time.Since(start))
		}
	})
}

// Wakes come in the order of their time, and of their sending where that is
// the same.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New()
		for name, delay := range []time.Duration{3, 1, 0, 1, 2, 0, 3, -1} {
			send(t, q, wake(queue.Attempt, strconv.Itoa(name)), delay*time.Second)
		}
		time.Sleep(time.Minute)
		var order string
		for range 8 {
			order += receive(t, q, queue.Attempt).Wake.Conversation
		}
		if want := "72513406"; order != want {
			t.Errorf("received in order %s, want %s", order, want)
		}
	})
}

// A kind sees its own wakes only.
func TestKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New()
		send(t, q, wake(queue.Attempt, "a"), 0)
		send(t, q, wake(queue.Settle, "s"), 0)
		if d := receive(t, q, queue.Settle); d.Wake.Conversation != "s" {
			t.Errorf("%+v", d)
		}
		if q.Len(queue.Settle) != 0 || q.Len(queue.Attempt) != 1 {
			t.Error("a settle receive took an attempt wake")
		}
	})
}

// A returned delivery keeps its identity, counts its receives, and stays away
// for its delay.
func TestReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := memqueue.New(), time.Now()
		send(t, q, wake(queue.Attempt, "a"), 0)
		first := receive(t, q, queue.Attempt)
		q.Return(first, 30*time.Second)
		send(t, q, wake(queue.Attempt, "b"), 0)
		other := receive(t, q, queue.Attempt)
		second := receive(t, q, queue.Attempt)
		if other.Wake.Conversation != "b" || other.ID == first.ID || other.Receives != 1 {
			t.Errorf("%+v", other)
		}
		want := memqueue.Delivery{ID: first.ID, Wake: wake(queue.Attempt, "a"), Receives: 2}
		if diff := cmp.Diff(want, second); diff != "" || time.Since(start) != 30*time.Second {
			t.Errorf("after %s: %s", time.Since(start), diff)
		}
		q.Return(second, 0)
		if third := receive(t, q, queue.Attempt); third.Receives != 3 {
			t.Errorf("%+v", third)
		}
	})
}

// Many receivers get every wake once, whoever waits where.
func TestManyReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const receivers, wakes = 8, 200
		q := memqueue.New()
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		var running sync.WaitGroup
		seen := map[string]int{}
		for range receivers {
			running.Go(func() {
				for {
					d, err := q.Receive(ctx, queue.Attempt)
					if err != nil {
						return
					}
					mu.Lock()
					seen[d.Wake.Conversation]++
					mu.Unlock()
				}
			})
		}
		synctest.Wait() // all of them wait for a first wake
		for i := range wakes {
			send(t, q, wake(queue.Attempt, strconv.Itoa(i)), time.Duration(i%7)*time.Second)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		mu.Lock()
		if len(seen) != wakes || q.Len(queue.Attempt) != 0 {
			t.Errorf("%d of %d wakes arrived by their time, %d are left", len(seen), wakes, q.Len(queue.Attempt))
		}
		for name, times := range seen {
			if times != 1 {
				t.Errorf("wake %s arrived %d times", name, times)
			}
		}
		mu.Unlock()
		stop()
		running.Wait()
	})
}

// The end of its context ends a receive, whether it waits for a wake or for
// the time of one; the wake stays.
func TestContextEnds(t *testing.T) {
	for name, delay := range map[string]time.Duration{"no wake": -1, "a wake of later": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, start := memqueue.New(), time.Now()
				if delay > 0 {
					send(t, q, wake(queue.Attempt, "a"), delay)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := q.Receive(ctx, queue.Attempt)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
					t.Errorf("%v after %s", err, time.Since(start))
				}
				if delay > 0 && q.Len(queue.Attempt) != 1 {
					t.Error("the wake is gone")
				}
			})
		})
	}
}

// A context that has ended receives nothing, so that a server that stops does
// not take a wake with it.
func TestContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New()
		send(t, q, wake(queue.Attempt, "a"), 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if d, err := q.Receive(ctx, queue.Attempt); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", d, err)
		}
		if q.Len(queue.Attempt) != 1 {
			t.Error("the wake is gone")
		}
	})
}
