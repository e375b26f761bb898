package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

type speech = func(context.Context, func(model.Part) error) error

func speaking(answers ...speech) *speaker { return &speaker{answers: answers} }

// emits sends parts between a start and a stop, and counts how far it came.
func emits(count *int, parts ...model.Part) speech {
	return func(_ context.Context, emit func(model.Part) error) error {
		for _, p := range parts {
			if err := emit(p); err != nil {
				return err
			}
			*count++
		}
		return emit(model.Finish{Reason: model.Stop})
	}
}

// blocks is n deltas, each of a block of its own: nothing of them can be joined.
func blocks(n int) (parts []model.Part, text string) {
	for i := range n {
		piece := fmt.Sprint(i, " ")
		parts, text = append(parts, model.TextDelta{Index: i, Text: piece}), text+piece
	}
	return parts, text
}

// conformance: BP-01
//
// A consumer that stops reading stops the run, with no more than the buffer
// made ahead, and it goes on when the consumer does.
func TestBufferBlocks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const buffer = 8
		parts, text := blocks(100)
		emitted := 0
		l := newLocal(t, func(c *engine.RunnerConfig) { c.Buffer = buffer })
		got, read := "", 0
		for e, err := range l.runner.Events(bg, request(define(t, agent.Policy{}), speaking(emits(&emitted, parts...)))) {
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := e.Data.(event.TextDelta); ok {
				got += d.Text
				read++
				time.Sleep(time.Second) // everybody else has done what they can
				synctest.Wait()
				// What is read, what waits, and the one whose sender waits.
				if ahead := emitted - read; ahead > buffer {
					t.Fatalf("%d pieces are made and %d are read", emitted, read)
				}
				if read == 1 && emitted != 1+buffer {
					t.Errorf("the run made %d pieces before it waited, want %d", emitted, 1+buffer)
				}
			}
		}
		if got != text || emitted != len(parts) {
			t.Errorf("%d pieces, %q", emitted, got)
		}
	})
}

// The loop itself waits at a semantic event, with what it made durable.
func TestLoopWaitsForItsReader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var c counter
		l := newLocal(t, func(c *engine.RunnerConfig) { c.Buffer = 1 })
		req := request(define(t, agent.Policy{}, handler(&c, "look")), modeltest.Script(modeltest.Calls(call("look", 0)), modeltest.Text("done")))
		for e, err := range l.runner.Events(bg, req) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Data.Kind() == event.KindRunStarted {
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := c.of("look"); n != 0 {
					t.Errorf("a handler was started while nobody read")
				}
			}
		}
		if c.of("look") != 1 {
			t.Errorf("%d handlers", c.of("look"))
		}
	})
}

// conformance: BP-02, BP-03
//
// While the consumer is behind, deltas of one block are joined and nothing else
// is; the text is the same, every other event arrives, and the end is last.
func TestDeltasAreJoined(t *testing.T) {
	play := func(t *testing.T, slow bool) (text string, deltas int, others []string) {
		var parts []model.Part
		for i := range 400 {
			if i%100 < 50 {
				parts = append(parts, model.ReasoningDelta{Index: i / 50, Text: fmt.Sprint("r", i, " ")})
			} else {
				parts = append(parts, model.TextDelta{Index: i / 50, Text: fmt.Sprint(i, " ")})
			}
		}
		emitted := 0
		look := tool.New("look", "Looks.", func(ctx context.Context, _ arg) (string, error) {
			for i := range 20 {
				tool.Progress(ctx, "step %d", i)
			}
			return "seen", nil
		})
		m := speaking(func(ctx context.Context, emit func(model.Part) error) error {
			for _, p := range []model.Part{model.ToolCallStart{ID: "c1", Tool: "look"}, model.ToolArgsDelta{JSON: `{"n":0}`}, model.ToolCallEnd{}, model.Finish{Reason: model.ToolCalls}} {
				if err := emit(p); err != nil {
					return err
				}
			}
			return nil
		}, emits(&emitted, parts...))
		l := newLocal(t, func(c *engine.RunnerConfig) { c.Buffer = 4 })
		for e, err := range l.runner.Events(bg, request(define(t, agent.Policy{}, look), m)) {
			if err != nil {
				t.Fatal(err)
			}
			switch d := e.Data.(type) {
			case event.TextDelta:
				text, deltas = text+d.Text, deltas+1
			case event.ReasoningDelta:
				text, deltas = text+d.Text, deltas+1
			case event.ToolCallProgress:
				others = append(others, d.Message)
			default:
				others = append(others, string(d.Kind()))
			}
			if slow {
				time.Sleep(time.Second)
			}
		}
		return text, deltas, others
	}
	inBubble(t, func(t *testing.T) {
		text, _, others := play(t, false)
		slow, deltas, same := play(t, true)
		if slow != text || !slices.Equal(others, same) {
			t.Errorf("a slow reader gets %q and %v, another %q and %v", slow, same, text, others)
		}
		if deltas >= 200 {
			t.Errorf("400 deltas became %d for a slow reader", deltas)
		}
		if len(others) != 31 || others[len(others)-1] != "RunCompleted" {
			t.Errorf("%d others: %v", len(others), others)
		}
	})
}

