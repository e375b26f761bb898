package anthropic_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
)

// reply reduces a stream of these events.
func reply(t *testing.T, c anthropic.Config, events ...string) (model.Response, error) {
	t.Helper()
	return ask(t, c, modeltest.Stream(stream(events...)))
}

// rendered is a response's parts, one on a line.
func rendered(r model.Response) string {
	var out strings.Builder
	for _, p := range r.Message.Parts {
		switch p := p.(type) {
		case record.TextPart:
			fmt.Fprintf(&out, "text %s\n", p.Text.Text())
		case record.ReasoningPart:
			b, err := p.Opaque.Bytes()
			fmt.Fprintf(&out, "reasoning %q %s %v\n", p.Text.Text(), b, err)
		case record.ToolCallPart:
			fmt.Fprintf(&out, "call %s %s %s %v%s\n", p.ID, p.Tool, p.Args.Inline, p.ProviderExecuted, p.Provider)
		case record.ToolResultPart:
			fmt.Fprintf(&out, "result %s %s %s %v %v%s\n", p.Call, p.Tool, p.Result.Inline, p.Failed, p.ProviderExecuted, p.Provider)
		}
	}
	return out.String()
}

func TestStream(t *testing.T) {
	for name, tc := range map[string]struct {
		events []string
		want   string
		stop   model.StopReason
	}{
		"text":       {[]string{start, event("ping", nil), textBlock(0, "Hel", "lo"), finish("end_turn")}, "text Hello", model.Stop},
		"two blocks": {[]string{start, textBlock(0, "a"), textBlock(1, "b"), finish("stop_sequence")}, "text a\ntext b", model.Stop},
		"text at the start of its block": {[]string{start, opened(0, `{"type":"text","text":"a"}`), more(0, "text_delta", "text", "b"), closed(0), finish("end_turn")},
			"text ab", model.Stop},
		"citations": {[]string{start, opened(0, `{"type":"text","text":""}`),
			event("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "citations_delta", "citation": map[string]string{"url": "u"}}}),
			more(0, "text_delta", "text", "a"), closed(0), finish("end_turn")}, "text a", model.Stop},
		"calls": {[]string{start, toolBlock(0, "a", "t", `{"x"`, `:1}`), toolBlock(1, "b", "u", `{"y":"é"}`), finish("tool_use")},
			"call a t {\"x\":1} false\ncall b u {\"y\":\"é\"} false", model.ToolCalls},
		"arguments at the start": {[]string{start, opened(0, `{"type":"tool_use","id":"a","name":"t","input":{"x":1}}`), closed(0), finish("tool_use")},
			"call a t {\"x\":1} false", model.ToolCalls},
		"thinking": {[]string{start, opened(0, `{"type":"thinking","thinking":"","signature":""}`), more(0, "thinking_delta", "thinking", "h"), more(0, "thinking_delta", "thinking", "m"),
			more(0, "signature_delta", "signature", "c2ln"), more(0, "signature_delta", "signature", "+/="), closed(0), textBlock(1, "a"), finish("end_turn")},
			"reasoning \"hm\" {\"model\":\"claude-test-1\",\"signature\":\"c2ln+/=\"} <nil>\ntext a", model.Stop},
		"redacted": {[]string{start, opened(0, `{"type":"redacted_thinking","data":"cmVk"}`), closed(0), textBlock(1, "a"), finish("end_turn")},
			"reasoning \"\" {\"model\":\"claude-test-1\",\"redacted\":\"cmVk\"} <nil>\ntext a", model.Stop},
		"unsigned": {[]string{start, opened(0, `{"type":"thinking","thinking":"hm"}`), closed(0), textBlock(1, "a"), finish("end_turn")},
			"reasoning \"hm\"  <nil>\ntext a", model.Stop},
		"the provider's own tool": {[]string{start, opened(0, `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`),
			more(0, "input_json_delta", "partial_json", `{"q":1}`), closed(0),
			opened(1, `{"type":"web_search_tool_result","tool_use_id":"s","content":[{"encrypted_content":"+/="}]}`), closed(1), textBlock(2, "a"), finish("end_turn")},
			"call s web_search {\"q\":1} trueanthropic\nresult s web_search {\"content\":[{\"encrypted_content\":\"+/=\"}],\"tool_use_id\":\"s\",\"type\":\"web_search_tool_result\"} false trueanthropic\ntext a", model.Stop},
		"its error": {[]string{start, opened(0, `{"type":"server_tool_use","id":"s","name":"web_search","input":{"q":1}}`), closed(0),
			opened(1, `{"type":"web_search_tool_result","tool_use_id":"s","content":{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}}`), closed(1), textBlock(2, "a"), finish("end_turn")},
			"call s web_search {\"q\":1} trueanthropic\nresult s web_search {\"content\":{\"error_code\":\"max_uses_exceeded\",\"type\":\"web_search_tool_result_error\"},\"tool_use_id\":\"s\",\"type\":\"web_search_tool_result\"} true trueanthropic\ntext a", model.Stop},
		"events of a later version":              {[]string{start, event("content_rating", map[string]any{"rating": 5}), textBlock(0, "a"), finish("end_turn")}, "text a", model.Stop},
		"names left out":                         {[]string{strings.ReplaceAll(stream(start, textBlock(0, "a"), finish("end_turn")), "event: ", "x: ")}, "text a", model.Stop},
		"carriage returns":                       {[]string{strings.ReplaceAll(stream(start, textBlock(0, "a"), finish("end_turn")), "\n", "\r\n")}, "text a", model.Stop},
		"cut off by the bound":                   {[]string{start, textBlock(0, "a"), finish("max_tokens")}, "text a", model.Length},
		"the context is full":                    {[]string{start, textBlock(0, "a"), finish("model_context_window_exceeded")}, "text a", model.Length},
		"refused":                                {[]string{start, finish("refusal")}, "", model.ContentFilter},
		"paused":                                 {[]string{start, textBlock(0, "a"), finish("pause_turn")}, "text a", model.ToolCalls},
		"an unknown kind of event, without JSON": {[]string{start, "event: heartbeat\ndata: still here\n\n", "event: ping\ndata:\n\n", textBlock(0, "a"), finish("end_turn")}, "text a", model.Stop},
		"an unknown kind of event, of other shapes": {[]string{start, event("later", map[string]any{"index": "x", "delta": 7, "message": []int{1}, "content_block": "y", "usage": "z"}),
			textBlock(0, "a"), finish("end_turn")}, "text a", model.Stop},
		"pings before and between": {[]string{event("ping", nil), ": a comment\n\n", start, event("ping", nil), opened(0, `{"type":"text","text":""}`), event("ping", nil), more(0, "text_delta", "text", "a"), event("ping", nil),
			closed(0), event("ping", nil), finish("end_turn")}, "text a", model.Stop},
		"a new reason": {[]string{start, textBlock(0, "a"), finish("bored")}, "text a", model.Other},
		"no reason":    {[]string{start, textBlock(0, "a"), event("message_stop", nil)}, "text a", model.Other},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := reply(t, anthropic.Config{}, tc.events...)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, rendered(got), tc.want)
			if got.Stop != tc.stop || got.Provider != "anthropic" || got.Model != "claude-test-1" || got.ResponseID != "msg_1" || len(got.Repairs) > 0 {
				t.Errorf("%+v", got)
			}
			if raw := tc.events[len(tc.events)-1]; !strings.Contains(raw, got.RawStop) {
				t.Errorf("raw stop reason %q", got.RawStop)
			}
		})
	}
}

