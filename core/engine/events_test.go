package engine_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
)

// speaker is a model that says each answer in pieces and waits where it is
// told to.
type speaker struct {
	mu      sync.Mutex
	answers []func(ctx context.Context, emit func(model.Part) error) error
}

func (s *speaker) Stream(ctx context.Context, _ *model.Request, emit func(model.Part) error) error {
	s.mu.Lock()
	answer := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	s.mu.Unlock()
	if err := emit(model.Start{Provider: "p", Model: "m"}); err != nil {
		return err
	}
	return answer(ctx, emit)
}

// says emits pieces, one second apart, and finishes.
func says(pieces ...string) func(context.Context, func(model.Part) error) error {
	return func(ctx context.Context, emit func(model.Part) error) error {
		for _, p := range pieces {
			if err := emit(model.TextDelta{Text: p}); err != nil {
				return err
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return emit(model.Finish{Reason: model.Stop})
	}
}

// hangs emits pieces and then nothing until its context ends.
func hangs(pieces ...string) func(context.Context, func(model.Part) error) error {
	return func(ctx context.Context, emit func(model.Part) error) error {
		for _, p := range pieces {
			if err := emit(model.TextDelta{Text: p}); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// withFeed gives a rig live events.
func (r *rig) withFeed(m model.Model) *rig {
	r.t.Helper()
	registry, err := engine.NewRegistry(0, r.def.Bind(m).Engine())
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := engine.Config{Journal: r.journal, Queue: memqueue.New(), Boot: r.journal.Boot(), Log: slog.New(slog.DiscardHandler), Feed: engine.NewFeed()}
	if r.admitter, err = engine.NewAdmitter(cfg, registry.Manifest()); err != nil {
		r.t.Fatal(err)
	}
	if r.attempt, err = engine.NewAttempter(cfg, registry); err != nil {
		r.t.Fatal(err)
	}
	if r.settler, err = engine.NewSettler(cfg); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// attempts works on the lane beside the test, until it rests.
func (r *rig) attempts() {
	for {
		ended, err := r.attempt.Attempt(bg, r.lane)
		if err == nil && ended != engine.NotClaimed {
			_, err = r.settler.Settle(bg, r.lane)
		}
		if err != nil {
			r.t.Error(err)
		}
		if err != nil || ended == engine.NotClaimed {
			return
		}
	}
}

// reading collects what a reader of a conversation gets, while it goes on.
type reading struct {
	mu   sync.Mutex
	seen []engine.Numbered
	stop context.CancelFunc
	done chan struct{}
}

func (r *rig) read(o engine.EventsOptions) *reading {
	ctx, stop := context.WithCancel(bg)
	rd := &reading{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(rd.done)
		for n, err := range r.admitter.Events(ctx, r.lane, o) {
			if err != nil {
				r.t.Error(err)
				return
			}
			rd.mu.Lock()
			rd.seen = append(rd.seen, n)
			rd.mu.Unlock()
		}
	}()
	return rd
}

func (rd *reading) end() []engine.Numbered { rd.stop(); <-rd.done; return rd.so() }

// so is what was read so far.
func (rd *reading) so() []engine.Numbered {
	synctest.Wait()
	rd.mu.Lock()
	defer rd.mu.Unlock()
	return slices.Clone(rd.seen)
}

func kinds(events []engine.Numbered) string {
	var out []string
	for _, n := range events {
		out = append(out, string(n.Event.Data.Kind()))
	}
	return strings.Join(out, " ")
}

// ordered holds a trace to its order: ordinals without gaps, and (epoch,
// sequence, sub) rising over everything.
func ordered(t *testing.T, events []engine.Numbered, after uint64) {
	t.Helper()
	for i, n := range events {
		e := n.Event
		if !e.Provisional {
			if after++; n.Ordinal != after {
				t.Errorf("event %d is number %d, want %d", i, n.Ordinal, after)
			}
		} else if n.Ordinal != 0 || e.Sub == 0 && e.Data.Kind() != event.KindTurnStarted {
			t.Errorf("provisional event %d: number %d, sub %d", i, n.Ordinal, e.Sub)
		}
		if i == 0 || events[i-1].Event.Run != e.Run {
			continue
		}
		last := events[i-1].Event
		if c := cmp.Or(cmp.Compare(last.Epoch, e.Epoch), cmp.Compare(last.Sequence, e.Sequence), cmp.Compare(last.Sub, e.Sub)); c >= 0 {
			t.Errorf("(%d, %d, %d) before (%d, %d, %d)", last.Epoch, last.Sequence, last.Sub, e.Epoch, e.Sequence, e.Sub)
		}
	}
}

// conformance: EV-03 @embedded @serverless
//
// Every reader of a conversation counts the same, over all its runs, and a
// stream resumes behind any number without loss or double.
func TestEventsResume(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var c counter
		r := newRig(t, define(t, agent.Policy{}, handler(&c, "look")),
			modeltest.Calls(modeltest.Call{Tool: "look", Args: arg{1}}, modeltest.Call{Tool: "look", Args: arg{2}}), modeltest.Text("one"), modeltest.Text("two"))
		r.run(kim)
		r.run(kim)
		all := r.read(engine.EventsOptions{})
		<-all.done
		ordered(t, all.seen, 0)
		if n := len(all.seen); n != 16 {
			t.Fatalf("%d events: %s", n, kinds(all.seen))
		}
		for after := range len(all.seen) + 1 {
			rest := r.read(engine.EventsOptions{After: uint64(after)})
			<-rest.done
			ordered(t, rest.seen, uint64(after))
			if len(rest.seen) != len(all.seen)-after {
				t.Errorf("after %d there are %d events", after, len(rest.seen))
			}
		}
	})
}

func TestEventsRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("one"))
		for _, err := range r.admitter.Events(bg, r.lane, engine.EventsOptions{Follow: true}) {
			var refused *engine.Error
			if !errors.As(err, &refused) || refused.Kind != engine.KindNotFound {
				t.Errorf("a conversation nobody used: %v", err)
			}
		}
	})
}