// conformance: BP-04
//
// A consumer that leaves takes its run with it, unless the run is detached: it
// gets control back when handlers and goroutines are gone.
func TestConsumerLeaves(t *testing.T) {
	for _, detached := range []bool{false, true} {
		t.Run(fmt.Sprint("detached=", detached), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var cancelled, finished atomic.Int32
				work := tool.New("work", "Works.", func(ctx context.Context, _ arg) (string, error) {
					select {
					case <-ctx.Done():
						time.Sleep(2 * time.Second)
						cancelled.Add(1)
						return "", ctx.Err()
					case <-time.After(time.Minute):
						finished.Add(1)
						return "worked", nil
					}
				})
				l := newLocal(t)
				m := modeltest.Script(modeltest.Calls(call("work", 1), call("work", 2)), modeltest.Text("done"))
				req := request(define(t, agent.Policy{}, work), m)
				req.Detached = detached
				started := 0
				for e := range l.runner.Events(bg, req) {
					if e.Data.Kind() == event.KindToolCallStarted {
						started++
					}
					if started == 2 {
						time.Sleep(time.Second)
						break
					}
				}
				settled := func() string { return fmt.Sprint(l.stored("runSettled")) }
				if !detached {
					if cancelled.Load() != 2 || finished.Load() != 0 || !strings.Contains(settled(), "aborted") {
						t.Errorf("%d cancelled, %d finished when the loop is left; %s", cancelled.Load(), finished.Load(), settled())
					}
					return
				}
				if cancelled.Load()+finished.Load() != 0 {
					t.Errorf("%d cancelled, %d finished: the consumer was held back", cancelled.Load(), finished.Load())
				}
				time.Sleep(2 * time.Minute)
				if cancelled.Load() != 0 || finished.Load() != 2 || !strings.Contains(settled(), "completed") {
					t.Errorf("%d cancelled, %d finished in the end; %s", cancelled.Load(), finished.Load(), settled())
				}
			})
		})
	}
}

// The caller's context ends a run as its consumer's leaving does, and a
// detached one not at all.
func TestCallerContext(t *testing.T) {
	for _, detached := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			req := request(define(t, agent.Policy{}), speaking(says("one ", "two ", "three")))
			req.Detached = detached
			h, err := newLocal(t).runner.Start(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			result, err := h.Await(bg)
			var interrupted *engine.InterruptedError
			if detached != (result.State == engine.StateCompleted) || detached == errors.As(err, &interrupted) {
				t.Errorf("detached=%v: %s, %v", detached, result.State, err)
			}
			if !detached && !strings.Contains(err.Error(), "deadline") {
				t.Errorf("why: %v", err)
			}
		})
	}
}

// A context that is over before the run begins: nothing of it runs.
func TestCallerIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(bg)
		cancel()
		m := modeltest.Script(modeltest.Text("done"))
		events, err := follow(newLocal(t).runner.Events(ctx, request(define(t, agent.Policy{}), m)))
		var interrupted *engine.InterruptedError
		if !errors.As(err, &interrupted) || len(events) != 1 || events[0].Data.Kind() != event.KindRunInterrupted || len(m.Requests()) != 0 {
			t.Errorf("%v, %v", events, err)
		}
	})
}

// A handler that says something while the consumer is stuck still hears the end
// of its own time: its call does not become unknown because nobody reads.
func TestProgressDoesNotHoldAHandler(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		talk := tool.New("talk", "Talks.", func(ctx context.Context, _ arg) (string, error) {
			for ctx.Err() == nil {
				tool.Progress(ctx, "still here")
				time.Sleep(100 * time.Millisecond)
			}
			return "", ctx.Err()
		}, tool.Readonly(), tool.Timeout(5*time.Second))
		l := newLocal(t, func(c *engine.RunnerConfig) { c.Buffer = 1; c.CleanupTimeout = time.Second })
		failed := false
		for e, err := range l.runner.Events(bg, request(define(t, agent.Policy{}, talk), modeltest.Script(modeltest.Calls(call("talk", 1)), modeltest.Text("done")))) {
			if err != nil {
				t.Fatal(err)
			}
			switch e.Data.(type) {
			case event.ToolCallProgress:
				if !failed {
					time.Sleep(time.Minute)
				}
			case event.ToolCallFailed:
				failed = true
			}
		}
		if !failed {
			t.Error("the call did not fail")
		}
		for _, rec := range l.stored("callSettled") {
			if s := rec.(record.CallSettled); s.Duration > 10*time.Second {
				t.Errorf("the handler was held for %s", s.Duration)
			}
		}
	})
}