// A stream that breaks the protocol is an error, never a smaller answer.
//
// conformance: TURN-08, RSP-08
func TestStreamIsRefused(t *testing.T) {
	call := func(pieces ...string) []string {
		return []string{start, toolBlock(0, "a", "t", pieces...), finish("tool_use")}
	}
	for name, tc := range map[string]struct {
		events []string
		says   string
	}{
		"no start":                {[]string{textBlock(0, "a"), finish("end_turn")}, "before the start"},
		"two starts":              {[]string{start, start, textBlock(0, "a"), finish("end_turn")}, "second message_start"},
		"a block twice":           {[]string{start, textBlock(0, "a"), textBlock(0, "b"), finish("end_turn")}, "starts after block 0"},
		"blocks backwards":        {[]string{start, textBlock(1, "a"), textBlock(0, "b"), finish("end_turn")}, "block 0 starts after block 1"},
		"open block":              {[]string{start, opened(0, `{"type":"text","text":"a"}`), finish("end_turn")}, "message_stop while content block 0 is open"},
		"open call":               {[]string{start, opened(0, `{"type":"tool_use","id":"a","name":"t"}`), more(0, "input_json_delta", "partial_json", "{}"), finish("tool_use")}, "block 0 is open"},
		"delta of none":           {[]string{start, more(3, "text_delta", "text", "a"), finish("end_turn")}, "block 3, which is not open"},
		"delta after the end":     {[]string{start, textBlock(0, "a"), more(0, "text_delta", "text", "b"), finish("end_turn")}, "not open"},
		"end of none":             {[]string{start, closed(0), finish("end_turn")}, "end of content block 0"},
		"delta of another kind":   {[]string{start, opened(0, `{"type":"text","text":""}`), more(0, "input_json_delta", "partial_json", "{}"), closed(0), finish("end_turn")}, `"input_json_delta" in a block of type "text"`},
		"unknown delta of a call": {[]string{start, opened(0, `{"type":"tool_use","id":"a","name":"t","input":{}}`), more(0, "input_cbor_delta", "cbor", "x"), closed(0), finish("tool_use")}, `"input_cbor_delta"`},
		"unknown delta of a result": {[]string{start, opened(0, `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`), closed(0),
			opened(1, `{"type":"web_search_tool_result","tool_use_id":"s","content":[]}`), more(1, "result_delta", "x", "y"), closed(1), finish("end_turn")}, `"result_delta"`},
		"only an unknown block":    {[]string{start, opened(0, `{"type":"hologram"}`), closed(0), finish("end_turn")}, "empty answer"},
		"block without a type":     {[]string{start, opened(0, `{}`), closed(0), finish("end_turn")}, "block 0 is not the JSON"},
		"block that is null":       {[]string{start, opened(0, `null`), closed(0), finish("end_turn")}, "block 0 is not the JSON"},
		"text that is no string":   {[]string{start, opened(0, `{"type":"text","text":[1]}`), closed(0), finish("end_turn")}, "block 0 is not the JSON"},
		"delta that is no string":  {[]string{start, opened(0, `{"type":"text","text":""}`), event("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "text_delta", "text": 7}}), closed(0), finish("end_turn")}, "content_block_delta that is not the JSON"},
		"index that is no number":  {[]string{start, event("content_block_stop", map[string]any{"index": "x"})}, "content_block_stop that is not the JSON"},
		"a pause of nothing":       {[]string{start, finish("pause_turn")}, "empty answer"},
		"block that is no object":  {[]string{start, opened(0, `7`), finish("end_turn")}, "block 0 is not the JSON"},
		"event that is no JSON":    {[]string{start, "data: {\n\n"}, "not the JSON"},
		"event that is no object":  {[]string{start, "data: [1]\n\n"}, "not the JSON"},
		"not UTF-8":                {[]string{start, "event: ping\ndata: {\"type\":\"ping\",\"x\":\"\xff\"}\n\n"}, "not UTF-8"},
		"cut arguments":            {call(`{"x":`), "not valid JSON"},
		"half of null":             {call(`nul`), "not valid JSON"},
		"two arguments":            {call(`{}`, `{}`), "not valid JSON"},
		"arguments twice":          {[]string{start, opened(0, `{"type":"tool_use","id":"a","name":"t","input":{"x":1}}`), more(0, "input_json_delta", "partial_json", `{"x":2}`), closed(0), finish("tool_use")}, "both at its start and behind it"},
		"no tool name":             {[]string{start, toolBlock(0, "a", "", `{}`), finish("tool_use")}, "tool name"},
		"tool use without a call":  {[]string{start, textBlock(0, "a"), finish("tool_use")}, "without a tool call"},
		"nothing at all":           {[]string{start, finish("end_turn")}, "empty answer"},
		"only reasoning":           {[]string{start, opened(0, `{"type":"thinking","thinking":"hm"}`), closed(0), finish("end_turn")}, "empty answer"},
		"result of no call":        {[]string{start, opened(0, `{"type":"web_search_tool_result","tool_use_id":"s","content":[]}`), closed(0), finish("end_turn")}, "does not declare"},
		"the provider's open call": {[]string{start, opened(0, `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`), closed(0), textBlock(1, "a"), finish("end_turn")}, "has no result"},
		"a call and the bound":     {[]string{start, toolBlock(0, "a", "t", `{"x":1}`), finish("max_tokens")}, "cut off by length"},
		"a cut call and the bound": {[]string{start, toolBlock(0, "a", "t", `{"x":`), finish("max_tokens")}, "cut off by length"},
		"a call and a refusal":     {[]string{start, toolBlock(0, "a", "t", `{}`), finish("refusal")}, "cut off by content-filter"},
		"a call and no reason":     {[]string{start, toolBlock(0, "a", "t", `{}`), event("message_stop", nil)}, "cut off by other"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := reply(t, anthropic.Config{}, tc.events...)
			if err == nil || model.ClassOf(err) != model.Protocol || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q of class protocol; %+v", err, tc.says, got)
			}
		})
	}
}

// failure: A08
func TestCutOffCallIsNamed(t *testing.T) {
	for _, arguments := range []string{`{"path":"x","text":"lon`, `{"path":"x","text":"long"}`} {
		if _, err := reply(t, anthropic.Config{}, start, toolBlock(0, "a", "write", arguments), finish("max_tokens")); !errors.Is(err, model.ErrTruncated) {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

// Blocks that are sent mixed keep their own deltas, and come out in order.
//
// failure: A28
func TestMixedBlocks(t *testing.T) {
	a, b := opened(0, `{"type":"tool_use","id":"a","name":"t","input":{}}`), opened(1, `{"type":"tool_use","id":"b","name":"t","input":{}}`)
	args := func(index int, text string) string { return more(index, "input_json_delta", "partial_json", text) }
	want := "call a t {\"city\":\"Oslo\"} false\ncall b t {\"city\":\"Rome\"} false"
	for name, events := range map[string][]string{
		"in turn":         {a, args(0, `{"city":`), b, args(1, `{"ci`), args(0, `"Oslo"}`), args(1, `ty":"Rome"}`), closed(0), closed(1)},
		"second first":    {a, b, args(1, `{"city":"Rome"}`), closed(1), args(0, `{"city":"Oslo"}`), closed(0)},
		"gaps in indexes": {a, args(0, `{"city":"Oslo"}`), closed(0), strings.ReplaceAll(stream(b, args(1, `{"city":"Rome"}`), closed(1)), `"index":1`, `"index":7`)},
	} {
		got, err := reply(t, anthropic.Config{}, append(append([]string{start}, events...), finish("tool_use"))...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		expect(t, rendered(got), want)
	}
	// Everything at one index is told from a concatenation.
	for name, events := range map[string][]string{
		"one index, open":   {a, args(0, `{"city":"Oslo"}`), strings.ReplaceAll(b, `"index":1`, `"index":0`), args(0, `{"city":"Rome"}`), closed(0)},
		"one index, closed": {a, args(0, `{"city":"Oslo"}`), closed(0), strings.ReplaceAll(stream(b, args(1, `{"city":"Rome"}`), closed(1)), `"index":1`, `"index":0`)},
		"no second start":   {a, args(0, `{"city":"Oslo"}`), args(0, `{"city":"Rome"}`), closed(0)},
	} {
		if got, err := reply(t, anthropic.Config{}, append(append([]string{start}, events...), finish("tool_use"))...); model.ClassOf(err) != model.Protocol || err == nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	flood := []string{start, a, opened(1, `{"type":"text","text":""}`)}
	for range 9 {
		flood = append(flood, more(1, "text_delta", "text", strings.Repeat("x", 1<<20)))
	}
	if _, err := reply(t, anthropic.Config{}, flood...); model.ClassOf(err) != model.Protocol {
		t.Errorf("what waits is bounded: %v", err)
	}
}

// Each repair leaves its name and the raw value with the response, and can be
// switched off.
//
// failure: A06, A07, A27
func TestRepairs(t *testing.T) {
	bare := opened(0, `{"type":"tool_use","id":"a","name":"t"}`) + closed(0)
	for name, tc := range map[string]struct {
		events  []string
		want    string
		repairs []record.Repair
		strict  anthropic.Compat
		kept    string // what comes out with the repair off; an error's text if it says so
	}{
		"no argument text": {[]string{start, toolBlock(0, "a", "t"), finish("tool_use")}, "call a t {} false",
			[]record.Repair{{Name: "empty-arguments"}}, anthropic.Compat{KeepEmptyArguments: true}, "not valid JSON: unexpected end"},
		"no input at all": {[]string{start, bare, finish("tool_use")}, "call a t {} false",
			[]record.Repair{{Name: "empty-arguments"}}, anthropic.Compat{KeepEmptyArguments: true}, "not valid JSON: unexpected end"},
		"empty and white pieces": {[]string{start, toolBlock(0, "a", "t", "", " ", "\n"), finish("tool_use")}, "call a t {} false",
			[]record.Repair{{Name: "empty-arguments", Raw: "  "}}, anthropic.Compat{KeepEmptyArguments: true}, "not valid JSON: unexpected end"},
		"null in pieces": {[]string{start, toolBlock(0, "a", "t", "nu", "ll"), finish("tool_use")}, "call a t {} false",
			[]record.Repair{{Name: "empty-arguments", Raw: "null"}}, anthropic.Compat{KeepEmptyArguments: true}, "call a t null false"},
		"null at the start": {[]string{start, opened(0, `{"type":"tool_use","id":"a","name":"t","input":null}`), closed(0), finish("tool_use")}, "call a t {} false",
			[]record.Repair{{Name: "empty-arguments"}}, anthropic.Compat{KeepEmptyArguments: true}, "not valid JSON: unexpected end"},
		"calls that stop": {[]string{start, toolBlock(0, "a", "t", `{"x":1}`), finish("end_turn")}, "call a t {\"x\":1} false",
			[]record.Repair{{Name: "stop-reason", Raw: "end_turn"}}, anthropic.Compat{KeepStopReason: true}, "tool calls with the stop reason"},
		"one id for two": {[]string{start, toolBlock(0, "a", "t", `{"x":1}`), toolBlock(1, "a", "t", `{"x":2}`), finish("tool_use")},
			"call a t {\"x\":1} false\ncall a_2 t {\"x\":2} false",
			[]record.Repair{{Name: "call-id", Raw: "a"}}, anthropic.Compat{KeepCallIDs: true}, `"a" is used twice`},
		"no ids": {[]string{start, toolBlock(0, "", "t", `{"x":1}`), toolBlock(1, "", "t", `{"x":2}`), finish("tool_use")},
			"call call_2 t {\"x\":1} false\ncall call_3 t {\"x\":2} false",
			[]record.Repair{{Name: "call-id"}, {Name: "call-id"}}, anthropic.Compat{KeepCallIDs: true}, "tool call id that is empty"},
		"negative usage": {[]string{start, textBlock(0, "a"), event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "end_turn"},
			"usage": map[string]any{"input_tokens": -7, "output_tokens": 3}}), event("message_stop", nil)}, "text a",
			[]record.Repair{{Name: "usage", Raw: "input_tokens -7"}}, anthropic.Compat{KeepUsage: true}, "input usage of -7 is out of range"},
		"falling usage": {[]string{start, textBlock(0, "a"), event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "end_turn"},
			"usage": map[string]any{"input_tokens": 0, "output_tokens": 3}}), event("message_stop", nil)}, "text a",
			[]record.Repair{{Name: "usage", Raw: "input_tokens 0"}}, anthropic.Compat{KeepUsage: true}, "input usage falls from 10 to 0"},
		"usage that is no object": {[]string{start, textBlock(0, "a"), event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "end_turn"}, "usage": 7}), event("message_stop", nil)}, "text a",
			[]record.Repair{{Name: "usage", Raw: "7"}}, anthropic.Compat{KeepUsage: true}, "usage report that is not the JSON"},
		"usage that is no integer": {[]string{start, textBlock(0, "a"), event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "end_turn"}, "usage": map[string]any{"output_tokens": 1.5}}),
			event("message_stop", nil)}, "text a", []record.Repair{{Name: "usage", Raw: "output_tokens 1.5"}}, anthropic.Compat{KeepUsage: true}, "output_tokens is no integer"},
		"usage over every bound": {[]string{start, textBlock(0, "a"), event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "end_turn"}, "usage": map[string]any{"output_tokens": 1 << 60}}),
			event("message_stop", nil)}, "text a", []record.Repair{{Name: "usage", Raw: "output_tokens 1152921504606846976"}}, anthropic.Compat{KeepUsage: true}, "out of range"},
		"more reasoning than output": {[]string{start, textBlock(0, "a"), event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "end_turn"}, "usage": map[string]any{"output_tokens": 5,
			"output_tokens_details": map[string]any{"thinking_tokens": 6}}}), event("message_stop", nil)}, "text a",
			[]record.Repair{{Name: "usage", Raw: "thinking_tokens 6 of 5"}}, anthropic.Compat{KeepUsage: true}, "6 reasoning of 5 output"},
		"a call and a pause": {[]string{start, toolBlock(0, "a", "t", `{"x":1}`), finish("pause_turn")}, "call a t {\"x\":1} false",
			[]record.Repair{{Name: "stop-reason", Raw: "pause_turn"}}, anthropic.Compat{KeepStopReason: true}, "cut off by other"},
		"an unknown block": {[]string{start, opened(0, `{"type":"hologram","text":{"deep":1},"id":7}`), closed(0), textBlock(1, "a"), finish("end_turn")},
			"reasoning \"\" {\"model\":\"claude-test-1\",\"block\":{\"type\":\"hologram\",\"text\":{\"deep\":1},\"id\":7}} <nil>\ntext a",
			[]record.Repair{{Name: "unknown-block", Raw: "hologram"}}, anthropic.Compat{RefuseUnknown: true}, `"hologram", which is not known`},
		"an unknown block with deltas": {[]string{start, opened(0, `{"type":"hologram","text":""}`), event("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "light_delta", "text": 7}}),
			more(0, "light_delta", "x", "y"), closed(0), textBlock(1, "a"), finish("end_turn")}, "text a",
			[]record.Repair{{Name: "unknown-block", Raw: "hologram"}, {Name: "unknown-delta", Raw: "hologram light_delta"}}, anthropic.Compat{RefuseUnknown: true}, `"hologram", which is not known`},
		"an unknown delta in text": {[]string{start, opened(0, `{"type":"text","text":""}`), more(0, "tone_delta", "tone", "warm"), more(0, "text_delta", "text", "a"), more(0, "tone_delta", "tone", "cold"), closed(0), finish("end_turn")},
			"text a", []record.Repair{{Name: "unknown-delta", Raw: "text tone_delta"}}, anthropic.Compat{RefuseUnknown: true}, `"tone_delta" in a block of type "text"`},
		"an unknown delta in reasoning": {[]string{start, opened(0, `{"type":"thinking","thinking":"hm","signature":""}`), more(0, "depth_delta", "depth", "9"), more(0, "signature_delta", "signature", "c2ln"), closed(0), textBlock(1, "a"), finish("end_turn")},
			"reasoning \"hm\"  <nil>\ntext a", []record.Repair{{Name: "unknown-delta", Raw: "thinking depth_delta"}}, anthropic.Compat{RefuseUnknown: true}, `"depth_delta" in a block of type "thinking"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := reply(t, anthropic.Config{}, tc.events...)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, rendered(got), tc.want)
			if diff := cmp.Diff(tc.repairs, got.Repairs); diff != "" {
				t.Errorf("repairs (-want +got)\n%s", diff)
			}
			if calls := len(got.Message.Calls()); calls > 0 && got.Stop != model.ToolCalls {
				t.Errorf("%d calls with %s", calls, got.Stop)
			}
			got, err = reply(t, anthropic.Config{Compat: tc.strict}, tc.events...)
			if err != nil && (model.ClassOf(err) != model.Protocol || !strings.Contains(err.Error(), tc.kept)) || err == nil && strings.TrimSpace(rendered(got)) != tc.kept {
				t.Errorf("without the repair: %v, %s, want %q", err, rendered(got), tc.kept)
			}
			if err == nil && len(got.Repairs) > 0 {
				t.Errorf("without the repair there is %v", got.Repairs)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	begin := func(usage string) string {
		return "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":" + usage + "}}\n\n"
	}
	end := func(usage string) string {
		return "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":" + usage + "}\n\n" + event("message_stop", nil)
	}
	n := func(i int64) *int64 { return &i }
	for name, tc := range map[string]struct {
		begin, end string
		want       record.Usage
		raw        string
	}{
		"both report": {`{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"output_tokens":1}`,
			`{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"output_tokens":20,"output_tokens_details":{"thinking_tokens":8}}`,
			record.Usage{InputTokens: n(17), CacheReadTokens: n(4), CacheWriteTokens: n(3), OutputTokens: n(20), ReasoningTokens: n(8)},
			`{"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"input_tokens":10,"output_tokens":20,"output_tokens_details":{"thinking_tokens":8}}`},
		"the end reports output only": {`{"input_tokens":10,"cache_read_input_tokens":90,"output_tokens":1}`, `{"output_tokens":20}`,
			record.Usage{InputTokens: n(100), CacheReadTokens: n(90), OutputTokens: n(20)}, `{"cache_read_input_tokens":90,"input_tokens":10,"output_tokens":20}`},
		"null is not zero": {`{"input_tokens":10,"cache_read_input_tokens":null,"output_tokens":0}`, `{"input_tokens":null,"output_tokens":5}`,
			record.Usage{InputTokens: n(10), OutputTokens: n(5)}, `{"input_tokens":10,"output_tokens":5}`},
		"zero is not nothing": {`{"input_tokens":10,"cache_read_input_tokens":0}`, `{"output_tokens":0}`,
			record.Usage{InputTokens: n(10), CacheReadTokens: n(0), OutputTokens: n(0)}, `{"cache_read_input_tokens":0,"input_tokens":10,"output_tokens":0}`},
		"early zero": {`{"input_tokens":0,"output_tokens":0}`, `{"input_tokens":12,"output_tokens":5}`,
			record.Usage{InputTokens: n(12), OutputTokens: n(5)}, `{"input_tokens":12,"output_tokens":5}`},
		"input grows with the provider's tools": {`{"input_tokens":10,"output_tokens":1}`, `{"input_tokens":700,"output_tokens":5,"server_tool_use":{"web_search_requests":1}}`,
			record.Usage{InputTokens: n(700), OutputTokens: n(5)}, `{"input_tokens":700,"output_tokens":5,"server_tool_use":{"web_search_requests":1}}`},
		"nothing": {`null`, `null`, record.Usage{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := reply(t, anthropic.Config{}, begin(tc.begin), textBlock(0, "a"), end(tc.end))
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Usage.Raw) != tc.raw {
				t.Errorf("raw %s", got.Usage.Raw)
			}
			got.Usage.Raw = nil
			if diff := cmp.Diff(tc.want, got.Usage); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Text is out as it comes; what ends a stream early ends it with what the caller
// said.
//
// conformance: TURN-06
func TestPartsAreOutAtOnce(t *testing.T) {
	e := modeltest.Stream(stream(start, opened(0, `{"type":"text","text":""}`), more(0, "text_delta", "text", "Hel"), more(0, "text_delta", "text", "lo"))).Silent()
	replay := modeltest.NewReplay(e)
	enough := errors.New("enough")
	var got []string
	err := newModel(t, anthropic.Config{HTTPClient: replay.Client()}).Stream(t.Context(), hello, func(p model.Part) error {
		if d, ok := p.(model.TextDelta); ok && d.Text != "" {
			got = append(got, d.Text)
		}
		if len(got) == 2 {
			return enough
		}
		return nil
	})
	if err != enough || !slices.Equal(got, []string{"Hel", "lo"}) || replay.Open() != 0 {
		t.Errorf("%v, %q, %d bodies open", err, got, replay.Open())
	}
}
