package anthropic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/agent/agenttest"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// searcher is an agent whose provider searches the web and runs code, and which
// looks something up itself.
func searcher(t *testing.T, policy agent.Policy, ran *[]string) *agent.Definition {
	t.Helper()
	type in struct {
		Q string `json:"q"`
	}
	look := tool.New("look", "Looks something up.", func(_ context.Context, i in) (string, error) {
		*ran = append(*ran, i.Q)
		return "seen", nil
	}, tool.Readonly())
	d, err := agent.Define[string, string]("searcher", agent.Config[string]{Instructions: agent.Text[string]("Search."), Tools: []*tool.Tool{look}, Policy: policy,
		ProviderTools: []model.ProviderTool{webSearch, {Name: "code_execution", Config: json.RawMessage(`{"type":"code_execution_20260120","name":"code_execution"}`)},
			{Name: "read_page"}}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// searched runs one conversation of these answers and renders what was sent of
// it at the end.
func searched(t *testing.T, c anthropic.Config, policy agent.Policy, answers ...string) (run *agenttest.Run, sent []string, ran []string) {
	t.Helper()
	var exchanges []modeltest.Exchange
	for _, a := range answers {
		exchanges = append(exchanges, modeltest.Stream(a))
	}
	replay := modeltest.NewReplay(exchanges...)
	c.HTTPClient, c.Cache = replay.Client(), anthropic.CacheOff
	h := agenttest.Bind(t, searcher(t, policy, &ran).Bind(newModel(t, c)))
	run = h.Run("Oslo?")
	h.Verify()
	for _, body := range replay.Requests() {
		var req map[string]any
		if err := json.Unmarshal(body, &req); err != nil {
			t.Fatal(err)
		}
		text := said(t, req)
		if req["container"] != nil {
			text = fmt.Sprintf("container %s\n", req["container"]) + text
		}
		sent = append(sent, text)
	}
	return run, sent, ran
}

func serverUse(index int, id, name string) string {
	return opened(index, fmt.Sprintf(`{"type":"server_tool_use","id":%q,"name":%q,"input":{}}`, id, name)) +
		more(index, "input_json_delta", "partial_json", `{"query":"Oslo"}`) + closed(index)
}

func serverResult(index int, id string) string {
	return opened(index, fmt.Sprintf(`{"type":"web_search_tool_result","tool_use_id":%q,"content":[{"type":"web_search_result","url":"u","title":"T","encrypted_content":"RW5j+/="}]}`, id)) + closed(index)
}

const (
	sentCall   = `assistant server_tool_use {"id":"srvtoolu_1","input":{"query":"Oslo"},"name":"web_search"}` + "\n"
	sentResult = `assistant web_search_tool_result {"content":[{"encrypted_content":"RW5j+/=","title":"T","type":"web_search_result","url":"u"}],"tool_use_id":"srvtoolu_1"}` + "\n"
)

// A provider that pauses in a turn of its own goes on when it gets back what it
// said, as the last message, whole or with a call it has still to execute. Each
// is a turn; the answer is that of the last one.
func TestPauseIsContinued(t *testing.T) {
	for name, tc := range map[string]struct{ first, second, sent string }{
		"behind its calls": {stream(textBlock(0, "I look."), serverUse(1, "srvtoolu_1", "web_search"), serverResult(2, "srvtoolu_1")), textBlock(0, "Warm."),
			"assistant text {\"text\":\"I look.\"}\n" + sentCall + sentResult},
		"before a result": {stream(textBlock(0, "I look."), serverUse(1, "srvtoolu_1", "web_search")), stream(serverResult(0, "srvtoolu_1"), textBlock(1, "Warm.")),
			"assistant text {\"text\":\"I look.\"}\n" + sentCall},
		"without a call": {textBlock(0, "I think."), textBlock(0, "Warm."), "assistant text {\"text\":\"I think.\"}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			run, sent, _ := searched(t, anthropic.Config{}, agent.Policy{}, stream(start, tc.first, finish("pause_turn")), stream(start, tc.second, finish("end_turn")))
			run.Completed(nil)
			expect(t, sent[1], "user text {\"text\":\"Oslo?\"}\n"+tc.sent)
			if p := run.Progress(); p.Turns != 2 || string(p.Output) != `"Warm."` || len(repairs(run)) != 0 {
				t.Errorf("%d turns, %s, %q", p.Turns, p.Output, repairs(run))
			}
		})
	}
	// It cannot go on for ever.
	paused := stream(start, textBlock(0, "Still."), finish("pause_turn"))
	run, sent, _ := searched(t, anthropic.Config{}, agent.Policy{MaxTurns: 2}, paused, paused, paused)
	if run.Failed("ModelStoppedError"); len(sent) != 3 {
		t.Errorf("%d requests", len(sent))
	}
	run, sent, _ = searched(t, anthropic.Config{}, agent.Policy{MaxTurns: 2, OnExhaustion: agent.FailOnExhaustion}, paused, paused)
	if run.Failed(record.PolicyError); len(sent) != 2 {
		t.Errorf("%d requests", len(sent))
	}
}

// Beside a call of the application's the provider leaves its own open, and
// executes it once it has the application's results: the next response begins
// with what it found.
func TestDeferredCallIsAnsweredLater(t *testing.T) {
	run, sent, ran := searched(t, anthropic.Config{}, agent.Policy{},
		stream(start, serverUse(0, "srvtoolu_1", "web_search"), toolBlock(1, "toolu_1", "look", `{"q":"Oslo"}`), finish("tool_use")),
		stream(start, serverResult(0, "srvtoolu_1"), textBlock(1, "More."), toolBlock(2, "toolu_2", "look", `{"q":"Rome"}`), finish("tool_use")),
		stream(start, textBlock(0, "Warm."), finish("end_turn")))
	run.Completed(nil)
	if len(ran) != 2 {
		t.Errorf("handlers %v", ran)
	}
	first := "user text {\"text\":\"Oslo?\"}\n" + sentCall + `assistant tool_use {"id":"toolu_1","input":{"q":"Oslo"},"name":"look"}
user tool_result {"content":[{"text":"seen","type":"text"}],"tool_use_id":"toolu_1"}
`
	expect(t, sent[1], first)
	expect(t, sent[2], first+sentResult+`assistant text {"text":"More."}
assistant tool_use {"id":"toolu_2","input":{"q":"Rome"},"name":"look"}
user tool_result {"content":[{"text":"seen","type":"text"}],"tool_use_id":"toolu_2"}`)

	// A result of a call that nobody left open is no result.
	run, _, _ = searched(t, anthropic.Config{}, agent.Policy{}, stream(start, serverUse(0, "srvtoolu_1", "web_search"), toolBlock(1, "toolu_1", "look", `{"q":"Oslo"}`), finish("tool_use")),
		stream(start, serverResult(0, "srvtoolu_9"), textBlock(1, "Warm."), finish("end_turn")))
	run.Failed("ModelProtocolError")
	run, _, _ = searched(t, anthropic.Config{}, agent.Policy{}, stream(start, serverUse(0, "srvtoolu_1", "web_search"), toolBlock(1, "toolu_1", "look", `{"q":"Oslo"}`), finish("tool_use")),
		stream(start, serverResult(0, "srvtoolu_1"), serverResult(1, "srvtoolu_1"), textBlock(2, "Warm."), finish("end_turn")))
	run.Failed("ModelProtocolError")
}

// A call that the provider will not come back to is left out of a request, which
// would be refused for it.
func TestCallThatNobodyExecutesIsLeftOut(t *testing.T) {
	open := record.ToolCallPart{ID: "srvtoolu_1", Tool: "web_search", Args: record.Value{Inline: json.RawMessage(`{"query":"Oslo"}`)}, ProviderExecuted: true, Provider: "anthropic"}
	found := record.ToolResultPart{Call: "srvtoolu_1", Tool: "web_search", Result: record.Value{Inline: json.RawMessage(`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}`)},
		ProviderExecuted: true, Provider: "anthropic"}
	asked, more := message(record.User, text("U")), message(record.User, text("V"))
	results := message(record.Tool, result("a", `"r"`))
	const sentFound = `assistant web_search_tool_result {"content":[],"tool_use_id":"srvtoolu_1"}` + "\n"
	const user, answer = "user text {\"text\":\"U\"}\n", "assistant text {\"text\":\"X\"}\n"
	const called1, answered = "assistant tool_use {\"id\":\"a\",\"input\":{},\"name\":\"t\"}\n", "user tool_result {\"content\":[{\"text\":\"r\",\"type\":\"text\"}],\"tool_use_id\":\"a\"}\n"
	for name, tc := range map[string]struct {
		messages []record.Message
		want     string
	}{
		"last of all":             {[]record.Message{asked, message(record.Assistant, text("X"), open)}, user + answer + sentCall},
		"behind results":          {[]record.Message{asked, message(record.Assistant, open, called("a", "t", `{}`)), results}, user + sentCall + called1 + answered},
		"behind the user":         {[]record.Message{asked, message(record.Assistant, text("X"), open), more}, user + answer + "user text {\"text\":\"V\"}"},
		"nothing but it":          {[]record.Message{asked, message(record.Assistant, open), more}, user + "user text {\"text\":\"V\"}"},
		"steering behind results": {[]record.Message{asked, message(record.Assistant, open, called("a", "t", `{}`)), results, more}, user + called1 + answered + "user text {\"text\":\"V\"}"},
		"an answer without it":    {[]record.Message{asked, message(record.Assistant, open), message(record.Assistant, text("X"))}, user + answer},
		"answered later":          {[]record.Message{asked, message(record.Assistant, open), message(record.Assistant, found, text("X")), more}, user + sentCall + sentFound + answer + "user text {\"text\":\"V\"}"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, said(t, sent(t, anthropic.Config{Cache: anthropic.CacheOff}, &model.Request{Messages: tc.messages})), tc.want)
		})
	}
}

