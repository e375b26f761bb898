package model_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// openedCall is a call that the provider is still to execute, in block i.
func openedCall(i int, id string) script {
	return script{model.ToolCallStart{Index: i, ID: id, Tool: "web_search", ProviderExecuted: true},
		model.ToolArgsDelta{Index: i, JSON: `{"q":"x"}`}, model.ToolCallEnd{Index: i, Opaque: []byte{1}}}
}

var paused = model.Finish{Reason: model.ToolCalls, Paused: true, Raw: "pause_turn"}

// What a provider leaves open is answered by a later response of its own, once.
//
// conformance: PEX-01
func TestReduceContinues(t *testing.T) {
	first, err := reduce(parts(start, openedCall(0, "s1"), call(1, "a", `{}`), called), model.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	late := func(conversation []record.Message, s script) (model.Response, error) {
		r := model.NewReducer(model.Limits{})
		r.Continue(conversation)
		for _, p := range s {
			if err := r.Add(p); err != nil {
				return model.Response{}, err
			}
		}
		return r.Response()
	}
	second, err := late([]record.Message{first.Message}, parts(start, found(0, "s1"), text(1, "x"), stop))
	if err != nil {
		t.Fatal(err)
	}
	want := record.Parts{
		record.ToolResultPart{Call: "s1", Tool: "web_search", Result: record.Value{Inline: json.RawMessage(`{"url":"u"}`)},
			ProviderExecuted: true, Provider: "p", Opaque: record.BytesValue([]byte{0, 0xff})},
		record.TextPart{Text: record.TextValue("x")},
	}
	if diff := cmp.Diff(want, second.Message.Parts); diff != "" {
		t.Error(diff)
	}
	ours := record.Message{Role: record.Assistant, Parts: record.Parts{record.ToolCallPart{ID: "s1", Tool: "web_search", Args: record.MustValue(nil)}}}
	foreign := record.Message{Role: record.Assistant, Parts: record.Parts{record.ToolCallPart{ID: "s1", Tool: "web_search", ProviderExecuted: true, Provider: "other"}}}
	for name, tc := range map[string]struct {
		conversation []record.Message
		script       script
	}{
		"of no conversation":   {nil, parts(start, found(0, "s1"), text(1, "x"), stop)},
		"answered before":      {[]record.Message{first.Message, second.Message}, parts(start, found(0, "s1"), text(1, "x"), stop)},
		"twice":                {[]record.Message{first.Message}, parts(start, found(0, "s1"), found(1, "s1"), text(2, "x"), stop)},
		"of a call of ours":    {[]record.Message{ours}, parts(start, found(0, "s1"), text(1, "x"), stop)},
		"of another provider":  {[]record.Message{foreign}, parts(start, found(0, "s1"), text(1, "x"), stop)},
		"open where it stops":  {nil, parts(start, openedCall(0, "s1"), text(1, "x"), stop)},
		"open where it is cut": {nil, parts(start, openedCall(0, "s1"), text(1, "x"), model.Finish{Reason: model.Length})},
	} {
		if got, err := late(tc.conversation, tc.script); model.ClassOf(err) != model.Protocol || err == nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A pause needs no call, but something to go on from; it is not a way to end.
//
// conformance: RSP-06
func TestReducePause(t *testing.T) {
	for name, s := range map[string]script{"text": parts(start, text(0, "x"), paused), "calls": parts(start, searched(0, "s1"), paused), "an open call": parts(start, openedCall(0, "s1"), paused)} {
		if got, err := reduce(s, model.Limits{}); err != nil || got.Stop != model.ToolCalls || got.RawStop != "pause_turn" || len(got.Message.Parts) == 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	refusals{
		"nothing":      {parts(start, paused), "empty answer"},
		"empty text":   {parts(start, text(0, ""), paused), "empty answer"},
		"with a stop":  {parts(start, text(0, "x"), model.Finish{Reason: model.Stop, Paused: true}), "a pause with the stop reason"},
		"not a pause":  {parts(start, text(0, "x"), called), "without a tool call"},
		"with a bound": {parts(start, text(0, "x"), model.Finish{Reason: model.Length, Paused: true}), "a pause with the stop reason"},
	}.run(t)
}

// The bytes a provider needs back stay with the part they came with.
func TestReduceKeepsOpaqueBytes(t *testing.T) {
	got, err := reduce(parts(start, text(0, "x"), model.TextEnd{Index: 0, Opaque: []byte{2}}, text(1, "y"), model.TextEnd{Index: 1}, openedCall(2, "s1"),
		model.ToolCallStart{Index: 3, ID: "a", Tool: "look"}, model.ToolArgsDelta{Index: 3, JSON: "{}"}, model.ToolCallEnd{Index: 3, Opaque: []byte{3}}, called), model.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := record.Parts{
		record.TextPart{Text: record.TextValue("x"), Opaque: record.BytesValue([]byte{2}), Provider: "p"},
		record.TextPart{Text: record.TextValue("y")},
		record.ToolCallPart{ID: "s1", Tool: "web_search", Args: record.Value{Inline: json.RawMessage(`{"q":"x"}`)}, ProviderExecuted: true, Provider: "p", Opaque: record.BytesValue([]byte{1})},
		record.ToolCallPart{ID: "a", Tool: "look", Args: record.Value{Inline: json.RawMessage(`{}`)}, Provider: "p", Opaque: record.BytesValue([]byte{3})},
	}
	if diff := cmp.Diff(want, got.Message.Parts); diff != "" {
		t.Error(diff)
	}
	refusals{
		"text goes on":  {parts(start, text(0, "x"), model.TextEnd{Index: 0}, text(0, "y"), stop), "continues after its end"},
		"end of a call": {parts(start, call(0, "a", `{}`), model.TextEnd{Index: 0}, called), "a text part in tool call block"},
		"two ends":      {parts(start, text(0, "x"), model.TextEnd{Index: 0}, model.TextEnd{Index: 0}, stop), "continues after its end"},
	}.run(t)
}
