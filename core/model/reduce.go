package model

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/layover-run/layover/core/record"
)

// The ceilings of one response.
const (
	DefaultMaxParts = 16384
	DefaultMaxBytes = 8 << 20
	// MaxName is the longest tool call id and tool name, in bytes.
	MaxName = 256
)

// ErrTruncated is wrapped by the protocol error of a response that holds tool
// calls and was cut off: by the output limit, a filter, or the provider.
var ErrTruncated = errors.New("response cut off")

// Limits bound what one response may hold. Zero fields mean the defaults;
// larger values than the defaults have no effect.
type Limits struct {
	MaxParts int // stream parts, DefaultMaxParts
	MaxBytes int // estimated memory: content, and what each block costs; DefaultMaxBytes
}

// Reducer folds the parts of one stream into one response. It never repairs:
// a stream that breaks a rule ends in an *Error of class Protocol, which stays
// the answer to every later question. A Reducer is for one stream and one
// goroutine.
type Reducer struct {
	limits Limits
	parts  int
	bytes  int
	err    error

	started  bool
	finished bool
	blocks   []*block
	calls    map[string]*block // by call id
	earlier  map[providerCall]record.ToolCallPart
	usage    record.Usage
	response Response
}

// NewReducer makes a Reducer for one stream.
func NewReducer(limits Limits) *Reducer {
	return &Reducer{
		limits: Limits{
			MaxParts: tighten(limits.MaxParts, DefaultMaxParts),
			MaxBytes: tighten(limits.MaxBytes, DefaultMaxBytes),
		},
		calls: map[string]*block{},
	}
}

// Continue tells of the conversation that the response continues: it may answer
// calls that the provider was left to execute there. Without it a response
// answers its own calls only.
func (r *Reducer) Continue(conversation []record.Message) {
	r.earlier = map[providerCall]record.ToolCallPart{}
	for _, m := range conversation {
		for _, p := range m.Parts {
			switch p := p.(type) {
			case record.ToolCallPart:
				if p.ProviderExecuted {
					r.earlier[providerCall{p.Provider, p.ID}] = p
				}
			case record.ToolResultPart:
				if p.ProviderExecuted {
					delete(r.earlier, providerCall{p.Provider, p.Call})
				}
			}
		}
	}
}

// providerCall is a call that a provider was left to execute.
type providerCall struct{ provider, id string }

// BlockOverhead is what a block counts towards the bytes of a response beside
// its content: a block costs memory, however little it holds.
const BlockOverhead = 128

func tighten(limit, ceiling int) int {
	if limit <= 0 || limit > ceiling {
		return ceiling
	}
	return limit
}

// Add takes the next part. Its first error is final: the stream is worthless.
func (r *Reducer) Add(p Part) error {
	if r.err == nil {
		r.err = r.add(p)
	}
	return r.err
}

// Response is the complete response. Before Finish was added it is a protocol
// error, so nothing of a cut stream can have consequences.
func (r *Reducer) Response() (Response, error) {
	switch {
	case r.err != nil:
		return Response{}, r.err
	case !r.finished:
		return Response{}, protocol("stream ended before its completion")
	}
	return r.response, nil
}

