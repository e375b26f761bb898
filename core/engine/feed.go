package engine

import (
	"sync"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
)

// Feed carries live events from the attempts of this process to its readers,
// and tells readers that a log has grown. It decides nothing and keeps nothing
// for long: publishing never waits, a reader that is slow loses provisional
// events and no canonical one, and what one reader or lane can hold is bounded.
type Feed struct {
	mu    sync.Mutex
	lanes map[journal.Lane]*laneFeed
}

// NewFeed makes a feed for one process. Give it to every service of it.
func NewFeed() *Feed { return &Feed{lanes: map[journal.Lane]*laneFeed{}} }

// laneFeed is one conversation with an attempt at work or somebody reading.
type laneFeed struct {
	attempts int
	open     pieces // what is on its way, for readers that join late
	readers  map[*feedReader]struct{}
}

// feedReader is what waits for one reader of one lane.
type feedReader struct {
	wake  chan struct{} // capacity 1
	live  bool
	queue pieces
}

func (r *feedReader) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (f *Feed) lane(lane journal.Lane) *laneFeed {
	l := f.lanes[lane]
	if l == nil {
		l = &laneFeed{readers: map[*feedReader]struct{}{}}
		f.lanes[lane] = l
	}
	return l
}

func (f *Feed) drop(lane journal.Lane, l *laneFeed) {
	if l.attempts == 0 && len(l.readers) == 0 {
		delete(f.lanes, lane)
	}
}

// begin and end frame an attempt: what it had on its way ends with it.
func (f *Feed) begin(lane journal.Lane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lane(lane).attempts++
}

func (f *Feed) end(lane journal.Lane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lane(lane)
	if l.attempts--; l.attempts == 0 {
		l.open = pieces{}
	}
	f.drop(lane, l)
}

// works reports that an attempt of this process is at work on a lane.
func (f *Feed) works(lane journal.Lane) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lanes[lane]
	return l != nil && l.attempts > 0
}

// live publishes a provisional event.
func (f *Feed) live(lane journal.Lane, e event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lane(lane)
	l.open.add(e)
	for r := range l.readers {
		if r.live {
			r.queue.add(e)
			r.nudge()
		}
	}
	f.drop(lane, l)
}

// recorded tells the readers that the log has grown.
func (f *Feed) recorded(lane journal.Lane, events []event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lane(lane)
	for _, e := range events {
		l.open.supersede(e)
	}
	for r := range l.readers {
		r.nudge()
	}
	f.drop(lane, l)
}

// join adds a reader; with live it begins with what is on its way.
func (f *Feed) join(lane journal.Lane, live bool) *feedReader {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &feedReader{wake: make(chan struct{}, 1), live: live}
	l := f.lane(lane)
	if live {
		r.queue = l.open.clone()
	}
	l.readers[r] = struct{}{}
	r.nudge()
	return r
}

func (f *Feed) leave(lane journal.Lane, r *feedReader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lane(lane)
	delete(l.readers, r)
	f.drop(lane, l)
}

// take empties a reader's queue.
func (f *Feed) take(r *feedReader) []event.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return r.queue.take()
}

// Bounds of what is kept of provisional events for one reader.
const (
	maxPieces     = 256
	maxPieceBytes = 64 << 10
)

// pieces is a bounded list of provisional events. Neighbours of one block are
// joined. Once a piece of a turn's text does not fit, the rest of that turn's
// text is dropped too: a text that ends early is repaired by its record, one
// with a hole would be wrong until then.
type pieces struct {
	events []event.Event
	bytes  int
	lost   stretch
}

// stretch is the model's answer of one turn in one attempt.
type stretch struct {
	epoch uint64
	run   string
	turn  int
}

func stretchOf(e event.Event) stretch { return stretch{e.Epoch, e.Run, e.Turn} }

func (p *pieces) add(e event.Event) {
	if n := len(p.events); n > 0 && p.events[n-1].Epoch < e.Epoch {
		*p = pieces{} // a newer attempt retracts what was on its way
	}
	switch e.Data.(type) {
	case event.TurnStarted: // the turn begins, maybe again
		p.remove(func(old event.Event) bool { return old.Call == "" && old.Run == e.Run })
		p.lost = stretch{}
	case event.TextDelta, event.ReasoningDelta:
		if p.lost == stretchOf(e) {
			return
		}
	}
	size := sizeOf(e)
	if n := len(p.events); n > 0 && p.bytes+size <= maxPieceBytes {
		if joined, ok := join(p.events[n-1], e); ok {
			p.events[n-1] = joined
			p.bytes += size
			return
		}
	}
	if len(p.events) >= maxPieces || p.bytes+size > maxPieceBytes {
		if e.Call == "" {
			p.lost = stretchOf(e)
		}
		return
	}
	p.events = append(p.events, e)
	p.bytes += size
}

// supersede forgets what a canonical event makes certain.
func (p *pieces) supersede(e event.Event) {
	switch e.Data.(type) {
	case event.ResponseCompleted:
		p.remove(func(old event.Event) bool { return old.Run == e.Run && old.Call == "" && old.Turn <= e.Turn })
	case event.ToolCallSucceeded, event.ToolCallFailed:
		p.remove(func(old event.Event) bool { return old.Run == e.Run && old.Call == e.Call })
	case event.RunCompleted, event.RunFailed, event.RunInterrupted:
		p.remove(func(old event.Event) bool { return old.Run == e.Run })
	}
}

func (p *pieces) remove(which func(event.Event) bool) {
	kept := p.events[:0]
	p.bytes = 0
	for _, old := range p.events {
		if !which(old) {
			kept = append(kept, old)
			p.bytes += sizeOf(old)
		}
	}
	clear(p.events[len(kept):])
	p.events = kept
}

func (p *pieces) clone() pieces {
	c := *p
	c.events = append([]event.Event(nil), p.events...)
	return c
}

func (p *pieces) take() []event.Event {
	taken := p.events
	p.events, p.bytes = nil, 0
	return taken
}

func sizeOf(e event.Event) int {
	switch d := e.Data.(type) {
	case event.TextDelta:
		return len(d.Text)
	case event.ReasoningDelta:
		return len(d.Text)
	case event.ToolCallProgress:
		return len(d.Message)
	}
	return 0
}

// join makes one delta of two neighbours of one block. It carries the place of
// the later one (BP-02).
func join(a, b event.Event) (event.Event, bool) {
	if a.Run != b.Run || a.Turn != b.Turn || a.Epoch != b.Epoch {
		return a, false
	}
	switch x := a.Data.(type) {
	case event.TextDelta:
		if y, ok := b.Data.(event.TextDelta); ok && x.Index == y.Index {
			b.Data = event.TextDelta{Index: x.Index, Text: x.Text + y.Text}
			return b, true
		}
	case event.ReasoningDelta:
		if y, ok := b.Data.(event.ReasoningDelta); ok && x.Index == y.Index {
			b.Data = event.ReasoningDelta{Index: x.Index, Text: x.Text + y.Text}
			return b, true
		}
	}
	return a, false
}
