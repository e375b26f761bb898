package record

import "encoding/json"

// Role says who a message is from.
type Role string

// The roles of a message.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is one entry of a conversation's model-visible history.
type Message struct {
	Role  Role  `json:"role"`
	Parts Parts `json:"parts"`
}

// Part is one typed piece of a message: TextPart, ReasoningPart, ToolCallPart,
// ToolResultPart, MediaPart or InputPart.
type Part interface{ partType() string }

// TextPart is visible text; its value is a JSON string.
type TextPart struct {
	Text Value `json:"text"`
	// Opaque carries what the provider that wrote the text needs back with it
	// untouched, such as where the text is cited from.
	Opaque   Value  `json:"opaque,omitzero"` // a JSON string: the bytes in base64
	Provider string `json:"provider,omitempty"`
}

// ReasoningPart is the model's reasoning. Opaque carries the provider's own
// bytes (signatures, encrypted thoughts) and goes back to it untouched.
type ReasoningPart struct {
	Text     Value  `json:"text,omitzero"`
	Opaque   Value  `json:"opaque,omitzero"` // a JSON string: the bytes in base64
	Provider string `json:"provider,omitempty"`
}

// ToolCallPart is a complete call the model declared, arguments in canonical
// form, or as the raw text it sent when that text is not JSON.
type ToolCallPart struct {
	ID               string `json:"id"`
	Tool             string `json:"tool"`
	Args             Value  `json:"args"`
	ProviderExecuted bool   `json:"providerExecuted,omitempty"`
	// Provider names who executed the call, if the provider did, or whose Opaque
	// bytes there are: what it needs back with the call untouched.
	Provider string `json:"provider,omitempty"`
	Opaque   Value  `json:"opaque,omitzero"` // a JSON string: the bytes in base64
}

// ToolResultPart answers one call.
type ToolResultPart struct {
	Call             string `json:"call"`
	Tool             string `json:"tool"`
	Result           Value  `json:"result"`
	Failed           bool   `json:"failed,omitempty"`
	ProviderExecuted bool   `json:"providerExecuted,omitempty"`
	// Provider names who executed the call, if the provider did. Opaque carries
	// what it needs back untouched.
	Provider string `json:"provider,omitempty"`
	Opaque   Value  `json:"opaque,omitzero"` // a JSON string: the bytes in base64
}

// MediaPart is an image or a file, always stored aside.
type MediaPart struct {
	MediaType string `json:"mediaType"`
	Content   Ref    `json:"content"`
	Name      string `json:"name,omitempty"`
}

// InputPart stands for the submission's own input, rendered as its canonical
// JSON (or as plain text when the input is a string), so that the input is
// stored once.
type InputPart struct{}

func (TextPart) partType() string       { return "text" }
func (ReasoningPart) partType() string  { return "reasoning" }
func (ToolCallPart) partType() string   { return "toolCall" }
func (ToolResultPart) partType() string { return "toolResult" }
func (MediaPart) partType() string      { return "media" }
func (InputPart) partType() string      { return "input" }

// Parts is a message's content in order.
type Parts []Part

// Calls lists the tool calls of a message in declaration order.
func (m Message) Calls() []ToolCallPart {
	var calls []ToolCallPart
	for _, p := range m.Parts {
		if c, ok := p.(ToolCallPart); ok {
			calls = append(calls, c)
		}
	}
	return calls
}

// TextMessage is a message of one text part.
func TextMessage(role Role, text string) Message {
	return Message{Role: role, Parts: Parts{TextPart{Text: TextValue(text)}}}
}

// Usage is what a provider reported for one model call. A nil field was not
// reported: absent is not zero.
type Usage struct {
	InputTokens      *int64 `json:"inputTokens,omitempty"`      // all input, cached or not
	CacheReadTokens  *int64 `json:"cacheReadTokens,omitempty"`  // part of the input
	CacheWriteTokens *int64 `json:"cacheWriteTokens,omitempty"` // part of the input
	OutputTokens     *int64 `json:"outputTokens,omitempty"`     // all output
	ReasoningTokens  *int64 `json:"reasoningTokens,omitempty"`  // part of the output
	// CostMicroUSD is the estimated price in millionths of a dollar.
	CostMicroUSD *int64          `json:"costMicroUSD,omitempty"`
	Raw          json.RawMessage `json:"raw,omitempty"` // the provider's own report
}

// Add sums two reports. A field absent in both stays absent.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens:      addPresent(u.InputTokens, v.InputTokens),
		CacheReadTokens:  addPresent(u.CacheReadTokens, v.CacheReadTokens),
		CacheWriteTokens: addPresent(u.CacheWriteTokens, v.CacheWriteTokens),
		OutputTokens:     addPresent(u.OutputTokens, v.OutputTokens),
		ReasoningTokens:  addPresent(u.ReasoningTokens, v.ReasoningTokens),
		CostMicroUSD:     addPresent(u.CostMicroUSD, v.CostMicroUSD),
	}
}

// MaxSafeInteger is the largest integer every JSON peer holds exactly.
const MaxSafeInteger = 1<<53 - 1

func (u *Usage) counts() [6]*int64 {
	return [...]*int64{u.InputTokens, u.CacheReadTokens, u.CacheWriteTokens, u.OutputTokens, u.ReasoningTokens, u.CostMicroUSD}
}

// IsZero reports whether nothing was reported. A report of zeros is one.
func (u Usage) IsZero() bool {
	for _, n := range u.counts() {
		if n != nil {
			return false
		}
	}
	return len(u.Raw) == 0
}

func (u *Usage) check(c *coder) {
	for _, n := range u.counts() {
		if n != nil && (*n < 0 || *n > MaxSafeInteger) {
			c.fail(corrupt("a usage count of %d", *n))
		}
	}
}

// Valid reports whether every count is a safe integer: what a record can hold.
func (u Usage) Valid() bool {
	for _, n := range []*int64{u.InputTokens, u.CacheReadTokens, u.CacheWriteTokens, u.OutputTokens, u.ReasoningTokens, u.CostMicroUSD} {
		if n != nil && (*n < 0 || *n > MaxSafeInteger) {
			return false
		}
	}
	return true
}

func addPresent(a, b *int64) *int64 {
	if a == nil && b == nil {
		return nil
	}
	var sum int64
	if a != nil {
		sum += *a
	}
	if b != nil {
		sum += *b
	}
	return &sum
}
