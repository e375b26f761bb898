package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/layover-run/layover/core/model"
)

func refuse(format string, args ...any) *model.Error {
	return &model.Error{Class: model.Refused, Message: "anthropic: " + fmt.Sprintf(format, args...)}
}

// params makes the API's request. It is a pure function of the request and the
// configuration, and what comes first in it depends on nothing that comes later:
// the prefix that the provider caches is the same bytes in every turn.
func (m *Model) params(req *model.Request) (sdk.MessageNewParams, error) {
	p := sdk.MessageNewParams{Model: sdk.Model(m.cfg.Model), MaxTokens: int64(m.cfg.MaxOutputTokens)}
	if req.MaxOutputTokens > 0 {
		p.MaxTokens = int64(req.MaxOutputTokens)
	}
	t := transcript{m: m, req: req, used: map[string]bool{}, served: map[string]string{}}
	if err := t.addAll(req.Messages); err != nil {
		return p, err
	}
	if len(t.turns) == 0 {
		return p, refuse("the conversation has no message that can be sent")
	}
	p.System = t.system
	if c := t.container; c != nil && (c.ExpiresAt.IsZero() || m.cfg.Now().Before(c.ExpiresAt)) {
		p.Container.OfString = sdk.String(c.ID)
	}
	for _, turn := range t.turns {
		p.Messages = append(p.Messages, sdk.MessageParam{Role: turn.role, Content: turn.blocks})
	}
	if err := m.tools(&p, req); err != nil {
		return p, err
	}
	m.think(&p, t)
	m.breakpoints(&p)
	return p, nil
}

func (m *Model) tools(p *sdk.MessageNewParams, req *model.Request) error {
	for _, t := range req.Tools {
		schema := t.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		tool := &sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](schema)}
		if t.Description != "" {
			tool.Description = sdk.String(t.Description)
		}
		p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: tool})
	}
	for _, t := range req.ProviderTools {
		if len(t.Config) == 0 { // its calls are accepted, that is all
			continue
		}
		var config map[string]json.RawMessage
		if err := json.Unmarshal(t.Config, &config); err != nil || config["type"] == nil {
			return refuse("the declaration of the provider's tool %q is no JSON object with a type", t.Name)
		}
		p.Tools = append(p.Tools, param.Override[sdk.ToolUnionParam](t.Config))
	}
	if req.Choice == model.None && len(p.Tools) > 0 {
		p.ToolChoice = sdk.ToolChoiceUnionParam{OfNone: &sdk.ToolChoiceNoneParam{}}
	}
	return nil
}

// think asks for reasoning. With a budget the API refuses a conversation whose
// open tool calls were made without reasoning, as those of another model: such a
// request goes without it.
func (m *Model) think(p *sdk.MessageNewParams, t transcript) {
	switch {
	case m.cfg.Thinking.Adaptive:
		p.Thinking = param.Override[sdk.ThinkingConfigParamUnion](json.RawMessage(`{"type":"adaptive"}`))
	case m.cfg.Thinking.Budget > 0 && int64(m.cfg.Thinking.Budget) < p.MaxTokens && !t.unreasoned():
		p.Thinking = param.Override[sdk.ThinkingConfigParamUnion](
			json.RawMessage(fmt.Sprintf(`{"type":"enabled","budget_tokens":%d}`, m.cfg.Thinking.Budget)))
	}
}

// breakpoints marks where the provider may keep the prefix: behind what is the
// same for every turn, behind the last message, and behind the user's message
// before it, which the request before this one ended with.
func (m *Model) breakpoints(p *sdk.MessageNewParams) {
	if m.cfg.Cache == CacheOff {
		return
	}
	mark := sdk.NewCacheControlEphemeralParam()
	mark.TTL = sdk.CacheControlEphemeralTTL(m.cfg.Cache)
	if n := len(p.System); n > 0 {
		p.System[n-1].CacheControl = mark
	} else if n := len(p.Tools); n > 0 && p.Tools[n-1].OfTool != nil {
		p.Tools[n-1].OfTool.CacheControl = mark
	}
	marked := 0
	for i := len(p.Messages) - 1; i >= 0 && marked < 2; i-- {
		content := p.Messages[i].Content
		if p.Messages[i].Role != sdk.MessageParamRoleUser || len(content) == 0 {
			continue
		}
		if at := content[len(content)-1].GetCacheControl(); at != nil {
			*at = mark
			marked++
		}
	}
}

// blank reports text that the API refuses to take.
func blank(text string) bool { return strings.TrimSpace(text) == "" }
