package core_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// drive plays a lane to rest under drawn schedules: effects end in any order,
// processes die at any point, people decide, abort and resolve whenever they
// like. It returns when no work is left.
func drive(t *rapid.T, w *world, deaths int) {
	die := func() bool {
		if deaths > 0 && rapid.IntRange(0, 7).Draw(t, "die") == 0 {
			deaths--
			return true
		}
		return false
	}
	for range 600 {
		if w.desk == nil {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "gap")) * time.Minute)
			w.claim(rapid.Bool().Draw(t, "reboot"))
		}
		rest, alive := w.ask(t, die)
		if !alive {
			continue
		}
		switch rest.Kind {
		case core.RestDone:
			w.closed, w.desk = w.state.Terminal, nil
			continue
		case core.RestYield:
			w.desk = nil
			continue
		case core.RestPark:
			if len(w.live) > 0 {
				t.Fatalf("parks with effects under way: %v", w.live)
			}
			if rest.Version != uint64(len(w.inbox)) {
				core.Note(w.desk, core.Woken{})
				continue
			}
			if rest.Due.IsZero() {
				return // idle: all work is settled
			}
			w.people(t, rest)
			continue
		}
		if len(w.live) == 0 {
			t.Fatalf("waits for nothing; state %s", mustJSON(w.state.Run))
		}
		if die() {
			w.desk = nil
			continue
		}
		w.finish(t, rapid.IntRange(0, len(w.live)-1).Draw(t, "which"))
	}
	t.Fatalf("no rest after 600 steps; state %s", mustJSON(w.state.Run))
}

// people do what a parked run waits for, or time passes its due time.
func (w *world) people(t *rapid.T, rest core.Rest) {
	w.desk = nil
	wait := w.state.Waits()
	if wait == nil || rapid.IntRange(0, 3).Draw(t, "time passes") == 0 {
		w.now = rest.Due
		return
	}
	switch wait.Reason {
	case core.WaitApproval:
		w.send(core.Decide{Approval: wait.On[0], Approve: rapid.Bool().Draw(t, "approve")})
	case core.WaitUnknown:
		c := w.call(wait.On[0])
		answer := core.Resolve{Call: c.ID, Resolution: record.NotHappened}
		if w.effect[c.Operation] > 0 { // an honest operator
			answer.Resolution, answer.Result = record.Happened, record.MustValue("seen")
		}
		w.send(answer)
	default:
		w.now = rest.Due
	}
}

func submitSome(t *rapid.T, w *world) {
	for i := range rapid.IntRange(1, 3).Draw(t, "submissions") {
		w.send(core.Submit{Submission: core.Submission{ID: fmt.Sprint("s", i), Agent: "a", Input: record.MustValue(i), AdmittedAt: w.now}})
		if rapid.IntRange(0, 9).Draw(t, "abort") == 0 {
			w.send(core.AbortRun{Submission: fmt.Sprint("s", i)})
		}
	}
}

// Laws 1 to 3 and 5 under every schedule: each submission settles exactly once,
// no effect of an uncertain tool happens twice, no request shows half a batch,
// nothing is proposed twice in an attempt, a panic is an outcome like others.
//
// conformance: RUN-005, RUN-013, RUN-002a, CLS-03, TURN-19
// failure: A02, A03
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.spec.Policy.MaxTurns = rapid.IntRange(1, 6).Draw(t, "turns")
		w.spec.Policy.MaxToolCalls = rapid.IntRange(1, 8).Draw(t, "calls")
		w.host, w.places = rapid.Bool().Draw(t, "host"), rapid.Bool().Draw(t, "places")
		if rapid.Bool().Draw(t, "all") {
			w.spec.Policy.Drain = core.DrainAll
		}
		submitSome(t, w)
		drive(t, w, 12)
		checkWorld(t, w)
	})
}

