package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// conformance: TURN-06, RSP-09
//
// Text and reasoning are seen as they come, in order, before the response is
// complete; a piece nobody could show is not.
func TestDeltas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		proceed := make(chan struct{})
		m := &speaker{answers: []func(context.Context, func(model.Part) error) error{func(_ context.Context, emit func(model.Part) error) error {
			for _, p := range []model.Part{model.ReasoningDelta{Text: "hm"}, model.ReasoningEnd{Opaque: []byte("sig")}, model.TextDelta{Index: 1, Text: "Hel"}} {
				if err := emit(p); err != nil {
					return err
				}
			}
			<-proceed
			if err := emit(model.TextDelta{Index: 1, Text: "lo"}); err != nil {
				return err
			}
			return emit(model.Finish{Reason: model.Stop})
		}}}
		var got []string
		for e, err := range newLocal(t).runner.Events(bg, request(define(t, agent.Policy{}), m)) {
			if err != nil {
				t.Fatal(err)
			}
			switch d := e.Data.(type) {
			case event.ReasoningDelta:
				got = append(got, fmt.Sprintf("%d thinks %s", e.Sub, d.Text))
			case event.TextDelta:
				got = append(got, fmt.Sprintf("%d says %s", e.Sub, d.Text))
				if d.Text == "Hel" {
					close(proceed) // only now can the response become complete
				}
			case event.ResponseCompleted:
				got = append(got, "said "+d.Text)
			}
		}
		if want := "2 thinks hm, 3 says Hel, 4 says lo, said Hello"; strings.Join(got, ", ") != want {
			t.Errorf("%q, want %q", strings.Join(got, ", "), want)
		}
	})
}

// conformance: EV-10 @embedded
//
// Nothing of a provider's wire is in an event: not its usage report, not its
// opaque bytes.
func TestNoProviderBytesInEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const canary = "wire-canary"
		raw, _ := json.Marshal(map[string]string{"raw": canary})
		m := modeltest.Script(modeltest.Emit(model.Start{Provider: "p", Model: "m", ResponseID: canary},
			model.ReasoningDelta{Text: "hm"}, model.ReasoningEnd{Opaque: []byte(canary)}, model.TextDelta{Index: 1, Text: "done"},
			model.UsageReport{Usage: record.Usage{Raw: raw}}, model.Finish{Reason: model.Stop, Raw: canary, Repairs: []record.Repair{{Name: canary, Raw: canary}}}))
		n := 0
		for e, err := range newLocal(t).runner.Events(bg, request(define(t, agent.Policy{}), m)) {
			if err != nil {
				t.Fatal(err)
			}
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if n++; strings.Contains(string(line), canary) {
				t.Errorf("%s", line)
			}
		}
		if n == 0 {
			t.Error("no events")
		}
	})
}

// A run in memory sits out a provider that is away, and its own waits are no
// end of it.
func TestEphemeralBackoff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		away := modeltest.Fail(&model.Error{Class: model.Transient, Message: "away"})
		h := newLocal(t).start(request(define(t, agent.Policy{ModelRetries: agent.Disabled}), modeltest.Script(away, away, modeltest.Text("back"))))
		result, err := h.Await(bg)
		if err != nil || string(result.Output) != `"back"` {
			t.Fatalf("%+v, %v", result, err)
		}
		kinds, _ := trace(h)
		if got := strings.Join(kinds, " "); got != "RunStarted TurnStarted ResponseCompleted RunCompleted" {
			t.Errorf("%s", got)
		}
		var sequence uint64
		for e := range h.Events(bg) {
			if sequence++; e.Sequence != sequence {
				t.Errorf("%s has number %d, want %d", e.Data.Kind(), e.Sequence, sequence)
			}
		}
	})
}

// Approvals in memory: answered in time, denied, or not; only the last is an
// end, with the open questions (D-02, D-11).
func TestEphemeralApprovals(t *testing.T) {
	pay := func(c *counter) *tool.Tool { return handler(c, "pay", tool.RequireApproval()) }
	script := func() *modeltest.Model {
		return modeltest.Script(modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
	}
	for name, row := range map[string]struct {
		wait   time.Duration
		decide func(h *engine.RunHandle, id string) error
		after  time.Duration
		state  engine.RunState
		paid   int
	}{
		"at once":     {0, nil, 0, engine.StateSuspended, 0},
		"not in time": {time.Minute, nil, 0, engine.StateSuspended, 0},
		"approved":    {time.Minute, func(h *engine.RunHandle, id string) error { return h.Approve(bg, id, "ada", "ok") }, 30 * time.Second, engine.StateCompleted, 1},
		"denied":      {time.Minute, func(h *engine.RunHandle, id string) error { return h.Deny(bg, id, "ada", "no") }, 30 * time.Second, engine.StateCompleted, 0},
		"cancelled":   {time.Minute, func(h *engine.RunHandle, _ string) error { return h.Cancel() }, 30 * time.Second, engine.StateInterrupted, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var c counter
				req := request(define(t, agent.Policy{}, pay(&c)), script())
				req.ApprovalWait = row.wait
				began := time.Now()
				h := newLocal(t).start(req)
				synctest.Wait()
				if row.decide != nil {
					asked, err := h.Approvals(bg)
					if err != nil || len(asked) != 1 || string(asked[0].Args) != `{"n":0}` {
						t.Fatalf("%+v, %v", asked, err)
					}
					time.Sleep(row.after)
					if err := row.decide(h, asked[0].ID); err != nil {
						t.Fatal(err)
					}
				}
				result, err := h.Await(bg)
				if result.State != row.state || c.of("pay") != row.paid {
					t.Errorf("%s, %v; paid %d times", result.State, err, c.of("pay"))
				}
				kinds, end := trace(h)
				if ends(kinds) != 1 || ends(kinds[len(kinds)-1:]) != 1 || !errors.Is(end, err) {
					t.Errorf("%v, %v", kinds, end)
				}
				if row.state != engine.StateSuspended {
					return
				}
				var suspended *engine.SuspendedError
				if !errors.As(err, &suspended) || len(suspended.Approvals) != 1 || suspended.Approvals[0].Tool != "pay" || len(result.Approvals) != 1 {
					t.Fatalf("%v", err)
				}
				if waited := time.Since(began); waited != row.wait {
					t.Errorf("it waited %s", waited)
				}
				if err := h.Approve(bg, suspended.Approvals[0].ID, "ada", ""); !errors.Is(err, engine.ErrRunEnded) {
					t.Errorf("an approval afterwards: %v", err)
				}
			})
		})
	}
}

