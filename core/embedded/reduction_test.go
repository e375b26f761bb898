package embedded_test

import (
	"context"
	"fmt"
	"slices"
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

var (
	begin  = model.Start{Provider: "p", Model: "m", ResponseID: "r"}
	stop   = model.Finish{Reason: model.Stop, Raw: "end_turn"}
	called = model.Finish{Reason: model.ToolCalls, Raw: "tool_use"}
)

// pieces are the parts of one call of the tool look, cut where the test wants.
func pieces(index int, id, args string) []model.Part {
	return []model.Part{model.ToolCallStart{Index: index, ID: id, Tool: "look"}, model.ToolArgsDelta{Index: index, JSON: args}, model.ToolCallEnd{Index: index}}
}

func stream(parts ...any) []model.Part {
	var out []model.Part
	for _, p := range parts {
		switch p := p.(type) {
		case []model.Part:
			out = append(out, p...)
		case model.Part:
			out = append(out, p)
		}
	}
	return out
}

type foreignPart struct{ model.Part }

func tokens(in, out int64) model.Part {
	return model.UsageReport{Usage: record.Usage{InputTokens: &in, OutputTokens: &out}}
}

// A response that breaks a rule of the stream has no consequence: no handler, no
// declaration, no record of it, no part of it in any request; a typed end.
//
// conformance: RSP-01, RSP-02, RSP-03, RSP-04, RSP-05, RSP-06, RSP-07, RSP-08, RSP-13, RSP-14, TURN-08 @embedded @serverless
func TestBrokenResponsesHaveNoConsequence(t *testing.T) {
	text := func(i int, s string) model.Part { return model.TextDelta{Index: i, Text: s} }
	whole := pieces(0, "a", `{"order":"A-1"}`)
	for name, parts := range map[string][]model.Part{
		"RSP-01 no start":                 stream(text(0, "x"), stop),
		"RSP-01 two starts":               stream(begin, begin, text(0, "x"), stop),
		"RSP-02 descending":               stream(begin, text(1, "x"), text(0, "y"), stop),
		"RSP-02 reused":                   stream(begin, whole, pieces(0, "b", `{"order":"B"}`), called),
		"RSP-03 one id for two":           stream(begin, whole, pieces(1, "a", `{"order":"B"}`), called),
		"RSP-04 open arguments":           stream(begin, whole[:2], called),
		"RSP-04 the second is open":       stream(begin, whole, pieces(1, "b", `{"order"`)[:2], called),
		"RSP-05 usage shrinks":            stream(begin, tokens(10, 5), whole, tokens(10, 4), called),
		"RSP-06 calls and stop":           stream(begin, whole, stop),
		"RSP-06 no calls and tool-calls":  stream(begin, text(0, "x"), called),
		"RSP-06 unknown reason":           stream(begin, text(0, "x"), model.Finish{Reason: "perhaps"}),
		"RSP-07 text behind the end":      stream(begin, whole, called, text(1, "x")),
		"RSP-08 arguments are no JSON":    stream(begin, pieces(0, "a", ""), called),
		"RSP-08 text is no UTF-8":         stream(begin, text(0, "a\xff"), stop),
		"RSP-13 length, calls complete":   stream(begin, whole, model.Finish{Reason: model.Length}),
		"RSP-13 filtered, calls complete": stream(begin, whole, model.Finish{Reason: model.ContentFilter}),
		"RSP-14 another type of part":     stream(begin, foreignPart{text(0, "x")}, stop),
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			look := tool.New("look", "Looks.", func(context.Context, lookIn) (lookOut, error) { l.add("look"); return lookOut{1}, nil }, tool.Readonly())
			h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, look), modeltest.Emit(parts...), modeltest.Text("next"))
			p := h.ends(h.submit("one"), "failed", core.ModelProtocolError)
			if len(l.all()) != 0 || len(h.records(record.KindResponseRecorded)) != 0 || len(h.trace(event.KindToolCallDeclared)) != 0 || p.Turns != 0 {
				t.Errorf("handlers %q, records %v", l.all(), h.records(record.KindResponseRecorded))
			}
			h.ends(h.submit("two"), "completed", "")
			if got := transcript(h.model.Requests()[1]); strings.Contains(got, "assistant") {
				t.Errorf("the next request shows %s", got)
			}
		})
	}
}

