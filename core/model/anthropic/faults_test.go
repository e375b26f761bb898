package anthropic_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent/agenttest"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
)

// canaryKey must be nowhere but in the header of a request.
const canaryKey = "sk-canary-4711-0815"

// over is an error event behind what came before it.
func over(kind, message string, before ...string) modeltest.Exchange {
	return modeltest.Stream(stream(before...) + "event: error\ndata: " + failed(kind, message) + "\n\n")
}

// page is what something between us and the provider answers.
func page(status int) modeltest.Exchange {
	return modeltest.Exchange{Status: status, ContentType: "text/html", Response: fmt.Sprintf("<html><h1>%d</h1>%s</html>", status, strings.Repeat("x", 100<<10))}
}

// says is an error with a status.
func says(status int, kind, message string) modeltest.Exchange {
	return modeltest.Exchange{Status: status, ContentType: "application/json", Response: failed(kind, message)}
}

// Faults of the provider, of what stands before it and of the connection, over a
// real one and through the whole product: a run asks again where that can help,
// and ends with the error that says why where it cannot. Nothing of a broken
// answer runs, and the key is nowhere.
//
// failure: A09, A10, A12, A36
func TestFaultsEndInTheRightPlace(t *testing.T) {
	half := []string{start, textBlock(0, "It is")}
	called := []string{start, toolBlock(0, "toolu_9", "weather", `{"location":"Nowhere"}`)}
	const again = "" // asked again, and answered
	for name, tc := range map[string]struct {
		fault modeltest.Exchange
		kind  string
	}{
		"overload at once":           {over("overloaded_error", "Overloaded"), again},
		"overload after text":        {over("overloaded_error", "Overloaded", half...), again},
		"overload after a call":      {over("overloaded_error", "Overloaded", called...), again},
		"internal after text":        {over("api_error", "Internal server error", half...), again},
		"limit at once":              {over("rate_limit_error", "slow down "+canaryKey), again},
		"limit after a call":         {over("rate_limit_error", "slow down", called...), again},
		"timeout after text":         {over("timeout_error", "timed out", half...), again},
		"new type after text":        {over("gremlin_error", "boo", half...), again},
		"error that is no JSON":      {modeltest.Stream(stream(half...) + "event: error\ndata: upstream went away\n\n"), again},
		"bad request at once":        {over("invalid_request_error", "tools.0: wrong "+canaryKey), core.ModelRefused},
		"bad request after text":     {over("invalid_request_error", "tools.0: wrong", half...), core.ModelRefused},
		"bad request after a call":   {over("invalid_request_error", "tools.0: wrong", called...), core.ModelRefused},
		"too long, in the stream":    {over("invalid_request_error", "prompt is too long: 210310 tokens > 200000 maximum"), core.ContextOverflow},
		"error behind a 200":         {says(200, "overloaded_error", "Overloaded"), again},
		"refusal behind a 200":       {says(200, "authentication_error", "no "+canaryKey), core.ModelRefused},
		"bad gateway":                {page(502), again},
		"unavailable":                {page(503), again},
		"gateway timeout":            {page(504), again},
		"overloaded page":            {page(529), again},
		"too large page":             {page(413), core.ContextOverflow},
		"forbidden page":             {page(403), core.ModelRefused},
		"a page behind a 200":        {page(200), core.ModelProtocolError},
		"wrong key":                  {says(401, "authentication_error", "invalid x-api-key "+canaryKey), core.ModelRefused},
		"no permission":              {says(403, "permission_error", "your key "+canaryKey+" may not"), core.ModelRefused},
		"no money":                   {says(400, "invalid_request_error", "Your credit balance is too low"), core.ModelRefused},
		"no such model":              {says(404, "not_found_error", "model: claude-x"), core.ModelRefused},
		"conflict":                   {says(409, "conflict_error", "try again"), again},
		"request too large":          {says(413, "request_too_large", "Request exceeds the maximum size"), core.ContextOverflow},
		"nothing at all":             {modeltest.Stream(""), again},
		"only pings":                 {modeltest.Stream(event("ping", nil) + event("ping", nil)), again},
		"no message_stop":            {modeltest.Stream(stream(half...) + event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "end_turn"}})), again},
		"no message_delta":           {modeltest.Stream(stream(half...) + event("message_stop", nil)), core.ModelStopped},
		"null for a reason":          {modeltest.Stream(stream(half...) + event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": nil}}) + event("message_stop", nil)), core.ModelStopped},
		"a call, no reason":          {modeltest.Stream(stream(called...) + event("message_stop", nil)), core.ModelProtocolError},
		"no content_block_stop":      {modeltest.Stream(stream(start, opened(0, `{"type":"tool_use","id":"a","name":"weather","input":{}}`), more(0, "input_json_delta", "partial_json", `{}`), finish("tool_use"))), core.ModelProtocolError},
		"the context is full":        {modeltest.Stream(stream(half...) + finish("model_context_window_exceeded")), core.ModelStopped},
		"refusal":                    {modeltest.Stream(stream(half...) + finish("refusal")), core.ModelStopped},
		"the bound":                  {modeltest.Stream(stream(half...) + finish("max_tokens")), core.ModelStopped},
		"a reason nobody knows":      {modeltest.Stream(stream(half...) + finish("bored")), core.ModelStopped},
		"two starts":                 {modeltest.Stream(stream(start, start, textBlock(0, "x"), finish("end_turn"))), core.ModelProtocolError},
		"an event of 17 MiB":         {modeltest.Stream(stream(start, textBlock(0, strings.Repeat("x", 17<<20)), finish("end_turn"))), core.ModelProtocolError},
		"an answer of 9 MiB":         {modeltest.Stream(stream(start, textBlock(0, strings.Repeat("x", 9<<20)), finish("end_turn"))), core.ModelProtocolError},
		"arguments that are no JSON": {modeltest.Stream(stream(start, toolBlock(0, "a", "weather", `{"location":`), finish("tool_use"))), core.ModelProtocolError},
		"a member twice":             {modeltest.Stream(stream(start, toolBlock(0, "a", "weather", `{"location":"a","location":"b"}`), finish("tool_use"))), core.ModelProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replay := modeltest.NewReplay(tc.fault, modeltest.Stream(warm))
			server := httptest.NewServer(replay)
			defer server.Close()
			var ran []string
			h := agenttest.Bind(t, reader(t, "Help.", &ran).Bind(newModel(t, anthropic.Config{BaseURL: server.URL, APIKey: canaryKey})))
			run := h.Run("Oslo?")
			requests := 1
			if tc.kind == again {
				run.Completed(nil)
				run.Said("user: Oslo?\nassistant: Warm.")
				requests = 2
			} else {
				run.Failed(tc.kind)
			}
			if n := len(replay.Requests()); n != requests || len(ran) != 0 {
				t.Errorf("%d requests, want %d; handlers %v", n, requests, ran)
			}
			if p := run.Progress(); p.Outcome.Error != nil && p.Outcome.Error.Hint == "" && tc.kind != core.ModelProtocolError {
				t.Errorf("no hint: %+v", p.Outcome.Error)
			}
			h.Verify()
			keyNowhere(t, h, run)
		})
	}
}