func (r *Reducer) add(p Part) error {
	_, isStart := p.(Start)
	switch {
	case p == nil:
		return protocol("a nil part")
	case isPointer(p):
		return protocol("a part of type %T: pass the part by value", p)
	case r.finished:
		return protocol("%T after the completion", p)
	case isStart && r.started:
		return protocol("a second start")
	case !isStart && !r.started:
		return protocol("%T before the start", p)
	}
	if r.parts++; r.parts > r.limits.MaxParts {
		return protocol("more than %d parts", r.limits.MaxParts)
	}
	switch p := p.(type) {
	case Start:
		r.started = true
		r.response = Response{Provider: p.Provider, Model: p.Model, ResponseID: p.ResponseID}
		return r.grow(len(p.Provider) + len(p.Model) + len(p.ResponseID))
	case TextDelta:
		return r.delta(p.Index, textBlock, p.Text)
	case TextEnd:
		return r.end(p.Index, textBlock, p.Opaque)
	case ReasoningDelta:
		return r.delta(p.Index, reasoningBlock, p.Text)
	case ReasoningEnd:
		return r.end(p.Index, reasoningBlock, p.Opaque)
	case ToolCallStart:
		return r.startCall(p)
	case ToolArgsDelta:
		return r.delta(p.Index, callBlock, p.JSON)
	case ToolCallEnd:
		return r.end(p.Index, callBlock, p.Opaque)
	case ProviderToolResult:
		return r.providerResult(p)
	case UsageReport:
		return r.report(p.Usage)
	case Finish:
		return r.finish(p)
	}
	return protocol("unknown part type %T", p)
}

// isPointer finds the slip that the compiler does not: pointers to parts have
// the method of parts too.
func isPointer(p Part) bool {
	switch p.(type) {
	case *Start, *TextDelta, *TextEnd, *ReasoningDelta, *ReasoningEnd, *ToolCallStart, *ToolArgsDelta, *ToolCallEnd, *ProviderToolResult,
		*UsageReport, *Finish:
		return true
	}
	return false
}

func (r *Reducer) grow(n int) error {
	if r.bytes += n; r.bytes > r.limits.MaxBytes {
		return protocol("more than %d bytes in memory", r.limits.MaxBytes)
	}
	return nil
}

// open is the block of an index: the last one, or a new one above it. Only a
// start opens a call.
func (r *Reducer) open(index int, kind blockKind, start bool) (*block, error) {
	last := -1
	if n := len(r.blocks); n > 0 {
		b := r.blocks[n-1]
		last = b.index
		if index == last {
			switch {
			case start:
				return nil, protocol("block %d is used twice", index)
			case b.kind != kind:
				return nil, protocol("a %s part in %s block %d", kind, b.kind, index)
			case b.closed:
				return nil, protocol("block %d continues after its end", index)
			}
			return b, nil
		}
		if b.kind == callBlock && !b.closed && index > last {
			return nil, protocol("block %d starts before the arguments of call %q are complete", index, b.id)
		}
	}
	switch {
	case index < 0 || index < last:
		return nil, protocol("block index %d after %d", index, last)
	case kind == callBlock && !start:
		return nil, protocol("argument text in block %d, which holds no call", index)
	}
	b := &block{index: index, kind: kind}
	r.blocks = append(r.blocks, b)
	return b, r.grow(BlockOverhead)
}

func (r *Reducer) delta(index int, kind blockKind, text string) error {
	b, err := r.open(index, kind, false)
	if err != nil {
		return err
	}
	b.text.WriteString(text)
	return r.grow(len(text))
}

// end closes a block. Nothing more comes to it.
func (r *Reducer) end(index int, kind blockKind, opaque []byte) error {
	b, err := r.open(index, kind, false)
	if err != nil {
		return err
	}
	b.closed, b.opaque = true, append([]byte(nil), opaque...)
	return r.grow(len(opaque))
}

func (r *Reducer) startCall(p ToolCallStart) error {
	b, err := r.open(p.Index, callBlock, true)
	switch {
	case err != nil:
		return err
	case !graphic(p.ID):
		return protocol("a tool call id that is empty, over %d bytes or not printable", MaxName)
	case !graphic(p.Tool):
		return protocol("a tool name that is empty, over %d bytes or not printable", MaxName)
	case r.calls[p.ID] != nil:
		return protocol("tool call id %q is used twice", p.ID)
	}
	r.calls[p.ID] = b
	b.id, b.tool, b.provider = p.ID, p.Tool, p.ProviderExecuted
	return r.grow(len(p.ID) + len(p.Tool))
}

