package anthropic_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
)

// conversation is any history that runs may leave behind: calls answered, half
// answered or not at all, calls of the provider answered at once, later or never,
// ids used again, and parts of another provider.
func conversation(t *rapid.T) []record.Message {
	out := []record.Message{message(record.User, text("U"))}
	open := ""
	for n := range rapid.IntRange(0, 8).Draw(t, "messages") {
		id := func(kind string) string { return fmt.Sprint(kind, rapid.IntRange(0, 3).Draw(t, "id")) }
		if rapid.Bool().Draw(t, "user") {
			out, open = append(out, message(record.User, text(fmt.Sprint("U", n)))), ""
			continue
		}
		var parts, results record.Parts
		provider := rapid.SampledFrom([]string{"anthropic", "anthropic", "other"}).Draw(t, "provider")
		search := func(id string) record.Part {
			return record.ToolCallPart{ID: id, Tool: "web_search", Args: record.MustValue(map[string]any{}), ProviderExecuted: true, Provider: provider}
		}
		found := func(id string) record.Part {
			return record.ToolResultPart{Call: id, Tool: "web_search", Result: record.MustValue(map[string]any{"type": "web_search_tool_result", "tool_use_id": id}),
				ProviderExecuted: true, Provider: provider}
		}
		if open != "" && provider == "anthropic" && rapid.Bool().Draw(t, "late") {
			parts = append(parts, found(open))
		}
		open = ""
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			switch rapid.IntRange(0, 4).Draw(t, "part") {
			case 0:
				parts = append(parts, text(rapid.SampledFrom([]string{"A", " ", ""}).Draw(t, "text")))
			case 1:
				id := id("srv")
				parts = append(parts, search(id), found(id))
			case 2:
				if open == "" && provider == "anthropic" {
					open = id("open")
					parts = append(parts, search(open))
				}
			case 3:
				call := id("call")
				parts = append(parts, called(call, "t", `{}`))
				if rapid.IntRange(0, 3).Draw(t, "answered") > 0 {
					results = append(results, result(call, `"r"`))
				}
			case 4:
				parts = append(parts, opaque(provider, `{"model":"claude-test-1","signature":"c2ln"}`, "hm"))
			}
		}
		out = append(out, message(record.Assistant, parts...))
		if len(results) > 0 {
			out = append(out, message(record.Tool, results...))
		}
	}
	return out
}

// block is one block of a request.
type block struct {
	Type, ID, Text string
	ToolUseID      string `json:"tool_use_id"`
}

// Whatever a conversation holds, the request made of it is one that the provider
// takes: roles in turn, each call with its one result right behind it, each
// result of the provider's with its call before it, and a call without one only
// where the provider goes on from it.
//
// failure: A02, A27
func TestAnyConversationCanBeSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replay := modeltest.NewReplay(modeltest.Stream(warm))
		m, err := anthropic.New(anthropic.Config{APIKey: "key-for-tests", Model: "claude-test-1", HTTPClient: replay.Client(), Cache: anthropic.CacheOff})
		if err != nil {
			t.Fatal(err)
		}
		req := &model.Request{Messages: conversation(t)}
		if err := m.Stream(t.Context(), req, func(model.Part) error { return nil }); err != nil {
			t.Fatal(err)
		}
		var sent struct {
			Messages []struct {
				Role    string
				Content []block
			}
		}
		if err := json.Unmarshal(replay.Requests()[0], &sent); err != nil {
			t.Fatal(err)
		}
		ids, searches := map[string]bool{}, map[string]int{}
		var calls []string
		for i, msg := range sent.Messages {
			if want := []string{"user", "assistant"}[i%2]; msg.Role != want || len(msg.Content) == 0 {
				t.Fatalf("message %d is from the %s with %d blocks", i, msg.Role, len(msg.Content))
			}
			results := map[string]bool{}
			for n, b := range msg.Content {
				switch b.Type {
				case "tool_use", "server_tool_use":
					if ids[b.ID] {
						t.Fatalf("the id %s is used twice", b.ID)
					}
					if ids[b.ID] = true; b.Type == "tool_use" {
						calls = append(calls, b.ID)
					} else {
						searches[b.ID] = i
					}
				case "tool_result":
					if results[b.ToolUseID] || n > 0 && msg.Content[n-1].Type != "tool_result" {
						t.Fatalf("the result of %s stands behind other content, or is there twice", b.ToolUseID)
					}
					results[b.ToolUseID] = true
				case "web_search_tool_result":
					if _, asked := searches[b.ToolUseID]; !asked {
						t.Fatalf("a result of %s, which was never called or has one", b.ToolUseID)
					}
					delete(searches, b.ToolUseID)
				case "text":
					if b.Text == "" || b.Text == " " {
						t.Fatal("a blank text")
					}
				}
			}
			if msg.Role == "user" {
				for _, id := range calls {
					if !results[id] {
						t.Fatalf("no result of %s in the message behind it", id)
					}
				}
				if len(results) != len(calls) {
					t.Fatalf("%d results of %d calls", len(results), len(calls))
				}
				calls = nil
			}
		}
		last := len(sent.Messages) - 1
		for id, at := range searches {
			behind := sent.Messages[at+1:]
			ok := at == last
			if at == last-1 {
				ok = true
				for _, b := range behind[0].Content {
					ok = ok && b.Type == "tool_result"
				}
			}
			if !ok {
				t.Fatalf("%s in message %d of %d is open for good", id, at, last)
			}
		}
	})
}
