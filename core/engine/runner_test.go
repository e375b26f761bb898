package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// local is the runner of ephemeral runs with its journals in sight. In the run
// of these tests over the embedded journal, that is what it runs on.
type local struct {
	t      *testing.T
	runner *engine.Runner
	mu     sync.Mutex
	opened []Journal
	fault  func(op string, after bool) error // of the next journal
}

func newLocal(t *testing.T, change ...func(*engine.RunnerConfig)) *local {
	t.Helper()
	l := &local{t: t}
	cfg := engine.RunnerConfig{Log: slog.New(slog.DiscardHandler), Open: func() (journal.Journal, string) {
		j := newJournal(t)
		l.mu.Lock()
		defer l.mu.Unlock()
		j.SetFault(l.fault)
		l.opened = append(l.opened, j)
		return j, j.Boot()
	}}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if l.runner, err = engine.NewRunner(cfg); err != nil {
		t.Fatal(err)
	}
	return l
}

func request(def *agent.Definition, m model.Model) engine.RunRequest {
	return engine.RunRequest{Definition: def.Bind(m).Engine(), Input: json.RawMessage(kim), Conversation: "c"}
}

func (l *local) start(req engine.RunRequest) *engine.RunHandle {
	l.t.Helper()
	h, err := l.runner.Start(bg, req)
	if err != nil {
		l.t.Fatal(err)
	}
	return h
}

// stored lists the records of the newest run's log, of one kind or all.
func (l *local) stored(kinds ...record.Kind) []record.Record {
	l.t.Helper()
	l.mu.Lock()
	j := l.opened[len(l.opened)-1]
	l.mu.Unlock()
	var out []record.Record
	for sealed, err := range j.Read(bg, journal.Lane{Tenant: "local", Conversation: "c"}, 1) {
		if err != nil {
			l.t.Fatal(err)
		}
		b, err := record.Open(sealed, "local", "c")
		if err != nil {
			l.t.Fatal(err)
		}
		for _, r := range b.Records {
			if len(kinds) == 0 || slices.Contains(kinds, r.Kind()) {
				out = append(out, r)
			}
		}
	}
	return out
}

// trace replays a started run's events to its end.
func trace(h *engine.RunHandle) (kinds []string, err error) {
	for e, end := range h.Events(bg) {
		if err = end; end == nil {
			kinds = append(kinds, string(e.Data.Kind()))
		}
	}
	return kinds, err
}

func ends(kinds []string) (n int) {
	for _, k := range kinds {
		switch event.Kind(k) {
		case event.KindRunCompleted, event.KindRunFailed, event.KindRunInterrupted, event.KindRunSuspended:
			n++
		}
	}
	return n
}

// conformance: RUN-002a, RUN-002b, LIFE-01, INT-05 @embedded
//
// A cancel, the deadline and the final answer, at the same instant or in any
// order: one settlement is recorded, the trace has one end and it is the last
// event, the states are a way forward, and what comes later is refused.
func TestSettlesOnce(t *testing.T) {
	seeds := 1000
	if os.Getenv(assembly) != "" {
		seeds = 60 // each is a store of its own
	}
	inBubble(t, func(t *testing.T) {
		endings := map[engine.RunState]int{}
		for seed := range seeds {
			draw := rand.New(rand.NewPCG(uint64(seed), 7))
			when := func() time.Duration { return time.Duration(1+draw.IntN(3)) * time.Second }
			answer, deadline, cancel := when(), when(), when()
			l := newLocal(t)
			req := request(define(t, agent.Policy{}), &speaker{answers: []func(context.Context, func(model.Part) error) error{
				func(ctx context.Context, emit func(model.Part) error) error {
					select {
					case <-time.After(answer):
					case <-ctx.Done():
						return ctx.Err()
					}
					if err := emit(model.TextDelta{Text: "done"}); err != nil {
						return err
					}
					return emit(model.Finish{Reason: model.Stop})
				}}})
			req.Allowance.Duration = deadline
			h := l.start(req)
			go func() { time.Sleep(cancel); _ = h.Cancel() }()
			result, err := h.Await(bg)
			kinds, _ := trace(h)
			endings[result.State]++
			if n := len(l.stored(record.KindRunSettled)); n != 1 {
				t.Fatalf("seed %d: %d settlements", seed, n)
			}
			if n := ends(kinds); n != 1 || ends(kinds[len(kinds)-1:]) != 1 {
				t.Fatalf("seed %d: %d ends in %v", seed, n, kinds)
			}
			path := h.Path()
			if want := []engine.RunState{engine.StateCreated, engine.StatePreparing, engine.StateRunning, result.State}; !slices.Equal(path, want) {
				t.Fatalf("seed %d: the run went through %v", seed, path)
			}
			if (err == nil) != (result.State == engine.StateCompleted) {
				t.Fatalf("seed %d: %s with %v", seed, result.State, err)
			}
			time.Sleep(10 * time.Second)
			if err := h.Cancel(); !errors.Is(err, engine.ErrRunEnded) {
				t.Fatalf("seed %d: a cancel afterwards: %v", seed, err)
			}
			if again, _ := h.Await(bg); again.State != result.State {
				t.Fatalf("seed %d: %s became %s", seed, result.State, again.State)
			}
		}
		for _, s := range []engine.RunState{engine.StateCompleted, engine.StateFailed, engine.StateInterrupted} {
			if endings[s] < seeds/20 {
				t.Errorf("the schedules hardly ever end %s: %v", s, endings)
			}
		}
	})
}