// providerResult takes the result of a call the provider executed: one for each
// such call, after it, and none for a call that is ours to run.
func (r *Reducer) providerResult(p ProviderToolResult) error {
	b, err := r.open(p.Index, resultBlock, true)
	if err != nil {
		return err
	}
	call := r.declared(p.Call)
	switch {
	case call == nil:
		return protocol("a provider's result for call %.40q, which this response does not declare", p.Call)
	case !call.provider:
		return protocol("a provider's result for call %q, which the provider does not execute", p.Call)
	case call.answered:
		return protocol("two results for call %q", p.Call)
	}
	if err := r.grow(len(p.Result) + len(p.Opaque)); err != nil {
		return err
	}
	result, err := record.JSONValue(p.Result)
	if err != nil {
		return &Error{Class: Protocol, Err: err, Message: fmt.Sprintf("the provider's result of call %q is not valid JSON: %s", p.Call, reason(err))}
	}
	call.answered = true
	b.closed, b.id, b.tool, b.failed = true, call.id, call.tool, p.Failed
	b.result, b.opaque = &result, append([]byte(nil), p.Opaque...)
	return nil
}

// declared is the call a result is for: of this response, or one that the same
// provider left open.
func (r *Reducer) declared(id string) *block {
	if call := r.calls[id]; call != nil {
		return call
	}
	key := providerCall{r.response.Provider, id}
	open, ok := r.earlier[key]
	if !ok {
		return nil
	}
	delete(r.earlier, key)
	return &block{kind: callBlock, id: open.ID, tool: open.Tool, provider: true}
}

func graphic(s string) bool {
	if s == "" || len(s) > MaxName || !utf8.ValidString(s) {
		return false
	}
	return strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) || unicode.IsSpace(c) }) < 0
}

// finish decides from the content and the reason together whether this is a
// response at all.
func (r *Reducer) finish(p Finish) error {
	size := len(p.Raw)
	for _, repair := range p.Repairs {
		size += len(repair.Name) + len(repair.Raw)
	}
	if err := r.grow(size); err != nil {
		return err
	}
	calls, ours := len(r.calls), 0
	for _, b := range r.blocks {
		if b.kind == callBlock && !b.provider {
			ours++
		}
	}
	switch p.Reason {
	case Length, ContentFilter, StopError, Other:
		if calls > 0 {
			return &Error{Class: Protocol, Err: ErrTruncated,
				Message: fmt.Sprintf("cut off by %s: no tool of this response may run", p.Reason)}
		}
	case Stop:
		if ours > 0 {
			return protocol("%d tool calls with the stop reason %q", ours, p.Reason)
		}
	case ToolCalls:
		if calls == 0 && !p.Paused {
			return protocol("the stop reason %q without a tool call", p.Reason)
		}
	default:
		return protocol("unknown stop reason %.40q", string(p.Reason))
	}
	message, err := r.message(p.Reason == ToolCalls)
	switch {
	case err != nil:
		return err
	case p.Paused && p.Reason != ToolCalls:
		return protocol("a pause with the stop reason %q", p.Reason)
	case p.Reason == Stop && !r.hasText(), len(message.Parts) == 0 && p.Paused:
		return protocol("empty answer: the response stopped without text or calls")
	}
	r.response.Message = message
	r.response.Stop, r.response.RawStop = p.Reason, p.Raw
	r.response.Usage = r.usage
	r.response.Repairs = append([]record.Repair(nil), p.Repairs...)
	r.finished = true
	return nil
}

func (r *Reducer) hasText() bool {
	for _, b := range r.blocks {
		if b.kind == textBlock && strings.TrimSpace(b.text.String()) != "" {
			return true
		}
	}
	return false
}

func (r *Reducer) message(again bool) (record.Message, error) {
	parts := make(record.Parts, 0, len(r.blocks))
	for _, b := range r.blocks {
		part, err := b.part(r.response.Provider, again)
		if err != nil {
			return record.Message{}, err
		}
		if part != nil {
			parts = append(parts, part)
		}
	}
	return record.Message{Role: record.Assistant, Parts: parts}, nil
}
