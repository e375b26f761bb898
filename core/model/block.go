package model

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/layover-run/layover/core/record"
)

type blockKind string

const (
	textBlock      blockKind = "text"
	reasoningBlock blockKind = "reasoning"
	callBlock      blockKind = "tool call"
	resultBlock    blockKind = "provider result"
)

// block collects the deltas of one index.
type block struct {
	index  int
	kind   blockKind
	closed bool
	text   strings.Builder // text, reasoning, or raw argument text
	opaque []byte
	id     string
	tool   string

	provider bool          // executed by the provider
	answered bool          // a call with its provider's result
	result   *record.Value // of a result block
	failed   bool
}

// part is the finished block; nil for a block without any content. again says
// that another turn follows, which may answer what the provider left open.
func (b *block) part(provider string, again bool) (record.Part, error) {
	text := b.text.String()
	if !utf8.ValidString(text) {
		return nil, protocol("%s block %d is not UTF-8", b.kind, b.index)
	}
	switch b.kind {
	case callBlock:
		if !b.closed {
			return nil, protocol("the arguments of call %q are not complete", b.id)
		}
		args, err := record.JSONValue([]byte(text))
		if err != nil {
			return nil, &Error{Class: Protocol, Err: err,
				Message: fmt.Sprintf("the arguments of call %q are not valid JSON: %s", b.id, reason(err))}
		}
		if b.provider && !b.answered && !again {
			return nil, protocol("call %q, executed by the provider, has no result", b.id)
		}
		part := record.ToolCallPart{ID: b.id, Tool: b.tool, Args: args, ProviderExecuted: b.provider, Opaque: record.BytesValue(b.opaque)}
		if b.provider || len(b.opaque) > 0 {
			part.Provider = provider
		}
		return part, nil
	case resultBlock:
		return record.ToolResultPart{Call: b.id, Tool: b.tool, Result: *b.result, Failed: b.failed, ProviderExecuted: true, Provider: provider,
			Opaque: record.BytesValue(b.opaque)}, nil
	case reasoningBlock:
		if text == "" && len(b.opaque) == 0 {
			return nil, nil
		}
		part := record.ReasoningPart{Opaque: record.BytesValue(b.opaque), Provider: provider}
		if text != "" {
			part.Text = record.TextValue(text)
		}
		return part, nil
	default:
		if text == "" {
			return nil, nil
		}
		part := record.TextPart{Text: record.TextValue(text), Opaque: record.BytesValue(b.opaque)}
		if len(b.opaque) > 0 {
			part.Provider = provider
		}
		return part, nil
	}
}

// reason is what is wrong with JSON text, without the text itself: the model
// may have put anything there.
func reason(err error) string {
	for _, known := range []string{"duplicate member", "unexpected end", "data after the value"} {
		if strings.Contains(err.Error(), known) {
			return known
		}
	}
	return "malformed"
}
