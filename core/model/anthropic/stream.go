package anthropic

import (
	"encoding/json"
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

	usage     usage
	blocks    []*block // started and not yet handed out in full, in order
	highest   int      // index of the last block that started
	started   bool     // message_start came
	ids       map[string]bool
	calls     int // complete application calls
	held      int // bytes that wait for an earlier block
	kept      int // bytes that go out with the end of a block
	repairs   []record.Repair
	container *container // where the provider runs code, if it does
	reason    string
	stopped   bool
}

// event is one event of the API, of any type. What a type does not use is not
// looked at: types that come later may have it in any form.
type event struct {
	Type         string          `json:"type"`
	Index        json.RawMessage `json:"index"`
	Message      json.RawMessage `json:"message"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        json.RawMessage `json:"delta"`
	Usage        json.RawMessage `json:"usage"`
}

// message is what a message_start begins with.
type message struct {
	ID        string          `json:"id"`
	Model     string          `json:"model"`
	Usage     json.RawMessage `json:"usage"`
	Container json.RawMessage `json:"container"`
}

type delta struct {
	Type        string          `json:"type"`
	Text        string          `json:"text"`
	Thinking    string          `json:"thinking"`
	Signature   string          `json:"signature"`
	PartialJSON string          `json:"partial_json"`
	Citation    json.RawMessage `json:"citation"`
	StopReason  string          `json:"stop_reason"`
	Container   json.RawMessage `json:"container"`
}

// read reads the stream to its message_stop. Whatever ends it before that is an
// error: there is no other way to tell a whole answer from half a one.
func (s *stream) read(body io.Reader) error {
	events := sse.NewReader(body)
	s.ids, s.highest, s.emit = map[string]bool{}, -1, (&gather{emit: s.emit}).out
	for !s.stopped {
		e, err := events.Next()
		if err != nil {
			return &readError{err}
		}
		if err := s.take(e); err != nil {
			return err
		}
		if s.kept > model.DefaultMaxBytes || len(s.repairs) > maxRepairs {
			return broke("more than %d bytes or %d repairs of one answer to keep", model.DefaultMaxBytes, maxRepairs)
		}
	}
	return nil
}

// maxRepairs is how much of an answer may be mended: a server that needs more of
// it speaks something else.
const maxRepairs = 1000

func (s *stream) take(raw sse.Event) error {
	if !utf8.Valid(raw.Data) {
		return broke("an event that is not UTF-8")
	}
	var e event
	switch err := json.Unmarshal(raw.Data, &e); {
	case err != nil && raw.Name == "error":
		e.Type = raw.Name
	case err != nil && raw.Name != "" && !events[raw.Name]:
		return nil // of a kind nobody here knows, so its data may be no JSON
	case err != nil:
		return broke("an event that is not the JSON it should be")
	case e.Type == "":
		e.Type = raw.Name
	}
	switch e.Type {
	case "message_start":
		return s.start(e)
	case "content_block_start", "content_block_delta", "content_block_stop":
		return s.block(e)
	case "message_delta":
		return s.change(e)
	case "message_stop":
		return s.finish()
	case "error":
		return s.m.refusal(http.StatusOK, s.header, raw.Data)
	}
	return nil // ping, and kinds of events that come in a later version
}

// events are the names whose data has to be JSON.
var events = map[string]bool{"message_start": true, "content_block_start": true, "content_block_delta": true,
	"content_block_stop": true, "message_delta": true, "message_stop": true, "message": true}

func (s *stream) start(e event) error {
	if s.started {
		return broke("a second message_start")
	}
	var msg message
	if err := decode(e.Message, &msg); err != nil {
		return broke("a message_start that is not the JSON it should be")
	}
	s.started = true
	s.runsIn(msg.Container)
	if msg.Model == "" {
		msg.Model = s.m.cfg.Model
	}
	if err := s.emit(model.Start{ResponseID: msg.ID, Provider: Provider, Model: msg.Model}); err != nil {
		return err
	}
	return s.report(msg.Usage)
}

// change takes what is known of the message at its end.
func (s *stream) change(e event) error {
	var d delta
	if err := decode(e.Delta, &d); err != nil {
		return broke("a message_delta that is not the JSON it should be")
	}
	if d.StopReason != "" {
		s.reason = d.StopReason
	}
	s.runsIn(d.Container)
	return s.report(e.Usage)
}

// runsIn keeps the last container that was named.
func (s *stream) runsIn(raw json.RawMessage) {
	var c container
	if decode(raw, &c) == nil && c.ID != "" {
		s.container = &c
	}
}

// decode is json.Unmarshal, where nothing at all is null.
func decode(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// block takes an event of one content block.
func (s *stream) block(e event) error {
	var index int
	var d delta
	if decode(e.Index, &index) != nil || misshapen(decode(e.Delta, &d), deltas[d.Type]) {
		return broke("a %s that is not the JSON it should be", e.Type)
	}
	switch e.Type {
	case "content_block_start":
		return s.open(index, e.ContentBlock)
	case "content_block_delta":
		return s.extend(index, d)
	}
	return s.close(index)
}

// open begins a content block.
func (s *stream) open(index int, raw json.RawMessage) error {
	var b blockStart
	if err := json.Unmarshal(raw, &b); b.Type == "" || misshapen(err, b.known()) {
		return broke("content block %d is not the JSON it should be", index)
	}
	if index <= s.highest {
		return broke("content block %d starts after block %d", index, s.highest)
	}
	s.highest = index
	bl := &block{index: index, kind: b.Type}
	s.blocks = append(s.blocks, bl)
	switch b.Type {
	case "text":
		bl.citations = b.Citations
		return s.out(bl, model.TextDelta{Index: index, Text: b.Text})
	case "thinking":
		bl.signature = b.Signature
		return s.out(bl, model.ReasoningDelta{Index: index, Text: b.Thinking})
	case "redacted_thinking":
		bl.redacted = b.Data
		return nil
	case "tool_use":
		bl.input, bl.extra = b.Input, extras(raw, "")
		return s.out(bl, model.ToolCallStart{Index: index, ID: s.callID(b.ID), Tool: b.Name})
	case serverToolUse, mcpToolUse:
		bl.input, bl.extra = b.Input, extras(raw, b.Name)
		return s.out(bl, model.ToolCallStart{Index: index, ID: s.callID(b.ID), Tool: capability(b.Name), ProviderExecuted: true})
	}
	if strings.HasSuffix(b.Type, "_tool_result") {
		return s.out(bl, model.ProviderToolResult{Index: index, Call: b.ToolUseID, Result: raw, Failed: b.failed()})
	}
	if s.m.cfg.Compat.RefuseUnknown {
		return broke("a content block of type %q, which is not known", short(b.Type))
	}
	s.repair("unknown-block", b.Type)
	bl.unknown = raw
	return nil
}

// extend adds a delta to its block.
func (s *stream) extend(index int, d delta) error {
	b := s.find(index)
	if b == nil {
		return broke("a delta for content block %d, which is not open", index)
	}
	switch b.kind + " " + d.Type {
	case "text text_delta":
		return s.out(b, model.TextDelta{Index: b.index, Text: d.Text})
	case "text citations_delta":
		b.citations = append(b.citations, d.Citation)
		s.kept += len(d.Citation)
		return nil
	case "thinking thinking_delta":
		return s.out(b, model.ReasoningDelta{Index: b.index, Text: d.Thinking})
	case "thinking signature_delta":
		b.signature += d.Signature
		s.kept += len(d.Signature)
		return nil
	case "tool_use input_json_delta", serverToolUse + " input_json_delta", mcpToolUse + " input_json_delta":
		return s.arguments(b, d.PartialJSON)
	}
	return s.strange(b, d)
}

// close ends a block. Its last part goes out.
func (s *stream) close(index int) error {
	b := s.find(index)
	if b == nil {
		return broke("the end of content block %d, which is not open", index)
	}
	b.closed = true
	last, err := s.last(b)
	if err != nil {
		return err
	}
	if last != nil {
		if err := s.out(b, last); err != nil {
			return err
		}
	}
	return s.advance()
}

// last is the part that ends a block, with what goes back with it.
func (s *stream) last(b *block) (model.Part, error) {
	switch b.kind {
	case "text":
		opaque, err := sealCitations(b.citations)
		if opaque == nil {
			return nil, err
		}
		return model.TextEnd{Index: b.index, Opaque: opaque}, err
	case "tool_use", serverToolUse, mcpToolUse:
		if b.kind == "tool_use" {
			s.calls++
		}
		return model.ToolCallEnd{Index: b.index, Opaque: b.extra}, s.endArguments(b)
	}
	seal := sealed{Model: s.m.cfg.Model, Signature: b.signature, Redacted: b.redacted, Block: b.unknown}
	if b.partial || b.kind != "thinking" && seal.empty() {
		seal = sealed{}
	}
	opaque, err := seal.bytes()
	if err != nil || opaque == nil && b.kind != "thinking" {
		return nil, err
	}
	return model.ReasoningEnd{Index: b.index, Opaque: opaque}, nil
}

var reasons = map[string]model.StopReason{
	"end_turn": model.Stop, "stop_sequence": model.Stop, "tool_use": model.ToolCalls, "max_tokens": model.Length,
	"model_context_window_exceeded": model.Length, "refusal": model.ContentFilter, "pause_turn": model.ToolCalls,
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
	paused := s.reason == "pause_turn"
	if s.calls > 0 && (paused || reason == model.Stop) {
		switch {
		case !s.m.cfg.Compat.KeepStopReason:
			reason, paused = model.ToolCalls, false // what the answer holds decides (A06)
			s.repair("stop-reason", s.reason)
		case paused:
			reason, paused = model.Other, false // no reason to run a call
		}
	}
	if s.container != nil {
		opaque, err := sealed{Container: s.container}.bytes()
		if err != nil {
			return err
		}
		if err := s.emit(model.ReasoningEnd{Index: s.highest + 1, Opaque: opaque}); err != nil {
			return err
		}
	}
	s.stopped = true
	return s.emit(model.Finish{Reason: reason, Paused: paused, Raw: short(s.reason), Repairs: s.repairs})
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
