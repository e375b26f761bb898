// Package model is the boundary to model providers: one method that streams
// typed parts, and one pure reduction of those parts into a response.
//
// Provider SDK types never cross it.
package model

import (
	"context"
	"encoding/json"

	"github.com/layover-run/layover/core/record"
)

// Model is one model of one provider. Stream sends the request and calls emit
// for every part in the order the provider sent it, on the calling goroutine.
// It returns emit's error unchanged, an *Error for what the provider or the
// network did, or nil when the provider's stream ended properly. It never
// retries. When ctx ends it returns promptly and releases the connection.
type Model interface {
	Stream(ctx context.Context, req *Request, emit func(Part) error) error
}

// Named is implemented by models that say what they are.
type Named interface {
	// Identity is the provider's name and the model's name.
	Identity() (provider, model string)
}

// Request is one model request with every payload inline.
type Request struct {
	Messages []record.Message
	Tools    []Tool
	// ProviderTools are the tools the provider may execute itself.
	ProviderTools []ProviderTool `json:",omitempty"`
	// Choice says whether tools may be called.
	Choice Choice
	// Output is the JSON Schema of the final answer; nil means free text.
	Output json.RawMessage
	// MaxOutputTokens bounds the answer; 0 leaves it to the provider.
	MaxOutputTokens int
	// Media are the bytes of the messages' MediaParts, by the SHA-256 of their
	// Content in hex. The messages pin them, so they are in no digest again.
	Media map[string][]byte `json:"-"`
}

// Tool is a tool as the model sees it.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments, canonical
}

// ProviderTool enables one tool that the provider executes itself, such as a
// web search. What it may do, how it recovers and how far it is trusted is
// between the author and the provider: no handler, approval or authorization of
// ours takes part (PEX-05).
type ProviderTool struct {
	// Name is what the provider calls the tool in its responses.
	Name string
	// Config is the provider's own declaration of the tool, as JSON; the adapter
	// knows its form. It is part of the definition's digest. Without one the tool is
	// not declared, only its calls are accepted: for what another tool brings along.
	Config json.RawMessage
}

// Choice constrains tool use.
type Choice string

// The tool choices.
const (
	Auto Choice = "auto"
	None Choice = "none"
)

// Part is one piece of a streamed response: Start, TextDelta, TextEnd,
// ReasoningDelta, ReasoningEnd, ToolCallStart, ToolArgsDelta, ToolCallEnd,
// ProviderToolResult, UsageReport, Finish.
// Parts are passed by value.
type Part interface{ part() }

// Start opens the response: exactly one, first.
type Start struct{ ResponseID, Provider, Model string }

// TextDelta appends visible text to block Index. Indexes never fall.
type TextDelta struct {
	Index int
	Text  string
}

// TextEnd closes a block of text with what the provider needs back with it byte
// for byte, such as where the text is cited from. A block that has no such bytes
// needs no end.
type TextEnd struct {
	Index  int
	Opaque []byte
}

// ReasoningDelta appends reasoning to block Index.
type ReasoningDelta struct {
	Index int
	Text  string
}

// ReasoningEnd closes a reasoning block with the provider's opaque bytes.
type ReasoningEnd struct {
	Index  int
	Opaque []byte
}

// ToolCallStart opens a call in block Index.
type ToolCallStart struct {
	Index    int
	ID, Tool string
	// ProviderExecuted says that the provider runs this call itself: its
	// ProviderToolResult follows in the same response, or, where that ends with
	// ToolCalls, in the next one.
	ProviderExecuted bool
}

// ToolArgsDelta appends raw argument text to the open call of block Index.
type ToolArgsDelta struct {
	Index int
	JSON  string
}

// ToolCallEnd closes a call: its arguments are complete. They are one JSON
// value; for a call without parameters a ToolArgsDelta sends {} before.
type ToolCallEnd struct {
	Index int
	// Opaque is what the provider needs back with the call byte for byte.
	Opaque []byte
}

// ProviderToolResult is block Index: the complete result of a call that the
// provider executed, declared before it in the same response or left open by an
// earlier one of the conversation. It stays part of the assistant's message and
// goes back to the same provider.
type ProviderToolResult struct {
	Index int
	Call  string
	// Result is what the provider sent, as one JSON value.
	Result json.RawMessage
	// Opaque is what the provider needs back byte for byte, if Result is not
	// enough for that.
	Opaque []byte
	Failed bool
}

// UsageReport is the cumulative usage so far; the last one counts.
type UsageReport struct{ Usage record.Usage }

// Finish completes the response: exactly one, last.
type Finish struct {
	Reason StopReason
	// Paused says, beside ToolCalls, that the provider interrupted a turn of its
	// own: it goes on when it is asked again with this response as it is. Such a
	// response needs no call.
	Paused  bool
	Raw     string
	Repairs []record.Repair
}

func (Start) part()              {}
func (TextDelta) part()          {}
func (TextEnd) part()            {}
func (ReasoningDelta) part()     {}
func (ReasoningEnd) part()       {}
func (ToolCallStart) part()      {}
func (ToolArgsDelta) part()      {}
func (ToolCallEnd) part()        {}
func (ProviderToolResult) part() {}
func (UsageReport) part()        {}
func (Finish) part()             {}

// StopReason is the closed set of normalised reasons (D-19).
type StopReason string

// The stop reasons. Only Stop can be final; only ToolCalls can run tools.
const (
	Stop          StopReason = "stop"
	ToolCalls     StopReason = "tool-calls"
	Length        StopReason = "length"
	ContentFilter StopReason = "content-filter"
	StopError     StopReason = "error"
	Other         StopReason = "other"
)

// Response is one reduced, complete response.
type Response struct {
	Message    record.Message
	Stop       StopReason
	RawStop    string
	Provider   string
	Model      string
	ResponseID string
	Usage      record.Usage
	Repairs    []record.Repair
}