// keyNowhere looks for the key in what the product keeps and says.
func keyNowhere(t *testing.T, h *agenttest.Host, run *agenttest.Run) {
	t.Helper()
	for _, r := range run.Records() {
		if raw, err := json.Marshal(r); err != nil || strings.Contains(string(raw), canaryKey) {
			t.Errorf("the key is in the records: %s, %v", raw, err)
		}
	}
	for _, e := range h.UserErrors() {
		if strings.Contains(fmt.Sprintf("%v %+v", e.Err, e), canaryKey) {
			t.Errorf("the key is in an error: %v", e.Err)
		}
	}
}

// Arguments that the tool does not take are the model's to mend.
func TestArgumentsThatDoNotFitAreAnswered(t *testing.T) {
	for name, args := range map[string]string{"an array": `[1]`, "a string": `"Oslo"`, "a number": `7`, "another type": `{"location":7}`, "a member too many": `{"location":"Oslo","x":1}`} {
		run, ran, replay := played(t, anthropic.Config{}, stream(start, toolBlock(0, "a", "weather", args), finish("tool_use")), warm)
		run.Completed(nil)
		if len(ran) != 0 || !strings.Contains(run.Transcript(), "tool: weather failed") || !strings.Contains(string(replay.Requests()[1]), `"is_error":true`) {
			t.Errorf("%s: handlers %v\n%s", name, ran, run.Transcript())
		}
	}
}

// How long to wait is in the headers of whatever limit is used up, where the
// answer does not say it outright.
//
// failure: A29
func TestWaitForALimitThatIsUsedUp(t *testing.T) {
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	limited := failed("rate_limit_error", "slow down")
	for name, tc := range map[string]struct {
		status int
		header modeltest.Header
		want   time.Duration
	}{
		"one of them":         {429, modeltest.Header{"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": in(40 * time.Second), "anthropic-ratelimit-requests-remaining": "5", "anthropic-ratelimit-requests-reset": in(time.Hour)}, 40 * time.Second},
		"the last":            {429, modeltest.Header{"anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-input-tokens-reset": in(40 * time.Second), "anthropic-ratelimit-output-tokens-remaining": "0", "anthropic-ratelimit-output-tokens-reset": in(50 * time.Second)}, 50 * time.Second},
		"said outright":       {429, modeltest.Header{"retry-after": "7", "anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": in(time.Hour)}, 7 * time.Second},
		"in the past":         {429, modeltest.Header{"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": in(-time.Second)}, 0},
		"never":               {429, modeltest.Header{"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": in(1000 * 24 * time.Hour)}, 0},
		"no time":             {429, modeltest.Header{"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "soon"}, 0},
		"nothing used up":     {429, modeltest.Header{"anthropic-ratelimit-requests-remaining": "1", "anthropic-ratelimit-requests-reset": in(time.Hour)}, 0},
		"another error":       {529, modeltest.Header{"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": in(time.Hour)}, 0},
		"another, in seconds": {529, modeltest.Header{"retry-after": "3"}, 3 * time.Second},
	} {
		body := limited
		if tc.status != 429 {
			body = failed("overloaded_error", "Overloaded")
		}
		_, err := ask(t, anthropic.Config{Now: func() time.Time { return now }}, modeltest.Exchange{Status: tc.status, ContentType: "application/json", Response: body, Header: tc.header})
		if e, ok := err.(*model.Error); !ok || e.RetryAfter != tc.want {
			t.Errorf("%s: %v, want a wait of %s", name, err, tc.want)
		}
	}
}

// A ping is life: a stream is given up only when not even that comes.
//
// failure: A10
func TestPingsKeepAStreamOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := stream(start, event("ping", nil), event("ping", nil), event("ping", nil), textBlock(0, "Warm."), finish("end_turn"))
		e := modeltest.Stream(whole)
		e.Pieces = func(left int) int { // one event in 50 seconds
			time.Sleep(50 * time.Second)
			return strings.Index(whole[len(whole)-left:], "\n\n") + 2
		}
		began := time.Now()
		if got, err := ask(t, anthropic.Config{}, e); err != nil || got.Stop != model.Stop || time.Since(began) < 5*time.Minute {
			t.Errorf("%+v, %v after %s", got, err, time.Since(began))
		}
	})
}

