package embedded

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strconv"
	"strings"
	"sync"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/functions"
)

// tailSize is how many events a tail remembers for a reader that comes back.
const tailSize = 1024

// tail is what happens in all conversations, for any number of readers. It
// begins with its first reader, so that nobody pays for what nobody reads, and
// no reader makes another one or a run wait.
type tail struct {
	log    records
	report *slog.Logger
	boot   string

	mu     sync.Mutex
	watch  *watch // nil before the first reader
	done   chan struct{}
	ended  bool
	ring   []told // the last events; the number of ring[0] is first
	first  uint64
	change chan struct{} // closed with the next event
}

type told struct {
	tenant string
	event  event.Event
}

func newTail(log records, report *slog.Logger, boot string) *tail {
	return &tail{log: log, report: report, boot: boot, first: 1, change: make(chan struct{})}
}

// onBatch takes a batch without waiting.
func (t *tail) onBatch(lane journal.Lane, b record.Batch) {
	t.mu.Lock()
	w := t.watch
	t.mu.Unlock()
	if w != nil {
		w.onBatch(lane, b)
	}
}

// begin starts the watch with the first reader.
func (t *tail) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watch != nil || t.ended {
		return
	}
	t.watch, t.done = newWatch(), make(chan struct{})
	go func() {
		defer close(t.done)
		t.watch.run(t.log, t.publish, t.report)
	}()
}

func (t *tail) publish(lane journal.Lane, e event.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring = append(t.ring, told{lane.Tenant, e})
	if over := len(t.ring) - tailSize; over > 0 {
		clear(t.ring[:over]) // or their payloads stay alive
		t.ring, t.first = t.ring[over:], t.first+uint64(over)
	}
	t.wake()
}

// wake needs the lock.
func (t *tail) wake() {
	close(t.change)
	t.change = make(chan struct{})
}

// stop ends every reader, once all that was handed in is published.
func (t *tail) stop() {
	t.mu.Lock()
	w, done := t.watch, t.done
	t.mu.Unlock()
	if w != nil {
		w.stop()
		<-done
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.wake()
}

// Follow implements functions.Tail. An id is the boot of this process and a
// number; after another boot a reader has missed events, and begins with the
// first one of this.
func (t *tail) Follow(ctx context.Context, tenant, after string) iter.Seq2[functions.Tailed, error] {
	return func(yield func(functions.Tailed, error) bool) {
		t.begin()
		next, missed := t.place(after)
		for ctx.Err() == nil {
			events, begin, change := t.since(next)
			if events == nil {
				return
			}
			if begin > next || missed {
				missed = false
				if !yield(functions.Tailed{ID: t.id(begin - 1), Gap: true}, nil) {
					return
				}
			}
			for i, e := range events {
				if e.tenant == tenant && !yield(functions.Tailed{ID: t.id(begin + uint64(i)), Event: e.event}, nil) {
					return
				}
			}
			if next = begin + uint64(len(events)); len(events) > 0 {
				continue
			}
			select {
			case <-change:
			case <-ctx.Done():
			}
		}
	}
}

func (t *tail) id(n uint64) string { return fmt.Sprintf("%s-%d", t.boot, n) }

// place is the number of the first event a reader does not have, and whether
// events before it are lost to this tail.
func (t *tail) place(after string) (next uint64, missed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := t.first + uint64(len(t.ring))
	if after == "" {
		return end, false
	}
	number, mine := strings.CutPrefix(after, t.boot+"-")
	n, err := strconv.ParseUint(number, 10, 64)
	if !mine || err != nil || n >= end {
		return t.first, true
	}
	return n + 1, false
}

// since returns the events from a number on, or from the first one there is.
// It is nil when no event will follow.
func (t *tail) since(next uint64) (events []told, begin uint64, change <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begin = max(next, t.first)
	events = append([]told{}, t.ring[begin-t.first:]...)
	if len(events) == 0 && t.ended {
		return nil, begin, nil
	}
	return events, begin, t.change
}