// failsAs holds a run to a typed failure.
func failsAs(t *testing.T, what string, err error, kind string) {
	t.Helper()
	var failed *engine.RunError
	if kind == "" && err != nil || kind != "" && (!errors.As(err, &failed) || failed.Kind != kind) {
		t.Errorf("%s: %v, want %q", what, err, kind)
	}
}

// conformance: BP-05 @embedded
//
// 16,384 parts are a response, one more is a broken protocol.
func TestPartCeiling(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for parts, kind := range map[int]string{16_384: "", 16_385: core.ModelProtocolError} {
			emitted := 0
			deltas := make([]model.Part, parts-2) // and the start and the finish
			for i := range deltas {
				deltas[i] = model.TextDelta{Text: "x"}
			}
			_, err := newLocal(t).start(request(define(t, agent.Policy{}), speaking(emits(&emitted, deltas...)))).Await(bg)
			failsAs(t, fmt.Sprint(parts, " parts"), err, kind)
		}
	})
}

// conformance: BP-06 @embedded
//
// A response whose content passes 8 MiB is a broken protocol, and no tool of it
// starts.
func TestByteCeiling(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for megabytes, kind := range map[int]string{7: "", 9: core.ModelProtocolError} {
			var c counter
			m := speaking(func(_ context.Context, emit func(model.Part) error) error {
				parts := []model.Part{model.ToolCallStart{ID: "c1", Tool: "look"}, model.ToolArgsDelta{JSON: `{"n":0}`}, model.ToolCallEnd{}}
				for range megabytes {
					parts = append(parts, model.TextDelta{Index: 1, Text: strings.Repeat("x", 1<<20)})
				}
				for _, p := range append(parts, model.Finish{Reason: model.ToolCalls}) {
					if err := emit(p); err != nil {
						return err
					}
				}
				return nil
			}, says("done"))
			_, err := newLocal(t).start(request(define(t, agent.Policy{}, handler(&c, "look")), m)).Await(bg)
			failsAs(t, fmt.Sprint(megabytes, " MiB"), err, kind)
			if started := c.of("look"); (started == 1) != (kind == "") {
				t.Errorf("%d MiB: %d handlers started", megabytes, started)
			}
		}
	})
}

// tireless is a model whose every response calls a tool, so many at once.
func tireless(calls int) *speaker {
	turn := 0
	return speaking(func(_ context.Context, emit func(model.Part) error) error {
		turn++
		for i := range calls {
			for _, p := range []model.Part{model.ToolCallStart{Index: i, ID: fmt.Sprintf("c-%d-%d", turn, i), Tool: "look"},
				model.ToolArgsDelta{Index: i, JSON: `{"n":0}`}, model.ToolCallEnd{Index: i}} {
				if err := emit(p); err != nil {
					return err
				}
			}
		}
		return emit(model.Finish{Reason: model.ToolCalls})
	})
}

// conformance: BP-07, BP-11 @embedded
//
// A run that would make more events than there is room for fails as a broken
// protocol, with its end in the place kept free for it: the trace holds at most
// as many events as the ceiling says, and the store one place more.
func TestEventCeiling(t *testing.T) {
	many := agent.Policy{MaxTurns: 100_000, MaxToolCalls: 100_000, ToolConcurrency: 100}
	for _, limit := range []int{1, 2, 5, 10, 11, 12, 13, 14, 200} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var c counter
				l := newLocal(t, func(cfg *engine.RunnerConfig) { cfg.Limits.RunEvents = float64(limit) })
				h := l.start(request(define(t, many, handler(&c, "look", tool.Readonly())), tireless(3)))
				_, err := h.Await(bg)
				failsAs(t, "the run", err, core.ModelProtocolError)
				kinds, _ := trace(h)
				if len(kinds) > limit || kinds[len(kinds)-1] != "RunFailed" || ends(kinds) != 1 {
					t.Errorf("%d events: %v", len(kinds), kinds)
				}
				if capacity, held := h.StoreUse(); capacity != limit+1 || held != len(kinds)+1 {
					t.Errorf("the store has %d places and %d are taken", capacity, held)
				}
			})
		})
	}
}

