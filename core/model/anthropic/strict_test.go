package anthropic_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/model/modeltest"
)

// strictProvider refuses what the real one refuses of a conversation with tool
// calls and reasoning, and answers the first request with the first of its
// answers and a request with results with the second one.
type strictProvider struct {
	t       *testing.T
	answers []modeltest.Exchange
}

func (p *strictProvider) client() *http.Client { return &http.Client{Transport: p} }

type strictBlock struct {
	Type, ID, Thinking, Signature, Data string
	ToolUseID                           string `json:"tool_use_id"`
	Input                               json.RawMessage
}

func (p *strictProvider) RoundTrip(req *http.Request) (*http.Response, error) {
	var body struct {
		Thinking *struct{ Type string }
		Messages []struct {
			Role    string
			Content []strictBlock
		}
	}
	raw := modeltest.NewReplay(p.answers[0])
	if _, err := raw.RoundTrip(req); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw.Requests()[0], &body); err != nil {
		p.t.Errorf("request: %v", err)
	}
	answer := p.answers[0]
	for i, m := range body.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			p.t.Errorf("message %d is from the %s", i, m.Role)
		}
		open := map[string]bool{}
		for _, b := range m.Content {
			switch b.Type {
			case "thinking":
				if !strings.Contains(p.answers[0].Response, b.Signature) || b.Signature == "" {
					p.t.Errorf("a signature that was never given: %q", b.Signature)
				}
			case "redacted_thinking":
				if !strings.Contains(p.answers[0].Response, b.Data) || b.Data == "" {
					p.t.Errorf("redacted reasoning that was never given: %q", b.Data)
				}
			case "tool_use":
				open[b.ID] = true
			}
		}
		if len(open) > 0 {
			if body.Thinking == nil {
				p.t.Error("the request asks for no reasoning, although the open call was made with it")
			}
			if m.Content[0].Type != "thinking" && m.Content[0].Type != "redacted_thinking" {
				p.t.Errorf("reasoning is on and the open call's message begins with %s", m.Content[0].Type)
			}
			if i+1 == len(body.Messages) {
				p.t.Error("a call without a result")
				break
			}
			for _, b := range body.Messages[i+1].Content {
				if b.Type == "tool_result" && !open[b.ToolUseID] {
					p.t.Errorf("a result of no call: %s", b.ToolUseID)
				}
				delete(open, b.ToolUseID)
			}
			if len(open) > 0 {
				p.t.Errorf("calls without a result: %v", open)
			}
			answer = p.answers[1]
		}
	}
	return modeltest.NewReplay(answer).RoundTrip(req)
}
