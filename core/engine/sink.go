package engine

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
)

// defectTag is the kind of a failure that no author expected.
const defectTag = "Defect"

// consumer is who gets the events of an ephemeral run.
type consumer interface {
	// put takes the next event, and may wait. A canonical event is never lost;
	// a provisional one may be, once ctx has ended.
	put(ctx context.Context, e event.Event)
}

// localSink turns the events of one ephemeral run's attempts into its one
// trace: a wait that this process sits out is no end, a defect is no typed
// failure, and past the ceiling only the end of the run is told.
type localSink struct {
	ctx     context.Context // of the run: what it holds is not lost before that
	out     consumer
	ceiling int

	told     int           // canonical events
	left     uint64        // sequence numbers of events nobody was told
	waiting  []event.Event // a RunSuspended that may not be the end
	onEvent  func(event.Event)
	onDefect func(*DefectError)
}

func (s *localSink) begin(journal.Lane) {}
func (s *localSink) end(journal.Lane)   {}

func (s *localSink) recorded(_ journal.Lane, events []event.Event) {
	for _, e := range events {
		if len(s.waiting) > 0 { // it went on
			s.waiting = nil
			s.left++
		}
		switch d := e.Data.(type) {
		case event.RunSuspended:
			s.waiting = []event.Event{e}
			continue
		case event.RunFailed:
			if d.Error.Kind == defectTag {
				// Whoever panicked was heard before; this is about the rest.
				s.onDefect(&DefectError{Where: "the run", Value: errors.New(d.Error.Message)})
				s.left++
				continue
			}
		}
		s.tell(e)
	}
}

func (s *localSink) tell(e event.Event) {
	if s.told >= s.ceiling-1 && !endsTrace(e) {
		s.left++
		return
	}
	s.told++
	e.Sequence -= s.left
	s.onEvent(e)
	s.out.put(s.ctx, e)
}

// suspended makes a wait the end of the run.
func (s *localSink) suspended() {
	for _, e := range s.waiting {
		s.tell(e)
	}
	s.waiting = nil
}

func (s *localSink) live(ctx context.Context, _ journal.Lane, e event.Event) {
	e.Sequence -= s.left
	s.onEvent(e)
	s.out.put(ctx, e)
}

func endsTrace(e event.Event) bool {
	switch e.Data.(type) {
	case event.RunCompleted, event.RunFailed, event.RunInterrupted, event.RunSuspended:
		return true
	}
	return false
}

// buffer is the bounded queue between a run and its one reader. It makes
// whoever put an event wait until there is room, and joins deltas of one block
// while the reader is behind (BP-01, BP-02).
type buffer struct {
	mu    sync.Mutex
	moved sync.Cond
	queue []event.Event
	bound int
	ended bool // no event will come
	gone  bool // nobody will read
}

// joinedBytes bounds a delta that is made of several.
const joinedBytes = 64 << 10

func newBuffer(bound int) *buffer {
	b := &buffer{bound: bound}
	b.moved.L = &b.mu
	return b
}

func (b *buffer) put(ctx context.Context, e event.Event) {
	if b.offer(e) {
		return
	}
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.moved.Broadcast()
	})()
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) >= b.bound && !b.gone {
		if b.joined(e) {
			return
		}
		if e.Provisional && ctx.Err() != nil {
			return
		}
		b.moved.Wait()
	}
	if b.gone {
		return
	}
	b.queue = append(b.queue, e)
	b.moved.Broadcast()
}

// offer takes an event where that needs no waiting.
func (b *buffer) offer(e event.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return true
	}
	if len(b.queue) >= b.bound {
		return b.joined(e)
	}
	b.queue = append(b.queue, e)
	b.moved.Broadcast()
	return true
}

// joined adds a delta to the last event that waits.
func (b *buffer) joined(e event.Event) bool {
	last := len(b.queue) - 1
	if last < 0 || sizeOf(b.queue[last])+sizeOf(e) > joinedBytes {
		return false
	}
	both, ok := join(b.queue[last], e)
	if ok {
		b.queue[last] = both
	}
	return ok
}

// next is the event a reader takes; false is the end.
func (b *buffer) next() (event.Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 && !b.ended {
		b.moved.Wait()
	}
	if len(b.queue) == 0 {
		return event.Event{}, false
	}
	e := b.queue[0]
	b.queue = slices.Delete(b.queue, 0, 1)
	b.moved.Broadcast()
	return e, true
}

// end says that no event follows.
func (b *buffer) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.moved.Broadcast()
}

// leave says that nobody reads on.
func (b *buffer) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone, b.queue = true, nil
	b.moved.Broadcast()
}
