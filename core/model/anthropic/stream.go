package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/sse"
	"github.com/layover-run/layover/core/record"
)

// readError is the end of a stream that is not the stream's own doing.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

// stream turns the events of one answer into parts.
type stream struct {
	m      *Model
	header http.Header
	emit   func(model.Part) error

	usage   usage
	blocks  []*block // started and not yet handed out in full, in order
	highest int      // index of the last block that started
	started bool     // message_start came
	ids     map[string]bool
	calls   int // complete application calls
	held    int // bytes that wait for an earlier block
	repairs []record.Repair
	reason  string
	stopped bool
}

// event is one event of the API, of any type.
type event struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		ID    string          `json:"id"`
		Model string          `json:"model"`
		Usage json.RawMessage `json:"usage"`
	} `json:"message"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        delta           `json:"delta"`
	Usage        json.RawMessage `json:"usage"`
}

type delta struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Thinking    string `json:"thinking"`
	Signature   string `json:"signature"`
	PartialJSON string `json:"partial_json"`
	StopReason  string `json:"stop_reason"`
}

// read reads the stream to its message_stop. Whatever ends it before that is an
// error: there is no other way to tell a whole answer from half a one.
func (s *stream) read(body io.Reader) error {
	events := sse.NewReader(body)
	s.ids, s.highest = map[string]bool{}, -1
	for !s.stopped {
		e, err := events.Next()
		if err != nil {
			return &readError{err}
		}
		if err := s.take(e); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) take(raw sse.Event) error {
	if !utf8.Valid(raw.Data) {
		return broke("an event that is not UTF-8")
	}
	var e event
	if err := json.Unmarshal(raw.Data, &e); err != nil {
		var kind *json.UnmarshalTypeError
		if raw.Name == "error" || errors.As(err, &kind) && e.Type == "error" {
			return s.m.refusal(http.StatusOK, s.header, raw.Data)
		}
		return broke("an event that is not the JSON it should be")
	}
	if e.Type == "" {
		e.Type = raw.Name
	}
	switch e.Type {
	case "message_start":
		return s.start(e)
	case "content_block_start":
		return s.open(e)
	case "content_block_delta":
		return s.extend(e)
	case "content_block_stop":
		return s.close(e.Index)
	case "message_delta":
		if e.Delta.StopReason != "" {
			s.reason = e.Delta.StopReason
		}
		return s.report(e.Usage)
	case "message_stop":
		return s.finish()
	case "error":
		return s.m.refusal(http.StatusOK, s.header, raw.Data)
	}
	return nil // ping, and kinds of events that come in a later version
}

func (s *stream) start(e event) error {
	if s.started {
		return broke("a second message_start")
	}
	s.started = true
	name := e.Message.Model
	if name == "" {
		name = s.m.cfg.Model
	}
	if err := s.emit(model.Start{ResponseID: e.Message.ID, Provider: Provider, Model: name}); err != nil {
		return err
	}
	return s.report(e.Message.Usage)
}

// open begins a content block.
func (s *stream) open(e event) error {
	var b blockStart
	if err := json.Unmarshal(e.ContentBlock, &b); err != nil {
		return broke("content block %d is not the JSON it should be", e.Index)
	}
	if e.Index <= s.highest {
		return broke("content block %d starts after block %d", e.Index, s.highest)
	}
	s.highest = e.Index
	bl := &block{index: e.Index, kind: b.Type}
	s.blocks = append(s.blocks, bl)
	switch b.Type {
	case "text":
		return s.out(bl, model.TextDelta{Index: bl.index, Text: b.Text})
	case "thinking":
		bl.signature = b.Signature
		return s.out(bl, model.ReasoningDelta{Index: bl.index, Text: b.Thinking})
	case "redacted_thinking":
		bl.redacted = b.Data
		return nil
	case "tool_use":
		bl.input = b.Input
		return s.out(bl, model.ToolCallStart{Index: bl.index, ID: s.callID(b.ID), Tool: b.Name})
	case "server_tool_use":
		bl.input = b.Input
		return s.out(bl, model.ToolCallStart{Index: bl.index, ID: s.callID(b.ID), Tool: b.Name, ProviderExecuted: true})
	}
	if strings.HasSuffix(b.Type, "_tool_result") {
		return s.out(bl, model.ProviderToolResult{Index: bl.index, Call: b.ToolUseID, Result: e.ContentBlock, Failed: b.failed()})
	}
	return broke("a content block of type %q, which is not supported", short(b.Type))
}

// extend adds a delta to its block.
func (s *stream) extend(e event) error {
	b := s.find(e.Index)
	if b == nil {
		return broke("a delta for content block %d, which is not open", e.Index)
	}
	d := e.Delta
	switch b.kind + " " + d.Type {
	case "text text_delta":
		return s.out(b, model.TextDelta{Index: b.index, Text: d.Text})
	case "thinking thinking_delta":
		return s.out(b, model.ReasoningDelta{Index: b.index, Text: d.Thinking})
	case "thinking signature_delta":
		b.signature += d.Signature
		return nil
	case "tool_use input_json_delta", "server_tool_use input_json_delta":
		return s.arguments(b, d.PartialJSON)
	case "text citations_delta": // where the text has it from; not part of it
		return nil
	}
	return broke("a delta of type %q in a block of type %q", short(d.Type), b.kind)
}

// close ends a block. Its last part goes out.
func (s *stream) close(index int) error {
	b := s.find(index)
	if b == nil {
		return broke("the end of content block %d, which is not open", index)
	}
	b.closed = true
	switch b.kind {
	case "thinking", "redacted_thinking":
		opaque, err := s.m.seal(b.signature, b.redacted)
		if err != nil {
			return err
		}
		if err := s.out(b, model.ReasoningEnd{Index: b.index, Opaque: opaque}); err != nil {
			return err
		}
	case "tool_use":
		s.calls++
		fallthrough
	case "server_tool_use":
		if err := s.endArguments(b); err != nil {
			return err
		}
		if err := s.out(b, model.ToolCallEnd{Index: b.index}); err != nil {
			return err
		}
	}
	return s.advance()
}

var reasons = map[string]model.StopReason{
	"end_turn": model.Stop, "stop_sequence": model.Stop, "tool_use": model.ToolCalls, "max_tokens": model.Length,
	"model_context_window_exceeded": model.Length, "refusal": model.ContentFilter,
}

// finish completes the answer.
func (s *stream) finish() error {
	if len(s.blocks) > 0 {
		return broke("message_stop while content block %d is open", s.blocks[0].index)
	}
	reason, known := reasons[s.reason]
	if !known {
		reason = model.Other
	}
	if reason == model.Stop && s.calls > 0 && !s.m.cfg.Compat.KeepStopReason {
		reason = model.ToolCalls // what the answer holds decides (A06)
		s.repair("stop-reason", s.reason)
	}
	s.stopped = true
	return s.emit(model.Finish{Reason: reason, Raw: short(s.reason), Repairs: s.repairs})
}

func (s *stream) repair(name, raw string) {
	s.repairs = append(s.repairs, record.Repair{Name: name, Raw: short(raw)})
}

// callID makes the ids of an answer unique: they are labels, and servers repeat
// them or leave them out (A27).
func (s *stream) callID(id string) string {
	if !s.m.cfg.Compat.KeepCallIDs && (id == "" || s.ids[id]) {
		s.repair("call-id", id)
		base := id
		if base == "" {
			base = "call"
		}
		for n := 2; id == "" || s.ids[id]; n++ {
			id = base + "_" + strconv.Itoa(n)
		}
	}
	s.ids[id] = true
	return id
}

// short bounds a text of the provider's that is kept as it came.
func short(s string) string {
	const most = 200
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// sealed is the opaque part of a reasoning block: what the provider needs back.
type sealed struct {
	Model     string `json:"model"` // asked for; a signature is for its model only
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

// seal keeps a signature or a redacted block; a block that has neither has
// nothing to send back.
func (m *Model) seal(signature, redacted string) ([]byte, error) {
	if signature == "" && redacted == "" {
		return nil, nil
	}
	opaque, err := json.Marshal(sealed{Model: m.cfg.Model, Signature: signature, Redacted: redacted})
	if err != nil {
		return nil, fmt.Errorf("anthropic: a signature does not encode: %w", err)
	}
	return opaque, nil
}
