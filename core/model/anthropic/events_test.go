package anthropic_test

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Pieces of event streams for tests.

func event(kind string, members map[string]any) string {
	if members == nil {
		members = map[string]any{}
	}
	members["type"] = kind
	data, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("event: %s\ndata: %s\n\n", kind, data)
}

func stream(events ...string) string { return strings.Join(events, "") }

var start = event("message_start", map[string]any{"message": map[string]any{"id": "msg_1", "model": "claude-test-1",
	"usage": map[string]any{"input_tokens": 10, "output_tokens": 1}}})

func opened(index int, block string) string {
	return event("content_block_start", map[string]any{"index": index, "content_block": json.RawMessage(block)})
}

func more(index int, kind, member, text string) string {
	return event("content_block_delta", map[string]any{"index": index, "delta": map[string]string{"type": kind, member: text}})
}

func closed(index int) string { return event("content_block_stop", map[string]any{"index": index}) }

func textBlock(index int, pieces ...string) string {
	out := opened(index, `{"type":"text","text":""}`)
	for _, p := range pieces {
		out += more(index, "text_delta", "text", p)
	}
	return out + closed(index)
}

func toolBlock(index int, id, name string, pieces ...string) string {
	out := opened(index, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":{}}`, id, name))
	for _, p := range pieces {
		out += more(index, "input_json_delta", "partial_json", p)
	}
	return out + closed(index)
}

func finish(reason string) string {
	return event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": reason}, "usage": map[string]any{"output_tokens": 9}}) +
		event("message_stop", nil)
}
