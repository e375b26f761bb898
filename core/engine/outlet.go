package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// sink is where the events of attempts go. A durable sink never waits; the
// ephemeral one does, and with it whoever made the event: backpressure lives
// here and nowhere else.
type sink interface {
	// begin and end frame one attempt.
	begin(lane journal.Lane)
	end(lane journal.Lane)
	// recorded is called on the loop, after a batch with these events is durable.
	recorded(lane journal.Lane, events []event.Event)
	// live is called on the goroutine of the effect, which may end with ctx.
	live(ctx context.Context, lane journal.Lane, e event.Event)
}

// feedSink is the durable sink.
type feedSink struct{ *Feed }

func (s feedSink) live(_ context.Context, lane journal.Lane, e event.Event) { s.Feed.live(lane, e) }

// outlet gives the events of one attempt their place: canonical ones are the
// projection of its batches, live ones stand behind the last of those.
type outlet struct {
	sink  sink
	lane  journal.Lane
	epoch uint64
	now   func() time.Time
	limit int // of canonical events in this attempt
	count int

	turnstile chan struct{} // a lock, and one that a fake clock can see through
	projector *event.Projector
	at        event.Position
	sub       uint64
}

func newOutlet(s sink, lane journal.Lane, epoch uint64, cfg Config) *outlet {
	if s == nil {
		s = deaf{}
	}
	return &outlet{sink: s, lane: lane, epoch: epoch, now: cfg.Now, limit: cfg.Limits.Resolve().RunEvents,
		turnstile: make(chan struct{}, 1), projector: &event.Projector{}}
}

// deaf is the sink where nobody listens.
type deaf struct{}

func (deaf) begin(journal.Lane)                              {}
func (deaf) end(journal.Lane)                                {}
func (deaf) recorded(journal.Lane, []event.Event)            {}
func (deaf) live(context.Context, journal.Lane, event.Event) {}

func (o *outlet) lock()   { o.turnstile <- struct{}{} }
func (o *outlet) unlock() { <-o.turnstile }

// rewind stands before the first slot again: the log is about to be read.
func (o *outlet) rewind() {
	o.lock()
	defer o.unlock()
	o.projector = &event.Projector{}
}

// read takes a batch that was in the log before.
func (o *outlet) read(b record.Batch) error {
	o.lock()
	defer o.unlock()
	_, err := o.projector.Project(b)
	return err
}

// recorded publishes the events of a batch this attempt appended.
func (o *outlet) recorded(b record.Batch) error {
	o.lock()
	defer o.unlock()
	events, err := o.projector.Project(b)
	if err != nil {
		return fmt.Errorf("engine: own batch has no projection: %w", err)
	}
	for _, e := range events {
		if !endsTrace(e) {
			o.count++
		}
	}
	o.sink.recorded(o.lane, events)
	return nil
}

// near reports that the next batch could pass the ceiling: it holds at most the
// few events of each of a hundred calls.
func (o *outlet) near() bool { return o.count+10*core.MaxBatchCalls >= o.limit }

// passes reports that a plan's events would leave no place for the end of the
// run (BP-07).
func (o *outlet) passes(b record.Batch) (bool, error) {
	o.lock()
	defer o.unlock()
	events, err := o.projector.Clone().Project(b)
	if err != nil {
		return false, fmt.Errorf("engine: a plan has no projection: %w", err)
	}
	n := o.count
	for _, e := range events {
		if !endsTrace(e) {
			n++
		}
	}
	return n > o.limit-1, nil
}

// withinCeiling asks for the next plan, and for another one in its place when
// that would make more events than an attempt may.
func (a *attempt) withinCeiling() (core.Plan, error) {
	if a.over || !a.out.near() {
		return a.next()
	}
	before := a.desk.Clone()
	plan, err := a.next()
	if err != nil || len(plan.Append) == 0 || a.state.Run == nil {
		return plan, err
	}
	over, err := a.out.passes(record.Batch{Conversation: a.lane.Conversation, Slot: a.state.Slot + 1, Records: plan.Append})
	if err != nil || !over {
		return plan, err
	}
	a.desk, a.over = before, true
	core.Note(a.desk, core.EventsExceeded{Limit: a.out.limit})
	return a.next()
}

// live publishes what has no record, unless ctx ends while it waits for its
// turn. Before the run begins there is nothing.
func (o *outlet) live(ctx context.Context, call string, d event.Data) {
	select {
	case o.turnstile <- struct{}{}:
		defer o.unlock()
	case <-ctx.Done():
		return
	}
	at, ok := o.projector.Active()
	if !ok {
		return
	}
	if at.Run != o.at.Run || at.Sequence != o.at.Sequence {
		o.at, o.sub = at, 0
	}
	o.sub++
	turn := at.Turn
	if call == "" {
		turn++ // the response that would make it canonical is still to come
	}
	o.sink.live(ctx, o.lane, event.Event{Run: at.Run, Conversation: o.lane.Conversation, Agent: at.Agent, Sequence: at.Sequence, Sub: o.sub,
		Epoch: o.epoch, At: record.Time(o.now()), Turn: turn, Call: call, Provisional: true, Data: d})
}

// part publishes a part of a response on its way.
func (o *outlet) part(ctx context.Context, p model.Part) {
	switch p := p.(type) {
	case model.TextDelta:
		if p.Text != "" {
			o.live(ctx, "", event.TextDelta{Index: p.Index, Text: p.Text})
		}
	case model.ReasoningDelta:
		if p.Text != "" {
			o.live(ctx, "", event.ReasoningDelta{Index: p.Index, Text: p.Text})
		}
	}
}

func (o *outlet) begin() {
	o.sink.begin(o.lane)
}

func (o *outlet) end() {
	o.sink.end(o.lane)
}
