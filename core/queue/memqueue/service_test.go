package memqueue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/memqueue"
)

const hidden = 30 * time.Second

// try takes what is visible and says its lane and receives; "" for nothing.
func try(q *memqueue.Queue) (memqueue.Delivery, string) {
	d, ok := q.TryReceive(queue.Attempt)
	if !ok {
		return d, ""
	}
	return d, d.Wake.Conversation + string(rune('0'+d.Receives))
}

func wantNext(t *testing.T, q *memqueue.Queue, want string) memqueue.Delivery {
	t.Helper()
	d, got := try(q)
	if got != want {
		t.Fatalf("took %q, want %q", got, want)
	}
	return d
}

// A queue with a clock of the caller's own does nothing until that clock
// moves, and its waiting receivers hear of it.
func TestOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, asked atomic.Int64 // now in nanoseconds
		q := memqueue.NewWith(memqueue.Options{Visibility: hidden, Now: func() time.Time {
			asked.Add(1)
			return time.Unix(0, now.Load())
		}})
		send(t, q, wake(queue.Attempt, "a"), time.Minute)
		got := make(chan memqueue.Delivery, 1)
		go func() {
			if d, err := q.Receive(t.Context(), queue.Attempt); err == nil {
				got <- d
			}
		}()
		time.Sleep(time.Hour)
		if n := asked.Load(); n != 2 { // the send, the receive
			t.Errorf("looked at the clock %d times while it stood", n)
		}
		now.Add(int64(time.Minute - 1))
		q.Moved()
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("came before its time")
		}
		now.Add(1)
		q.Moved()
		if d := <-got; d.Receives != 1 {
			t.Errorf("%+v", d)
		}
		wantNext(t, q, "")
		now.Add(int64(hidden))
		wantNext(t, q, "a2")
	})
}

// Who has lost a delivery to another receiver changes nothing any more.
func TestLateReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.NewWith(memqueue.Options{Visibility: hidden})
		send(t, q, wake(queue.Attempt, "a"), 0)
		late := wantNext(t, q, "a1")
		time.Sleep(hidden)
		second := wantNext(t, q, "a2")
		q.Done(late)
		q.Return(late, 0)
		wantNext(t, q, "")
		time.Sleep(hidden)
		third := wantNext(t, q, "a3")
		q.Done(second)
		q.Return(second, 0)
		q.Done(third)
		q.Done(third)
		time.Sleep(hidden)
		wantNext(t, q, "")
		if n := q.Len(queue.Attempt); n != 0 {
			t.Errorf("%d left", n)
		}
	})
}

// A delivery that is returned comes back when its receiver says, before or
// after its visibility timeout.
func TestReturnOfHidden(t *testing.T) {
	for _, delay := range []time.Duration{time.Second, 2 * hidden} {
		synctest.Test(t, func(t *testing.T) {
			q, start := memqueue.NewWith(memqueue.Options{Visibility: hidden}), time.Now()
			send(t, q, wake(queue.Attempt, "a"), 0)
			q.Return(wantNext(t, q, "a1"), delay)
			if d := receive(t, q, queue.Attempt); d.Receives != 2 || time.Since(start) != delay {
				t.Errorf("receive %d after %s, want 2 after %s", d.Receives, time.Since(start), delay)
			}
		})
	}
}

// Of one lane one wake waits, also when a delivery comes back to one that was
// sent meanwhile; a queue with dead letters keeps them apart, so that neither
// has the count of the other.
func TestMergesWhatComesBack(t *testing.T) {
	for _, tt := range []struct {
		limit int
		back  []string
	}{
		{0, []string{"a1"}},
		{2, []string{"a2", "a1"}},
	} {
		for name, comeBack := range map[string]func(*memqueue.Queue, memqueue.Delivery){
			"returned":  func(q *memqueue.Queue, d memqueue.Delivery) { q.Return(d, hidden) },
			"timed out": func(*memqueue.Queue, memqueue.Delivery) {},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := memqueue.NewWith(memqueue.Options{Visibility: hidden, MaxReceives: tt.limit})
					send(t, q, wake(queue.Attempt, "a"), 0)
					first := wantNext(t, q, "a1")
					send(t, q, wake(queue.Attempt, "a"), 2*hidden)
					comeBack(q, first)
					time.Sleep(hidden)
					if tt.limit > 0 {
						wantNext(t, q, tt.back[0])
						time.Sleep(hidden)
						wantNext(t, q, tt.back[1])
						return
					}
					wantNext(t, q, tt.back[0]) // merged, and at the earlier time
					time.Sleep(hidden - 1)
					wantNext(t, q, "")
				})
			})
		}
	}
}

// A wake that has failed to its limit is a dead letter even while its receiver
// waits for something else, and keeps its count.
func TestDeadWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.NewWith(memqueue.Options{Visibility: hidden, MaxReceives: 1})
		send(t, q, wake(queue.Attempt, "poison"), 0)
		late := wantNext(t, q, "poison1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if d, err := q.Receive(ctx, queue.Attempt); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%+v, %v", d, err)
		}
		q.Done(late)
		q.Return(late, 0)
		dead := q.TakeDead(queue.Attempt)
		if len(dead) != 1 || dead[0].Receives != 1 || q.Len(queue.Attempt) != 0 || len(q.TakeDead(queue.Attempt)) != 0 {
			t.Errorf("dead %+v, %d left", dead, q.Len(queue.Attempt))
		}
	})
}

// BenchmarkQueue is one wake through a queue that many lanes wait in.
func BenchmarkQueue(b *testing.B) {
	for name, o := range map[string]memqueue.Options{"one process": {}, "service": {Visibility: hidden, MaxReceives: 5}} {
		b.Run(name, func(b *testing.B) {
			q, lanes := memqueue.NewWith(o), make([]queue.Wake, 1000)
			for i := range lanes {
				lanes[i] = wake(queue.Attempt, string(rune('a'+i)))
				_ = q.Send(b.Context(), lanes[i], 0)
			}
			for i := range b.N {
				d, ok := q.TryReceive(queue.Attempt)
				if !ok {
					b.Fatal("nothing waits")
				}
				_ = q.Send(b.Context(), lanes[i%len(lanes)], 0)
				q.Done(d)
			}
		})
	}
}