// What text is cited from goes back with it: the provider cannot cite it again
// without.
func TestCitationsGoBack(t *testing.T) {
	cite := func(index int, citation string) string {
		return event("content_block_delta", map[string]any{"index": index, "delta": map[string]any{"type": "citations_delta", "citation": json.RawMessage(citation)}})
	}
	answer := stream(start, serverUse(0, "srvtoolu_1", "web_search"), serverResult(1, "srvtoolu_1"),
		textBlock(2, "It is "), opened(3, `{"type":"text","text":"","citations":[]}`), cite(3, `{"type":"web_search_result_location","url":"u","title":"T","cited_text":"13 °C","encrypted_index":"SW5k+/=="}`),
		more(3, "text_delta", "text", "warm"), cite(3, `{"type":"char_location","document_index":0,"document_title":null,"start_char_index":1,"end_char_index":9,"cited_text":"w","file_id":"f"}`),
		closed(3), opened(4, `{"type":"text","text":".","citations":null}`), closed(4), toolBlock(5, "toolu_1", "look", `{"q":"x"}`), finish("tool_use"))
	run, sent, _ := searched(t, anthropic.Config{}, agent.Policy{}, answer, warm)
	run.Completed(nil)
	expect(t, sent[1], "user text {\"text\":\"Oslo?\"}\n"+sentCall+sentResult+`assistant text {"text":"It is "}
assistant text {"citations":[{"cited_text":"13 °C","encrypted_index":"SW5k+/==","title":"T","type":"web_search_result_location","url":"u"},`+
		`{"cited_text":"w","document_index":0,"document_title":null,"end_char_index":9,"start_char_index":1,"type":"char_location"}],"text":"warm"}
assistant text {"text":"."}
assistant tool_use {"id":"toolu_1","input":{"q":"x"},"name":"look"}
user tool_result {"content":[{"text":"seen","type":"text"}],"tool_use_id":"toolu_1"}`)
	for _, m := range run.Messages() {
		for _, p := range m.Parts {
			if part, ok := p.(record.TextPart); ok && strings.Contains(part.Text.Text(), "cited") {
				t.Errorf("citations in the text: %s", part.Text.Text())
			}
		}
	}
	// They are nobody else's to read, and damage costs no more than them.
	for name, part := range map[string]record.TextPart{
		"foreign": {Text: record.TextValue("X"), Provider: "other", Opaque: record.BytesValue([]byte(`{"citations":[{}]}`))},
		"damaged": {Text: record.TextValue("X"), Provider: "anthropic", Opaque: record.BytesValue([]byte(`{`))},
		"none":    {Text: record.TextValue("X"), Provider: "anthropic", Opaque: record.BytesValue([]byte(`{}`))},
	} {
		got := said(t, sentOf(t, message(record.User, text("U")), message(record.Assistant, part), message(record.User, text("V"))))
		if !strings.Contains(got, "assistant text {\"text\":\"X\"}\n") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func sentOf(t *testing.T, messages ...record.Message) map[string]any {
	t.Helper()
	return sent(t, anthropic.Config{Cache: anthropic.CacheOff}, &model.Request{Messages: messages})
}

// Code that the provider runs, calls that this code makes, and tools of servers
// it reaches go back with everything they came with, and the container is named
// as long as it is there.
func TestWhatTheProviderRunsGoesBackWhole(t *testing.T) {
	begin := func(id string, expires time.Time) string {
		return event("message_start", map[string]any{"message": map[string]any{"id": "msg_1", "model": "claude-test-1", "container": map[string]any{"id": id, "expires_at": expires}}})
	}
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	blocks := stream(
		opened(0, `{"type":"server_tool_use","id":"srvtoolu_1","name":"code_execution","input":{"code":"look()"},"caller":{"type":"direct"}}`), closed(0),
		opened(1, `{"type":"server_tool_use","id":"srvtoolu_2","name":"web_search","input":{"query":"Oslo"},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}}`), closed(1),
		opened(2, `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_2","content":{"type":"web_search_tool_result_error","error_code":"unavailable"},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}}`), closed(2),
		opened(3, `{"type":"mcp_tool_use","id":"mcptoolu_1","name":"read_page","server_name":"wiki","input":{"page":"Oslo"}}`), closed(3),
		opened(4, `{"type":"mcp_tool_result","tool_use_id":"mcptoolu_1","is_error":true,"content":[{"type":"text","text":"gone"}]}`), closed(4),
		opened(5, `{"type":"tool_use","id":"toolu_1","name":"look","input":{"q":"Oslo"},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}}`), closed(5))
	blocks += stream(opened(6, `{"type":"server_tool_use","id":"srvtoolu_3","name":"bash_code_execution","input":{"command":"ls"}}`), closed(6),
		opened(7, `{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_3","content":{"type":"bash_code_execution_result","stdout":"x","stderr":"","return_code":0,"content":[]}}`), closed(7))
	result := stream(opened(0, `{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"code_execution_result","stdout":"","stderr":"e","return_code":1,"content":[]}}`), closed(0))
	want := `user text {"text":"Oslo?"}
assistant server_tool_use {"id":"srvtoolu_1","input":{"code":"look()"},"name":"code_execution"}
assistant server_tool_use {"caller":{"tool_id":"srvtoolu_1","type":"code_execution_20260120"},"id":"srvtoolu_2","input":{"query":"Oslo"},"name":"web_search"}
assistant web_search_tool_result {"caller":{"tool_id":"srvtoolu_1","type":"code_execution_20260120"},"content":{"error_code":"unavailable","type":"web_search_tool_result_error"},"tool_use_id":"srvtoolu_2"}
assistant mcp_tool_use {"id":"mcptoolu_1","input":{"page":"Oslo"},"name":"read_page","server_name":"wiki"}
assistant mcp_tool_result {"content":[{"text":"gone","type":"text"}],"is_error":true,"tool_use_id":"mcptoolu_1"}
assistant tool_use {"caller":{"tool_id":"srvtoolu_1","type":"code_execution_20260120"},"id":"toolu_1","input":{"q":"Oslo"},"name":"look"}
assistant server_tool_use {"id":"srvtoolu_3","input":{"command":"ls"},"name":"bash_code_execution"}
assistant bash_code_execution_tool_result {"content":{"content":[],"return_code":0,"stderr":"","stdout":"x","type":"bash_code_execution_result"},"tool_use_id":"srvtoolu_3"}
user tool_result {"content":[{"text":"seen","type":"text"}],"tool_use_id":"toolu_1"}
`
	for name, tc := range map[string]struct {
		expires time.Time
		names   string
	}{"there": {now.Add(time.Minute), "container cnt_1\n"}, "expired": {now, ""}} {
		t.Run(name, func(t *testing.T) {
			run, sent, ran := searched(t, anthropic.Config{Now: func() time.Time { return now }}, agent.Policy{},
				stream(begin("cnt_1", tc.expires), blocks, finish("tool_use")),
				stream(begin("cnt_1", tc.expires), result, toolBlock(1, "toolu_2", "look", `{"q":"Rome"}`), finish("tool_use")), warm)
			run.Completed(nil)
			expect(t, sent[1], tc.names+want)
			expect(t, sent[2], tc.names+want+`assistant code_execution_tool_result {"content":{"content":[],"return_code":1,"stderr":"e","stdout":"","type":"code_execution_result"},"tool_use_id":"srvtoolu_1"}
assistant tool_use {"id":"toolu_2","input":{"q":"Rome"},"name":"look"}
user tool_result {"content":[{"text":"seen","type":"text"}],"tool_use_id":"toolu_2"}`)
			if len(ran) != 2 {
				t.Errorf("handlers %v", ran)
			}
		})
	}
}

// A block of a type that comes later goes back as it came, to its own model.
func TestUnknownBlockGoesBack(t *testing.T) {
	answer := stream(start, opened(0, `{"type":"container_upload","file_id":"file_1"}`), closed(0), textBlock(1, "I look."), toolBlock(2, "toolu_1", "look", `{"q":"x"}`), finish("tool_use"))
	run, sent, _ := searched(t, anthropic.Config{}, agent.Policy{}, answer, warm)
	run.Completed(nil)
	if want := "assistant container_upload {\"file_id\":\"file_1\"}\nassistant text {\"text\":\"I look.\"}\n"; !strings.Contains(sent[1], want) {
		t.Errorf("sent %s, want %s in it", sent[1], want)
	}
	run.Said("user: Oslo?\nassistant: I look.\nassistant: look {\"q\":\"x\"}\ntool: look \"seen\"\nassistant: Warm.")
}