// Where the API is, in every form people give it.
func TestBaseURLForms(t *testing.T) {
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(warm))
	}))
	defer server.Close()
	for _, base := range []string{"", "/", "/gateway/anthropic", "/gateway/anthropic/"} {
		m, err := anthropic.FromEnv(func(name string) string {
			return map[string]string{"ANTHROPIC_API_KEY": canaryKey, "ANTHROPIC_BASE_URL": server.URL + base}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := modeltest.Ask(t.Context(), m, hello); err != nil {
			t.Errorf("%q: %v", base, err)
		}
	}
	want := []string{"/v1/messages", "/v1/messages", "/gateway/anthropic/v1/messages", "/gateway/anthropic/v1/messages"}
	if !slices.Equal(paths, want) {
		t.Errorf("asked %q", paths)
	}
	// One that is wrong is named as the likely cause.
	_, err := ask(t, anthropic.Config{}, modeltest.Exchange{Status: 404, ContentType: "text/plain", Response: "404 page not found"})
	if model.ClassOf(err) != model.Refused || !strings.Contains(err.Error(), "base URL") {
		t.Error(err)
	}
	// A password in it is as secret as the key.
	m := newModel(t, anthropic.Config{BaseURL: "http://kim:" + canaryKey + "@provider.invalid",
		HTTPClient: modeltest.NewReplay(says(407, "gremlin_error", "kim:"+canaryKey)).Client()})
	if _, err := modeltest.Ask(t.Context(), m, hello); err == nil || strings.Contains(err.Error(), canaryKey) {
		t.Error(err)
	}
}

// slowly reads a request for longer than a provider may be silent, and hands it
// on.
type slowly struct{ next http.RoundTripper }

func (s slowly) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	piece := make([]byte, 64)
	for {
		time.Sleep(50 * time.Second)
		n, err := req.Body.Read(piece)
		body = append(body, piece[:n]...)
		if err != nil {
			break
		}
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return s.next.RoundTrip(req)
}

// A request that takes long to send, such as one of large images, is not silence.
func TestSlowUploadIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := newModel(t, anthropic.Config{HTTPClient: &http.Client{Transport: slowly{modeltest.NewReplay(modeltest.Stream(warm))}}})
		if _, err := modeltest.Ask(t.Context(), m, hello); err != nil || time.Since(began) < 2*time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// What an adapter keeps of an answer is bounded, whatever the provider sends.
func TestFloodsAreBounded(t *testing.T) {
	if stride > 1 {
		t.Skip("megabytes of events take minutes under the race detector, which has nothing to find in them")
	}
	megabyte := strings.Repeat("x", 1<<20)
	text := opened(0, `{"type":"text","text":""}`)
	for name, tc := range map[string]struct{ before, again string }{
		"signatures":   {opened(0, `{"type":"thinking","thinking":""}`), more(0, "signature_delta", "signature", megabyte)},
		"citations":    {text, event("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "citations_delta", "citation": map[string]any{"cited_text": megabyte}}})},
		"no arguments": {opened(0, `{"type":"tool_use","id":"a","name":"t"}`), more(0, "input_json_delta", "partial_json", strings.Repeat(" ", 1<<20))},
		"repairs":      {text, strings.Repeat(event("message_delta", map[string]any{"usage": map[string]any{"output_tokens": -1}}), 200)},
	} {
		// No end of it ever comes.
		e := modeltest.Stream(stream(start, tc.before) + strings.Repeat(tc.again, 9)).Silent()
		if _, err := ask(t, anthropic.Config{IdleTimeout: time.Minute}, e); err == nil || model.ClassOf(err) != model.Protocol {
			t.Errorf("%s: %v", name, err)
		}
	}
}
