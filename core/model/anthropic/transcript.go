package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// transcript turns a conversation into the turns this API takes: user and
// assistant in turn, and behind each call of the assistant's exactly one result,
// first thing in the next message.
type transcript struct {
	m      *Model
	req    *model.Request
	system []sdk.TextBlockParam
	turns  []turn
	used   map[string]bool // call ids of this request
	open   []openCall      // of the last assistant message, not answered yet

	served    map[string]string // provider's calls that were sent, by the ids they have in the conversation
	container *container        // the last one named
}

type turn struct {
	role   sdk.MessageParamRole
	blocks []sdk.ContentBlockParamUnion
}

// openCall is a call by the id it has in the conversation and the one it got in
// this request.
type openCall struct{ id, as string }

// addAll adds a conversation. A call that the provider has still to execute goes
// back to it from where it goes on: out of the last message of the assistant, with
// nothing but results of our own behind it. Anywhere else it would make every
// later request fail, so it is left out like an answer that never came.
func (t *transcript) addAll(conversation []record.Message) error {
	open := unexecuted(conversation)
	last, resumes := -1, true
	for i, msg := range conversation {
		switch msg.Role {
		case record.Assistant:
			last, resumes = i, true
		case record.User:
			resumes = false
		}
	}
	for i, msg := range conversation {
		lost := func(part int) bool { return open[place{i, part}] && (i != last || !resumes) }
		if err := t.add(msg, lost); err != nil {
			return err
		}
	}
	t.answerOpen()
	return nil
}

// place is a part of a message of a conversation.
type place struct{ message, part int }

// unexecuted are the calls of the provider's that have no result. An id counts
// for the last call that has it.
func unexecuted(conversation []record.Message) map[place]bool {
	open, at := map[place]bool{}, map[string]place{}
	for i, msg := range conversation {
		for n, p := range msg.Parts {
			switch p := p.(type) {
			case record.ToolCallPart:
				if p.ProviderExecuted {
					at[p.ID] = place{i, n}
					open[at[p.ID]] = true
				}
			case record.ToolResultPart:
				if p.ProviderExecuted {
					delete(open, at[p.Call])
				}
			}
		}
	}
	return open
}

func (t *transcript) add(msg record.Message, lost func(part int) bool) error {
	switch msg.Role {
	case record.System:
		for _, p := range msg.Parts {
			if text, ok := p.(record.TextPart); ok && !blank(text.Text.Text()) {
				t.system = append(t.system, sdk.TextBlockParam{Text: text.Text.Text()})
			}
		}
		return nil
	case record.Tool:
		for _, p := range msg.Parts {
			if r, ok := p.(record.ToolResultPart); ok {
				t.answer(r)
			}
		}
		return nil
	case record.User:
		t.answerOpen()
		return t.user(msg)
	case record.Assistant:
		t.answerOpen()
		return t.assistant(msg, lost)
	}
	return refuse("a message of the role %q", msg.Role)
}

// put adds blocks to the turn of a role, which goes on while nobody else spoke.
func (t *transcript) put(role sdk.MessageParamRole, blocks ...sdk.ContentBlockParamUnion) {
	if len(blocks) == 0 {
		return
	}
	if n := len(t.turns); n > 0 && t.turns[n-1].role == role {
		t.turns[n-1].blocks = append(t.turns[n-1].blocks, blocks...)
		return
	}
	t.turns = append(t.turns, turn{role, blocks})
}

func (t *transcript) user(msg record.Message) error {
	for _, p := range msg.Parts {
		switch p := p.(type) {
		case record.TextPart:
			if text := p.Text.Text(); !blank(text) {
				t.put(sdk.MessageParamRoleUser, sdk.NewTextBlock(text))
			}
		case record.MediaPart:
			b, err := t.media(p)
			if err != nil {
				return err
			}
			t.put(sdk.MessageParamRoleUser, b)
		default:
			return refuse("a %T in a message of the user", p)
		}
	}
	return nil
}