// conformance: INT-05, RUN-002a @embedded
//
// A cancel at every append to the log, before and after it: only one that comes
// with the settlement itself is too late.
func TestCancelAtEveryWrite(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var c counter
		for at := 1; ; at++ {
			l := newLocal(t)
			var h *engine.RunHandle
			ready := make(chan struct{})
			writes, hit := 0, false
			l.fault = func(op string, after bool) error {
				if op != "append" {
					return nil
				}
				if writes++; writes == at {
					hit = true
					<-ready
					_ = h.Cancel()
				}
				return nil
			}
			h = l.start(request(define(t, agent.Policy{}, handler(&c, "look")),
				modeltest.Script(modeltest.Calls(call("look", 1)), modeltest.Text("done"))))
			close(ready)
			result, _ := h.Await(bg)
			kinds, _ := trace(h)
			if !hit {
				if at != 9 { // four batches, two faults each
					t.Errorf("the run has %d faults", at-1)
				}
				return
			}
			want := engine.StateInterrupted
			if at >= writes-1 {
				want = engine.StateCompleted
			}
			completed := slices.Contains(kinds, string(event.KindRunCompleted))
			if result.State != want || completed != (want == engine.StateCompleted) || ends(kinds) != 1 || len(l.stored(record.KindRunSettled)) != 1 {
				t.Errorf("write %d of %d: %s with %v", at, writes, result.State, kinds)
			}
		}
	})
}

// conformance: INT-05 @embedded
//
// A cancel from inside every user function: decoding, instructions, the model,
// the check of arguments, a handler, the output. The run never completes.
func TestCancelInEveryFunction(t *testing.T) {
	for _, where := range []string{"instructions", "model", "handler", "model again"} {
		t.Run(where, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var h *engine.RunHandle
				ready := make(chan struct{})
				at := func(place string) {
					if place == where {
						<-ready
						if err := h.Cancel(); err != nil {
							t.Error(err)
						}
					}
				}
				def, err := agent.Define[input, string]("a", agent.Config[input]{
					Instructions: func(context.Context, input) (string, error) { at("instructions"); return "Go.", nil },
					Tools:        []*tool.Tool{tool.New("look", "Looks.", func(context.Context, arg) (string, error) { at("handler"); return "seen", nil })}})
				if err != nil {
					t.Fatal(err)
				}
				script := modeltest.Script(
					modeltest.Check(func(*model.Request) error { at("model"); return nil }), modeltest.Calls(call("look", 0)),
					modeltest.Check(func(*model.Request) error { at("model again"); return nil }), modeltest.Text("done"))
				h = newLocal(t).start(request(def, script))
				close(ready)
				result, err := h.Await(bg)
				var interrupted *engine.InterruptedError
				if !errors.As(err, &interrupted) || result.State != engine.StateInterrupted {
					t.Errorf("%s, %v", result.State, err)
				}
				if kinds, _ := trace(h); slices.Contains(kinds, "RunCompleted") || kinds[len(kinds)-1] != "RunInterrupted" {
					t.Errorf("%v", kinds)
				}
			})
		})
	}
}

