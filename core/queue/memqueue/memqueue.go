// Package memqueue is the wake port in memory: one process, delays, repeated
// deliveries, dead letters, nothing kept across a restart. It does what a queue
// service does badly on demand, for tests: it loses wakes and doubles them.
package memqueue

import (
	"container/heap"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/layover-run/layover/core/queue"
)

// Delivery is one delivered wake. Receives counts from 1.
type Delivery struct {
	ID       string
	Wake     queue.Wake
	Receives int
}

// Options configures a queue. The zero value is what one process needs that
// handles its own wakes.
type Options struct {
	// Visibility is how long a delivery stays hidden before it comes again,
	// unless Done or Return says what became of it. Zero: a receive takes the
	// wake for good, because whoever could fail to handle it takes the queue
	// with it.
	Visibility time.Duration
	// MaxReceives is how often a wake is delivered before it ends among the
	// dead letters. Zero: for ever.
	MaxReceives int
	// Copies says how many times a send arrives: 0 loses it, 2 doubles it. It
	// runs under the queue's lock. Defaults to once.
	Copies func(queue.Wake) int
	// Now is a clock of the caller's own; Moved tells the receivers that it
	// moved. Defaults to time.Now and timers.
	Now func() time.Time
}

// Queue holds wakes of all kinds. A wake is a hint, so of one kind and lane at
// most one waits at a time: a second one only makes the first visible earlier.
// However often a sweep looks at a lane that waits for its turn, the queue does
// not grow. With a limit of receives a wake that has failed is left alone, so
// that its count is its own.
type Queue struct {
	opts   Options
	mu     sync.Mutex
	kinds  map[queue.Kind]*waiting
	hidden map[string]*message // delivered and not yet done, by id
	dead   map[queue.Kind][]Delivery
	nextID uint64
}

// waiting is the messages of one kind, by the time they become visible.
type waiting struct {
	messages messageHeap
	byWake   map[queue.Wake]*message // those a wake can merge with
	changed  chan struct{}           // closed and replaced when messages change
}

type message struct {
	Delivery
	visible time.Time
	order   uint64
	index   int // in the heap
}

// New makes an empty queue with the zero Options.
func New() *Queue { return NewWith(Options{}) }

// NewWith makes an empty queue.
func NewWith(o Options) *Queue {
	return &Queue{opts: o, kinds: map[queue.Kind]*waiting{}, hidden: map[string]*message{}, dead: map[queue.Kind][]Delivery{}}
}

func (q *Queue) now() time.Time {
	if q.opts.Now != nil {
		return q.opts.Now()
	}
	return time.Now()
}

func (q *Queue) kind(k queue.Kind) *waiting {
	w := q.kinds[k]
	if w == nil {
		w = &waiting{changed: make(chan struct{}), byWake: map[queue.Wake]*message{}}
		q.kinds[k] = w
	}
	return w
}

// Send makes the wake visible after delay. It never fails.
func (q *Queue) Send(_ context.Context, w queue.Wake, delay time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	copies := 1
	if q.opts.Copies != nil {
		copies = q.opts.Copies(w)
	}
	for i := range copies {
		m := q.message(w, delay)
		if i > 0 {
			q.kind(w.Kind).add(m)
		} else {
			q.put(m)
		}
	}
	return nil
}

func (q *Queue) message(w queue.Wake, delay time.Duration) *message {
	q.nextID++
	return &message{Delivery: Delivery{ID: strconv.FormatUint(q.nextID, 10), Wake: w}, visible: q.now().Add(delay), order: q.nextID}
}

// put adds a message, or makes an equal one that waits visible earlier.
func (q *Queue) put(m *message) {
	w := q.kind(m.Wake.Kind)
	if !q.merges(m) {
		w.add(m)
	} else if waits := w.byWake[m.Wake]; waits == nil {
		w.byWake[m.Wake] = m
		w.add(m)
	} else if m.visible.Before(waits.visible) {
		w.show(waits, m.visible)
	}
}

func (q *Queue) merges(m *message) bool { return m.Receives == 0 || q.opts.MaxReceives == 0 }

func (w *waiting) add(m *message) {
	heap.Push(&w.messages, m)
	w.tell()
}

