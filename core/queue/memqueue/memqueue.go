// Package memqueue is the wake port in memory: one process, delays, a bounded
// number of deliveries, nothing kept across a restart.
package memqueue

import (
	"container/heap"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/layover-run/layover/core/queue"
)

// Delivery is one delivered wake.
type Delivery struct {
	ID       string
	Wake     queue.Wake
	Receives int
}

// Queue holds wakes of all kinds. A wake is a hint, so of one kind and lane at
// most one waits at a time: a second one only makes the first visible earlier.
// However often a sweep looks at a lane that waits for its turn, the queue does
// not grow.
type Queue struct {
	mu     sync.Mutex
	kinds  map[queue.Kind]*waiting
	nextID uint64
}

// waiting is the messages of one kind, by the time they become visible.
type waiting struct {
	messages messageHeap
	byWake   map[queue.Wake]*message
	changed  chan struct{} // closed and replaced when messages change
}

type message struct {
	Delivery
	visible time.Time
	order   uint64
	index   int // in the heap
}

// New makes an empty queue.
func New() *Queue { return &Queue{kinds: map[queue.Kind]*waiting{}} }

func (q *Queue) kind(k queue.Kind) *waiting {
	w := q.kinds[k]
	if w == nil {
		w = &waiting{changed: make(chan struct{}), byWake: map[queue.Wake]*message{}}
		q.kinds[k] = w
	}
	return w
}

// Send makes the wake visible after delay.
func (q *Queue) Send(_ context.Context, w queue.Wake, delay time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.nextID++
	q.put(&message{Delivery: Delivery{ID: strconv.FormatUint(q.nextID, 10), Wake: w}, visible: time.Now().Add(delay), order: q.nextID})
	return nil
}

func (q *Queue) put(m *message) {
	w := q.kind(m.Wake.Kind)
	if waits := w.byWake[m.Wake]; waits == nil {
		w.byWake[m.Wake] = m
		heap.Push(&w.messages, m)
	} else if m.visible.Before(waits.visible) {
		waits.visible = m.visible
		heap.Fix(&w.messages, waits.index)
	} else {
		return
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// Return puts a delivery back, visible after delay, as a failed receive does.
func (q *Queue) Return(d Delivery, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.nextID++
	q.put(&message{Delivery: d, visible: time.Now().Add(delay), order: q.nextID})
}

// Receive waits for one visible wake of a kind, or for ctx; once ctx has ended
// it takes none.
func (q *Queue) Receive(ctx context.Context, kind queue.Kind) (Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Delivery{}, err
		}
		q.mu.Lock()
		w := q.kind(kind)
		var wait <-chan time.Time
		var timer *time.Timer
		if len(w.messages) > 0 {
			until := time.Until(w.messages[0].visible)
			if until <= 0 {
				m := heap.Pop(&w.messages).(*message)
				delete(w.byWake, m.Wake)
				q.mu.Unlock()
				m.Receives++
				return m.Delivery, nil
			}
			timer = time.NewTimer(until)
			wait = timer.C
		}
		changed := w.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-wait:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// Len counts the wakes of a kind, visible or not.
func (q *Queue) Len(kind queue.Kind) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.kind(kind).messages)
}

type messageHeap []*message

func (h messageHeap) Len() int { return len(h) }
func (h messageHeap) Less(i, j int) bool {
	if !h[i].visible.Equal(h[j].visible) {
		return h[i].visible.Before(h[j].visible)
	}
	return h[i].order < h[j].order
}
func (h messageHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *messageHeap) Push(x any) {
	m := x.(*message)
	m.index = len(*h)
	*h = append(*h, m)
}
func (h *messageHeap) Pop() any {
	old := *h
	m := old[len(old)-1]
	*h = old[:len(old)-1]
	return m
}