// conformance: TURN-06 @embedded
//
// A piece of an answer is seen while the rest is still to come; a reader that
// joins late gets what it missed in one piece; and the record says it for sure.
func TestLiveEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{})).withFeed(&speaker{answers: []func(context.Context, func(model.Part) error) error{says("He", "l", "lo")}})
		id := r.submit(kim)
		first, plain := r.read(engine.EventsOptions{Follow: true, Live: true}), r.read(engine.EventsOptions{Follow: true})
		go r.attempts()
		time.Sleep(1500 * time.Millisecond)
		late := r.read(engine.EventsOptions{Follow: true, Live: true})
		if got := kinds(first.so()); got != "RunStarted TurnStarted TextDelta TextDelta" {
			t.Errorf("after two pieces: %s", got)
		}
		if got := kinds(late.so()); got != "RunStarted TurnStarted TextDelta" {
			t.Errorf("who joins late: %s", got)
		}
		var d event.Display
		for _, n := range late.so() {
			d.Add(n.Event)
		}
		if d.Pending() != "Hel" {
			t.Errorf("who joins late sees %q", d.Pending())
		}
		time.Sleep(5 * time.Second)
		must(t, r.progress(id), "completed", "")
		if got := kinds(plain.end()); got != "RunStarted TurnStarted ResponseCompleted RunCompleted" {
			t.Errorf("without live events: %s", got)
		}
		all := first.end()
		if got := kinds(all); got != "RunStarted TurnStarted TextDelta TextDelta TextDelta TurnStarted ResponseCompleted RunCompleted" {
			t.Errorf("in all: %s", got)
		}
		ordered(t, all, 0)
		ordered(t, late.end(), 0)
		for _, n := range all {
			if n.Event.Provisional != (n.Ordinal == 0) || n.Event.Provisional && (n.Event.Turn != 1 || n.Event.Epoch != 1 || n.Event.Run != id) {
				t.Errorf("%+v", n)
			}
		}
	})
}

// An attempt that takes over retracts what the dead one had said, whatever the
// reader gets first: its own first words, or only the batch it begins with.
func TestTakeoverRetracts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &speaker{answers: []func(context.Context, func(model.Part) error) error{hangs("Wro", "ng"), says("Ri", "ght")}}
		r := newRig(t, define(t, agent.Policy{})).withFeed(m)
		id := r.submit(kim)
		rd := r.read(engine.EventsOptions{Follow: true, Live: true})
		ctx, die := context.WithCancel(bg)
		gone := make(chan struct{})
		go func() { defer close(gone); _, _ = r.attempt.Attempt(ctx, r.lane) }()
		time.Sleep(time.Second)
		show := func() (d event.Display, retracted int) {
			for _, n := range rd.so() {
				if d.Add(n.Event) {
					retracted++
				}
			}
			return d, retracted
		}
		if d, _ := show(); d.Pending() != "Wrong" {
			t.Fatalf("before: %q", d.Pending())
		}
		die()
		<-gone
		go r.attempts()
		time.Sleep(1500 * time.Millisecond)
		if d, n := show(); d.Pending() != "Right" || n != 1 {
			t.Errorf("taken over: %q, retracted %d times", d.Pending(), n)
		}
		time.Sleep(10 * time.Second)
		must(t, r.progress(id), "completed", "")
		d, n := show()
		if !slices.Equal(d.Certain(), []string{"Right"}) || d.Pending() != "" || n != 1 {
			t.Errorf("at the end: %q and %q, retracted %d times", d.Certain(), d.Pending(), n)
		}
		ordered(t, rd.end(), 0)
	})
}

