package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// Config is what an agent is made of besides its types.
type Config[In any] struct {
	// Version names this state of the agent: change it with the instructions,
	// which are code and not part of the digest. It has no control characters.
	// Defaults to "1".
	Version string
	// Description says what the agent is for, to people and to other agents.
	Description string
	// Instructions make the system message from a run's input. Required; use
	// Text where they are always the same. An empty text is allowed: such a run
	// has no system message of its own.
	Instructions func(ctx context.Context, in In) (string, error)
	// Prompt makes what the model is shown of a run's input: a text, and images
	// or documents. Defaults to the input's JSON. It is asked anew for each
	// request and gives the same for the same input. At most 24 MiB of media.
	Prompt func(ctx context.Context, in In) (Prompt, error)
	// Tools the model may call, in the order it sees them.
	Tools []*tool.Tool
	// ProviderTools are tools the model's provider executes itself, such as a web
	// search. A call of any other tool by the provider fails the run.
	ProviderTools []model.ProviderTool
	// Policy bounds each run.
	Policy Policy
	// Examples of inputs, shown to those who submit work. Each has to be
	// valid. Without any, one is derived from the type.
	Examples []In
}

// Prompt is what the model is shown of an input.
type Prompt = engine.Prompt

// Media is an image or a document for the model.
type Media = engine.Media

// Text is instructions that do not depend on the input.
func Text[In any](s string) func(ctx context.Context, in In) (string, error) {
	return func(context.Context, In) (string, error) { return s, nil }
}

// Definition is an immutable agent declaration, safe for concurrent use.
type Definition struct {
	engine  engine.Definition
	in, out reflect.Type
	// patient says that the author set no MaxDuration.
	patient bool
}

