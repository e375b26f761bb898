package model_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// script is a list of parts with the usual ones spelled short.
type script []model.Part

var (
	start  = model.Start{ResponseID: "r1", Provider: "p", Model: "m"}
	stop   = model.Finish{Reason: model.Stop, Raw: "end_turn"}
	called = model.Finish{Reason: model.ToolCalls, Raw: "tool_use"}
)

func text(i int, s string) model.Part { return model.TextDelta{Index: i, Text: s} }

func call(i int, id, args string) script {
	return script{
		model.ToolCallStart{Index: i, ID: id, Tool: "look"},
		model.ToolArgsDelta{Index: i, JSON: args},
		model.ToolCallEnd{Index: i},
	}
}

func parts(groups ...any) script {
	var out script
	for _, g := range groups {
		switch g := g.(type) {
		case script:
			out = append(out, g...)
		case model.Part:
			out = append(out, g)
		}
	}
	return out
}

func reduce(s script, limits model.Limits) (model.Response, error) {
	r := model.NewReducer(limits)
	for _, p := range s {
		if err := r.Add(p); err != nil {
			again, sticky := r.Response()
			if !errors.Is(sticky, err) || !cmp.Equal(again, model.Response{}) {
				return again, errors.New("an error of Add did not stay the answer")
			}
			return model.Response{}, err
		}
	}
	return r.Response()
}

func count(n int64) *int64 { return &n }

func usage(in, read, write, out, reasoning int64) model.Part {
	return model.UsageReport{Usage: record.Usage{InputTokens: count(in), CacheReadTokens: count(read),
		CacheWriteTokens: count(write), OutputTokens: count(out), ReasoningTokens: count(reasoning)}}
}

// refused runs a table of streams that must end as protocol errors which say
// the given words, and shows that each control stream passes.
type refusals map[string]struct {
	stream script
	says   string
}

func (table refusals) run(t *testing.T) {
	t.Helper()
	for name, row := range table {
		t.Run(name, func(t *testing.T) {
			_, err := reduce(row.stream, model.Limits{})
			var protocol *model.Error
			if !errors.As(err, &protocol) || protocol.Class != model.Protocol {
				t.Fatalf("got %v, want a protocol error", err)
			}
			if !strings.Contains(err.Error(), row.says) {
				t.Errorf("error %q does not say %q", err, row.says)
			}
		})
	}
}

