package anthropic_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
)

// sent is the body of the request that a model makes of req.
func sent(t *testing.T, c anthropic.Config, req *model.Request) map[string]any {
	t.Helper()
	body, _, err := send(t, c, req)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func send(t *testing.T, c anthropic.Config, req *model.Request) (body []byte, replay *modeltest.Replay, err error) {
	t.Helper()
	replay = modeltest.NewReplay(modeltest.Stream(stream(start, textBlock(0, "ok"), finish("end_turn"))))
	c.HTTPClient = replay.Client()
	if _, err := modeltest.Ask(t.Context(), newModel(t, c), req); err != nil {
		return nil, replay, err
	}
	return replay.Requests()[0], replay, nil
}

// said renders the messages of a request, one block on a line.
func said(t *testing.T, req map[string]any) string {
	t.Helper()
	var out strings.Builder
	for _, m := range req["messages"].([]any) {
		m := m.(map[string]any)
		for _, b := range m["content"].([]any) {
			b := b.(map[string]any)
			mark := ""
			if b["cache_control"] != nil {
				mark = " |"
				delete(b, "cache_control")
			}
			kind := b["type"]
			delete(b, "type")
			body, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s %s %s%s\n", m["role"], kind, body, mark)
		}
	}
	return out.String()
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), strings.Split(strings.TrimSpace(got), "\n")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func message(role record.Role, parts ...record.Part) record.Message {
	return record.Message{Role: role, Parts: parts}
}

func text(s string) record.Part { return record.TextPart{Text: record.TextValue(s)} }

func called(id, name, args string) record.Part {
	return record.ToolCallPart{ID: id, Tool: name, Args: record.Value{Inline: json.RawMessage(args)}}
}

func result(id, value string) record.Part {
	return record.ToolResultPart{Call: id, Tool: "t", Result: record.Value{Inline: json.RawMessage(value)}}
}

func opaque(provider, body, thought string) record.Part {
	p := record.ReasoningPart{Opaque: record.BytesValue([]byte(body)), Provider: provider}
	if thought != "" {
		p.Text = record.TextValue(thought)
	}
	return p
}

func TestRequest(t *testing.T) {
	req := &model.Request{
		Messages: []record.Message{
			message(record.System, text("Be brief.")), message(record.System, text(" ")),
			message(record.User, text("Hello.")), message(record.User, text("Are you there?")),
			message(record.Assistant, text("I look."), called("toolu_1", "t", `{"n":1}`), called("toolu_2", "t", `{}`)),
			message(record.Tool, result("toolu_2", `{"deep":[1]}`),
				record.ToolResultPart{Call: "toolu_1", Tool: "t", Result: record.TextValue("broken"), Failed: true}),
			message(record.System, text("The contract.")),
			message(record.User, text("Hurry.")),
		},
		Tools:         []model.Tool{{Name: "t", Description: "Does.", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}, {Name: "bare"}},
		ProviderTools: []model.ProviderTool{webSearch},
	}
	got := sent(t, anthropic.Config{Beta: []string{"b-1", "b-2"}}, req)
	expect(t, said(t, got), `
user text {"text":"Hello."}
user text {"text":"Are you there?"} |
assistant text {"text":"I look."}
assistant tool_use {"id":"toolu_1","input":{"n":1},"name":"t"}
assistant tool_use {"id":"toolu_2","input":{},"name":"t"}
user tool_result {"content":[{"text":"{\"deep\":[1]}","type":"text"}],"tool_use_id":"toolu_2"}
user tool_result {"content":[{"text":"broken","type":"text"}],"is_error":true,"tool_use_id":"toolu_1"}
user text {"text":"Hurry."} |`)
	delete(got, "messages")
	five := map[string]any{"type": "ephemeral", "ttl": "5m"}
	want := map[string]any{
		"model": "claude-test-1", "max_tokens": 8192., "stream": true,
		"system": []any{map[string]any{"type": "text", "text": "Be brief."}, map[string]any{"type": "text", "text": "The contract.", "cache_control": five}},
		"tools": []any{
			map[string]any{"name": "t", "description": "Does.", "input_schema": map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer"}}}},
			map[string]any{"name": "bare", "input_schema": map[string]any{"type": "object"}},
			map[string]any{"type": "web_search_20250305", "name": "web_search", "max_uses": 2.},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	_, replay, err := send(t, anthropic.Config{Beta: []string{"b-1", "b-2"}}, req)
	h := replay.Headers()[0]
	if err != nil || h.Get("X-Api-Key") != "key-for-tests" || h.Get("Anthropic-Version") == "" || strings.Join(h.Values("Anthropic-Beta"), ",") != "b-1,b-2" {
		t.Errorf("%v, %v", err, h)
	}
}

func TestRequestOptions(t *testing.T) {
	tools := []model.Tool{{Name: "t"}}
	for name, tc := range map[string]struct {
		config anthropic.Config
		req    model.Request
		member string
		want   string
	}{
		"bound of the request": {anthropic.Config{}, model.Request{MaxOutputTokens: 77}, "max_tokens", `77`},
		"bound of the model":   {anthropic.Config{MaxOutputTokens: 99}, model.Request{}, "max_tokens", `99`},
		"no calls":             {anthropic.Config{}, model.Request{Tools: tools, Choice: model.None}, "tool_choice", `{"type":"none"}`},
		"calls":                {anthropic.Config{}, model.Request{Tools: tools, Choice: model.Auto}, "tool_choice", `null`},
		"no tools, no calls":   {anthropic.Config{}, model.Request{Choice: model.None}, "tool_choice", `null`},
		"budget":               {anthropic.Config{Thinking: anthropic.Thinking{Budget: 1024}}, model.Request{}, "thinking", `{"budget_tokens":1024,"type":"enabled"}`},
		"budget over the bound": {anthropic.Config{Thinking: anthropic.Thinking{Budget: 1024}},
			model.Request{MaxOutputTokens: 1024}, "thinking", `null`},
		"adaptive":       {anthropic.Config{Thinking: anthropic.Thinking{Adaptive: true}}, model.Request{}, "thinking", `{"type":"adaptive"}`},
		"cache by tools": {anthropic.Config{Cache: anthropic.CacheOneHour}, model.Request{Tools: tools}, "tools", `[{"cache_control":{"ttl":"1h","type":"ephemeral"},"input_schema":{"type":"object"},"name":"t"}]`},
		"cache off":      {anthropic.Config{Cache: anthropic.CacheOff}, model.Request{Tools: tools}, "tools", `[{"input_schema":{"type":"object"},"name":"t"}]`},
	} {
		tc.req.Messages = hello.Messages
		got := sent(t, tc.config, &tc.req)
		if body, err := json.Marshal(got[tc.member]); err != nil || string(body) != tc.want {
			t.Errorf("%s: %s, want %s", name, body, tc.want)
		}
		if off := tc.config.Cache == anthropic.CacheOff; off == strings.Contains(said(t, got), "|") {
			t.Errorf("%s: %s", name, said(t, got))
		}
	}
}

// What the provider caches is the same bytes in the next request, whatever the
// turn added.
func TestPrefixIsStable(t *testing.T) {
	messages := []record.Message{message(record.System, text("S")), message(record.User, text("<U> & é"))}
	var before string
	for turn := range 4 {
		id := fmt.Sprint("toolu_", turn)
		body, _, err := send(t, anthropic.Config{Cache: anthropic.CacheOff}, &model.Request{Messages: messages, Tools: []model.Tool{{Name: "t"}}})
		if err != nil {
			t.Fatal(err)
		}
		_, conversation, _ := strings.Cut(string(body), `"messages":[`)
		conversation, _, _ = strings.Cut(conversation, `],"model"`)
		if !strings.HasPrefix(conversation, before) {
			t.Fatalf("turn %d: the conversation so far was\n%s\nand is now\n%s", turn, before, conversation)
		}
		before = conversation
		messages = append(messages[:len(messages):len(messages)],
			message(record.Assistant, opaque("anthropic", `{"model":"claude-test-1","signature":"c2ln"}`, "hm"), called(id, "t", `{"b":1,"a":2}`)),
			message(record.Tool, result(id, `"r"`)))
	}
}

// conformance: RUN-005
// failure: A02
func TestEveryCallHasOneResult(t *testing.T) {
	for name, tc := range map[string]struct {
		messages []record.Message
		want     string
	}{
		"no result at all": {[]record.Message{message(record.User, text("U")), message(record.Assistant, called("a", "t", `{}`))}, `
user text {"text":"U"}
assistant tool_use {"id":"a","input":{},"name":"t"}
user tool_result {"content":[{"text":"The call was interrupted and its outcome is unknown.","type":"text"}],"is_error":true,"tool_use_id":"a"}`},
		"one of two, then the user": {[]record.Message{message(record.User, text("U")), message(record.Assistant, called("a", "t", `{}`), called("b", "t", `{}`)),
			message(record.Tool, result("b", `"real"`)), message(record.User, text("go on"))}, `
user text {"text":"U"}
assistant tool_use {"id":"a","input":{},"name":"t"}
assistant tool_use {"id":"b","input":{},"name":"t"}
user tool_result {"content":[{"text":"real","type":"text"}],"tool_use_id":"b"}
user tool_result {"content":[{"text":"The call was interrupted and its outcome is unknown.","type":"text"}],"is_error":true,"tool_use_id":"a"}
user text {"text":"go on"}`},
		"before the next response": {[]record.Message{message(record.User, text("U")), message(record.Assistant, called("a", "t", `{}`)), message(record.Assistant, text("X")),
			message(record.User, text("V"))}, `
user text {"text":"U"}
assistant tool_use {"id":"a","input":{},"name":"t"}
user tool_result {"content":[{"text":"The call was interrupted and its outcome is unknown.","type":"text"}],"is_error":true,"tool_use_id":"a"}
assistant text {"text":"X"}
user text {"text":"V"}`},
		"a result of no call": {[]record.Message{message(record.User, text("U")), message(record.Tool, result("ghost", `1`)), message(record.Assistant, text("X")), message(record.User, text("V"))}, `
user text {"text":"U"}
assistant text {"text":"X"}
user text {"text":"V"}`},
		"two results of one call": {[]record.Message{message(record.User, text("U")), message(record.Assistant, called("a", "t", `{}`)),
			message(record.Tool, result("a", `"first"`), result("a", `"second"`))}, `
user text {"text":"U"}
assistant tool_use {"id":"a","input":{},"name":"t"}
user tool_result {"content":[{"text":"first","type":"text"}],"tool_use_id":"a"}`},
		"an empty result": {[]record.Message{message(record.User, text("U")), message(record.Assistant, called("a", "t", `{}`)), message(record.Tool, result("a", `""`))}, `
user text {"text":"U"}
assistant tool_use {"id":"a","input":{},"name":"t"}
user tool_result {"tool_use_id":"a"}`},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, said(t, sent(t, anthropic.Config{Cache: anthropic.CacheOff}, &model.Request{Messages: tc.messages})), tc.want)
		})
	}
}

// failure: A27
func TestCallIDsAreUniqueInARequest(t *testing.T) {
	req := &model.Request{Messages: []record.Message{
		message(record.User, text("U")),
		message(record.Assistant, called("weather:0", "t", `{"n":1}`)), message(record.Tool, result("weather:0", `"one"`)),
		message(record.Assistant, called("weather:0", "t", `{"n":2}`), called("weather_0", "t", `{"n":3}`)),
		message(record.Tool, result("weather:0", `"two"`), result("weather_0", `"three"`)),
		message(record.Assistant, called("é", "t", `{}`)), message(record.Tool, result("é", `"four"`)),
	}}
	expect(t, said(t, sent(t, anthropic.Config{Cache: anthropic.CacheOff}, req)), `
user text {"text":"U"}
assistant tool_use {"id":"weather_0","input":{"n":1},"name":"t"}
user tool_result {"content":[{"text":"one","type":"text"}],"tool_use_id":"weather_0"}
assistant tool_use {"id":"weather_0_2","input":{"n":2},"name":"t"}
assistant tool_use {"id":"weather_0_3","input":{"n":3},"name":"t"}
user tool_result {"content":[{"text":"two","type":"text"}],"tool_use_id":"weather_0_2"}
user tool_result {"content":[{"text":"three","type":"text"}],"tool_use_id":"weather_0_3"}
assistant tool_use {"id":"_","input":{},"name":"t"}
user tool_result {"content":[{"text":"four","type":"text"}],"tool_use_id":"_"}`)
}

// failure: A07
func TestArgumentsGoBackAsAnObject(t *testing.T) {
	req := &model.Request{Messages: []record.Message{message(record.User, text("U")), message(record.Assistant,
		called("a", "t", `null`), called("b", "t", `[1]`), called("c", "t", `"{\"cut\": "`), called("d", "t", ``), called("e", "t", `{"x":null}`))}}
	got := said(t, sent(t, anthropic.Config{}, req))
	for _, want := range []string{`"id":"a","input":{}`, `"id":"b","input":{"value":[1]}`, `"id":"c","input":{"value":"{\"cut\": "}`, `"id":"d","input":{}`, `"id":"e","input":{"x":null}`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// Reasoning goes back untouched to the model it came from, and not at all to
// another one or without its signature.
//
// failure: A30
func TestReasoningGoesBackWholeOrNotAtAll(t *testing.T) {
	const mine, other = `{"model":"claude-test-1","signature":"c2ln+/="}`, `{"model":"claude-other","signature":"c2ln"}`
	turn := func(parts ...record.Part) *model.Request {
		return &model.Request{Messages: []record.Message{message(record.User, text("U")),
			message(record.Assistant, append(parts, called("a", "t", `{}`))...), message(record.Tool, result("a", `"r"`))}}
	}
	think := anthropic.Config{Cache: anthropic.CacheOff, Thinking: anthropic.Thinking{Budget: 2000}}
	const call = `assistant tool_use {"id":"a","input":{},"name":"t"}`
	for name, tc := range map[string]struct {
		parts    []record.Part
		want     string
		thinking bool
	}{
		"signed":     {[]record.Part{opaque("anthropic", mine, "a <thought> & \"more\" é")}, `assistant thinking {"signature":"c2ln+/=","thinking":"a \u003cthought\u003e \u0026 \"more\" é"}` + "\n", true},
		"no text":    {[]record.Part{opaque("anthropic", mine, "")}, `assistant thinking {"signature":"c2ln+/=","thinking":""}` + "\n", true},
		"redacted":   {[]record.Part{opaque("anthropic", `{"model":"claude-test-1","redacted":"cmVk+/="}`, "")}, `assistant redacted_thinking {"data":"cmVk+/="}` + "\n", true},
		"unsigned":   {[]record.Part{record.ReasoningPart{Text: record.TextValue("hm"), Provider: "anthropic"}}, "", false},
		"empty seal": {[]record.Part{opaque("anthropic", `{"model":"claude-test-1"}`, "hm")}, "", false},
		"damaged":    {[]record.Part{opaque("anthropic", `{`, "hm")}, "", false},
		"not bytes":  {[]record.Part{record.ReasoningPart{Opaque: record.TextValue("%"), Provider: "anthropic"}}, "", false},
		"foreign":    {[]record.Part{opaque("openai", mine, "hm")}, "", false},
		"of another": {[]record.Part{opaque("anthropic", other, "hm")}, "", false},
		"none":       {nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := sent(t, think, turn(tc.parts...))
			expect(t, said(t, got), "user text {\"text\":\"U\"}\n"+tc.want+call+"\nuser tool_result {\"content\":[{\"text\":\"r\",\"type\":\"text\"}],\"tool_use_id\":\"a\"}")
			// A budget for reasoning is refused where an open call has none.
			if (got["thinking"] != nil) != tc.thinking {
				t.Errorf("thinking: %v", got["thinking"])
			}
		})
	}
}

// conformance: PEX-04
func TestProviderExecutedCallsStayWithTheAssistant(t *testing.T) {
	const block = `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"url":"u","encrypted_content":"RW5j+/="}]}`
	parts := func(provider string) []record.Part {
		return []record.Part{text("I look."),
			record.ToolCallPart{ID: "srvtoolu_1", Tool: "web_search", Args: record.Value{Inline: json.RawMessage(`{"query":"x"}`)}, ProviderExecuted: true, Provider: provider},
			record.ToolResultPart{Call: "srvtoolu_1", Tool: "web_search", Result: record.Value{Inline: json.RawMessage(block)}, ProviderExecuted: true, Provider: provider},
			text("Found.")}
	}
	req := func(provider string) *model.Request {
		return &model.Request{Messages: []record.Message{message(record.User, text("U")), message(record.Assistant, parts(provider)...), message(record.User, text("V"))}}
	}
	expect(t, said(t, sent(t, anthropic.Config{Cache: anthropic.CacheOff}, req("anthropic"))), `
user text {"text":"U"}
assistant text {"text":"I look."}
assistant server_tool_use {"id":"srvtoolu_1","input":{"query":"x"},"name":"web_search"}
assistant web_search_tool_result {"content":[{"encrypted_content":"RW5j+/=","url":"u"}],"tool_use_id":"srvtoolu_1"}
assistant text {"text":"Found."}
user text {"text":"V"}`)
	expect(t, said(t, sent(t, anthropic.Config{Cache: anthropic.CacheOff}, req("openai"))), `
user text {"text":"U"}
assistant text {"text":"I look."}
assistant text {"text":"Found."}
user text {"text":"V"}`)
}

func TestMedia(t *testing.T) {
	image := []byte("\x89PNG\r\n")
	part := func(kind string) record.Part {
		return record.MediaPart{MediaType: kind, Content: record.Ref{SHA256: record.Digest(image), Size: len(image)}}
	}
	req := func(kind string) *model.Request {
		return &model.Request{Messages: []record.Message{message(record.User, text("Look:"), part(kind))}, Media: map[string][]byte{record.Digest(image): image}}
	}
	data := base64.StdEncoding.EncodeToString(image)
	for kind, want := range map[string]string{
		"image/png":       `user image {"source":{"data":"` + data + `","media_type":"image/png","type":"base64"}} |`,
		"application/pdf": `user document {"source":{"data":"` + data + `","media_type":"application/pdf","type":"base64"}} |`,
	} {
		expect(t, said(t, sent(t, anthropic.Config{}, req(kind))), "user text {\"text\":\"Look:\"}\n"+want)
	}
	for name, r := range map[string]*model.Request{
		"unknown kind": req("video/mp4"),
		"no bytes":     {Messages: []record.Message{message(record.User, part("image/png"))}},
	} {
		if _, replay, err := send(t, anthropic.Config{}, r); model.ClassOf(err) != model.Refused || len(replay.Requests()) != 0 {
			t.Errorf("%s: %v after %d requests", name, err, len(replay.Requests()))
		}
	}
}

func TestRequestsThatCannotBeSent(t *testing.T) {
	for name, req := range map[string]*model.Request{
		"nothing":             {},
		"only space":          {Messages: []record.Message{message(record.User, text(" \n"))}},
		"only a system":       {Messages: []record.Message{message(record.System, text("S"))}},
		"a role":              {Messages: []record.Message{message("narrator", text("S"))}},
		"an input":            {Messages: []record.Message{message(record.User, record.InputPart{})}},
		"assistant's media":   {Messages: []record.Message{message(record.Assistant, record.MediaPart{})}},
		"a tool declaration":  {Messages: hello.Messages, ProviderTools: []model.ProviderTool{{Name: "x", Config: json.RawMessage(`[]`)}}},
		"a tool without type": {Messages: hello.Messages, ProviderTools: []model.ProviderTool{{Name: "x", Config: json.RawMessage(`{}`)}}},
		"a provider's result": {Messages: []record.Message{message(record.User, text("U")), message(record.Assistant,
			record.ToolCallPart{ID: "s", Tool: "x", ProviderExecuted: true, Provider: "anthropic"},
			record.ToolResultPart{Call: "s", Tool: "x", Result: record.TextValue("?"), ProviderExecuted: true, Provider: "anthropic"})}},
	} {
		if _, replay, err := send(t, anthropic.Config{}, req); model.ClassOf(err) != model.Refused || len(replay.Requests()) != 0 {
			t.Errorf("%s: %v after %d requests", name, err, len(replay.Requests()))
		}
	}
}

func TestNew(t *testing.T) {
	const canary = "sk-canary-0815"
	good := func() anthropic.Config { return anthropic.Config{APIKey: canary, Model: "m"} }
	for name, tc := range map[string]struct {
		change func(*anthropic.Config)
		says   string
	}{
		"no key":          {func(c *anthropic.Config) { c.APIKey = "" }, "APIKey is empty"},
		"line end in key": {func(c *anthropic.Config) { c.APIKey += "\r\n" }, "APIKey has characters"},
		"no model":        {func(c *anthropic.Config) { c.Model = " " }, "Model is empty"},
		"address":         {func(c *anthropic.Config) { c.BaseURL = "localhost:1" }, "BaseURL"},
		"query":           {func(c *anthropic.Config) { c.BaseURL = "http://x/?key=" + canary }, "a query"},
		"scheme":          {func(c *anthropic.Config) { c.BaseURL = "ftp://" + canary }, "BaseURL"},
		"small budget":    {func(c *anthropic.Config) { c.Thinking.Budget = 1000 }, "at least 1024"},
		"large budget":    {func(c *anthropic.Config) { c.Thinking.Budget = 8192 }, "less than MaxOutputTokens (8192)"},
		"both":            {func(c *anthropic.Config) { c.Thinking = anthropic.Thinking{Budget: 1024, Adaptive: true} }, "choose one"},
		"cache":           {func(c *anthropic.Config) { c.Cache = "1d" }, "5m, 1h or off"},
	} {
		c := good()
		tc.change(&c)
		if _, err := anthropic.New(c); err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := anthropic.New(anthropic.Config{}); err == nil || !strings.Contains(err.Error(), "APIKey") || !strings.Contains(err.Error(), "Model") {
		t.Errorf("everything at once: %v", err)
	}
	m, err := anthropic.New(good())
	if err != nil {
		t.Fatal(err)
	}
	if provider, name := m.Identity(); provider != anthropic.Provider || name != "m" {
		t.Error(provider, name)
	}
}
