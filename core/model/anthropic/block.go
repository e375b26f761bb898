package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/layover-run/layover/core/model"
)

// block is one content block under way.
type block struct {
	index  int
	kind   string
	closed bool
	held   []model.Part // what waits until the block before is complete

	signature, redacted string
	citations           []json.RawMessage
	extra               []byte          // members of a call that go back with it
	unknown             json.RawMessage // the start of a block of an unknown type
	partial             bool            // a delta of it was left out
	input               json.RawMessage // arguments that came with the start
	raw                 string          // argument text that may still turn out to be none
	passed              bool            // argument text went out
}

// blockStart is what a content block starts with.
type blockStart struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`

	Citations []json.RawMessage `json:"citations"`
}

func (b blockStart) known() bool {
	switch b.Type {
	case "text", "thinking", "redacted_thinking", "tool_use", serverToolUse, mcpToolUse:
		return true
	}
	return strings.HasSuffix(b.Type, "_tool_result")
}

// failed reports whether a result of the provider's own tool is an error.
func (b blockStart) failed() bool {
	var content struct {
		Type string `json:"type"`
	}
	return b.IsError || json.Unmarshal(b.Content, &content) == nil && strings.HasSuffix(content.Type, "_error")
}

func (s *stream) find(index int) *block {
	for _, b := range s.blocks {
		if b.index == index && !b.closed {
			return b
		}
	}
	return nil
}

// out hands out a part of a block, or holds it until the blocks before are
// complete: blocks may be sent mixed, and each delta belongs to the block its
// index names (A28).
func (s *stream) out(b *block, p model.Part) error {
	if b == s.blocks[0] {
		return s.emit(p)
	}
	if s.held += size(p); s.held > model.DefaultMaxBytes || len(b.held) >= model.DefaultMaxParts {
		return broke("more than %d bytes of a block sent before the one ahead of it", model.DefaultMaxBytes)
	}
	if n := len(b.held); n > 0 {
		if both, ok := joined(b.held[n-1], p); ok {
			b.held[n-1] = both
			return nil
		}
	}
	b.held = append(b.held, p)
	return nil
}

func size(p model.Part) int {
	switch p := p.(type) {
	case model.TextDelta:
		return len(p.Text)
	case model.ReasoningDelta:
		return len(p.Text)
	case model.ToolArgsDelta:
		return len(p.JSON)
	case model.ReasoningEnd:
		return len(p.Opaque)
	case model.TextEnd:
		return len(p.Opaque)
	case model.ToolCallEnd:
		return len(p.Opaque)
	case model.ProviderToolResult:
		return len(p.Result)
	}
	return 0
}

// advance hands out what waited for blocks that are complete now.
func (s *stream) advance() error {
	for len(s.blocks) > 0 && s.blocks[0].closed {
		if s.blocks = s.blocks[1:]; len(s.blocks) == 0 {
			break
		}
		next := s.blocks[0]
		for _, p := range next.held {
			s.held -= size(p)
			if err := s.emit(p); err != nil {
				return err
			}
		}
		next.held = nil
	}
	return nil
}

const space = " \t\r\n"

// arguments passes argument text on as it came, once it is sure to be some.
func (s *stream) arguments(b *block, text string) error {
	if b.passed {
		return s.out(b, model.ToolArgsDelta{Index: b.index, JSON: text})
	}
	b.raw += text
	s.kept += len(text)
	if strings.HasPrefix("null", strings.Trim(b.raw, space)) {
		return nil
	}
	return s.passArguments(b, b.raw)
}

func (s *stream) passArguments(b *block, text string) error {
	b.passed = true
	return s.out(b, model.ToolArgsDelta{Index: b.index, JSON: text})
}

// endArguments settles what a call without argument text means: arguments that
// came with its start, or none, which is {} (A07).
func (s *stream) endArguments(b *block) error {
	given := strings.Trim(string(b.input), space)
	if given == "null" || strings.Trim(given, space+"{}") == "" {
		given = ""
	}
	switch raw := strings.Trim(b.raw, space); {
	case b.passed && given != "":
		return broke("a tool call with arguments both at its start and behind it")
	case b.passed:
		return nil
	case given != "":
		return s.passArguments(b, given)
	case (raw == "" || raw == "null") && !s.m.cfg.Compat.KeepEmptyArguments:
		s.repair("empty-arguments", b.raw)
		return s.passArguments(b, "{}")
	}
	return s.passArguments(b, b.raw)
}