func (w *waiting) show(m *message, at time.Time) {
	m.visible = at
	heap.Fix(&w.messages, m.index)
	w.tell()
}

func (w *waiting) remove(m *message) {
	heap.Remove(&w.messages, m.index)
	if w.byWake[m.Wake] == m {
		delete(w.byWake, m.Wake)
	}
}

func (w *waiting) tell() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// Done ends a delivery: its wake does not come again. One that came again
// meanwhile is somebody else's.
func (q *Queue) Done(d Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if m := q.hidden[d.ID]; m != nil && m.Receives == d.Receives {
		delete(q.hidden, d.ID)
		q.kind(m.Wake.Kind).remove(m)
	}
}

// Return puts a delivery back, visible after delay, as a failed receive does.
func (q *Queue) Return(d Delivery, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.opts.Visibility > 0 {
		m := q.hidden[d.ID]
		if m == nil || m.Receives != d.Receives {
			return
		}
		delete(q.hidden, d.ID)
		q.kind(m.Wake.Kind).remove(m)
	}
	q.nextID++
	q.put(&message{Delivery: d, visible: q.now().Add(delay), order: q.nextID})
}

// Moved makes every receiver look at Options.Now again.
func (q *Queue) Moved() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.kinds {
		w.tell()
	}
}

// TryReceive takes one visible wake of a kind, if there is one.
func (q *Queue) TryReceive(kind queue.Kind) (Delivery, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m, _ := q.take(kind)
	if m == nil {
		return Delivery{}, false
	}
	return m.Delivery, true
}

// Receive waits for one visible wake of a kind, or for ctx; once ctx has ended
// it takes none.
func (q *Queue) Receive(ctx context.Context, kind queue.Kind) (Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Delivery{}, err
		}
		q.mu.Lock()
		m, until := q.take(kind)
		if m != nil {
			d := m.Delivery
			q.mu.Unlock()
			return d, nil
		}
		changed := q.kind(kind).changed
		q.mu.Unlock()
		q.wait(ctx, changed, until)
	}
}

// wait returns when something may have become visible.
func (q *Queue) wait(ctx context.Context, changed <-chan struct{}, until time.Duration) {
	var due <-chan time.Time
	if until > 0 && q.opts.Now == nil {
		timer := time.NewTimer(until)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-changed:
	case <-due:
	case <-ctx.Done():
	}
}

// take is the next visible message, or how long until there may be one (zero:
// nothing waits).
func (q *Queue) take(kind queue.Kind) (*message, time.Duration) {
	w, now := q.kind(kind), q.now()
	for len(w.messages) > 0 {
		m := w.messages[0]
		if until := m.visible.Sub(now); until > 0 {
			return nil, until
		}
		switch waits := w.byWake[m.Wake]; {
		case q.opts.MaxReceives > 0 && m.Receives >= q.opts.MaxReceives:
			q.forget(w, m)
			q.dead[kind] = append(q.dead[kind], m.Delivery)
		case waits != nil && waits != m && q.merges(m): // m was delivered, and an equal one was sent since
			q.forget(w, m)
			if now.Before(waits.visible) {
				w.show(waits, now)
			}
		default:
			q.deliver(w, m, now)
			return m, 0
		}
	}
	return nil, 0
}

func (q *Queue) forget(w *waiting, m *message) {
	w.remove(m)
	delete(q.hidden, m.ID)
}

// deliver counts the receive and hides the message, or lets it go.
func (q *Queue) deliver(w *waiting, m *message, now time.Time) {
	m.Receives++
	if q.opts.Visibility <= 0 {
		w.remove(m)
		return
	}
	if w.byWake[m.Wake] == m {
		delete(w.byWake, m.Wake)
	}
	q.hidden[m.ID] = m
	m.visible = now.Add(q.opts.Visibility)
	heap.Fix(&w.messages, m.index)
}

// TakeDead empties the dead letters of a kind. A message gets there at the
// first receive that would be one too many.
func (q *Queue) TakeDead(kind queue.Kind) []Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	dead := q.dead[kind]
	delete(q.dead, kind)
	return dead
}

// Len counts the wakes of a kind, visible or not, dead letters left out.
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