func (t *transcript) assistant(msg record.Message, lost func(part int) bool) error {
	for n, p := range msg.Parts {
		switch p := p.(type) {
		case record.TextPart:
			if !blank(p.Text.Text()) {
				t.put(sdk.MessageParamRoleAssistant, textBlock(p))
			}
		case record.ReasoningPart:
			if b, ok := t.reasoning(p); ok {
				t.put(sdk.MessageParamRoleAssistant, b)
			}
		case record.ToolCallPart:
			if p.ProviderExecuted {
				if p.Provider == Provider && !lost(n) {
					t.served[p.ID] = t.id(p.ID)
					t.put(sdk.MessageParamRoleAssistant, t.call(p, serverToolUse, t.served[p.ID]))
				}
				continue
			}
			call := openCall{p.ID, t.id(p.ID)}
			t.open = append(t.open, call)
			t.put(sdk.MessageParamRoleAssistant, t.call(p, "tool_use", call.as))
		case record.ToolResultPart:
			if t.served[p.Call] == "" || p.Provider != Provider { // of another provider, which this one cannot read
				continue
			}
			b, err := t.providerResult(p)
			if err != nil {
				return err
			}
			t.put(sdk.MessageParamRoleAssistant, b)
		default:
			return refuse("a %T in a message of the assistant", p)
		}
	}
	return nil
}

// textBlock is a text with its citations, which the provider needs to go on
// citing.
func textBlock(p record.TextPart) sdk.ContentBlockParamUnion {
	opaque, err := p.Opaque.Bytes()
	if err != nil || len(opaque) == 0 || p.Provider != Provider {
		return sdk.NewTextBlock(p.Text.Text())
	}
	from, err := citations(opaque)
	if err != nil || len(from) == 0 {
		return sdk.NewTextBlock(p.Text.Text())
	}
	return param.Override[sdk.ContentBlockParamUnion](map[string]any{"type": "text", "text": p.Text.Text(), "citations": from})
}

// reasoning goes back whole or not at all: without its signature, or to another
// model than the one that signed it, the API refuses it (A30).
func (t *transcript) reasoning(p record.ReasoningPart) (sdk.ContentBlockParamUnion, bool) {
	var s sealed
	opaque, err := p.Opaque.Bytes()
	if err != nil || p.Provider != Provider || json.Unmarshal(opaque, &s) != nil {
		return sdk.ContentBlockParamUnion{}, false
	}
	if s.Container != nil {
		t.container = s.Container
	}
	switch {
	case s.Model != t.m.cfg.Model:
	case s.Block != nil:
		return param.Override[sdk.ContentBlockParamUnion](s.Block), true
	case s.Redacted != "":
		return sdk.NewRedactedThinkingBlock(s.Redacted), true
	case s.Signature != "":
		return sdk.NewThinkingBlock(s.Signature, p.Text.Text()), true
	}
	return sdk.ContentBlockParamUnion{}, false
}

// answer pairs a result with its call. A result that answers no call of the
// message before is left out: the API refuses it.
func (t *transcript) answer(r record.ToolResultPart) {
	for i, call := range t.open {
		if call.id == r.Call {
			t.open = append(t.open[:i:i], t.open[i+1:]...)
			t.put(sdk.MessageParamRoleUser, toolResult(call.as, r.Result.Text(), r.Failed))
			return
		}
	}
}

// unanswered is what the model is told of a call whose result is not there.
const unanswered = "The call was interrupted and its outcome is unknown."

// answerOpen answers the calls that nobody did, because one of them would make
// every later request fail (A02).
func (t *transcript) answerOpen() {
	for _, call := range t.open {
		t.put(sdk.MessageParamRoleUser, toolResult(call.as, unanswered, true))
	}
	t.open = nil
}