func checkWorld(t fataler, w *world) {
	settled := map[string]int{}
	submitted := 0
	for _, e := range w.inbox {
		if _, ok := e.Command.(core.Submit); ok {
			submitted++
		}
	}
	for _, b := range w.log {
		for _, r := range b.Records {
			if s, ok := r.(record.RunSettled); ok {
				for _, o := range core.Outcomes(s) {
					settled[o.Run]++
				}
			}
		}
	}
	if len(w.state.Steering) > 0 {
		t.Errorf("steering of settled submissions has no answer: %v", w.state.Steering)
	}
	if len(w.state.Aborts) > 0 {
		t.Errorf("aborts of settled submissions are remembered: %v", w.state.Aborts)
	}
	if len(settled) != submitted {
		t.Errorf("%d of %d submissions settled", len(settled), submitted)
	}
	for run, n := range settled {
		if n != 1 {
			t.Errorf("run %s settled %d times", run, n)
		}
	}
	for op, n := range w.effect {
		if n > 1 && w.classOf(op) == record.Uncertain {
			t.Errorf("the uncertain effect %s happened %d times", op, n)
		}
	}
}

// classOf finds the class a call was pinned to, by its operation id.
func (w *world) classOf(operation string) record.Class {
	classes := map[string]record.Class{}
	for _, b := range w.log {
		for _, r := range b.Records {
			switch r := r.(type) {
			case record.ResponseRecorded:
				for _, c := range r.Calls {
					classes[c.ID] = c.Class
				}
			case record.CallPrepared:
				if r.Operation == operation {
					return classes[r.Call]
				}
			}
		}
	}
	return ""
}

// Law 1: from every prefix of a legal log, an empty desk is enough to bring the
// lane to rest; what the longer log settled is not undone by it.
func TestRecoveryFromEveryPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.spec.Policy.MaxTurns = rapid.IntRange(1, 4).Draw(t, "turns")
		w.host, w.places = rapid.Bool().Draw(t, "host"), rapid.Bool().Draw(t, "places")
		submitSome(t, w)
		drive(t, w, 3)
		cut := rapid.IntRange(0, len(w.log)).Draw(t, "cut")
		again := newWorld()
		again.spec, again.inbox, again.now, again.boot, again.epoch = w.spec, w.inbox, w.now, w.boot+1, w.epoch
		again.turns, again.steps, again.host, again.places = w.turns, w.steps, w.host, w.places
		for _, b := range w.log[:cut] {
			if err := core.Fold(again.state, b); err != nil {
				t.Fatalf("prefix: %v", err)
			}
		}
		// What happened outside is still true; handlers behind the cut have not run.
		for _, happened := range w.traces {
			if happened.batches <= cut {
				again.effect[happened.operation]++
			}
		}
		again.log, again.closed = slices.Clone(w.log[:cut]), again.state.Terminal
		drive(t, again, 3)
		checkWorld(t, again)
	})
}

// Law 4: two worlds that make the same choices make the same plans, byte for
// byte.
func TestPlansAreDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		choices := rapid.SliceOfN(rapid.IntRange(0, 1<<16), 200, 200).Draw(t, "choices")
		one, two := scripted(choices), scripted(choices)
		if !slices.Equal(one, two) {
			t.Fatalf("plans differ")
		}
	})
}

// scripted plays one run with three parallel calls; choices pick which effect
// ends next. It returns every plan.
func scripted(choices []int) []string {
	w := newWorld()
	w.spec.Policy.ToolConcurrency = 3
	w.send(core.Submit{Submission: core.Submission{ID: "s", Agent: "a", Input: record.MustValue(1), AdmittedAt: w.now}})
	w.claim(true)
	f := &recorder{}
	for _, c := range choices {
		rest, _ := w.ask(f, func() bool { return false })
		if rest.Kind != core.RestWait || len(w.live) == 0 {
			break
		}
		i := c % len(w.live)
		e := w.live[i]
		w.live = slices.Delete(slices.Clone(w.live), i, i+1)
		core.Note(w.desk, plainEnding(w, e))
	}
	return append(w.plans, f.problems...)
}

type recorder struct{ problems []string }

func (r *recorder) Fatalf(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}
func (r *recorder) Errorf(format string, args ...any) { r.Fatalf(format, args...) }

