package engine

import (
	"context"
	"iter"
	"time"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Numbered is an event with its place in its conversation.
type Numbered struct {
	// Ordinal counts the canonical events of the conversation from 1, in log
	// order, over all its runs: the same for every reader, and the id a stream
	// resumes behind. It is 0 for a provisional event, which has no place.
	Ordinal uint64
	Event   event.Event
}

// EventsOptions says which events of a conversation to yield.
type EventsOptions struct {
	// After is the ordinal to resume behind; 0 begins with the first event.
	After uint64
	// Follow waits for more at the end of the log, until ctx ends.
	Follow bool
	// Live yields provisional events too, where an attempt of this process
	// works on the conversation (Config.Feed). A reader that joins late gets
	// what is on its way in one piece. They are best effort: a slow reader
	// misses some, and their turn's canonical events say the same for sure.
	Live bool
	// Poll is how often a log is looked at that another process may be writing.
	// Defaults to 1 s.
	Poll time.Duration
}

// Events yields the events of a conversation in order: canonical ones are the
// projection of its log, each once. Between them, (epoch, sequence, sub) orders
// everything.
//
// Provisional events are retracted by canonical ones of their turn, and by any
// event of a newer epoch: when a newer attempt begins and something was on its
// way, a provisional TurnStarted with the new epoch says so at once.
// event.Display folds all of this into text.
//
// The sequence ends with the log, or with ctx when it follows; that is no
// error. A conversation that was never used is KindNotFound, and damage is
// KindCorrupt. A reader that is slow slows nobody.
func (a *Admitter) Events(ctx context.Context, lane journal.Lane, o EventsOptions) iter.Seq2[Numbered, error] {
	return func(yield func(Numbered, error) bool) {
		if err := a.Exists(ctx, lane); err != nil {
			yield(Numbered{}, err)
			return
		}
		f := &follower{a: a, lane: lane, o: o, yield: yield}
		err := f.run(ctx)
		if err != nil && ctx.Err() == nil {
			yield(Numbered{}, AsError("events", err))
		}
	}
}

// follower is one reader of one conversation.
type follower struct {
	a         *Admitter
	lane      journal.Lane
	o         EventsOptions
	yield     func(Numbered, error) bool
	projector event.Projector
	ordinal   uint64
	epoch     uint64 // newest attempt read

	pending event.Event // the last provisional event yielded, until superseded
	at      event.Position
	sub     uint64
	head    journal.Head // as it last moved
	stopped bool
}

func (f *follower) run(ctx context.Context) error {
	var reader *feedReader
	if feed := f.a.cfg.Feed; feed != nil && (f.o.Follow || f.o.Live) {
		reader = feed.join(f.lane, f.o.Live)
		defer feed.leave(f.lane, reader)
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	moved := f.watch(waiting)
	for {
		// What is taken here was published before the log is read, so the log
		// shows all it stands behind.
		var live []event.Event
		if reader != nil {
			live = f.a.cfg.Feed.take(reader)
		}
		if err := f.read(ctx); err != nil || f.stopped {
			return err
		}
		for _, e := range live {
			if f.provisional(e); f.stopped {
				return nil
			}
		}
		if !f.o.Follow {
			return nil
		}
		if err := f.wait(ctx, reader, moved); err != nil {
			return err
		}
	}
}

// read yields what the log has beyond what was read.
func (f *follower) read(ctx context.Context) error {
	for sealed, err := range f.a.cfg.Journal.Read(ctx, f.lane, f.projector.Slot()+1) {
		if err != nil {
			return err
		}
		b, err := record.Open(sealed, f.lane.Tenant, f.lane.Conversation)
		if err != nil {
			return err
		}
		events, err := f.projector.Project(b)
		if err != nil {
			return err
		}
		if b.Epoch > f.epoch {
			f.epoch = b.Epoch
			if f.takenOver(b, events); f.stopped {
				return nil
			}
		}
		for _, e := range events {
			if f.ordinal++; f.ordinal > f.o.After {
				f.put(Numbered{Ordinal: f.ordinal, Event: e})
			}
			if f.stopped {
				return nil
			}
		}
	}
	return nil
}

// takenOver tells a reader that holds text of an older attempt that it is void,
// where no canonical event of the newer one does.
func (f *follower) takenOver(b record.Batch, events []event.Event) {
	at, active := f.projector.Active()
	old := f.pending
	if !active || len(events) > 0 || !old.Provisional || old.Call != "" || f.projector.Superseded(old, old.Epoch) {
		return
	}
	f.provisional(event.Event{Run: at.Run, Conversation: b.Conversation, Agent: at.Agent, Epoch: b.Epoch, At: b.At, Turn: at.Turn + 1,
		Provisional: true, Data: event.TurnStarted{}})
}

// provisional yields a live event behind the last canonical one, unless the log
// has overtaken it.
func (f *follower) provisional(e event.Event) {
	if f.projector.Superseded(e, f.epoch) {
		return
	}
	at, _ := f.projector.Active()
	if at.Run != f.at.Run || at.Sequence != f.at.Sequence || f.pending.Epoch != e.Epoch {
		f.at, f.sub = at, 0
	}
	f.sub++
	e.Sequence, e.Sub = at.Sequence, f.sub
	f.pending = e
	f.put(Numbered{Event: e})
}

func (f *follower) put(n Numbered) { f.stopped = f.stopped || !f.yield(n, nil) }

// watch reports moves of the head, which other processes make too.
func (f *follower) watch(ctx context.Context) <-chan move {
	if !f.o.Follow {
		return nil
	}
	moved := make(chan move)
	go func() {
		var seen journal.Head
		for {
			head, err := f.a.cfg.Journal.Watch(ctx, f.lane, seen)
			select {
			case moved <- move{head, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			seen = head
		}
	}()
	return moved
}

// elsewhere reports that somebody may be writing whom this process does not
// hear.
func (f *follower) elsewhere() bool {
	feed := f.a.cfg.Feed
	return feed == nil || f.a.cfg.Boot == "" || f.head.State == journal.Running && !feed.works(f.lane)
}

// move is a change of the head, or why none can be seen.
type move struct {
	head journal.Head
	err  error
}

// wait returns when there may be more. A batch of another process moves no
// head: while this process may not see every write, it looks now and then.
func (f *follower) wait(ctx context.Context, reader *feedReader, moved <-chan move) error {
	var wake <-chan struct{}
	if reader != nil {
		wake = reader.wake
	}
	var look <-chan time.Time
	if f.elsewhere() {
		every := f.o.Poll
		if every <= 0 {
			every = time.Second
		}
		timer := time.NewTimer(every)
		defer timer.Stop()
		look = timer.C
	}
	select {
	case <-wake:
	case <-look:
	case m := <-moved:
		f.head = m.head
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