var validName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,63}$`)

// contract is what the model is told about a typed answer. Its text is part of
// the digest.
const contract = "When you are done, answer with exactly one JSON value that conforms to the JSON Schema below. " +
	"Write nothing else: no prose before or after it and no code fence.\n"

// Define makes an agent that takes an In and answers with an Out.
//
// In is any type with a schema (tool.SchemaFor). An Out of type string is free
// text: the model's answer as it is. Any other Out has a schema too, which is
// shown to the model, and an answer that does not conform to it fails the run.
//
// The error joins everything that is wrong with the definition.
func Define[In, Out any](name string, c Config[In]) (*Definition, error) {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !validName.MatchString(name) {
		refuse("the name must match %s", validName)
	}
	if c.Instructions == nil {
		refuse("Config.Instructions is nil: use agent.Text for fixed instructions")
	}
	if c.Version == "" {
		c.Version = "1"
	}
	if !utf8.ValidString(c.Version) || strings.ContainsFunc(c.Version, unicode.IsControl) {
		refuse("Config.Version %q: a version is text without control characters", c.Version)
	}
	d := engine.Definition{
		Spec:  core.Spec{Agent: name, Version: c.Version},
		Facts: engine.Facts{Name: name, Version: c.Version, Description: c.Description, Tools: []engine.ToolFacts{}},
		Tools: slices.Clone(c.Tools),
	}
	errs = append(errs, addTools(&d, c.Tools)...)
	errs = append(errs, addProviderTools(&d, c.ProviderTools)...)
	approvals := slices.ContainsFunc(d.Spec.Tools, func(t core.ToolSpec) bool { return t.Approval })
	policy, problems := c.Policy.resolve(approvals)
	d.Spec.Policy, errs = policy, append(errs, problems...)
	for _, group := range slices.Sorted(maps.Keys(policy.Groups)) {
		if !slices.ContainsFunc(d.Spec.Tools, func(t core.ToolSpec) bool { return t.Group == group }) {
			errs = append(errs, &PolicyError{Field: "GroupConcurrency", Reason: fmt.Sprintf("no tool is in group %q", group)})
		}
	}
	for _, t := range d.Spec.Tools {
		if t.Timeout > policy.MaxDuration && policy.MaxDuration > 0 {
			refuse("tool %q: its timeout of %s does not fit MaxDuration (%s), so it could never start", t.Name, t.Timeout, policy.MaxDuration)
		}
	}
	input, err := input(&d, c)
	if err != nil {
		refuse("input: %w", err)
	}
	output, err := output[Out](&d)
	if err != nil {
		refuse("output: %w", err)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("agent %q: %w", name, errors.Join(errs...))
	}
	d.Facts.Limits = limits(policy)
	if d.Spec.Digest, err = digest(&d, input, output); err != nil {
		return nil, fmt.Errorf("agent %q: %w", name, err)
	}
	d.Facts.Digest = d.Spec.Digest
	return &Definition{engine: d, in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), patient: c.Policy.MaxDuration == 0}, nil
}

// MustDefine is Define for package variables: it panics on an error.
func MustDefine[In, Out any](name string, c Config[In]) *Definition {
	d, err := Define[In, Out](name, c)
	if err != nil {
		panic(err)
	}
	return d
}

func addTools(d *engine.Definition, tools []*tool.Tool) (errs []error) {
	seen := map[string]bool{}
	for i, t := range tools {
		if t == nil {
			errs = append(errs, fmt.Errorf("tool %d is nil", i+1))
			continue
		}
		if err := t.Err(); err != nil {
			errs = append(errs, err)
		}
		f := t.Facts()
		if seen[f.Name] {
			errs = append(errs, fmt.Errorf("two tools are named %q: rename one", f.Name))
		}
		seen[f.Name] = true
		d.Spec.Tools = append(d.Spec.Tools, core.ToolSpec{
			Name: f.Name, Version: f.Version, Class: f.Class, Approval: f.Approval, DenyFails: f.DenyFails,
			Sequential: f.Sequential, Group: f.Group, Timeout: f.Timeout, Probe: f.Probe,
		})
		d.Facts.Tools = append(d.Facts.Tools, engine.ToolFacts{
			Name: f.Name, Version: f.Version, Class: string(f.Class), Approval: f.Approval,
		})
	}
	return errs
}

// addProviderTools enables what the provider may execute itself (PEX-05).
func addProviderTools(d *engine.Definition, tools []model.ProviderTool) (errs []error) {
	for _, t := range tools {
		if t.Name == "" {
			errs = append(errs, errors.New("a provider tool without a name"))
			continue
		}
		if _, ours := d.Spec.Tool(t.Name); ours || slices.Contains(d.Spec.ProviderTools, t.Name) {
			errs = append(errs, fmt.Errorf("two tools are named %q: rename one", t.Name))
		}
		if len(t.Config) > 0 {
			canonical, err := record.Canonical(t.Config)
			if err != nil {
				errs = append(errs, fmt.Errorf("provider tool %q: its Config is no JSON: %w", t.Name, err))
			}
			t.Config = canonical
		}
		d.Spec.ProviderTools = append(d.Spec.ProviderTools, t.Name)
		d.ProviderTools = append(d.ProviderTools, t)
	}
	return errs
}

// input derives the input's schema and the hooks that decode it.
func input[In any](d *engine.Definition, c Config[In]) (*tool.Schema, error) {
	schema, err := tool.SchemaFor[In]()
	if err != nil {
		return nil, err
	}
	examples, err := examplesOf(schema, c.Examples)
	if err != nil {
		return nil, err
	}
	if d.Facts.Input, err = withExamples(schema.JSON(), examples); err != nil {
		return nil, err
	}
	d.Hooks.Decode = func(raw json.RawMessage) error {
		_, err := tool.Decode[In](schema, raw)
		return err
	}
	d.Hooks.Instruct = func(ctx context.Context, raw json.RawMessage) (string, error) {
		in, err := tool.Decode[In](schema, raw)
		if err != nil {
			return "", err
		}
		return c.Instructions(ctx, in)
	}
	if c.Prompt != nil {
		d.Hooks.Prompt = func(ctx context.Context, raw json.RawMessage) (engine.Prompt, error) {
			in, err := tool.Decode[In](schema, raw)
			if err != nil {
				return engine.Prompt{}, err
			}
			return c.Prompt(ctx, in)
		}
	}
	return schema, nil
}

// output derives the output's schema and the hook that decodes the answer;
// the schema is nil for free text.
func output[Out any](d *engine.Definition) (*tool.Schema, error) {
	if reflect.TypeFor[Out]() == reflect.TypeFor[string]() {
		d.Hooks.Conclude = func(text string) (json.RawMessage, error) { return tool.Encode(text) }
		return nil, nil
	}
	schema, err := tool.SchemaFor[Out]()
	if err != nil {
		return nil, err
	}
	d.Facts.Output = schema.JSON()
	d.Spec.Contract = contract + string(schema.JSON())
	d.Hooks.Conclude = func(text string) (json.RawMessage, error) {
		out, err := tool.Decode[Out](schema, json.RawMessage(strings.TrimSpace(text)))
		if err != nil {
			return nil, fmt.Errorf("the final answer does not conform to the output schema: %w", err)
		}
		return tool.Encode(out)
	}
	return schema, nil
}

func limits(p core.Policy) map[string]string {
	bound := func(n int) string {
		if n == 0 {
			return "off"
		}
		return strconv.Itoa(n)
	}
	expiry := "deadline"
	if p.ApprovalExpiry > 0 {
		expiry = p.ApprovalExpiry.String()
	}
	return map[string]string{
		"maxTurns":             strconv.Itoa(p.MaxTurns),
		"maxToolCalls":         strconv.Itoa(p.MaxToolCalls),
		"maxDuration":          p.MaxDuration.String(),
		"onExhaustion":         string(p.OnExhaustion),
		"onInvalidToolCall":    string(p.OnInvalidCall),
		"repeatedFailureLimit": bound(p.RepeatedFailureLimit),
		"toolConcurrency":      strconv.Itoa(p.ToolConcurrency),
		"modelRetries":         strconv.Itoa(p.ModelRetries),
		"approvalExpiry":       expiry,
	}
}

// digest pins everything a run in flight depends on. It is a pure function of
// the definition: the same on every host and in every build.
func digest(d *engine.Definition, input, output *tool.Schema) (string, error) {
	type pinnedTool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Version     string          `json:"version"`
		Class       string          `json:"class"`
		Approval    bool            `json:"approval"`
		DenyFails   bool            `json:"denyFails"`
		Sequential  bool            `json:"sequential"`
		Group       string          `json:"group,omitempty"`
		Timeout     time.Duration   `json:"timeoutNs"`
		Probe       bool            `json:"probe"`
		Schema      json.RawMessage `json:"schema"`
	}
	pinned := struct {
		Format      int               `json:"v"`
		Name        string            `json:"name"`
		Version     string            `json:"version"`
		Input       json.RawMessage   `json:"input"`
		Output      json.RawMessage   `json:"output,omitempty"`
		Contract    string            `json:"contract"`
		Tools       []pinnedTool      `json:"tools"`
		Policy      map[string]string `json:"policy"`
		ResultBound int               `json:"resultBound"`
		Drain       core.Drain        `json:"drain,omitempty"` // unless it is one
		Groups      map[string]int    `json:"groups,omitempty"`

		ProviderTools []model.ProviderTool `json:"providerTools,omitempty"`
	}{
		Format: 1, Name: d.Spec.Agent, Version: d.Spec.Version, Input: input.JSON(), Contract: d.Spec.Contract,
		Tools: []pinnedTool{}, Policy: d.Facts.Limits, ResultBound: d.Spec.Policy.ResultBound,
		Groups: d.Spec.Policy.Groups, ProviderTools: d.ProviderTools,
	}
	if d.Spec.Policy.Drain != DrainOne {
		pinned.Drain = d.Spec.Policy.Drain
	}
	if output != nil {
		pinned.Output = output.JSON()
	}
	for _, t := range d.Tools {
		f := t.Facts()
		pinned.Tools = append(pinned.Tools, pinnedTool{
			Name: f.Name, Description: f.Description, Version: f.Version, Class: string(f.Class), Approval: f.Approval,
			DenyFails: f.DenyFails, Sequential: f.Sequential, Group: f.Group, Timeout: f.Timeout, Probe: f.Probe, Schema: f.Schema,
		})
	}
	canonical, err := tool.Encode(pinned)
	if err != nil {
		return "", err
	}
	return record.Digest(canonical), nil
}

// Name is the agent's name.
func (d *Definition) Name() string { return d.engine.Spec.Agent }

// Engine is a copy of the definition as the engine runs it, without a model.
func (d *Definition) Engine() engine.Definition {
	e := d.engine
	e.Spec.Tools, e.Tools = slices.Clone(e.Spec.Tools), slices.Clone(e.Tools)
	e.Spec.ProviderTools, e.ProviderTools = slices.Clone(e.Spec.ProviderTools), slices.Clone(e.ProviderTools)
	e.Spec.Policy.Groups = maps.Clone(e.Spec.Policy.Groups)
	f := &e.Facts
	f.Input, f.Output = slices.Clone(f.Input), slices.Clone(f.Output)
	f.Tools, f.Limits = slices.Clone(f.Tools), maps.Clone(f.Limits)
	return e
}

// Bind joins the definition with the model that answers its requests. The
// model is not nil.
func (d *Definition) Bind(m model.Model) *Binding {
	if m == nil {
		panic(fmt.Sprintf("agent %q: Bind(nil): a model is needed", d.Name()))
	}
	return &Binding{definition: d, model: m}
}

// Binding is a definition with its model. It is immutable.
type Binding struct {
	definition *Definition
	model      model.Model
}

// Definition is what was bound.
func (b *Binding) Definition() *Definition { return b.definition }

// Engine is a copy of the definition with its model.
func (b *Binding) Engine() engine.Definition {
	e := b.definition.Engine()
	e.Model = b.model
	return e
}
