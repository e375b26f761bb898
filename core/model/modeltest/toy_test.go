package modeltest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/provider"
	"github.com/layover-run/layover/core/model/sse"
	"github.com/layover-run/layover/core/record"
)

// toy is the adapter of a small provider of this test's own, which the suite must
// pass, and, with a bug, one that it must not.
type toy struct {
	base, key string
	client    *http.Client
	idle      time.Duration
	bug       string
}

// said is one event of the toy's stream, and the body of its errors.
type said struct {
	Do    string `json:"do"` // begin, text, thought, call, end, error
	Text  string `json:"text,omitempty"`
	Seal  []byte `json:"seal,omitempty"`
	ID    string `json:"id,omitempty"`
	Args  string `json:"args,omitempty"`
	In    *int64 `json:"in,omitempty"`
	Out   *int64 `json:"out,omitempty"`
	Class string `json:"class,omitempty"`
}

func (m *toy) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	err := m.once(ctx, req, emit)
	if m.bug == "asks again" && model.ClassOf(err) == model.Transient && ctx.Err() == nil && err != nil {
		return m.once(ctx, req, emit)
	}
	return err
}

func (m *toy) once(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	if m.bug == "changes the request" {
		req.MaxOutputTokens++
	}
	body, err := json.Marshal(m.shown(*req))
	if err != nil {
		return err
	}
	idle := m.idle
	if m.bug == "waits for ever" {
		idle = 1 << 62
	}
	call := provider.Begin(ctx, idle)
	defer call.End()
	r, err := http.NewRequestWithContext(call.Context(), http.MethodPost, m.base, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+m.key)
	resp, err := m.client.Do(r)
	if err != nil {
		return m.broken(ctx, call, err)
	}
	if m.bug != "leaves the answer open" {
		defer resp.Body.Close()
	}
	in := call.Body(resp.Body)
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		text, err := io.ReadAll(io.LimitReader(in, 64<<10))
		if err != nil {
			return m.broken(ctx, call, err)
		}
		return m.refused(resp, text)
	}
	return m.read(ctx, call, resp, in, emit)
}

// shown is the request as the toy sends it: its own JSON, with the opaque bytes
// as they are in records.
func (m *toy) shown(req model.Request) model.Request {
	var messages []record.Message
	for _, msg := range req.Messages {
		var parts record.Parts
		for _, p := range msg.Parts {
			if thought, ok := p.(record.ReasoningPart); ok {
				if m.bug == "loses a signature" {
					continue
				}
				raw, err := thought.Opaque.Bytes()
				if err != nil {
					panic(err)
				}
				p = record.TextPart{Text: record.TextValue(string(raw))}
			}
			if _, ok := p.(record.ToolResultPart); ok && m.bug == "loses a result" {
				continue
			}
			parts = append(parts, p)
		}
		messages = append(messages, record.Message{Role: msg.Role, Parts: parts})
	}
	req.Messages = messages
	if m.bug == "forgets the choice" {
		req.Choice = model.Auto
	}
	return req
}

func (m *toy) read(ctx context.Context, call *provider.Call, resp *http.Response, in io.Reader, emit func(model.Part) error) error {
	next := sse.NewReader(in).Next
	if m.bug == "reads short lines" {
		lines := bufio.NewScanner(in)
		next = func() (sse.Event, error) {
			for lines.Scan() {
				if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					return sse.Event{Data: []byte(data)}, nil
				}
			}
			return sse.Event{}, io.EOF
		}
	}
	index := 0
	for ; ; index++ {
		e, err := next()
		if errors.Is(err, io.EOF) && m.bug == "ends what was cut" {
			return emit(model.Finish{Reason: model.Stop})
		}
		if errors.Is(err, io.EOF) && m.bug == "runs what was cut" && index > 1 {
			return errors.Join(emit(model.ToolCallStart{Index: index, ID: "x", Tool: "look"}), emit(model.ToolArgsDelta{Index: index, JSON: "{}"}),
				emit(model.ToolCallEnd{Index: index}), emit(model.Finish{Reason: model.ToolCalls}))
		}
		if err != nil {
			return m.broken(ctx, call, err)
		}
		var s said
		if json.Unmarshal(e.Data, &s) != nil {
			return &model.Error{Class: model.Protocol, Message: "toy: no JSON"}
		}
		if s.Do == "error" {
			return m.refused(resp, e.Data)
		}
		for _, p := range m.parts(index, s) {
			err := emit(p)
			if m.bug == "hides the caller's error" && err != nil {
				return &model.Error{Class: model.Transient, Message: "toy: it broke", Err: err}
			}
			if err != nil {
				return err
			}
			if _, end := p.(model.Finish); end {
				return nil
			}
		}
	}
}

func (m *toy) parts(index int, s said) []model.Part {
	switch s.Do {
	case "begin":
		return []model.Part{model.Start{Provider: "toy", Model: "toy-1"}}
	case "text":
		return []model.Part{model.TextDelta{Index: index, Text: s.Text}}
	case "thought":
		return []model.Part{model.ReasoningEnd{Index: index, Opaque: s.Seal}}
	case "call":
		return []model.Part{model.ToolCallStart{Index: index, ID: s.ID, Tool: s.Text}, model.ToolArgsDelta{Index: index, JSON: s.Args}, model.ToolCallEnd{Index: index}}
	}
	reason := model.StopReason(s.Text)
	var parts []model.Part
	if m.bug == "invents a call" {
		reason = model.ToolCalls
		parts = append(parts, model.ToolCallStart{Index: index, ID: "x", Tool: "look"}, model.ToolArgsDelta{Index: index, JSON: "{}"}, model.ToolCallEnd{Index: index})
	}
	if m.bug != "loses the usage" {
		parts = append(parts, model.UsageReport{Usage: record.Usage{InputTokens: s.In, OutputTokens: s.Out}})
	}
	return append(parts, model.Finish{Reason: reason, Raw: s.Text})
}

func (m *toy) refused(resp *http.Response, body []byte) error {
	var s said
	err := &model.Error{Class: provider.ByStatus(resp.StatusCode), Message: fmt.Sprintf("toy: HTTP status %d", resp.StatusCode)}
	if json.Unmarshal(body, &s) == nil && s.Class != "" {
		err.Class = model.Class(s.Class)
	} else if resp.StatusCode == http.StatusOK {
		err.Class = model.Protocol
	}
	err.RetryAfter = provider.RetryAfter(resp.Header, time.Now())
	err.Err = provider.NewRedactor(m.key).Detailf("%s", body)
	switch m.bug {
	case "tells the key":
		err.Err = fmt.Errorf("%.200q", body)
	case "cannot wait":
		err.RetryAfter = 0
	case "takes all for passing":
		err.Class = model.Transient
	}
	return err
}

func (m *toy) broken(ctx context.Context, call *provider.Call, err error) error {
	var long *sse.TooLongError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case call.Idle():
		return &model.Error{Class: model.Transient, Message: "toy: silence", Err: provider.ErrIdle}
	case errors.As(err, &long):
		return &model.Error{Class: model.Protocol, Message: "toy: too long", Err: err}
	}
	return &model.Error{Class: model.Transient, Message: "toy: the connection broke", Err: provider.NewRedactor(m.key).Detailf("%v", err)}
}
