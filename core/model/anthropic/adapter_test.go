package anthropic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent/agenttest"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
)

// failed is the body of an error.
func failed(kind, message string) string {
	body, err := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": message}, "request_id": "req_1"})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// overflow are the wordings of a request that is too long, with their types and
// statuses.
var overflow = map[string]modeltest.Refusal{
	"prompt":     {Status: 400, Body: failed("invalid_request_error", "prompt is too long: 210310 tokens > 200000 maximum")},
	"prompt 413": {Status: 413, Body: failed("invalid_request_error", "Prompt is too long")},
	"input and max_tokens": {Status: 400, Body: failed("invalid_request_error",
		"input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000, decrease input length or `max_tokens` and try again")},
	"only the sum":     {Status: 400, Body: failed("invalid_request_error", "input length and `max_tokens` exceed what this model takes")},
	"without quotes":   {Status: 400, Body: failed("invalid_request_error", "input length and max_tokens exceed 2: 1 + 2")},
	"bedrock":          {Status: 400, Body: failed("invalid_request_error", "Input is too long for requested model.")},
	"window":           {Status: 400, Body: failed("invalid_request_error", "Your request exceeds the context window of this model.")},
	"size":             {Status: 413, Body: failed("request_too_large", "Request exceeds the maximum size")},
	"size, no message": {Status: 413, Body: failed("request_too_large", "")},
	"a proxy's page":   {Status: 413, Body: "<html>413 Request Entity Too Large</html>"},
	"unknown type":     {Status: 400, Body: failed("context_error", "prompt is too long: 7 tokens > 5 maximum")},
	"no JSON":          {Status: 400, Body: "prompt is too long"},
}

// failure: A09, A10, A29, A34, A36
// conformance: RUN-027a
func TestAdapter(t *testing.T) {
	refusals := map[string]modeltest.Refusal{
		"bad request":   {Status: 400, Body: failed("invalid_request_error", "messages.1: tool_use ids were found without tool_result"), Class: model.Refused},
		"key":           {Status: 401, Body: failed("authentication_error", "invalid x-api-key"), Class: model.Refused},
		"permission":    {Status: 403, Body: failed("permission_error", "no"), Class: model.Refused},
		"billing":       {Status: 402, Body: failed("billing_error", "your credit balance is too low"), Class: model.Refused},
		"model":         {Status: 404, Body: failed("not_found_error", "model: claude-x"), Class: model.Refused},
		"limit":         {Status: 429, Body: failed("rate_limit_error", "slow down"), Class: model.RateLimited},
		"internal":      {Status: 500, Body: failed("api_error", "Internal server error"), Class: model.Transient},
		"timeout":       {Status: 504, Body: failed("timeout_error", "timed out"), Class: model.Transient},
		"overload":      {Status: 529, Body: failed("overloaded_error", "Overloaded"), Class: model.Transient},
		"type first":    {Status: 400, Body: failed("overloaded_error", "Overloaded"), Class: model.Transient},
		"type first, 2": {Status: 500, Body: failed("invalid_request_error", "no"), Class: model.Refused},
		"new type":      {Status: 500, Body: failed("gremlin_error", "boo"), Class: model.Transient},
		"new type, 2":   {Status: 422, Body: failed("gremlin_error", "boo"), Class: model.Refused},
		"error as text": {Status: 400, Body: `{"type":"error","error":"no"}`, Class: model.Refused},
		"empty":         {Status: 500, Class: model.Transient},
	}
	behind := map[string]modeltest.Refusal{
		"a new type": {Body: "event: error\ndata: " + failed("gremlin_error", "boo") + "\n\n", Class: model.Transient},
		"no name":    {Body: "data: " + failed("overloaded_error", "Overloaded") + "\n\n", Class: model.Transient},
		"no JSON":    {Body: "event: error\ndata: oops\n\n", Class: model.Transient},
		"as text":    {Body: "event: error\ndata: {\"type\":\"error\",\"message\":7}\n\n", Class: model.Transient},
	}
	for _, r := range refusals {
		if r.Status == 400 || r.Status == 429 || r.Status == 529 {
			var e struct{ Error struct{ Type string } }
			if json.Unmarshal([]byte(r.Body), &e) == nil {
				behind[e.Error.Type] = modeltest.Refusal{Body: "event: error\ndata: " + r.Body + "\n\n", Class: r.Class}
			}
		}
	}
	for name, r := range overflow {
		r.Class = model.ContextOverflow
		refusals["overflow: "+name] = r
	}
	behind["overflow"] = modeltest.Refusal{Body: "event: error\ndata: " + overflow["prompt"].Body + "\n\n", Class: model.ContextOverflow}

	n := func(i int64) *int64 { return &i }
	modeltest.TestAdapter(t, modeltest.Adapter{
		New: func(baseURL, key string, client *http.Client, idle time.Duration) (model.Model, error) {
			return anthropic.New(anthropic.Config{APIKey: key, Model: "claude-test-1", BaseURL: baseURL, HTTPClient: client, IdleTimeout: idle})
		},
		Answers: map[string]modeltest.Answer{
			"text": {Body: stream(start, textBlock(0, "Good ", "day."), finish("end_turn")), Stop: model.Stop, Text: "Good day.",
				Usage: record.Usage{InputTokens: n(10), OutputTokens: n(9)}},
			"reasoning": {Body: stream(start, opened(0, `{"type":"thinking","thinking":"","signature":""}`), more(0, "thinking_delta", "thinking", "Is it day?"),
				more(0, "signature_delta", "signature", "c2ln"), more(0, "signature_delta", "signature", "bmVk+/="), closed(0),
				opened(1, `{"type":"redacted_thinking","data":"cmVkYWN0ZWQ="}`), closed(1), toolBlock(2, "a", "look", `{"n":1}`), finish("tool_use")),
				Stop: model.ToolCalls, Calls: []modeltest.Call{{Tool: "look", Args: `{"n":1}`}}, Back: []string{"Is it day?", "c2lnbmVk+/=", "cmVkYWN0ZWQ="}},
			"the provider's own call": {Body: stream(start, serverUse(0, "srvtoolu_1", "web_search"), serverResult(1, "srvtoolu_1"), textBlock(2, "Warm."), finish("end_turn")),
				Stop: model.Stop, Text: "Warm.", Back: []string{"srvtoolu_1", "RW5j+/="}},
			"call": {Body: stream(start, textBlock(0, "I look."), toolBlock(1, "a", "look", `{"at": `, `"é"}`), finish("tool_use")),
				Stop: model.ToolCalls, Text: "I look.", Calls: []modeltest.Call{{Tool: "look", Args: `{"at":"é"}`}}},
			"parallel": {Body: stream(start, toolBlock(0, "a", "look", `{"n":1}`), toolBlock(1, "b", "look", `{"n":2}`), finish("tool_use")),
				Stop: model.ToolCalls, Calls: []modeltest.Call{{Tool: "look", Args: `{"n":1}`}, {Tool: "look", Args: `{"n":2}`}}},
			"no parameters": {Body: stream(start, toolBlock(0, "a", "look"), finish("tool_use")),
				Stop: model.ToolCalls, Calls: []modeltest.Call{{Tool: "look", Args: `{}`}}},
		},
		Text:     func(text string) string { return stream(start, textBlock(0, text), finish("end_turn")) },
		Call:     stream(start, toolBlock(0, "a", "look", `{}`)),
		Refusals: refusals, Behind: behind,
		Limited: failed("rate_limit_error", "slow down"),
		Says:    func(message string) string { return failed("authentication_error", message) },
	})
}

// A conversation that is too long ends the run with the error that says so: it is
// never asked again unchanged.
//
// failure: A12
func TestOverflowIsNotRetried(t *testing.T) {
	for name, r := range overflow {
		t.Run(name, func(t *testing.T) {
			replay := modeltest.NewReplay(modeltest.Exchange{Status: r.Status, ContentType: "application/json", Response: r.Body})
			var ran []string
			agenttest.Bind(t, reader(t, "Help.", &ran).Bind(newModel(t, anthropic.Config{HTTPClient: replay.Client()}))).Run("Oslo?").Failed("ContextOverflowError")
			if n := len(replay.Requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// What is no overflow is not taken for one.
func TestOrdinaryRefusalIsNoOverflow(t *testing.T) {
	for _, message := range []string{"max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens", "prompt must not be empty",
		"messages: text content blocks must be non-empty", "tools.0.input_schema: input is wrong"} {
		_, err := ask(t, anthropic.Config{}, modeltest.Exchange{Status: 400, ContentType: "application/json", Response: failed("invalid_request_error", message)})
		if model.ClassOf(err) != model.Refused {
			t.Errorf("%s: %v", message, err)
		}
		if err != nil && !strings.Contains(err.Error(), message) {
			t.Errorf("whoever runs the program does not learn what is wrong: %v", err)
		}
	}
}

// A wait that fits is waited for inside the attempt; a longer one parks the run,
// which then costs nothing, and the attempt is not counted against it.
//
// failure: A29
func TestLongWaitParks(t *testing.T) {
	answer := modeltest.Stream(stream(start, textBlock(0, "Warm."), finish("end_turn")))
	for wait, parked := range map[string]bool{"90": true, "3600": true, "6m0s": true} {
		t.Run(wait, func(t *testing.T) {
			limited := modeltest.Exchange{Status: 429, ContentType: "application/json", Response: failed("rate_limit_error", "slow down"), Header: modeltest.Header{"Retry-After": wait}}
			replay := modeltest.NewReplay(limited, answer)
			var ran []string
			h := agenttest.Bind(t, reader(t, "Help.", &ran).Bind(newModel(t, anthropic.Config{HTTPClient: replay.Client()})))
			began := time.Now()
			run := h.Run("Oslo?")
			if parked {
				run.Parked("backoff")
			}
			if time.Since(began) > time.Minute {
				t.Error("the wait was slept")
			}
			due := map[string]time.Duration{"90": 90 * time.Second, "3600": time.Hour, "6m0s": 6 * time.Minute}[wait]
			h.Advance(due - 5*time.Second)
			if n := len(replay.Requests()); n != 1 {
				t.Errorf("asked again too early: %d requests", n)
			}
			h.Advance(10 * time.Second)
			run.Completed(nil)
			h.Verify()
			if p := run.Progress(); p.Turns != 1 || len(replay.Requests()) != 2 {
				t.Errorf("%d turns, %d requests", p.Turns, len(replay.Requests()))
			}
		})
	}
}

func ExampleNew() {
	// A provider of the example's own answers.
	replay := modeltest.NewReplay(modeltest.Stream(stream(start, textBlock(0, "Good day."), finish("end_turn"))))
	m, err := anthropic.New(anthropic.Config{APIKey: "key-for-tests", Model: "claude-sonnet-5-5", HTTPClient: replay.Client()})
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := modeltest.Ask(context.Background(), m, hello)
	fmt.Println(response.Stop, *response.Usage.OutputTokens, err)
	// Output:
	// stop 9 <nil>
}
