// Package demo is a model that needs no account: it answers every agent by
// rules, so that an agent can be tried before a provider is chosen.
//
// It knows no agent. It reads tools and answers off the JSON Schemas of the
// request, and takes values from the conversation by their names:
//
//  1. Every named value of this run's input and of its successful tool results
//     goes into a pool. Names are compared without case, "_" and "-"; a nested
//     value also has its path as a name (customer.id is customerId too). Later
//     messages win; within one document the value nearest to the top wins, and
//     of a list the first element.
//  2. A tool is callable when it was not called in this run and the pool fills
//     every required parameter with a value of its type, enumeration, bounds
//     and format. Only constants of the schema need no pool.
//  3. Tools that only read are called first, all that are callable in one
//     response, until none is left. A reader's name begins with get, look,
//     find, search, list, read, fetch, check or lookup as a whole word. It is
//     no reader if the name goes on to something else (check_out,
//     list_item_for_sale, fetch_and_delete) or the description says that it
//     does something: places, orders, pays, sends, deletes, creates, sells,
//     posts, and the like.
//  4. Any other tool may change the world, and is only called when it was asked
//     for: at least one of its required parameters comes from the pool, and the
//     run's instructions or input say what it is called. That is the first word
//     of its name (cancel_order: cancel) and, if there are longer words behind
//     it, one of these (order). A first word that says nothing, such as issue,
//     make, do, run, create or set, is left out: issue_refund needs refund.
//     Singular and plural are one word. A sentence with not, never, no or
//     without asks for nothing, and neither do the names in a JSON input.
//  5. One such call is made in a run, and none after a call that failed or was
//     denied. Another one follows only if it needs a value that nothing but the
//     result of the first provides.
//  6. Then comes the answer: a value of the output schema filled from the same
//     pool, or a short text that says what was asked and what the tools said.
//     What the pool does not have is a fixed modest value: 0 or a number next
//     to a bound, false, an empty list, no bytes, 1970-01-01T00:00:00Z.
//
// It compares words and understands none: "say when a refund is due" asks for
// one. Give a tool that must not run on a word RequireApproval, also with a real
// model. Of a schema it honours type, enum, const, required, properties,
// additionalProperties, items and their number, the bounds of numbers,
// multipleOf, the format date-time, base64 and references inside the schema; of
// anyOf, oneOf and allOf the first choice; and nothing else, such as pattern.
package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// Model is the demo model. It is deterministic, keeps no state and is safe for
// concurrent use.
type Model struct{ delay time.Duration }

// Option changes the model.
type Option func(*Model)

// WithDelay waits before each streamed piece, to watch a run while it works.
// Defaults to 0.
func WithDelay(perDelta time.Duration) Option { return func(m *Model) { m.delay = perDelta } }

// New makes a demo model.
func New(opts ...Option) *Model {
	m := &Model{}
	for _, o := range opts {
		o(m)
	}
	return m
}

// Identity names the model in records.
func (m *Model) Identity() (provider, name string) { return "demo", "demo-1" }

// Stream answers one request. Its only errors are those of emit and ctx.
func (m *Model) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	rendered, err := json.Marshal(req.Messages)
	if err != nil {
		return &model.Error{Class: model.Refused, Message: "the messages do not encode", Err: err}
	}
	sum := sha256.Sum256(rendered)
	s := stream{ctx: ctx, emit: emit, delay: m.delay, id: hex.EncodeToString(sum[:6])}
	s.input = utf8.RuneCount(rendered)
	for _, t := range req.Tools {
		s.input += utf8.RuneCountInString(t.Name) + utf8.RuneCountInString(t.Description) + utf8.RuneCount(t.Schema)
	}
	provider, name := m.Identity()
	s.send(model.Start{ResponseID: "resp_" + s.id, Provider: provider, Model: name})
	s.send(model.UsageReport{Usage: s.usage()})

	r := read(req, func(record.ToolResultPart) bool { return true })
	if calls := plan(req, r); len(calls) > 0 {
		s.calls(calls)
	} else {
		s.text(answer(req, r))
		s.finish(model.Stop)
	}
	return s.err
}

// stream sends parts until the first error.
type stream struct {
	ctx           context.Context
	emit          func(model.Part) error
	delay         time.Duration
	id            string
	index         int
	input, output int // runes
	err           error
}

func (s *stream) send(p model.Part) {
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	if s.err == nil {
		s.err = s.emit(p)
	}
}

// pause spaces out the pieces a person sees.
func (s *stream) pause() {
	if s.delay <= 0 || s.err != nil {
		return
	}
	timer := time.NewTimer(s.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		s.err = s.ctx.Err()
	}
}

func (s *stream) text(text string) {
	for _, piece := range pieces(text, size(text, 24)) {
		s.pause()
		s.output += utf8.RuneCountInString(piece)
		s.send(model.TextDelta{Index: s.index, Text: piece})
	}
	s.index++
}

func (s *stream) calls(calls []call) {
	var names []string
	for _, c := range calls {
		names = append(names, c.tool)
	}
	s.text("Next: " + strings.Join(names, ", ") + ".")
	for i, c := range calls {
		s.pause()
		s.send(model.ToolCallStart{Index: s.index, ID: fmt.Sprintf("call_%s_%d", s.id, i+1), Tool: c.tool})
		for _, piece := range pieces(string(c.args), size(string(c.args), 32)) {
			s.output += utf8.RuneCountInString(piece)
			s.send(model.ToolArgsDelta{Index: s.index, JSON: piece})
		}
		s.send(model.ToolCallEnd{Index: s.index})
		s.index++
	}
	s.finish(model.ToolCalls)
}

func (s *stream) finish(reason model.StopReason) {
	s.send(model.UsageReport{Usage: s.usage()})
	s.send(model.Finish{Reason: reason, Raw: string(reason)})
}

// usage counts four characters as a token.
func (s *stream) usage() record.Usage {
	in, out := int64((s.input+3)/4), int64((s.output+3)/4)
	return record.Usage{InputTokens: &in, OutputTokens: &out}
}

// size is how many runes a piece of text has: least, and more where the text
// is so long that a person would wait for its end and a reader of the stream
// would run out of parts.
func size(text string, least int) int {
	const most = 256
	return max(least, (len(text)+most-1)/most)
}

// pieces cuts text after at most n runes, at a space where there is one.
func pieces(text string, n int) []string {
	var out []string
	for text != "" {
		end, count, space := 0, 0, 0
		for i, r := range text {
			if count == n {
				break
			}
			count++
			if end = i + utf8.RuneLen(r); r == ' ' {
				space = end
			}
		}
		if end < len(text) && space > 0 {
			end = space
		}
		out, text = append(out, text[:end]), text[end:]
	}
	return out
}