// conformance: BP-07 @embedded
//
// What fits to the last place is no excess.
func TestEventCeilingFits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for limit, kind := range map[int]string{4: "", 3: core.ModelProtocolError} { // RunStarted, TurnStarted, ResponseCompleted, the end
			l := newLocal(t, func(cfg *engine.RunnerConfig) { cfg.Limits.RunEvents = float64(limit) })
			h := l.start(request(define(t, agent.Policy{}), modeltest.Script(modeltest.Text("done"))))
			_, err := h.Await(bg)
			failsAs(t, fmt.Sprint("room for ", limit), err, kind)
			if kinds, _ := trace(h); len(kinds) > limit || ends(kinds[len(kinds)-1:]) != 1 {
				t.Errorf("room for %d: %v", limit, kinds)
			}
		}
	})
}

// conformance: BP-11
//
// Without any option there is room for 65,536 events and the end.
func TestStoreCapacity(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newLocal(t).start(request(define(t, agent.Policy{}), modeltest.Script(modeltest.Text("done"))))
		if _, err := h.Await(bg); err != nil {
			t.Fatal(err)
		}
		if capacity, held := h.StoreUse(); capacity != 65_537 || held != 5 {
			t.Errorf("the store has %d places and %d are taken", capacity, held)
		}
	})
}

// conformance: BP-09 @embedded
//
// Limits tighten and nothing else.
func TestBufferLimits(t *testing.T) {
	ceilings := engine.BufferLimits{}.Resolve()
	if ceilings != (engine.Ceilings{ResponseParts: 16_384, ResponseBytes: 8 << 20, RunEvents: 65_536}) {
		t.Errorf("the ceilings are %+v", ceilings)
	}
	for given, want := range map[float64]int{10: 10, 10.9: 10, 0.5: 1, 1e9: 0, math.Inf(1): 0, math.Inf(-1): 0, 0: 0, -5: 0} {
		tighter(t, given, want)
	}
	tighter(t, math.NaN(), 0)
	inBubble(t, func(t *testing.T) { // in effect
		emitted := 0
		parts, _ := blocks(20)
		for limit, kind := range map[float64]string{10: core.ModelProtocolError, math.NaN(): "", math.Inf(1): ""} {
			l := newLocal(t, func(c *engine.RunnerConfig) { c.Limits.ResponseParts = limit })
			_, err := l.start(request(define(t, agent.Policy{}), speaking(emits(&emitted, parts...)))).Await(bg)
			failsAs(t, fmt.Sprint(limit, " parts"), err, kind)
		}
	})
}

// tighter holds each limit to a value; 0 means its ceiling.
func tighter(t *testing.T, given float64, want int) {
	t.Helper()
	or := func(ceiling int) int {
		if want == 0 {
			return ceiling
		}
		return want
	}
	got := engine.BufferLimits{ResponseParts: given, ResponseBytes: given, RunEvents: given}.Resolve()
	if got != (engine.Ceilings{ResponseParts: or(16_384), ResponseBytes: or(8 << 20), RunEvents: or(65_536)}) {
		t.Errorf("%v gives %+v", given, got)
	}
}

// conformance: BP-12, APP-02
//
// Observers of a started run: one that stalls delays nothing, one that joins
// while it runs and one that joins after the end replay every canonical event.
func TestObservers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var c counter
		def := define(t, agent.Policy{}, handler(&c, "look"))
		m := func() model.Model {
			return modeltest.Script(modeltest.Calls(call("look", 3)), modeltest.Text("done"))
		}
		began := time.Now()
		if _, err := newLocal(t).start(request(def, m())).Await(bg); err != nil {
			t.Fatal(err)
		}
		alone := time.Since(began)

		began = time.Now()
		h := newLocal(t).start(request(def, m()))
		stalled, release := make(chan []string), make(chan struct{})
		watch := func(wait <-chan struct{}) {
			var seen []string
			for e, err := range h.Events(bg) {
				<-wait
				if err != nil {
					t.Error(err)
				}
				if !e.Provisional {
					seen = append(seen, fmt.Sprint(e.Sequence, e.Data.Kind()))
				}
			}
			stalled <- seen
		}
		go watch(release)
		time.Sleep(time.Second)
		open := make(chan struct{})
		close(open)
		go watch(open)
		if n := h.State(); n != engine.StateRunning {
			t.Errorf("events do not arrive before the end: %s", n)
		}
		if _, err := h.Await(bg); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != alone {
			t.Errorf("%s with a stalled observer, %s without", took, alone)
		}
		joined := <-stalled
		close(release)
		if slow := <-stalled; len(joined) != 9 || !slices.Equal(slow, joined) {
			t.Errorf("the stalled one saw %v, the one beside it %v", slow, joined)
		}
		go watch(open)
		if late := <-stalled; !slices.Equal(late, joined) {
			t.Errorf("after the end: %v, before it: %v", late, joined)
		}
	})
}
