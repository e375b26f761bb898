package engine

import (
	"context"
	"sync"

	"github.com/layover-run/layover/core/event"
)

// eventStore keeps the trace of a started run for any number of observers. It
// has room for every event the run may make and one place for its end; putting
// never waits (BP-11, BP-12).
type eventStore struct {
	mu       sync.Mutex
	capacity int
	events   []event.Event // canonical
	open     pieces        // on their way
	readers  map[*feedReader]struct{}
	ended    bool
	err      error // how the run ended
}

func newEventStore(ceiling int) *eventStore {
	return &eventStore{capacity: ceiling + 1, readers: map[*feedReader]struct{}{}}
}

func (s *eventStore) put(_ context.Context, e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Provisional {
		s.open.add(e)
	} else {
		s.events = append(s.events, e)
		s.open.supersede(e)
	}
	for r := range s.readers {
		if e.Provisional {
			r.queue.add(e)
		} else {
			r.queue.supersede(e)
		}
		r.nudge()
	}
}

// end puts the settlement marker.
func (s *eventStore) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.err, s.open = true, err, pieces{}
	for r := range s.readers {
		r.nudge()
	}
}

// held is how many of the store's places are taken.
func (s *eventStore) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.events)
	if s.ended {
		n++
	}
	return n
}

func (s *eventStore) join() *feedReader {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &feedReader{wake: make(chan struct{}, 1), queue: s.open.clone()}
	s.readers[r] = struct{}{}
	return r
}

func (s *eventStore) leave(r *feedReader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
}

// take is what a reader has not seen: canonical events from a position on, and
// then what is on its way behind them.
func (s *eventStore) take(r *feedReader, from int) (events, live []event.Event, ended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[from:len(s.events):len(s.events)], r.queue.take(), s.ended, s.err
}

// stream replays the trace from its first event and follows it to its end.
// Ending ctx ends the reading, with ctx's error, and nothing else.
func (s *eventStore) stream(ctx context.Context) EventStream {
	return func(yield func(event.Event, error) bool) {
		r := s.join()
		defer s.leave(r)
		from, place := 0, event.Event{}
		for {
			events, live, ended, end := s.take(r, from)
			from += len(events)
			for _, e := range events {
				place = e
				if !yield(e, nil) {
					return
				}
			}
			for _, e := range live {
				// In this reader's order a live event stands behind the last
				// canonical one the reader has.
				place.Sub++
				e.Sequence, e.Sub = place.Sequence, place.Sub
				if !yield(e, nil) {
					return
				}
			}
			if ended {
				if end != nil {
					yield(event.Event{}, end)
				}
				return
			}
			select {
			case <-r.wake:
			case <-ctx.Done():
				yield(event.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}