func toolResult(id, text string, failed bool) sdk.ContentBlockParamUnion {
	r := sdk.ToolResultBlockParam{ToolUseID: id}
	if failed {
		r.IsError = sdk.Bool(true)
	}
	if !blank(text) {
		r.Content = []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: text}}}
	}
	return sdk.ContentBlockParamUnion{OfToolResult: &r}
}

// id makes the id of a call fit for this request: of the characters the API
// takes, and not used before. It depends on what came before only.
func (t *transcript) id(id string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, id)
	if clean == "" {
		clean = "call"
	}
	unique := clean
	for n := 2; t.used[unique]; n++ {
		unique = clean + "_" + strconv.Itoa(n)
	}
	t.used[unique] = true
	return unique
}

// object makes arguments the JSON object that the API wants.
func object(args record.Value) json.RawMessage {
	switch {
	case len(args.Inline) > 0 && args.Inline[0] == '{':
		return args.Inline
	case len(args.Inline) == 0, string(args.Inline) == "null":
		return json.RawMessage(`{}`)
	}
	return json.RawMessage(`{"value":` + string(args.Inline) + `}`)
}

// call is a call as the provider sent it, with the id it has in this request. A
// call made by code that the provider runs names the call that runs it.
func (t *transcript) call(p record.ToolCallPart, kind, id string) sdk.ContentBlockParamUnion {
	opaque, err := p.Opaque.Bytes()
	if err != nil || p.Provider != Provider {
		opaque = nil
	}
	if len(opaque) == 0 && kind == "tool_use" {
		return sdk.NewToolUseBlock(id, object(p.Args), p.Tool)
	}
	block := map[string]any{"type": kind, "name": p.Tool}
	if json.Unmarshal(opaque, &block) == nil {
		if caller, ok := block["caller"].(map[string]any); ok {
			if by, ok := caller["tool_id"].(string); ok && t.served[by] != "" {
				caller["tool_id"] = t.served[by]
			}
		}
	}
	block["id"], block["input"] = id, object(p.Args)
	return param.Override[sdk.ContentBlockParamUnion](block)
}

// providerResult is the block of a result as the provider sent it, with the id
// of its call in this request.
func (t *transcript) providerResult(p record.ToolResultPart) (sdk.ContentBlockParamUnion, error) {
	var block map[string]json.RawMessage
	if err := json.Unmarshal(p.Result.Inline, &block); err != nil || block["type"] == nil {
		return sdk.ContentBlockParamUnion{}, refuse("the result of the provider's tool %q is not a block", p.Tool)
	}
	block["tool_use_id"] = json.RawMessage(strconv.Quote(t.served[p.Call]))
	return param.Override[sdk.ContentBlockParamUnion](block), nil
}

// unreasoned reports whether the calls whose results come last were made without
// reasoning.
func (t *transcript) unreasoned() bool {
	n := len(t.turns)
	if n < 2 || t.turns[n-1].role != sdk.MessageParamRoleUser || t.turns[n-1].blocks[0].OfToolResult == nil {
		return false
	}
	first := t.turns[n-2].blocks[0]
	return first.OfThinking == nil && first.OfRedactedThinking == nil
}

// media is an image or a document, from the bytes that came with the request.
func (t *transcript) media(p record.MediaPart) (sdk.ContentBlockParamUnion, error) {
	none := sdk.ContentBlockParamUnion{}
	body, ok := t.req.Media[p.Content.SHA256]
	if !ok {
		return none, refuse("the bytes of a %s are not in the request", p.MediaType)
	}
	switch p.MediaType {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return sdk.NewImageBlockBase64(p.MediaType, base64.StdEncoding.EncodeToString(body)), nil
	case "application/pdf":
		return sdk.NewDocumentBlock(sdk.Base64PDFSourceParam{Data: base64.StdEncoding.EncodeToString(body)}), nil
	case "text/plain":
		return sdk.NewDocumentBlock(sdk.PlainTextSourceParam{Data: string(body)}), nil
	}
	return none, refuse("media of type %q: this provider takes PNG, JPEG, GIF, WebP, PDF and plain text", short(p.MediaType))
}
