package event_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/record"
)

// every has one event of each kind that a projection does not make.
func every() []event.Data {
	child := event.Child{Conversation: "c2", Run: "r2", Agent: "helper", Depth: 1}
	return []event.Data{
		event.TextDelta{Index: 1, Text: "a"}, event.ReasoningDelta{Text: "b"},
		event.ToolCallProgress{Tool: "t", Message: "half"},
		event.FollowUpApplied{Submission: "r3", Text: json.RawMessage(`"more"`)},
		event.SubagentRequested{Child: child}, event.SubagentStarted{Child: child}, event.SubagentProgress{Child: child},
		event.SubagentCompleted{Child: child}, event.SubagentFailed{Child: child}, event.SubagentInterrupted{Child: child},
		event.SubagentJoined{Child: child},
	}
}

// conformance: EV-06
func TestRoundTrip(t *testing.T) {
	seen := map[event.Kind]bool{}
	check := func(e event.Event) {
		t.Helper()
		seen[e.Data.Kind()] = true
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back event.Event
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Errorf("%s (-before +after):\n%s", e.Data.Kind(), diff)
		}
	}
	for _, s := range stories() {
		var p event.Projector
		for _, b := range s.log() {
			for _, e := range project(t, &p, b) {
				check(e)
			}
		}
	}
	for i, d := range every() {
		check(event.Event{Run: "r1", Conversation: "c1", Agent: "a", Sequence: 4, Sub: uint64(i + 1), Epoch: 2, At: at(1), Turn: 1, Provisional: true, Data: d})
	}
	if len(seen) != 27 { // D-13
		t.Errorf("%d kinds were checked: %v", len(seen), seen)
	}
}

// conformance: EV-06, APP-05
func TestDecodeRefuses(t *testing.T) {
	for raw, want := range map[string]error{
		`{"v":2,"kind":"RunStarted","data":{}}`:  event.ErrUnknownVersion,
		`{"v":1,"kind":"RunExploded","data":{}}`: event.ErrUnknownKind,
		`{"v":1,"kind":"runStarted","data":{}}`:  event.ErrUnknownKind,
	} {
		var e event.Event
		if err := json.Unmarshal([]byte(raw), &e); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", raw, err, want)
		}
	}
	var e event.Event
	if err := json.Unmarshal([]byte(`{"v":1,"kind":"RunStarted","data":{"maxTurns":"many"}}`), &e); err == nil {
		t.Error("a payload of another type was read")
	}
	if _, err := json.Marshal(event.Event{}); err == nil {
		t.Error("an event without data was written")
	}
}

// A field that a later build adds is no reason to lose an event.
func TestDecodeIgnoresNewFields(t *testing.T) {
	var e event.Event
	if err := json.Unmarshal([]byte(`{"v":1,"kind":"TextDelta","new":1,"data":{"text":"a","new":2}}`), &e); err != nil {
		t.Fatal(err)
	}
	if e.Data != (event.TextDelta{Text: "a"}) {
		t.Errorf("%+v", e.Data)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü 漢":            "plain ü 漢",
		"\x1b[31mred\x1b[0m":   `\x1b[31mred\x1b[0m`,
		"a\nb\tc\r":            `a\nb\tc\r`,
		"\u202edesrever":       `\u202edesrever`,
		"\u200b\u0085\ufeff":   `\u200b\u0085\ufeff`,
		"bad \xff\xfe utf-8":   `bad \xff\xfe utf-8`,
		"kept \ufffd as it is": "kept \ufffd as it is",
		"\U000e0041":           `\U000e0041`,
	} {
		if got := event.Printable(in, 0); got != want {
			t.Errorf("Printable(%q) = %s, want %s", in, got, want)
		}
	}
	if got := event.Printable("äöü", 2); got != "äö…" {
		t.Errorf("shortened to %s", got)
	}
	if got := event.Printable("äö", 2); got != "äö" {
		t.Errorf("shortened to %s", got)
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"s_1.2.0": "s_1.2.0", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(rm)": "'$(rm)'", `{"a":1}`: `'{"a":1}'`, "ü": "'ü'",
	} {
		if got := event.Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestLineIsShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, d := range []event.Data{
		event.ToolCallDeclared{Tool: long, Args: json.RawMessage(long)}, event.RunFailed{Error: record.Error{Kind: long, Message: long}},
		event.RunSuspended{Reason: "unknown", On: []string{"k1"}, Tools: []string{long, long}},
	} {
		if line := event.Line(event.Event{Conversation: long[:256], Data: d}, "layover"); len(line) > 1000 {
			t.Errorf("%s: %d bytes", d.Kind(), len(line))
		}
	}
}

// Whatever a model, a tool or a caller writes, a line stays one line and obeys
// nothing.
func FuzzLine(f *testing.F) {
	f.Add("demo", "look_up", `{"a":"b"}`, "ada")
	f.Add("\x1b]0;title\x07", "\n\r", "\u202e", "\x00")
	f.Fuzz(func(t *testing.T, conversation, tool, text, by string) {
		raw := json.RawMessage(text)
		for _, d := range []event.Data{
			event.RunStarted{Principal: by}, event.ToolCallDeclared{Tool: tool, Args: raw}, event.ToolCallDeclared{Tool: tool, Problem: text},
			event.ToolCallSucceeded{Tool: tool, Result: raw, Source: by}, event.ToolCallFailed{Tool: tool, Result: raw},
			event.ApprovalRequested{Approval: by, Tool: tool, Args: raw}, event.ApprovalResolved{Tool: tool, Decision: record.Denied, By: by, Reason: text},
			event.RunSuspended{Reason: "unknown", On: []string{by}, Tools: []string{tool, text}}, event.RunSuspended{Reason: text, On: []string{by}},
			event.RunCompleted{Output: raw}, event.RunFailed{Error: record.Error{Kind: tool, Message: text}}, event.RunInterrupted{Error: &record.Error{Message: text}},
		} {
			line := event.Line(event.Event{Conversation: conversation, Agent: tool, At: time.Unix(0, 0).UTC(), Turn: 1, Data: d}, "layover")
			if event.Printable(line, 0) != line {
				t.Errorf("%T: %q", d, line)
			}
			if strings.Contains(line, "\n") {
				t.Errorf("%T: more than one line", d)
			}
		}
	})
}
