package embedded_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// The input is decoded before anything else: where a build meets an input that
// does not fit its agent any more, the run fails typed, and no instructions are
// evaluated, no model is asked.
//
// conformance: TURN-01, TURN-02 @embedded @serverless
func TestInputIsDecodedFirst(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	l := &log{}
	stuck := &pausing{sent: make(chan struct{}, 1), on: hold}
	first := agent.MustDefine[lookIn, string]("a", agent.Config[lookIn]{
		Instructions: func(_ context.Context, in lookIn) (string, error) {
			l.add("instruct %s", in.Order)
			return "About " + in.Order, nil
		}})
	h := buildOn(t, embedded.Config{}, first, stuck)
	id := h.submit("k")
	<-stuck.sent
	if got := l.all(); len(got) != 1 || got[0] != "instruct A-1001" {
		t.Errorf("%q", got)
	}
	type other struct {
		Customer string `json:"customer"`
	}
	h.def = agent.MustDefine[other, string]("a", agent.Config[other]{
		Instructions: func(context.Context, other) (string, error) { l.add("instruct other"); return "", nil }})
	h.other = nil
	h.crash(modeltest.Text("never asked"))
	h.ends(id, "failed", core.InputError)
	if l.count("instruct other") != 0 || len(h.model.Requests()) != 0 {
		t.Errorf("%q, %d requests", l.all(), len(h.model.Requests()))
	}
	if _, err := h.rt.Submit(h.ctx(), engine.SubmitRequest{Agent: "a", Conversation: "d", Input: []byte(order)}); err == nil {
		t.Error("an input that does not fit is accepted")
	}
	h.def = first
	h.crash(modeltest.Text("ok"))
	h.ends(h.submit("again"), "completed", "")
	if got := words(h.model.Requests()[0]); !strings.HasPrefix(got, "system: About A-1001\n") {
		t.Errorf("the request is\n%s", got)
	}
}

// A run that is aborted at a seam asks no model any more.
//
// conformance: TURN-04 @embedded @serverless
func TestAbortIsSeenBeforeTheModel(t *testing.T) {
	var h *house
	do := tool.New("do", "Does it.", func(context.Context, nothing) (string, error) {
		if _, err := h.rt.RequestAbort(h.ctx(), engine.AbortRequest{Conversation: "c"}); err != nil {
			t.Error(err)
		}
		return "done", nil
	}, tool.Readonly())
	h = build(t, embedded.Config{}, agentOf(t, agent.Policy{}, do), callOf("do"), modeltest.Text("never"))
	h.ends(h.submit("k"), "aborted", "Aborted")
	if n := len(h.model.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// conformance: TURN-09 @embedded @serverless
func TestFinalAnswerIsDecoded(t *testing.T) {
	d := agent.MustDefine[lookIn, lookOut]("a", agent.Config[lookIn]{Instructions: agent.Text[lookIn]("Help.")})
	for answer, want := range map[string][2]string{
		`{"cents":4900}`: {"completed", ""}, ` {"cents":4900} `: {"completed", ""}, `{"cents":"a lot"}`: {"failed", core.OutputError},
		`{}`: {"failed", core.OutputError}, `4900 cents`: {"failed", core.OutputError},
	} {
		h := build(t, embedded.Config{}, d, modeltest.Text(answer))
		p := h.ends(h.submit("k"), want[0], want[1])
		if want[0] == "completed" && string(p.Output) != `{"cents":4900}` || len(h.model.Requests()) != 1 {
			t.Errorf("%s became %s after %d requests", answer, p.Output, len(h.model.Requests()))
		}
	}
}

// Whatever a model says, every seam is followed by a turn or by the end, and the
// end is there once and last.
//
// conformance: TURN-19 @embedded @serverless
func TestEverySeamGoesOnOrEnds(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		var steps []modeltest.Step
		for range 6 {
			switch r.IntN(6) {
			case 0:
				steps = append(steps, modeltest.Text("done"))
			case 1:
				steps = append(steps, callOf("nope"))
			case 2:
				steps = append(steps, modeltest.Fail(&model.Error{Class: model.Refused, Message: "no"}))
			case 3:
				steps = append(steps, callOf("look", "fail"))
			default:
				steps = append(steps, callOf("look", "look"))
			}
		}
		l := &log{}
		fails := tool.New("fail", "Fails.", func(context.Context, nothing) (string, error) { return "", tool.Failf("no", "no") }, tool.Readonly())
		h := build(t, embedded.Config{}, agentOf(t, agent.Policy{MaxTurns: 3}, noting(l, "look", tool.Readonly()), fails), steps...)
		p := h.await(h.submit("k"), engine.UntilSettled)
		events := h.events()
		terminal, turns := 0, 0
		for _, e := range events {
			switch e.Data.Kind() {
			case event.KindTurnStarted:
				turns++
			case event.KindRunCompleted, event.KindRunFailed, event.KindRunInterrupted:
				terminal++
			}
		}
		last := events[len(events)-1].Data.Kind()
		if terminal != 1 || turns != p.Turns || p.Outcome == nil || last != event.KindRunCompleted && last != event.KindRunFailed {
			t.Errorf("seed %d: %d ends, the last event is %s, %d of %d turns", seed, terminal, last, turns, p.Turns)
		}
	}
}

// A batch that a crash or an abort left half done is in the next request whole or
// not at all.
//
// conformance: RUN-005, TURN-15 @embedded @serverless
func TestBatchIsSeenWholeOrNotAtAll(t *testing.T) {
	for _, abort := range []bool{false, true} {
		t.Run(fmt.Sprint("aborted ", abort), func(t *testing.T) {
			hold, entered := make(chan struct{}), make(chan struct{}, 8)
			defer close(hold)
			l := &log{}
			slow := tool.New("slow", "Is slow.", func(ctx context.Context, _ nothing) (string, error) {
				l.add("slow")
				entered <- struct{}{}
				if l.count("slow") == 1 {
					<-hold
				}
				return "slow done", nil
			}, tool.Readonly())
			h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, noting(l, "quick", tool.Readonly()), slow), callOf("quick", "slow", "quick"))
			id := h.submit("k")
			<-entered
			h.drained(record.KindCallSettled, 2)
			h.crash(modeltest.Text("ok"), modeltest.Text("ok"))
			if abort {
				_, _ = h.rt.RequestAbort(h.ctx(), engine.AbortRequest{Conversation: "c", Submission: id}) // may come too late
			}
			h.await(id, engine.UntilSettled)
			h.await(h.submit("next"), engine.UntilSettled)
			for i, req := range h.model.Requests() {
				got := words(req)
				if strings.Contains(got, "call quick") && !strings.Contains(got, "assistant: call quick, call slow, call quick\ntool: result quick, result slow, result quick") {
					t.Errorf("request %d:\n%s", i+1, got)
				}
			}
		})
	}
}
