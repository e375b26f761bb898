package modeltest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// canaries are texts of a request that have to be in what goes out, as JSON has
// them.
var canaries = map[string]string{
	"system": "system-canary-1", "user": "user-canary-2", "tool name": "tool_canary_3", "tool description": "description-canary-4",
	"tool parameter": "parameter_canary_5", "result": "result-canary-6",
}

func canaryRequest() *model.Request {
	return &model.Request{
		Messages: []record.Message{record.TextMessage(record.System, canaries["system"]), record.TextMessage(record.User, canaries["user"])},
		Tools: []model.Tool{
			{Name: canaries["tool name"], Description: canaries["tool description"],
				Schema: []byte(`{"type":"object","properties":{"` + canaries["tool parameter"] + `":{"type":"string"}}}`)},
			{Name: "look", Description: "Looks.", Schema: []byte(`{"type":"object"}`)},
		},
		MaxOutputTokens: 4711,
	}
}

// requests: what was asked for goes out, the same each time, and stays as it was.
func (s suite) requests(t *testing.T) {
	replay := NewReplay(Stream(s.Text("Hello.")), Stream(s.Text("Hello.")), Stream(s.Text("Hello.")))
	m := s.model(t, replay.Client())
	req := canaryRequest()
	for range 2 {
		if _, err := Ask(t.Context(), m, req); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(canaryRequest(), req); diff != "" {
		t.Errorf("the request was changed (-was +is)\n%s", diff)
	}
	bodies := replay.Requests()
	if !bytes.Equal(bodies[0], bodies[1]) {
		t.Errorf("one request goes out in two ways:\n%s\n%s", bodies[0], bodies[1])
	}
	for what, canary := range canaries {
		if what != "result" && !bytes.Contains(bodies[0], []byte(canary)) {
			t.Errorf("the %s is not in what goes out: %s", what, bodies[0])
		}
	}
	if !bytes.Contains(bodies[0], []byte("4711")) {
		t.Errorf("the bound of the output is not in what goes out: %s", bodies[0])
	}
	req.Choice = model.None
	if _, err := Ask(t.Context(), m, req); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(replay.Requests()[2], bodies[0]) {
		t.Errorf("a request that forbids calls goes out as one that does not: %s", bodies[0])
	}
}

// back: an answer goes back with everything it said, what the provider needs of
// it byte for byte, and with the results of its calls.
func (s suite) back(t *testing.T) {
	whole := false
	for name, a := range s.Answers {
		replay := NewReplay(Stream(a.Body), Stream(s.Text("Hello.")))
		m := s.model(t, replay.Client())
		req := canaryRequest()
		first, err := Ask(t.Context(), m, req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		next := record.TextMessage(record.User, canaries["result"])
		if calls := first.Message.Calls(); len(calls) > 0 && len(a.Calls) > 0 {
			next = record.Message{Role: record.Tool}
			for _, c := range calls {
				if !c.ProviderExecuted {
					next.Parts = append(next.Parts, record.ToolResultPart{Call: c.ID, Tool: c.Tool, Result: record.TextValue(canaries["result"])})
				}
			}
		}
		req.Messages = append(req.Messages, first.Message, next)
		if _, err := Ask(t.Context(), m, req); err != nil {
			t.Errorf("%s: the conversation cannot go on: %v", name, err)
			continue
		}
		sent := string(replay.Requests()[1])
		if got, want := strings.Count(sent, canaries["result"]), max(1, len(a.Calls)); got != want {
			t.Errorf("%s: %d results went back, want %d: %s", name, got, want, sent)
		}
		for _, said := range append(texts(first.Message), a.Back...) {
			quoted, err := json.Marshal(said)
			if err != nil {
				t.Fatal(err)
			}
			if said != "" && !strings.Contains(sent, said) && !strings.Contains(sent, strings.Trim(string(quoted), `"`)) {
				t.Errorf("%s: %q did not go back: %s", name, said, sent)
			}
		}
		whole = whole || len(a.Back) > 0
	}
	t.Run("bytes the provider needs", func(t *testing.T) {
		if !whole {
			t.Skip("no answer has any: set Answer.Back where the provider needs a signature, a thought or a result back")
		}
	})
}

// texts are the texts of a message, which may go back in blocks of their own.
func texts(m record.Message) (all []string) {
	for _, p := range m.Parts {
		if text, ok := p.(record.TextPart); ok {
			all = append(all, text.Text.Text())
		}
	}
	return all
}
