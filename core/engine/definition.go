package engine

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/tool"
)

// Definition is an agent as the engine runs it: its facts as data, its user
// functions over raw JSON. Package agent builds it from typed functions.
type Definition struct {
	Spec  core.Spec
	Facts Facts
	Hooks Hooks
	// Tools has exactly the tools of Spec, in the same order.
	Tools []*tool.Tool
	// ProviderTools has exactly those of Spec, with their configuration.
	ProviderTools []model.ProviderTool
	// Model answers the agent's requests; nil until the definition is bound.
	Model model.Model
}

// Facts is what functions without the agent's code know about it (D-61).
type Facts struct {
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	Description string            `json:"description"`
	Digest      string            `json:"digest"`
	Input       json.RawMessage   `json:"input"` // JSON Schema with at least one example
	Output      json.RawMessage   `json:"output,omitempty"`
	Tools       []ToolFacts       `json:"tools"`
	Limits      map[string]string `json:"limits"`
}

// ToolFacts is one line of a manifest.
type ToolFacts struct {
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	Class    string `json:"class"`
	Approval bool   `json:"approval,omitempty"`
}

// Hooks are the user functions of a definition over raw JSON. Each may panic:
// the interpreter turns that into a defect.
type Hooks struct {
	// Decode checks a submission's input against the input type.
	Decode func(input json.RawMessage) error
	// Instruct evaluates the instructions from the decoded input.
	Instruct func(ctx context.Context, input json.RawMessage) (string, error)
	// Prompt makes what the model is shown of the input; nil shows its JSON. It
	// is asked anew for each request and answers the same for the same input.
	Prompt func(ctx context.Context, input json.RawMessage) (Prompt, error)
	// Conclude decodes the final text into the output, as canonical JSON.
	Conclude func(text string) (json.RawMessage, error)
}

func (d *Definition) tool(name string) *tool.Tool {
	for i, t := range d.Spec.Tools {
		if t.Name == name {
			return d.Tools[i]
		}
	}
	return nil
}

func (d *Definition) toolNames() string {
	names := make([]string, 0, len(d.Spec.Tools))
	for _, t := range d.Spec.Tools {
		names = append(names, t.Name)
	}
	return strings.Join(names, ", ")
}
