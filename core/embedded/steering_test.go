package embedded_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

func (h *house) steer(text string) {
	h.t.Helper()
	if _, err := h.rt.Steer(h.ctx(), engine.SteerRequest{Principal: "kim", Conversation: "c", Key: text, Text: text}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) followUp(key, order string) string {
	h.t.Helper()
	r, err := h.rt.FollowUp(h.ctx(), engine.FollowUpRequest{Principal: "kim", Conversation: "c", Key: key, Input: []byte(`{"order":"` + order + `"}`)})
	if err != nil {
		h.t.Fatal(err)
	}
	return r.Submission
}

// drained waits until the running attempt has drained what was sent.
func (h *house) drained(kind record.Kind, n int) {
	h.t.Helper()
	ctx := h.ctx()
	for len(h.records(kind)) < n && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// while does something before a step answers.
func while(do func(), step modeltest.Step) []modeltest.Step {
	return []modeltest.Step{modeltest.Check(func(*model.Request) error { do(); return nil }), step}
}

// words renders a request: who said what, calls and results by their tools.
func words(req *model.Request) string {
	var out []string
	for _, m := range req.Messages {
		var parts []string
		for _, p := range m.Parts {
			switch p := p.(type) {
			case record.TextPart:
				parts = append(parts, p.Text.Text())
			case record.ToolCallPart:
				parts = append(parts, "call "+p.Tool)
			case record.ToolResultPart:
				parts = append(parts, "result "+p.Tool)
			}
		}
		out = append(out, string(m.Role)+": "+strings.Join(parts, ", "))
	}
	return strings.Join(out, "\n")
}

func requests(h *house) []string {
	var out []string
	for _, req := range h.model.Requests() {
		out = append(out, words(req))
	}
	return out
}

// Steering before the start, while the model is asked and while a batch runs:
// each comes in at the next seam, one at a time and in order, behind the results;
// the response and the batch it came into are what they would have been; and the
// policy decides after it.
//
// conformance: STR-01, STR-02, STR-03, STR-05, RUN-014, TURN-16 @embedded @serverless
func TestSteeringThroughARun(t *testing.T) {
	l := &log{}
	var h *house
	gate := make(chan struct{})
	mid := tool.New("mid", "Is steered.", func(context.Context, nothing) (string, error) {
		l.add("start mid")
		h.steer("during the batch")
		h.drained(record.KindSteeringQueued, 3)
		return "ok", nil
	}, tool.Readonly())
	steps := slices.Concat(while(func() { h.steer("during the answer"); h.drained(record.KindSteeringQueued, 2) }, callOf("a", "mid", "b")),
		[]modeltest.Step{modeltest.Text("second"), modeltest.Text("third")})
	def := agent.MustDefine[lookIn, string]("a", agent.Config[lookIn]{
		Instructions: func(context.Context, lookIn) (string, error) { <-gate; return "Help.", nil },
		Tools:        []*tool.Tool{noting(l, "a", tool.Readonly()), mid, noting(l, "b", tool.Readonly())},
	})
	h = build(t, embedded.Config{}, def, steps...)
	id := h.submit("k")
	h.steer("at the start")
	h.drained(record.KindSteeringApplied, 1)
	close(gate)
	h.ends(id, "completed", "")
	got := requests(h)
	batch := "\nassistant: call a, call mid, call b\ntool: result a, result mid, result b"
	start := "system: Help.\nuser: " + order + "\nuser: at the start"
	second := start + batch + "\nuser: during the answer"
	if want := []string{start, second, second + "\nassistant: second\nuser: during the batch"}; !slices.Equal(got, want) {
		t.Errorf("requests:\n%s", strings.Join(got, "\n--\n"))
	}
	if l.count("start a")+l.count("start mid")+l.count("start b") != 3 {
		t.Errorf("of three handlers ran %q", l.all())
	}
	if got := h.trace(event.KindSteeringApplied); len(got) != 3 {
		t.Errorf("events %q", got)
	}
}

// conformance: STR-05 @embedded @serverless
func TestDrainAll(t *testing.T) {
	gate := make(chan struct{})
	h := build(t, embedded.Config{}, agentOf(t, agent.Policy{DrainPolicy: agent.DrainAll}),
		modeltest.Check(func(*model.Request) error { <-gate; return nil }), modeltest.Text("one"), modeltest.Text("two"))
	id := h.submit("k")
	for len(h.model.Requests()) == 0 {
		time.Sleep(time.Millisecond)
	}
	for _, s := range []string{"x1", "x2", "x3"} {
		h.steer(s)
	}
	h.drained(record.KindSteeringQueued, 3)
	close(gate)
	h.ends(id, "completed", "")
	if got := requests(h); len(got) != 2 || strings.Contains(got[0], "x1") || !strings.HasSuffix(got[1], "user: x1\nuser: x2\nuser: x3") {
		t.Errorf("requests:\n%s", strings.Join(got, "\n--\n"))
	}
}

// A follow-up of turn 1 enters where the run would stop, behind the steering that
// waits with it, and settles with its host, over a restart in between.
//
// conformance: RUN-015, STR-04, STR-06, TURN-18 @embedded @serverless
func TestFollowUpThroughARun(t *testing.T) {
	l := &log{}
	var h *house
	var joined string
	steps := slices.Concat(
		while(func() { joined = h.followUp("f", "A-2"); h.drained(record.KindSubmissionQueued, 2) }, callOf("look")),
		while(func() {
			if p := h.stands(joined); p.Status != "queued" || p.Host != "" {
				t.Errorf("in turn 2 the follow-up is %s in %q", p.Status, p.Host)
			}
		}, callOf("look")),
		while(func() { h.steer("briefly"); h.drained(record.KindSteeringQueued, 1) }, modeltest.Text("first")),
		[]modeltest.Step{modeltest.Text("second")},
		while(func() {
			if p := h.stands(joined); p.Status != "running" || p.Host == "" {
				t.Errorf("joined, the follow-up is %s in %q", p.Status, p.Host)
			}
		}, modeltest.Text("third")))
	h = build(t, embedded.Config{}, agentOf(t, agent.Policy{}, noting(l, "look", tool.Readonly())), steps...)
	host := h.submit("k")
	own := h.ends(host, "completed", "")
	hosted := h.ends(joined, "completed", "")
	got := requests(h)
	at := func(s string) int {
		return slices.IndexFunc(got, func(r string) bool { return strings.Contains(r, s) }) + 1
	}
	if at("A-2") != 5 || at("briefly") != 4 || len(got) != 5 || !strings.HasSuffix(got[4], `user: {"order":"A-2"}`) {
		t.Errorf("requests:\n%s", strings.Join(got, "\n--\n"))
	}
	if hosted.Host != host || string(hosted.Output) != `"third"` || !hosted.Usage.IsZero() || own.Usage.IsZero() || !slices.Equal(own.Outcome.Joined, []string{joined}) {
		t.Errorf("%+v and %+v", own.Outcome, hosted.Outcome)
	}
	if got := h.trace(event.KindFollowUpApplied); len(got) != 1 || len(h.records(record.KindRunStarted)) != 1 {
		t.Errorf("%q, %d runs", got, len(h.records(record.KindRunStarted)))
	}
	h.crash()
	again := h.ends(joined, "completed", "")
	if again.Host != host {
		t.Errorf("after a restart the follow-up has settled with %q", again.Host)
	}
}

// stands says where a submission stands now.
func (h *house) stands(id string) engine.Progress {
	h.t.Helper()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	p, err := h.rt.Await(now, "", id, engine.UntilSettled)
	if err != nil {
		h.t.Error(err)
	}
	return p
}

// At a limit the drain is recorded first, and then the policy decides.
//
// conformance: TURN-17 @embedded @serverless
func TestSteeringAtALimit(t *testing.T) {
	l := &log{}
	var h *house
	h = build(t, embedded.Config{}, agentOf(t, agent.Policy{MaxTurns: 1, OnExhaustion: agent.FailOnExhaustion}, noting(l, "look", tool.Readonly())),
		while(func() { h.steer("one more thing"); h.drained(record.KindSteeringQueued, 1) }, callOf("look"))...)
	h.ends(h.submit("k"), "failed", record.PolicyError)
	var order []record.Kind
	for _, r := range h.records(record.KindCallSettled, record.KindSteeringApplied, record.KindRunSettled) {
		order = append(order, r.Kind())
	}
	if want := []record.Kind{record.KindCallSettled, record.KindSteeringApplied, record.KindRunSettled}; !slices.Equal(order, want) {
		t.Errorf("recorded %v, want %v", order, want)
	}
}