// conformance: APP-04 @embedded
//
// Everything a handle can ask reaches the run while it runs, and is refused by
// name once it has ended; its state still answers.
func TestHandleControls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var c counter
		m := modeltest.Script(modeltest.Calls(call("pay", 0)), modeltest.Text("paid"), modeltest.Text("and more"), modeltest.Text("too late"))
		req := request(define(t, agent.Policy{}, handler(&c, "pay", tool.RequireApproval())), m)
		req.ApprovalWait = time.Hour
		h := newLocal(t).start(req)
		time.Sleep(time.Second)
		if h.State() != engine.StateRunning {
			t.Errorf("it is %s", h.State())
		}
		if _, err := h.Steer(bg, "be quick"); err != nil {
			t.Fatal(err)
		}
		joins, err := h.FollowUp(bg, json.RawMessage(`{"name":"Lee"}`))
		if err != nil {
			t.Fatal(err)
		}
		var refused *engine.Error
		if _, err := h.FollowUp(bg, json.RawMessage(`{"name":7}`)); !errors.As(err, &refused) || refused.Kind != engine.KindInvalid {
			t.Errorf("a follow-up of another type: %v", err)
		}
		asked, err := h.Approvals(bg)
		if err != nil || len(asked) != 1 {
			t.Fatalf("%+v, %v", asked, err)
		}
		if err := h.Approve(bg, asked[0].ID, "ada", ""); err != nil {
			t.Fatal(err)
		}
		result, err := h.Await(bg)
		if err != nil || string(result.Output) != `"and more"` || len(result.Undelivered) != 0 || c.of("pay") != 1 {
			t.Errorf("%+v, %v; paid %d times", result, err, c.of("pay"))
		}
		kinds, _ := trace(h)
		if !slices.Contains(kinds, "SteeringApplied") || !slices.Contains(kinds, "FollowUpApplied") || joins.Submission == h.ID() {
			t.Errorf("%v", kinds)
		}
		for name, ask := range map[string]func() error{
			"steer":     func() error { _, err := h.Steer(bg, "more"); return err },
			"follow up": func() error { _, err := h.FollowUp(bg, json.RawMessage(kim)); return err },
			"cancel":    h.Cancel,
			"approve":   func() error { return h.Approve(bg, asked[0].ID, "ada", "") },
			"deny":      func() error { return h.Deny(bg, asked[0].ID, "ada", "") },
		} {
			if err := ask(); !errors.Is(err, engine.ErrRunEnded) {
				t.Errorf("%s after the end: %v", name, err)
			}
		}
		if h.State() != engine.StateCompleted {
			t.Errorf("it is %s", h.State())
		}
	})
}

// A follow-up the run does not take in comes back with its result (D-23).
func TestUndelivered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newLocal(t).start(request(define(t, agent.Policy{}), speaking(hangs("Hel"))))
		time.Sleep(time.Second)
		if _, err := h.FollowUp(bg, json.RawMessage(kim)); err != nil {
			t.Fatal(err)
		}
		if err := h.Cancel(); err != nil {
			t.Fatal(err)
		}
		result, _ := h.Await(bg)
		if len(result.Undelivered) != 1 || string(result.Undelivered[0].Input) != kim || result.State != engine.StateInterrupted {
			t.Errorf("%+v", result)
		}
	})
}

// What cannot begin says so, as an error and not as a run.
func TestRunnerRefuses(t *testing.T) {
	if _, err := engine.NewRunner(engine.RunnerConfig{}); err == nil {
		t.Error("a runner without a journal")
	}
	inBubble(t, func(t *testing.T) {
		def := define(t, agent.Policy{})
		for name, change := range map[string]func(*engine.RunRequest){
			"no model":   func(r *engine.RunRequest) { r.Definition.Model = nil },
			"a bad name": func(r *engine.RunRequest) { r.Conversation = "a\nb" },
			"no JSON":    func(r *engine.RunRequest) { r.Input = json.RawMessage("{") },
		} {
			req := request(def, modeltest.Script())
			change(&req)
			if _, err := newLocal(t).runner.Start(bg, req); err == nil {
				t.Errorf("%s: started", name)
			}
			for e, err := range newLocal(t).runner.Events(bg, req) {
				if err == nil {
					t.Errorf("%s: %+v", name, e)
				}
			}
		}
		req := request(def, modeltest.Script())
		req.Input = json.RawMessage(`{"name":7}`)
		_, err := newLocal(t).start(req).Await(bg)
		var failed *engine.RunError
		if !errors.As(err, &failed) || failed.Kind != core.InputError {
			t.Errorf("an input of another type: %v", err)
		}
	})
}