// A reader that hears nothing of the attempt that takes over, because it is in
// another process, still learns that what it shows is void.
func TestTakeoverElsewhereRetracts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		hang := func() *speaker {
			return &speaker{answers: []func(context.Context, func(model.Part) error) error{hangs("Wrong")}}
		}
		r := newRig(t, define(t, agent.Policy{})).withFeed(hang())
		other := newRig(t, r.def)
		other.journal = r.journal
		other.withFeed(hang())
		r.submit(kim)
		rd := r.read(engine.EventsOptions{Follow: true, Live: true})
		attempt := func(at *engine.Attempter) (end func()) {
			ctx, stop := context.WithCancel(bg)
			gone := make(chan struct{})
			go func() { defer close(gone); _, _ = at.Attempt(ctx, r.lane) }()
			time.Sleep(2 * time.Second)
			return func() { stop(); <-gone }
		}
		shown := func() (d event.Display) {
			for _, n := range rd.so() {
				d.Add(n.Event)
			}
			return d
		}
		end := attempt(r.attempt)
		if d := shown(); d.Pending() != "Wrong" {
			t.Errorf("before: %q", d.Pending())
		}
		end()
		end = attempt(other.attempt)
		if d := shown(); d.Pending() != "" {
			t.Errorf("after another process took over: %q", d.Pending())
		}
		end()
		ordered(t, rd.end(), 0)
	})
}

// conformance: RUN-010 @embedded @serverless
//
// A reader that stops reading changes nothing: the run takes the same time and
// writes the same log as without one, and what waits for the reader is bounded.
func TestBlockedReader(t *testing.T) {
	play := func(t *testing.T, blocked bool) (took time.Duration, records int) {
		pieces := make([]string, 3000)
		for i := range pieces {
			pieces[i] = "word "
		}
		m := &speaker{answers: []func(context.Context, func(model.Part) error) error{func(_ context.Context, emit func(model.Part) error) error {
			for i, p := range pieces {
				if err := emit(model.TextDelta{Index: i / 10, Text: p}); err != nil {
					return err
				}
			}
			return emit(model.Finish{Reason: model.Stop})
		}}}
		r := newRig(t, define(t, agent.Policy{})).withFeed(m)
		id := r.submit(kim)
		release := make(chan struct{})
		got := make(chan string, 1)
		if blocked {
			go func() {
				var d event.Display
				for n, err := range r.admitter.Events(bg, r.lane, engine.EventsOptions{Follow: true, Live: true}) {
					if err != nil {
						t.Error(err)
					}
					<-release
					d.Add(n.Event)
					if n.Event.Data.Kind() == event.KindRunCompleted {
						break
					}
				}
				got <- strings.Join(d.Certain(), "")
			}()
			synctest.Wait()
		}
		began := time.Now()
		r.work()
		took = time.Since(began)
		must(t, r.progress(id), "completed", "")
		close(release)
		if blocked {
			if text := <-got; text != strings.Join(pieces, "") {
				t.Errorf("the blocked reader ends up with %d characters", len(text))
			}
		}
		return took, len(r.records())
	}
	inBubble(t, func(t *testing.T) {
		took, records := play(t, false)
		took2, records2 := play(t, true)
		if took != took2 || records != records2 {
			t.Errorf("%s and %d records without a reader, %s and %d with a blocked one", took, records, took2, records2)
		}
	})
}

// A reader of another process hears of batches no head tells about.
func TestEventsPoll(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}))
		other := newRig(t, r.def).withFeed(&speaker{answers: []func(context.Context, func(model.Part) error) error{hangs("He")}})
		other.journal = r.journal
		other.withFeed(&speaker{answers: []func(context.Context, func(model.Part) error) error{hangs("He")}})
		r.submit(kim)
		rd := r.read(engine.EventsOptions{Follow: true, Live: true})
		ctx, stop := context.WithCancel(bg)
		gone := make(chan struct{})
		go func() { defer close(gone); _, _ = other.attempt.Attempt(ctx, r.lane) }()
		time.Sleep(1100 * time.Millisecond)
		if got := kinds(rd.so()); got != "RunStarted" {
			t.Errorf("read %q", got)
		}
		stop()
		<-gone
		rd.end()
	})
}