// conformance: TURN-07
func TestReduceJoinsBlocksInOrder(t *testing.T) {
	got, err := reduce(parts(start,
		model.ReasoningDelta{Index: 0, Text: "hm"}, model.ReasoningDelta{Index: 0, Text: "m"},
		model.ReasoningEnd{Index: 0, Opaque: []byte{1, 2}},
		text(1, ""), // a block without content is no part
		text(2, "Hel"), text(2, "lo"),
		usage(10, 4, 0, 1, 0),
		call(3, "c1", ` {"b": 1.0, "a":"x"} `), call(5, "c2", `{}`),
		usage(10, 4, 2, 9, 3),
		model.Finish{Reason: model.ToolCalls, Raw: "stop", Repairs: []record.Repair{{Name: "stop-with-calls", Raw: "stop"}}},
	), model.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := model.Response{
		Message: record.Message{Role: record.Assistant, Parts: record.Parts{
			record.ReasoningPart{Text: record.TextValue("hmm"), Opaque: record.BytesValue([]byte{1, 2}), Provider: "p"},
			record.TextPart{Text: record.TextValue("Hello")},
			record.ToolCallPart{ID: "c1", Tool: "look", Args: record.Value{Inline: json.RawMessage(`{"a":"x","b":1}`)}},
			record.ToolCallPart{ID: "c2", Tool: "look", Args: record.Value{Inline: json.RawMessage(`{}`)}},
		}},
		Stop: model.ToolCalls, RawStop: "stop", Provider: "p", Model: "m", ResponseID: "r1",
		Usage: record.Usage{InputTokens: count(10), CacheReadTokens: count(4), CacheWriteTokens: count(2),
			OutputTokens: count(9), ReasoningTokens: count(3)},
		Repairs: []record.Repair{{Name: "stop-with-calls", Raw: "stop"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// conformance: RSP-01
func TestReduceOneStartOneCompletion(t *testing.T) {
	refusals{
		"nil":            {script{nil, stop}, "a nil part"},
		"pointer":        {parts(&model.Start{}, stop), "a part of type *model.Start: pass the part by value"},
		"no start":       {parts(text(0, "x"), stop), "before the start"},
		"two starts":     {parts(start, start, text(0, "x"), stop), "second start"},
		"late start":     {parts(start, text(0, "x"), start, stop), "second start"},
		"no completion":  {parts(start, text(0, "x")), "before its completion"},
		"nothing":        {parts(), "before its completion"},
		"two completion": {parts(start, text(0, "x"), stop, stop), "after the completion"},
	}.run(t)
}

// conformance: RSP-02
func TestReduceIndexesAreMonotonic(t *testing.T) {
	refusals{
		"descending":          {parts(start, text(1, "x"), text(0, "y"), stop), "index 0 after 1"},
		"negative":            {parts(start, text(-1, "x"), stop), "index -1"},
		"back to a call":      {parts(start, call(0, "a", `{}`), text(1, "x"), model.ToolArgsDelta{Index: 0, JSON: "1"}, called), "index 0 after 1"},
		"reused by a call":    {parts(start, call(0, "a", `{}`), call(0, "b", `{}`), called), "used twice"},
		"two kinds":           {parts(start, text(0, "x"), model.ReasoningDelta{Index: 0, Text: "y"}, stop), "in text block 0"},
		"text in a call":      {parts(start, call(0, "a", `{}`), text(0, "x"), called), "in tool call block 0"},
		"after reasoning end": {parts(start, model.ReasoningEnd{Index: 0}, model.ReasoningDelta{Index: 0, Text: "y"}, text(1, "x"), stop), "after its end"},
		"after call end":      {parts(start, call(0, "a", `{}`), model.ToolArgsDelta{Index: 0, JSON: " "}, called), "after its end"},
		"call end twice":      {parts(start, call(0, "a", `{}`), model.ToolCallEnd{Index: 0}, called), "after its end"},
		"arguments of none":   {parts(start, model.ToolArgsDelta{Index: 0, JSON: "{}"}, called), "holds no call"},
		"end of no call":      {parts(start, model.ToolCallEnd{Index: 0}, called), "holds no call"},
	}.run(t)
}

// conformance: RSP-03
func TestReduceCallIDsAreUnique(t *testing.T) {
	refusals{
		"same id":   {parts(start, call(0, "a", `{}`), call(1, "a", `{}`), called), "used twice"},
		"empty id":  {parts(start, call(0, "", `{}`), called), "call id"},
		"long id":   {parts(start, call(0, strings.Repeat("x", model.MaxName+1), `{}`), called), "call id"},
		"space":     {parts(start, call(0, "a b", `{}`), called), "call id"},
		"control":   {parts(start, call(0, "a\x00", `{}`), called), "call id"},
		"not UTF-8": {parts(start, call(0, "a\xff", `{}`), called), "call id"},
		"no tool name": {parts(start, model.ToolCallStart{Index: 0, ID: "a"}, model.ToolArgsDelta{Index: 0, JSON: "{}"},
			model.ToolCallEnd{Index: 0}, called), "tool name"},
	}.run(t)
}

// conformance: RSP-04
func TestReduceArgumentsAreComplete(t *testing.T) {
	open := script{model.ToolCallStart{Index: 0, ID: "a", Tool: "look"}, model.ToolArgsDelta{Index: 0, JSON: `{}`}}
	refusals{
		"open at the end":     {parts(start, open, called), "are not complete"},
		"open at next block":  {parts(start, open, text(1, "x"), called), "before the arguments"},
		"open at next call":   {parts(start, open, call(1, "b", `{}`), called), "before the arguments"},
		"empty":               {parts(start, call(0, "a", ""), called), "not valid JSON: unexpected end"},
		"white space":         {parts(start, call(0, "a", " \n"), called), "not valid JSON: unexpected end"},
		"cut JSON":            {parts(start, call(0, "a", `{"a":`), called), "not valid JSON: unexpected end"},
		"two values":          {parts(start, call(0, "a", `{}{}`), called), "not valid JSON: data after the value"},
		"duplicate members":   {parts(start, call(0, "a", `{"a":1,"a":2}`), called), "not valid JSON: duplicate member"},
		"one call of two cut": {parts(start, call(0, "a", `{}`), call(1, "b", `{"x"`), called), "not valid JSON"},
	}.run(t)
}

// conformance: RUN-004
// failure: A08
func TestReduceCutArgumentsNeverBecomeACall(t *testing.T) {
	const args = `{"path":"/tmp/x","lines":[1,2,{"deep":true}],"text":"a \"quoted\" é word"}`
	for cut := range len(args) {
		for _, reason := range []model.StopReason{model.ToolCalls, model.Length, model.Stop, model.Other} {
			got, err := reduce(parts(start, call(0, "a", args[:cut]), model.Finish{Reason: reason}), model.Limits{})
			if err == nil {
				t.Fatalf("cut at %d with %s became %v", cut, reason, got.Message)
			}
		}
	}
	if _, err := reduce(parts(start, call(0, "a", args), called), model.Limits{}); err != nil {
		t.Fatalf("the whole arguments: %v", err)
	}
}

// conformance: RSP-05
func TestReduceUsageIsMonotonicAndConsistent(t *testing.T) {
	answer := text(0, "x")
	report := func(u record.Usage) model.Part { return model.UsageReport{Usage: u} }
	refusals{
		"input shrinks":      {parts(start, usage(10, 0, 0, 0, 0), answer, usage(9, 0, 0, 1, 0), stop), "falls from 10 to 9"},
		"output shrinks":     {parts(start, usage(10, 0, 0, 5, 0), answer, usage(10, 0, 0, 4, 0), stop), "falls from 5 to 4"},
		"cost shrinks":       {parts(start, report(record.Usage{CostMicroUSD: count(2)}), answer, report(record.Usage{CostMicroUSD: count(1)}), stop), "cost usage falls"},
		"negative":           {parts(start, answer, usage(-1, 0, 0, 0, 0), stop), "input usage of -1 is out of range"},
		"too large":          {parts(start, answer, usage(record.MaxSafeInteger+1, 0, 0, 0, 0), stop), "input usage of"},
		"cache over input":   {parts(start, answer, usage(10, 6, 5, 0, 0), stop), "11 cached of 10"},
		"reasoning over":     {parts(start, answer, usage(10, 0, 0, 5, 6), stop), "6 reasoning of 5"},
		"across reports":     {parts(start, report(record.Usage{InputTokens: count(3)}), answer, report(record.Usage{CacheReadTokens: count(4)}), stop), "4 cached of 3"},
		"raw is not JSON":    {parts(start, answer, report(record.Usage{Raw: json.RawMessage(`{`)}), stop), "not JSON"},
		"after completion":   {parts(start, answer, stop, usage(1, 0, 0, 1, 0)), "after the completion"},
		"before the start":   {parts(usage(1, 0, 0, 1, 0), start, answer, stop), "before the start"},
		"shrinks over a gap": {parts(start, usage(10, 0, 0, 5, 0), report(record.Usage{InputTokens: count(10)}), answer, usage(10, 0, 0, 4, 0), stop), "falls from 5 to 4"},
	}.run(t)
}

func TestReduceAbsentUsageIsNotZero(t *testing.T) {
	got, err := reduce(parts(start, text(0, "x"), model.UsageReport{Usage: record.Usage{OutputTokens: count(0)}}, stop), model.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Usage.InputTokens != nil || got.Usage.OutputTokens == nil || *got.Usage.OutputTokens != 0 {
		t.Errorf("usage %+v: a count is present exactly if it was reported", got.Usage)
	}
}

// conformance: RSP-06
// failure: A06
func TestReduceReasonFitsContent(t *testing.T) {
	refusals{
		"calls with stop":      {parts(start, call(0, "a", `{}`), stop), "tool calls with the stop reason"},
		"tool calls without":   {parts(start, text(0, "x"), called), "without a tool call"},
		"stop without text":    {parts(start, stop), "empty answer"},
		"stop with space":      {parts(start, text(0, " \n"), stop), "empty answer"},
		"stop after reasoning": {parts(start, model.ReasoningDelta{Text: "hm"}, stop), "empty answer"},
		"unknown reason":       {parts(start, text(0, "x"), model.Finish{Reason: "refusal"}), "unknown stop reason"},
		"no reason":            {parts(start, text(0, "x"), model.Finish{}), "unknown stop reason"},
	}.run(t)
	for _, reason := range []model.StopReason{model.Length, model.ContentFilter, model.StopError, model.Other} {
		got, err := reduce(parts(start, text(0, "par"), model.Finish{Reason: reason}), model.Limits{})
		if err != nil || got.Stop != reason {
			t.Errorf("%s without calls: %v, %v; the run decides what it means", reason, got.Stop, err)
		}
		if _, err := reduce(parts(start, model.Finish{Reason: reason}), model.Limits{}); err != nil {
			t.Errorf("%s without anything: %v", reason, err)
		}
	}
}

// conformance: RSP-13
func TestReduceCutOffResponseRunsNoTool(t *testing.T) {
	for _, reason := range []model.StopReason{model.Length, model.ContentFilter, model.StopError, model.Other} {
		for name, s := range map[string]script{
			"complete calls": parts(start, call(0, "a", `{}`), call(1, "b", `{}`), model.Finish{Reason: reason}),
			"cut arguments":  parts(start, call(0, "a", `{"x":`), model.Finish{Reason: reason}),
			"open call":      parts(start, model.ToolCallStart{ID: "a", Tool: "look"}, model.Finish{Reason: reason}),
		} {
			_, err := reduce(s, model.Limits{})
			if !errors.Is(err, model.ErrTruncated) || model.ClassOf(err) != model.Protocol {
				t.Errorf("%s, %s: %v, want ErrTruncated of class protocol", reason, name, err)
			}
		}
	}
}

// conformance: RSP-07
func TestReduceNothingAfterCompletion(t *testing.T) {
	late := map[string]model.Part{
		"text": text(1, "y"), "reasoning": model.ReasoningDelta{Index: 1, Text: "y"}, "reasoning end": model.ReasoningEnd{Index: 1},
		"call": model.ToolCallStart{Index: 1, ID: "a", Tool: "t"}, "arguments": model.ToolArgsDelta{Index: 1},
		"call end": model.ToolCallEnd{Index: 1}, "provider result": found(1, "a"), "usage": usage(1, 0, 0, 1, 0), "start": start, "completion": stop,
	}
	table := refusals{}
	for name, p := range late {
		table[name] = struct {
			stream script
			says   string
		}{parts(start, text(0, "x"), stop, p), "after the completion"}
	}
	table.run(t)
}

// conformance: RSP-08
// failure: A07
func TestReduceNeverRepairs(t *testing.T) {
	refusals{
		"empty arguments": {parts(start, call(0, "a", ""), called), "not valid JSON: unexpected end"},
		"bytes":           {parts(start, text(0, "a\xff"), stop), "not UTF-8"},
		"cut character":   {parts(start, text(0, "\xc3"), text(1, "\xa9"), stop), "not UTF-8"},
	}.run(t)
	got, err := reduce(parts(start, call(0, "a", "null"), called), model.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if args := string(got.Message.Calls()[0].Args.Inline); args != "null" {
		t.Errorf("null became %s", args)
	}
}

// searched is a call the provider executed, in blocks i and i+1.
func searched(i int, id string) script {
	return parts(model.ToolCallStart{Index: i, ID: id, Tool: "web_search", ProviderExecuted: true},
		model.ToolArgsDelta{Index: i, JSON: `{"q":"x"}`}, model.ToolCallEnd{Index: i}, found(i+1, id))
}

func found(i int, id string) model.Part {
	return model.ProviderToolResult{Index: i, Call: id, Result: json.RawMessage(`{"url": "u"}`), Opaque: []byte{0, 0xff}}
}

// conformance: PEX-01, PEX-06
func TestReduceKeepsProviderExecutedPartsMarkedAndInPlace(t *testing.T) {
	got, err := reduce(parts(start, text(0, "let me look"), searched(1, "s1"), text(3, "found"), stop), model.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := record.Parts{
		record.TextPart{Text: record.TextValue("let me look")},
		record.ToolCallPart{ID: "s1", Tool: "web_search", Args: record.Value{Inline: json.RawMessage(`{"q":"x"}`)}, ProviderExecuted: true, Provider: "p"},
		record.ToolResultPart{Call: "s1", Tool: "web_search", Result: record.Value{Inline: json.RawMessage(`{"url":"u"}`)},
			ProviderExecuted: true, Provider: "p", Opaque: record.BytesValue([]byte{0, 0xff})},
		record.TextPart{Text: record.TextValue("found")},
	}
	if diff := cmp.Diff(want, got.Message.Parts); diff != "" {
		t.Error(diff)
	}
	if _, err := reduce(parts(start, searched(0, "s1"), called), model.Limits{}); err != nil {
		t.Errorf("the provider asks for another turn after its own call: %v", err)
	}
}

func TestReduceProviderExecutedPartsArePaired(t *testing.T) {
	open := script{model.ToolCallStart{Index: 0, ID: "s1", Tool: "web_search", ProviderExecuted: true},
		model.ToolArgsDelta{Index: 0, JSON: `{}`}, model.ToolCallEnd{Index: 0}}
	refusals{
		"no result":          {parts(start, open, text(1, "x"), stop), "has no result"},
		"two results":        {parts(start, searched(0, "s1"), found(2, "s1"), text(3, "x"), stop), "two results"},
		"result of nothing":  {parts(start, found(0, "s1"), text(1, "x"), stop), "does not declare"},
		"result of our call": {parts(start, call(0, "a", `{}`), found(1, "a"), called), "which the provider does not execute"},
		"result inside call": {parts(start, open[:2], found(1, "s1"), text(2, "x"), stop), "before the arguments"},
		"index again":        {parts(start, open, found(0, "s1"), text(2, "x"), stop), "used twice"},
		"text in a result":   {parts(start, searched(0, "s1"), text(1, "x"), stop), "in provider result block"},
		"not JSON": {parts(start, open, model.ProviderToolResult{Index: 1, Call: "s1", Result: json.RawMessage(`[1`)}, text(2, "x"), stop),
			"not valid JSON: malformed"},
		"no text with stop": {parts(start, searched(0, "s1"), stop), "empty answer"},
		"same id as ours":   {parts(start, searched(0, "s1"), call(2, "s1", `{}`), called), "used twice"},
	}.run(t)
}

// conformance: PEX-07
func TestReduceMixedCallsNeedAToolFinish(t *testing.T) {
	mixed := parts(start, searched(0, "s1"), call(2, "a", `{}`))
	refusals{"stop": {parts(mixed, text(3, "x"), stop), "1 tool calls with the stop reason"}}.run(t)
	got, err := reduce(parts(mixed, called), model.Limits{})
	if err != nil || len(got.Message.Calls()) != 2 {
		t.Errorf("with a tool finish: %v, %v", got.Message, err)
	}
	if _, err := reduce(parts(start, searched(0, "s1"), model.Finish{Reason: model.Length}), model.Limits{}); !errors.Is(err, model.ErrTruncated) {
		t.Errorf("cut off: %v", err)
	}
}

type foreign struct{ model.Part }

// conformance: RSP-14
func TestReduceKnowsOnlyItsOwnParts(t *testing.T) {
	refusals{
		"embedded": {parts(start, foreign{stop}), "unknown part"},
		"pointer":  {parts(start, &model.TextDelta{Text: "x"}), "*model.TextDelta: pass the part by value"},
	}.run(t)
	r := model.NewReducer(model.Limits{})
	if r.Add(start) != nil || r.Add(nil) == nil {
		t.Error("a nil part is refused")
	}
}

func TestReduceLimits(t *testing.T) {
	long := parts(start, text(0, "aaaa"), text(0, "bbbb"), stop)
	for name, tc := range map[string]struct {
		limits model.Limits
		passes bool
	}{
		"defaults":          {model.Limits{}, true},
		"exactly":           {model.Limits{MaxParts: 4, MaxBytes: model.BlockOverhead + len("p") + len("m") + len("r1") + 8 + len("end_turn")}, true},
		"one part less":     {model.Limits{MaxParts: 3}, false},
		"one byte less":     {model.Limits{MaxBytes: model.BlockOverhead + len("p") + len("m") + len("r1") + 8 + len("end_turn") - 1}, false},
		"negative: ceiling": {model.Limits{MaxParts: -1, MaxBytes: -1}, true},
	} {
		if _, err := reduce(long, tc.limits); (err == nil) != tc.passes {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := model.NewReducer(model.Limits{MaxParts: 1 << 30})
	err := r.Add(start)
	for n := 0; err == nil && n < model.DefaultMaxParts; n++ {
		err = r.Add(text(0, ""))
	}
	if err == nil {
		t.Error("a limit over the ceiling widened it")
	}
}