// Arguments cut at any byte never become a call, whatever the provider says of it.
//
// conformance: RUN-004, RSP-04 @embedded @serverless
func TestCutArgumentsNeverRun(t *testing.T) {
	const args = `{"order":"A \"1\" é"}`
	l := &log{}
	look := tool.New("look", "Looks.", func(context.Context, lookIn) (lookOut, error) { l.add("look"); return lookOut{1}, nil }, tool.Readonly())
	var steps []modeltest.Step
	for cut := range len(args) {
		steps = append(steps, modeltest.Emit(stream(begin, pieces(0, "a", args[:cut]), called)...))
	}
	steps = append(steps, modeltest.Emit(stream(begin, pieces(0, "a", args), called)...), modeltest.Text("ok"))
	h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, look), steps...)
	for cut := range len(args) {
		h.ends(h.submit(fmt.Sprint(cut)), "failed", core.ModelProtocolError)
	}
	if n := l.count("look"); n != 0 || len(h.records(record.KindCallPrepared)) != 0 {
		t.Fatalf("%d handlers ran", n)
	}
	h.ends(h.submit("whole"), "completed", "")
	if l.count("look") != 1 {
		t.Error("the whole arguments do not run")
	}
}

// No handler starts, and nothing is prepared, while the message is still coming:
// not even for a call that is complete. What is on its way is live only.
//
// conformance: TOOL-01, RSP-11 @embedded @serverless
// conformance: RSP-09, TURN-06 @embedded
func TestNothingStartsBeforeTheMessageIsComplete(t *testing.T) {
	l := &log{}
	look := tool.New("look", "Looks.", func(context.Context, lookIn) (lookOut, error) { l.add("look"); return lookOut{1}, nil }, tool.Readonly())
	on, sent := make(chan struct{}), make(chan struct{}, 1)
	first := stream(begin, model.ReasoningDelta{Index: 0, Text: "hm"}, model.ReasoningDelta{Index: 0, Text: "m"}, model.TextDelta{Index: 1, Text: "Let "},
		model.TextDelta{Index: 1, Text: "me look."}, pieces(2, "a", `{"order":"A-1"}`), pieces(3, "b", `{"order":"FRAGMENT"}`)[:2])
	last := stream(model.ToolCallEnd{Index: 3}, called)
	paused := pausing{first: first, last: last, sent: sent, on: on}
	h := buildOn(t, embedded.Config{}, agentOf(t, agent.Policy{}, look), &paused)
	id := h.submit("k")
	<-sent
	if dynamoDB == nil { // live events are told in the process that runs
		liveDeltas(t, h)
	}
	if l.count("look") != 0 || len(h.records(record.KindResponseRecorded, record.KindCallPrepared)) != 0 || len(h.trace(event.KindToolCallDeclared, event.KindToolCallStarted)) != 0 {
		t.Errorf("the first call is on its way: %q, %v", l.all(), h.records())
	}
	for _, b := range h.batches() {
		if sealed, err := record.Seal(&b); err != nil || strings.Contains(string(sealed.Body), "FRAGMENT") || strings.Contains(string(sealed.Body), "Let ") {
			t.Errorf("slot %d holds part of a response: %s, %v", b.Slot, sealed.Body, err)
		}
	}
	h.other = modeltest.Script(modeltest.Text("done"))
	h.crash()
	close(on)
	h.ends(id, "completed", "")
	if l.count("look") != 0 {
		t.Error("a call of a cut response ran")
	}
	for _, b := range h.batches() {
		if sealed, err := record.Seal(&b); err != nil || strings.Contains(string(sealed.Body), "FRAGMENT") {
			t.Errorf("slot %d holds an argument fragment", b.Slot)
		}
	}
}

// liveDeltas holds what a reader who joins while the message is on its way is
// told of it to be live only, and in one piece what was said before.
func liveDeltas(t *testing.T, h *house) {
	t.Helper()
	var deltas []string
	for n, err := range h.rt.Events(h.ctx(), "", "c", engine.EventsOptions{Follow: true, Live: true}) {
		if err != nil {
			t.Fatal(err)
		}
		switch d := n.Event.Data.(type) {
		case event.ReasoningDelta:
			deltas = append(deltas, fmt.Sprint("reasoning ", d.Index, " ", d.Text))
		case event.TextDelta:
			deltas = append(deltas, fmt.Sprint("text ", d.Index, " ", d.Text))
		}
		if len(deltas) > 0 && !n.Event.Provisional {
			t.Errorf("a delta is canonical: %+v", n.Event)
		}
		if strings.Contains(strings.Join(deltas, ""), "me look.") {
			break
		}
	}
	if got := strings.Join(deltas, "|"); got != "reasoning 0 hmm|text 1 Let me look." {
		t.Errorf("live: %s", got)
	}
}

// pausing sends the first parts, and the last ones when it is told to go on.
type pausing struct {
	first, last []model.Part
	sent        chan struct{}
	on          chan struct{}
}

func (m *pausing) Stream(ctx context.Context, _ *model.Request, emit func(model.Part) error) error {
	for _, p := range m.first {
		if err := emit(p); err != nil {
			return err
		}
	}
	m.sent <- struct{}{}
	<-m.on // deaf, as a process that is gone is
	for _, p := range m.last {
		if err := emit(p); err != nil {
			return err
		}
	}
	return nil
}