func plainEnding(w *world, e core.Effect) core.Fact {
	switch e := e.(type) {
	case core.ReadInbox:
		return core.InboxRead{Version: 1, Entries: w.inbox[e.After:]}
	case core.DecodeInput:
		return core.InputDecoded{}
	case core.Instruct:
		return core.InstructionsReady{Text: "Go."}
	case core.PrepareContext:
		return core.ContextPrepared{Digest: record.Digest([]byte(mustJSON(e.Request)))}
	case core.CallModel:
		resp := &core.Response{Stop: "stop", Message: record.TextMessage(record.Assistant, "done")}
		if e.Turn == 1 {
			resp.Stop, resp.Message = "tool-calls", record.Message{Role: record.Assistant}
			for i, tool := range []string{"look", "put", "pay"} {
				resp.Message.Parts = append(resp.Message.Parts, record.ToolCallPart{ID: fmt.Sprint("c", i), Tool: tool, Args: record.MustValue(i)})
			}
		}
		return core.ModelEnded{Response: resp}
	case core.CheckCalls:
		var f core.CallsChecked
		for _, c := range e.Calls {
			f.Checks = append(f.Checks, core.Check{Call: c.ID, ArgsDigest: c.Args.Digest()})
		}
		return f
	case core.StartTool:
		return core.ToolEnded{Call: e.Call, Outcome: record.Succeeded, Result: record.MustValue(e.Call)}
	case core.Conclude:
		return core.Concluded{Output: record.MustValue("done")}
	}
	panic(fmt.Sprintf("effect %T", e))
}

// Whatever the order in which parallel calls end, the history a model is shown
// is the same, byte for byte, and so is the request made from it.
//
// conformance: RUN-006, TURN-14, TURN-15
func TestHistoryDoesNotDependOnOrder(t *testing.T) {
	var first string
	rapid.Check(t, func(t *rapid.T) {
		choices := rapid.SliceOfN(rapid.IntRange(0, 1<<16), 60, 60).Draw(t, "choices")
		w := newWorld()
		w.spec.Policy.ToolConcurrency = 3
		w.send(core.Submit{Submission: core.Submission{ID: "s", Agent: "a", Input: record.MustValue(1), AdmittedAt: w.now}})
		w.claim(true)
		for _, c := range choices {
			rest, _ := w.ask(t, func() bool { return false })
			if rest.Kind != core.RestWait {
				break
			}
			i := c % len(w.live)
			e := w.live[i]
			w.live = slices.Delete(slices.Clone(w.live), i, i+1)
			core.Note(w.desk, plainEnding(w, e))
		}
		if w.state.Latest == nil {
			t.Fatalf("the run did not end")
		}
		history, err := json.Marshal(w.state.History)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(history)
		}
		if string(history) != first {
			t.Fatalf("history differs:\n%s\n%s", first, history)
		}
	})
}

// Law 5: a panic in any user function is a fact, and the run has an outcome.
func TestEveryFaultSettles(t *testing.T) {
	for _, of := range []core.Effect{core.DecodeInput{}, core.Instruct{}, core.PrepareContext{}, core.CallModel{}, core.CheckCalls{}, core.Conclude{}} {
		t.Run(fmt.Sprintf("%T", of), func(t *testing.T) {
			w := newWorld()
			w.send(core.Submit{Submission: core.Submission{ID: "s", Agent: "a", Input: record.MustValue(1), AdmittedAt: w.now}})
			w.claim(true)
			for range 60 {
				rest, _ := w.ask(t, func() bool { return false })
				if rest.Kind == core.RestDone {
					break
				}
				e := w.live[0]
				w.live = w.live[1:]
				if fmt.Sprintf("%T", e) == fmt.Sprintf("%T", of) {
					core.Note(w.desk, core.Faulted{Where: "a user function", Of: e})
					continue
				}
				core.Note(w.desk, plainEnding(w, e))
			}
			if w.state.Latest == nil || w.state.Latest.Status != record.StatusFailed || w.state.Latest.Error.Kind != core.Defect {
				t.Fatalf("settled as %s", mustJSON(w.state.Latest))
			}
		})
	}
}