// conformance: INT-01
//
// One handler at a time; the first one cancels its run and returns. The second
// call of the batch never starts.
func TestCancelStartsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var h *engine.RunHandle
		ready, entered := make(chan struct{}), 0
		look := tool.New("look", "Looks.", func(context.Context, arg) (string, error) {
			entered++
			<-ready
			return "seen", h.Cancel()
		})
		h = newLocal(t).start(request(define(t, agent.Policy{ToolConcurrency: 1}, look),
			modeltest.Script(modeltest.Calls(call("look", 1), call("look", 2), call("look", 3)))))
		close(ready)
		if result, err := h.Await(bg); result.State != engine.StateInterrupted {
			t.Errorf("%s, %v", result.State, err)
		}
		if entered != 1 {
			t.Errorf("%d handlers were entered", entered)
		}
	})
}

// conformance: INT-02, INT-03, RUN-007
//
// A cancel ends the model's stream and reaches every handler, and the run has
// ended only when all of them have.
func TestCancelReaches(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &speaker{answers: []func(context.Context, func(model.Part) error) error{hangs("Hel")}}
		h := newLocal(t).start(request(define(t, agent.Policy{}), m))
		time.Sleep(time.Second)
		began := time.Now()
		if err := h.Cancel(); err != nil {
			t.Fatal(err)
		}
		result, _ := h.Await(bg)
		if result.State != engine.StateInterrupted || time.Since(began) > time.Second {
			t.Errorf("%s after %s", result.State, time.Since(began))
		}

		told := make(chan string, 2)
		slow := tool.New("slow", "Takes its time.", func(ctx context.Context, in arg) (string, error) {
			<-ctx.Done()
			time.Sleep(time.Duration(in.N) * time.Second) // cleaning up
			told <- fmt.Sprint(in.N)
			return "", ctx.Err()
		})
		h = newLocal(t).start(request(define(t, agent.Policy{}, slow), modeltest.Script(modeltest.Calls(call("slow", 1), call("slow", 3)))))
		time.Sleep(time.Second)
		began = time.Now()
		if err := h.Cancel(); err != nil {
			t.Fatal(err)
		}
		result, _ = h.Await(bg)
		if len(told) != 2 || result.State != engine.StateInterrupted || time.Since(began) != 3*time.Second {
			t.Errorf("%s after %s, %d handlers were told", result.State, time.Since(began), len(told))
		}
	}) // the bubble fails if any goroutine is left
}

// conformance: INT-06 @embedded
//
// A cancel after the end changes nothing, and neither does a context that is
// over when the outcome is asked for.
func TestOutcomeStays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newLocal(t).start(request(define(t, agent.Policy{}), modeltest.Script(modeltest.Text("done"))))
		synctest.Wait()
		if err := h.Cancel(); !errors.Is(err, engine.ErrRunEnded) {
			t.Errorf("cancel: %v", err)
		}
		over, cancel := context.WithCancel(bg)
		cancel()
		result, err := h.Await(over)
		if err != nil || result.State != engine.StateCompleted || string(result.Output) != `"done"` {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// conformance: RUN-002c, APP-03
//
// An observer that is cancelled misses the end and nothing else changes: any
// number of callers get the same outcome.
func TestCancelledObserver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newLocal(t).start(request(define(t, agent.Policy{}), &speaker{answers: []func(context.Context, func(model.Part) error) error{says("He", "llo")}}))
		watching, stop := context.WithCancel(bg)
		seen := 0
		observed := make(chan error, 1)
		go func() { observed <- h.Observe(watching, func(event.Event) { seen++ }) }()
		waiting := make(chan engine.RunResult, 3)
		for range 3 {
			go func() { r, _ := h.Await(bg); waiting <- r }()
		}
		time.Sleep(500 * time.Millisecond)
		stop()
		if err := <-observed; !errors.Is(err, context.Canceled) {
			t.Errorf("the observer ends with %v", err)
		}
		impatient, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		if _, err := h.Await(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who does not wait gets %v", err)
		}
		for range 3 {
			if r := <-waiting; string(r.Output) != `"Hello"` {
				t.Errorf("%+v", r)
			}
		}
		if kinds, _ := trace(h); seen == 0 || seen >= len(kinds)+3 {
			t.Errorf("the observer saw %d events of %v", seen, kinds)
		}
	})
}

