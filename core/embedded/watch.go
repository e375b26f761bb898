package embedded

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"sync"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// watchBuffer is how many batches may wait to be shown.
const watchBuffer = 1024

// records is where a watch reads what it was not handed.
type records interface {
	Records(ctx context.Context, lane journal.Lane) iter.Seq2[record.Batch, error]
}

// watch turns the batches of all lanes into events, in log order and each
// once. The attempts that hand batches in never wait: what does not fit the
// buffer is read from the log instead.
type watch struct {
	batches chan laneBatch
	ended   chan struct{}
	missed  chan struct{} // capacity 1: there are lanes in behind

	mu     sync.Mutex
	behind map[journal.Lane]uint64 // the first slot that was not handed over
}

type laneBatch struct {
	lane  journal.Lane
	batch record.Batch
}

func newWatch() *watch {
	return &watch{batches: make(chan laneBatch, watchBuffer), ended: make(chan struct{}), missed: make(chan struct{}, 1),
		behind: map[journal.Lane]uint64{}}
}

// onBatch takes a batch without waiting.
func (w *watch) onBatch(lane journal.Lane, b record.Batch) {
	select {
	case w.batches <- laneBatch{lane, b}:
		return
	default:
	}
	w.mu.Lock()
	if _, ok := w.behind[lane]; !ok {
		w.behind[lane] = b.Slot
	}
	w.mu.Unlock()
	select {
	case w.missed <- struct{}{}:
	default:
	}
}

// stop lets run end once it has shown everything that was handed in.
func (w *watch) stop() { close(w.ended) }

// run shows events until stop.
func (w *watch) run(log records, show func(journal.Lane, event.Event), report *slog.Logger) {
	f := follower{log: log, show: show, report: report, lanes: map[journal.Lane]*event.Projector{}}
	for {
		select {
		case b := <-w.batches:
			w.next(&f, b)
		case <-w.missed:
			w.catchUp(&f)
		case <-w.ended:
			for {
				select {
				case b := <-w.batches:
					w.next(&f, b)
				default:
					w.catchUp(&f)
					return
				}
			}
		}
	}
}

// next shows a batch, and before it the batches of its lane that were not
// handed in.
func (w *watch) next(f *follower, b laneBatch) {
	if from, ok := w.take(b.lane, b.batch.Slot); ok {
		f.read(b.lane, from)
	}
	f.batch(b.lane, b.batch)
}

// take removes what is behind in a lane if it begins before a slot.
func (w *watch) take(lane journal.Lane, before uint64) (uint64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from, ok := w.behind[lane]
	if !ok || from >= before {
		return 0, false
	}
	delete(w.behind, lane)
	return from, true
}

// catchUp shows the batches that were not handed in. What was handed in before
// them comes first.
func (w *watch) catchUp(f *follower) {
	w.mu.Lock()
	behind := maps.Clone(w.behind)
	w.mu.Unlock()
	for range len(w.batches) { // nobody else receives
		w.next(f, <-w.batches)
	}
	for lane, from := range behind {
		if _, ok := w.take(lane, from+1); ok {
			f.read(lane, from)
		}
	}
}

// follower has a projector for each lane that is not idle, or that it has read
// further than it was handed.
type follower struct {
	log    records
	show   func(journal.Lane, event.Event)
	report *slog.Logger
	lanes  map[journal.Lane]*event.Projector
}

func (f *follower) batch(lane journal.Lane, b record.Batch) {
	p := f.lanes[lane]
	if p == nil && b.Slot == 1 {
		p = &event.Projector{}
		f.lanes[lane] = p
	}
	switch {
	case p == nil || b.Slot > p.Slot()+1:
		f.read(lane, b.Slot)
	case b.Slot == p.Slot()+1:
		f.project(lane, p, b, true)
	}
	if p != nil && p.Idle() && b.Slot == p.Slot() {
		delete(f.lanes, lane)
	}
}

// read brings a lane up to its end. Of a lane that was not followed so far,
// what is before slot from happened before this process, or was shown.
func (f *follower) read(lane journal.Lane, from uint64) {
	p := f.lanes[lane]
	if p == nil {
		p = &event.Projector{}
		f.lanes[lane] = p
	} else {
		from = p.Slot() + 1
	}
	for b, err := range f.log.Records(context.Background(), lane) {
		if err != nil {
			f.report.Warn("events not shown", "conversation", lane.Conversation, "error", err)
			delete(f.lanes, lane)
			return
		}
		if b.Slot > p.Slot() {
			f.project(lane, p, b, b.Slot >= from)
		}
	}
}

func (f *follower) project(lane journal.Lane, p *event.Projector, b record.Batch, shown bool) {
	events, err := p.Project(b)
	if err != nil {
		f.report.Warn("events not shown", "conversation", lane.Conversation, "error", err)
		delete(f.lanes, lane)
		return
	}
	for _, e := range events {
		if shown {
			f.show(lane, e)
		}
	}
}
