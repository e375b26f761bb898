package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/tool"
)

type ask struct {
	City string `json:"city"`
	Days int    `json:"days,omitempty"`
}

type plan struct {
	Title string   `json:"title"`
	Stops []string `json:"stops,omitempty"`
}

func weather(name string, opts ...tool.Option) *tool.Tool {
	return tool.New(name, "Tells the weather.", func(_ context.Context, in ask) (string, error) { return in.City, nil }, opts...)
}

func config(tools ...*tool.Tool) agent.Config[ask] {
	return agent.Config[ask]{Instructions: agent.Text[ask]("Be brief."), Tools: tools}
}

func define(t *testing.T, c agent.Config[ask]) *agent.Definition {
	t.Helper()
	d, err := agent.Define[ask, plan]("trip", c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDefaults(t *testing.T) {
	want := core.Policy{
		MaxTurns: 12, MaxToolCalls: 24, MaxDuration: 24 * time.Hour, OnExhaustion: core.FinalAnswer,
		OnInvalidCall: core.ReturnInvalid, RepeatedFailureLimit: 3, ToolConcurrency: 4, ModelRetries: 2,
		Drain: core.DrainOne, ResultBound: tool.DefaultResultBound,
	}
	if got := define(t, config(weather("w"))).Engine().Spec.Policy; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	approved := config(weather("w", tool.RequireApproval()))
	if got := define(t, approved).Engine().Spec.Policy.MaxDuration; got != 7*24*time.Hour {
		t.Errorf("with an approval: %s; the clock does not stop while a person thinks", got)
	}
	approved.Policy.MaxDuration = time.Hour
	if got := define(t, approved).Engine().Spec.Policy.MaxDuration; got != time.Hour {
		t.Errorf("an explicit duration became %s", got)
	}
	off := config()
	off.Policy = agent.Policy{RepeatedFailureLimit: agent.Disabled, ModelRetries: agent.Disabled}
	if got := define(t, off).Engine().Spec.Policy; got.RepeatedFailureLimit != 0 || got.ModelRetries != 0 {
		t.Errorf("disabled: %+v", got)
	}
}

func TestPolicyRefusesByField(t *testing.T) {
	for field, p := range map[string]agent.Policy{
		"MaxTurns":                {MaxTurns: -1},
		"MaxToolCalls":            {MaxToolCalls: -5},
		"MaxDuration":             {MaxDuration: -time.Second},
		"OnExhaustion":            {OnExhaustion: "explode"},
		"OnInvalidToolCall":       {OnInvalidToolCall: "maybe"},
		"RepeatedFailureLimit":    {RepeatedFailureLimit: -2},
		"ToolConcurrency":         {ToolConcurrency: 1 << 20},
		"ModelRetries":            {ModelRetries: 1000},
		"ApprovalExpiry":          {ApprovalExpiry: 25 * time.Hour},
		"TokenBudget":             {TokenBudget: 1},
		"CostBudgetMicroUSD":      {CostBudgetMicroUSD: 1},
		"ContextTokenLimit":       {ContextTokenLimit: 1},
		"CompletionReserveTokens": {CompletionReserveTokens: 1},
		"KeepRecentTokens":        {KeepRecentTokens: 1},
		"Compaction":              {Compaction: "off"},
		"RunStatus":               {RunStatus: true},
		"ToolResultBounds":        {ToolResultBounds: 1},
		"BudgetHook":              {BudgetHook: func() {}},
		"DrainPolicy":             {DrainPolicy: "some"},
		"Price":                   {Price: 1},
		"Sequential":              {Sequential: true, ToolConcurrency: 2},
		"GroupConcurrency":        {GroupConcurrency: map[string]int{"g": 0}},
	} {
		c := config()
		c.Policy = p
		_, err := agent.Define[ask, plan]("trip", c)
		var refused *agent.PolicyError
		if !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// One slip is one problem.
func TestBadDurationIsReportedOnce(t *testing.T) {
	c := config(weather("w"))
	c.Policy = agent.Policy{MaxDuration: -time.Second, ApprovalExpiry: time.Hour}
	if _, err := agent.Define[ask, plan]("trip", c); err == nil || strings.Contains(err.Error(), "ApprovalExpiry") {
		t.Error(err)
	}
	c.Policy = agent.Policy{ApprovalExpiry: 1000 * 24 * time.Hour}
	if _, err := agent.Define[ask, plan]("trip", c); err == nil || strings.Count(err.Error(), "ApprovalExpiry") != 1 {
		t.Error(err)
	}
}

func TestVersionAndInstructions(t *testing.T) {
	for _, version := range []string{"1\n2", "\x1b[2J", "a\xff"} {
		c := config()
		c.Version = version
		if _, err := agent.Define[ask, plan]("trip", c); err == nil || !strings.Contains(err.Error(), "control characters") {
			t.Errorf("%q: %v", version, err)
		}
	}
	c := config()
	c.Version, c.Instructions = "über 9", agent.Text[ask]("")
	if text, err := define(t, c).Engine().Hooks.Instruct(t.Context(), json.RawMessage(`{"city":"Rome"}`)); text != "" || err != nil {
		t.Errorf("%q %v", text, err)
	}
}

func TestDefineListsEveryProblem(t *testing.T) {
	c := agent.Config[ask]{
		Tools:    []*tool.Tool{weather("w"), weather("w"), weather("bad name"), nil, weather("slow", tool.Timeout(48*time.Hour))},
		Policy:   agent.Policy{MaxTurns: -1, TokenBudget: 5},
		Examples: []ask{{City: "Rome"}},
	}
	_, err := agent.Define[ask, chan int]("my trip", c)
	if err == nil {
		t.Fatal("no error")
	}
	for _, says := range []string{
		"name must match", "Instructions is nil", `two tools are named "w"`, `tool "bad name"`, "tool 4 is nil",
		"MaxTurns", "TokenBudget: not supported yet", "output: no JSON Schema", "timeout of 48h0m0s does not fit",
	} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q:\n%v", says, err)
		}
	}
}

func TestInputHooks(t *testing.T) {
	c := config()
	c.Instructions = func(_ context.Context, in ask) (string, error) { return "Plan " + in.City, nil }
	h := define(t, c).Engine().Hooks
	for input, valid := range map[string]bool{
		`{"city":"Rome"}`: true, `{"city":"Rome","days":2}`: true,
		`{}`: false, `{"city":1}`: false, `{"city":"Rome","more":1}`: false, `"Rome"`: false, `null`: false, ``: false,
	} {
		if err := h.Decode(json.RawMessage(input)); (err == nil) != valid {
			t.Errorf("%s: %v", input, err)
		}
		text, err := h.Instruct(context.Background(), json.RawMessage(input))
		if (err == nil) != valid || valid && text != "Plan Rome" {
			t.Errorf("%s: %q, %v", input, text, err)
		}
	}
}

func TestConcludeTypedOutput(t *testing.T) {
	h := define(t, config()).Engine().Hooks
	for text, want := range map[string]string{
		`{"title":"T"}`: `{"title":"T"}`,
		" \n{\"stops\": [\"a\"], \"title\": \"T\"}\n": `{"stops":["a"],"title":"T"}`,
		`{"title":"T","stops":[]}`:                    `{"title":"T"}`,
		`Here it is: {"title":"T"}`:                   "",
		"```json\n{\"title\":\"T\"}\n```":             "",
		`{"title":"T"} {"title":"U"}`:                 "",
		`{"title":1}`:                                 "",
		`{"Title":"T"}`:                               "",
		`{"title":"T","more":1}`:                      "",
		`{"title":"T"`:                                "",
		`null`:                                        "",
		``:                                            "",
	} {
		got, err := h.Conclude(text)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

func TestFreeText(t *testing.T) {
	d, err := agent.Define[string, string]("chat", agent.Config[string]{Instructions: agent.Text[string]("Hi.")})
	if err != nil {
		t.Fatal(err)
	}
	e := d.Engine()
	if e.Spec.Contract != "" || e.Facts.Output != nil {
		t.Errorf("free text has no contract: %q %s", e.Spec.Contract, e.Facts.Output)
	}
	if got, err := e.Hooks.Conclude(" as it <is>\n"); err != nil || string(got) != `" as it <is>\n"` {
		t.Errorf("%s, %v", got, err)
	}
	if err := e.Hooks.Decode(json.RawMessage(`"hello"`)); err != nil {
		t.Error(err)
	}
	if got := string(e.Facts.Input); got != `{"examples":["example"],"type":"string"}` {
		t.Error(got)
	}
}

func TestExamples(t *testing.T) {
	type nested struct {
		At    time.Time `json:"at"`
		Count uint8     `json:"count"`
	}
	derived := func(d *agent.Definition, err error) string {
		if err != nil {
			return err.Error()
		}
		var schema struct{ Examples []json.RawMessage }
		if err := json.Unmarshal(d.Engine().Facts.Input, &schema); err != nil || len(schema.Examples) == 0 {
			return "no example"
		}
		return string(schema.Examples[0])
	}
	if got := derived(agent.Define[ask, string]("a", config())); got != `{"city":"example","days":1}` {
		t.Error(got)
	}
	got := derived(agent.Define[nested, string]("a", agent.Config[nested]{Instructions: agent.Text[nested]("")}))
	if got != `{"at":"2026-01-02T15:04:05Z","count":1}` {
		t.Error(got)
	}
	c := config()
	c.Examples = []ask{{City: "Rome", Days: 3}, {City: "Oslo"}}
	if got := derived(agent.Define[ask, string]("a", c)); got != `{"city":"Rome","days":3}` {
		t.Error(got)
	}
	type grade struct {
		Grade grade1to3 `json:"grade"`
	}
	bad := agent.Config[grade]{Instructions: agent.Text[grade](""), Examples: []grade{{Grade: "four"}}}
	if _, err := agent.Define[grade, string]("a", bad); err == nil || !strings.Contains(err.Error(), "example 1") {
		t.Errorf("an example outside the schema: %v", err)
	}
}

// own takes no value that was made up.
type own struct{ s string }

func (o own) MarshalText() ([]byte, error) { return []byte(o.s), nil }
func (o *own) UnmarshalText(b []byte) error {
	if o.s = string(b); o.s == "" {
		return errors.New("empty")
	}
	return nil
}

func TestExampleIsAskedFor(t *testing.T) {
	c := agent.Config[own]{Instructions: agent.Text[own]("")}
	if _, err := agent.Define[own, string]("a", c); err == nil || !strings.Contains(err.Error(), "give one in Config.Examples") {
		t.Error(err)
	}
	c.Examples = []own{{"x"}}
	if d, err := agent.Define[own, string]("a", c); err != nil || string(d.Engine().Facts.Input) != `{"examples":["x"],"type":"string"}` {
		t.Error(err)
	}
}

type grade1to3 string

func (grade1to3) Enum() []string { return []string{"one", "two", "three"} }

func TestDigestPinsTheDefinition(t *testing.T) {
	base := config(weather("w"))
	digest := define(t, base).Engine().Spec.Digest
	if again := define(t, config(weather("w"))).Engine().Spec.Digest; again != digest || len(digest) != 64 {
		t.Fatalf("%s and %s: the digest is a function of the definition", digest, again)
	}
	seen := map[string]string{digest: "base"}
	for what, change := range map[string]func(*agent.Config[ask]){
		"version":          func(c *agent.Config[ask]) { c.Version = "2" },
		"no tool":          func(c *agent.Config[ask]) { c.Tools = nil },
		"tool name":        func(c *agent.Config[ask]) { c.Tools = []*tool.Tool{weather("x")} },
		"tool class":       func(c *agent.Config[ask]) { c.Tools = []*tool.Tool{weather("w", tool.Readonly())} },
		"tool version":     func(c *agent.Config[ask]) { c.Tools = []*tool.Tool{weather("w", tool.Version("2"))} },
		"tool timeout":     func(c *agent.Config[ask]) { c.Tools = []*tool.Tool{weather("w", tool.Timeout(time.Second))} },
		"tool approval":    func(c *agent.Config[ask]) { c.Tools = []*tool.Tool{weather("w", tool.RequireApproval())} },
		"tool sequential":  func(c *agent.Config[ask]) { c.Tools = []*tool.Tool{weather("w", tool.Sequential())} },
		"turns":            func(c *agent.Config[ask]) { c.Policy.MaxTurns = 3 },
		"failures":         func(c *agent.Config[ask]) { c.Policy.RepeatedFailureLimit = agent.Disabled },
		"exhaustion":       func(c *agent.Config[ask]) { c.Policy.OnExhaustion = agent.FailOnExhaustion },
		"approval expires": func(c *agent.Config[ask]) { c.Policy.ApprovalExpiry = time.Hour },
	} {
		c := base
		change(&c)
		got := define(t, c).Engine()
		if other, taken := seen[got.Spec.Digest]; taken {
			t.Errorf("%s and %s have one digest", what, other)
		}
		seen[got.Spec.Digest] = what
		if got.Facts.Digest != got.Spec.Digest {
			t.Errorf("%s: facts and spec disagree", what)
		}
	}
	other, err := agent.Define[ask, string]("trip", base)
	if err != nil || other.Engine().Spec.Digest == digest {
		t.Errorf("another output type, the same digest (%v)", err)
	}
}

func TestEngineCopiesAndBinds(t *testing.T) {
	d := define(t, config(weather("w")))
	e := d.Engine()
	e.Tools[0], e.Spec.Tools[0].Name, e.Facts.Tools[0].Name = nil, "changed", "changed"
	e.Facts.Input[0], e.Facts.Output[0], e.Facts.Limits["maxTurns"] = 'x', 'x', "changed"
	again := d.Engine()
	if again.Tools[0] == nil || again.Spec.Tools[0].Name != "w" || again.Model != nil {
		t.Error("a caller changed the definition")
	}
	if f := again.Facts; f.Tools[0].Name != "w" || !json.Valid(f.Input) || !json.Valid(f.Output) || f.Limits["maxTurns"] != "12" {
		t.Errorf("a caller changed the facts: %+v", f)
	}
	m := modeltest.Script()
	b := d.Bind(m)
	if b.Engine().Model != m || b.Definition() != d || d.Engine().Model != nil {
		t.Error("Bind joins, and leaves the definition alone")
	}
	if d.Name() != "trip" || !strings.HasSuffix(b.Engine().Spec.Contract, string(b.Engine().Facts.Output)) {
		t.Errorf("%s: %s", d.Name(), b.Engine().Spec.Contract)
	}
}