// conformance: LIFE-03 @embedded
//
// Many runs of one binding at once: what happens to one is not seen by another.
func TestRunsAreApart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var c counter
		def := define(t, agent.Policy{MaxTurns: 3}, handler(&c, "look"))
		l := newLocal(t)
		var handles []*engine.RunHandle
		for i := range 12 {
			m := modeltest.Script(modeltest.Calls(call("look", 1)), modeltest.Calls(call("look", 1)), modeltest.Text(fmt.Sprint("answer ", i)))
			req := request(def, m)
			if i%3 == 2 {
				req.Allowance.Turns = 1
			}
			handles = append(handles, l.start(req))
		}
		time.Sleep(500 * time.Millisecond)
		for i, h := range handles {
			if i%3 == 1 {
				if err := h.Cancel(); err != nil {
					t.Error(err)
				}
			}
		}
		for i, h := range handles {
			result, err := h.Await(bg)
			kinds, _ := trace(h)
			switch i % 3 {
			case 0:
				if err != nil || string(result.Output) != fmt.Sprintf("%q", fmt.Sprint("answer ", i)) || result.Turns != 3 || len(kinds) != 14 {
					t.Errorf("run %d: %+v, %v, %v", i, result, err, kinds)
				}
			case 1:
				if result.State != engine.StateInterrupted {
					t.Errorf("run %d: %s: %+v %v", i, result.State, result, kinds)
				}
			case 2: // its own limit: the answer after one turn, and the grace model asks for a tool
				if result.State != engine.StateFailed || result.Turns > 2 {
					t.Errorf("run %d: %s after %d turns", i, result.State, result.Turns)
				}
			}
			if seen := map[string]bool{h.ID(): true}; len(seen) != 1 {
				t.Error("no id")
			}
		}
	})
}

// conformance: EV-04 @embedded
//
// Times in events come from the run's clock alone.
func TestEventTimes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		frozen := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
		l := newLocal(t, func(c *engine.RunnerConfig) { c.Now = func() time.Time { return frozen } })
		n := 0
		for e, err := range l.runner.Events(bg, request(define(t, agent.Policy{}), &speaker{answers: []func(context.Context, func(model.Part) error) error{says("He", "llo")}})) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; !e.At.Equal(frozen) {
				t.Errorf("%s at %s", e.Data.Kind(), e.At)
			}
		}
		if n != 7 {
			t.Errorf("%d events", n)
		}
	})
}

// conformance: SCH-06 @embedded
//
// A slow first call and a fast second one: the second's end is seen first, with
// what each says about itself on the way.
func TestCompletionOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		wait := tool.New("wait", "Waits.", func(ctx context.Context, in arg) (string, error) {
			tool.Progress(ctx, "waiting %d s", in.N)
			time.Sleep(time.Duration(in.N) * time.Second)
			return "waited", nil
		}, tool.Readonly())
		var got []string
		for e, err := range newLocal(t).runner.Events(bg, request(define(t, agent.Policy{}, wait), modeltest.Script(modeltest.Calls(call("wait", 5), call("wait", 1)), modeltest.Text("done")))) {
			if err != nil {
				t.Fatal(err)
			}
			switch d := e.Data.(type) {
			case event.ToolCallProgress:
				if !e.Provisional || d.Tool != "wait" {
					t.Errorf("%+v", e)
				}
				got = append(got, e.Call+" "+d.Message)
			case event.ToolCallSucceeded:
				got = append(got, e.Call)
			}
		}
		slices.Sort(got[:2]) // which of two handlers speaks first is not promised
		if want := []string{"call-1-1 waiting 5 s", "call-1-2 waiting 1 s", "call-1-2", "call-1-1"}; !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}