// A stream that was cut leaves nothing behind: neither its text nor its calls are
// in any later request, and none of them ran.
//
// conformance: RSP-12 @embedded @serverless
func TestCutResponseIsForgotten(t *testing.T) {
	l := &log{}
	look := tool.New("look", "Looks.", func(context.Context, lookIn) (lookOut, error) { l.add("look"); return lookOut{1}, nil }, tool.Readonly())
	cut := modeltest.Emit(stream(begin, model.TextDelta{Index: 0, Text: "HALF"}, pieces(1, "lost", `{"order":"A-1"}`))...)
	h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, look), cut, modeltest.Text("whole"), modeltest.Text("second"))
	if p := h.ends(h.submit("one"), "completed", ""); string(p.Output) != `"whole"` {
		t.Errorf("output %s", p.Output)
	}
	h.ends(h.submit("two"), "completed", "")
	for i, req := range h.model.Requests() {
		if got := transcript(req); strings.Contains(got, "HALF") || strings.Contains(got, "lost") {
			t.Errorf("request %d shows %s", i+1, got)
		}
	}
	if l.count("look") != 0 || len(h.records(record.KindResponseRecorded)) != 2 {
		t.Errorf("ran %q; %d responses", l.all(), len(h.records(record.KindResponseRecorded)))
	}
}

// One response holds 16,384 parts and 8 MiB, and not one more; over that, no tool
// of it starts.
//
// conformance: BP-05, BP-06 @embedded @serverless
func TestResponseCeilings(t *testing.T) {
	filled := func(parts int) []model.Part { // with start and end
		out := []model.Part{begin}
		for range parts - 2 {
			out = append(out, model.TextDelta{Text: "x"})
		}
		return append(out, stop)
	}
	fixed := model.BlockOverhead + len(begin.Provider) + len(begin.Model) + len(begin.ResponseID) + len("a") + len("look") + len(`{"order":""}`) + len(called.Raw)
	sized := func(bytes int) []model.Part {
		return stream(begin, pieces(0, "a", `{"order":"`+strings.Repeat("x", bytes-fixed)+`"}`), called)
	}
	for name, row := range map[string]struct {
		parts        []model.Part
		status, kind string
		ran          int
	}{
		"16,384 parts":      {filled(model.DefaultMaxParts), "completed", "", 0},
		"16,385 parts":      {filled(model.DefaultMaxParts + 1), "failed", core.ModelProtocolError, 0},
		"8 MiB":             {sized(model.DefaultMaxBytes), "completed", "", 1},
		"8 MiB and one":     {sized(model.DefaultMaxBytes + 1), "failed", core.ModelProtocolError, 0},
		"8 MiB of raw text": {stream(begin, model.Finish{Reason: model.Stop, Raw: strings.Repeat("x", model.DefaultMaxBytes)}), "failed", core.ModelProtocolError, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			look := tool.New("look", "Looks.", func(context.Context, lookIn) (lookOut, error) { l.add("look"); return lookOut{1}, nil }, tool.Readonly())
			h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}, look), modeltest.Emit(row.parts...), modeltest.Text("ok"))
			h.ends(h.submit("k"), row.status, row.kind)
			if l.count("look") != row.ran {
				t.Errorf("%d handlers ran", l.count("look"))
			}
		})
	}
}

// Parts that arrive interleaved with reports reduce to one response, the golden.
//
// conformance: TURN-07 @embedded @serverless
func TestPartsReduceToOneResponse(t *testing.T) {
	h := build(t, embedded.Config{}, agentOf(t, agent.Policy{}), modeltest.Emit(stream(begin, tokens(10, 1),
		model.ReasoningDelta{Index: 0, Text: "h"}, model.ReasoningDelta{Index: 0, Text: "m"}, model.ReasoningEnd{Index: 0, Opaque: []byte{1}},
		model.TextDelta{Index: 1, Text: "Hel"}, tokens(10, 3), model.TextDelta{Index: 1, Text: "lo"}, model.TextDelta{Index: 4, Text: " you"}, tokens(10, 7), stop)...))
	h.ends(h.submit("k"), "completed", "")
	got := h.records(record.KindResponseRecorded)
	want := record.Parts{
		record.ReasoningPart{Text: record.TextValue("hm"), Opaque: record.BytesValue([]byte{1}), Provider: "p"},
		record.TextPart{Text: record.TextValue("Hello")}, record.TextPart{Text: record.TextValue(" you")},
	}
	if len(got) != 1 {
		t.Fatalf("%d responses", len(got))
	}
	r := got[0].(record.ResponseRecorded)
	if a, b := fmt.Sprint(r.Message.Parts), fmt.Sprint(want); a != b || *r.Usage.OutputTokens != 7 || *r.Usage.InputTokens != 10 || r.ResponseID != "r" {
		t.Errorf("recorded %+v, want %s", r, b)
	}
	if !slices.Equal(h.trace(event.KindResponseCompleted), []string{"ResponseCompleted"}) {
		t.Error("not one response is shown")
	}
}
