package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

type level string

func (level) Enum() []string { return []string{"low", "high"} }

type query struct {
	Name  string          `json:"name" jsonschema:"who"`
	Count int64           `json:"count,omitempty"`
	Level level           `json:"level,omitempty"`
	Ratio *float64        `json:"ratio,omitempty"`
	Tags  []string        `json:"tags,omitempty"`
	Inner struct{ X int } `json:"inner,omitzero"`
	Data  []byte          `json:"data,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
	At    time.Time       `json:"at,omitzero"`
}

type reply struct {
	Said string `json:"said"`
}

func echo(_ context.Context, in query) (reply, error) { return reply{in.Name}, nil }

func invoke(t *tool.Tool, args string) tool.Result {
	return t.Invoke(context.Background(), tool.Call{ID: "c1", Operation: "op1", Args: json.RawMessage(args)})
}

func TestDefinitionProblems(t *testing.T) {
	probe := tool.Reconcile(func(context.Context, query) (reply, tool.Resolution, error) {
		return reply{}, tool.NotHappened, nil
	})
	wrongProbe := tool.Reconcile(func(context.Context, query) (string, tool.Resolution, error) { return "", "", nil })
	for name, tc := range map[string]struct {
		tool *tool.Tool
		says string // empty: no problem
	}{
		"good":               {tool.New("a_tool-1", "d", echo, tool.Uncertain(), probe, tool.RequireApproval(), tool.DenialFailsRun()), ""},
		"empty name":         {tool.New("", "d", echo), "name must match"},
		"digit first":        {tool.New("1a", "d", echo), "name must match"},
		"long name":          {tool.New(strings.Repeat("a", 65), "d", echo), "name must match"},
		"dot":                {tool.New("a.b", "d", echo), "name must match"},
		"no description":     {tool.New("a", "", echo), "description"},
		"no handler":         {tool.New[query, reply]("a", "d", nil), "handler is nil"},
		"no struct":          {tool.New("a", "d", func(context.Context, string) (string, error) { return "", nil }), "no struct"},
		"no JSON":            {tool.New("a", "d", func(context.Context, struct{ C chan int }) (string, error) { return "", nil }), "JSON Schema"},
		"timeout":            {tool.New("a", "d", echo, tool.Timeout(0)), "positive"},
		"two classes":        {tool.New("a", "d", echo, tool.Readonly(), tool.Idempotent()), "both readonly and idempotent"},
		"denial, no asking":  {tool.New("a", "d", echo, tool.DenialFailsRun()), "RequireApproval"},
		"probe of other":     {tool.New("a", "d", echo, wrongProbe), "returns string"},
		"probe not asked":    {tool.New("a", "d", echo, tool.Readonly(), probe), "Reconcile on a readonly"},
		"two probes":         {tool.New("a", "d", echo, probe, probe), "two Reconcile"},
		"result is a func":   {tool.New("a", "d", func(context.Context, query) (func(), error) { return nil, nil }), "a function has no JSON form"},
		"result has a chan":  {tool.New("a", "d", func(context.Context, query) (struct{ In []struct{ C chan int } }, error) { panic("") }), "field In[].C: a channel"},
		"result is an error": {tool.New("a", "d", func(context.Context, query) (struct{ E error }, error) { panic("") }), "field E: an error encodes as {}"},
		"result map":         {tool.New("a", "d", func(context.Context, query) (map[float64]int, error) { panic("") }), "a map key of type float64"},
		"result has a tree":  {tool.New("a", "d", func(context.Context, query) (tree, error) { return tree{}, nil }), ""},
		"result by methods":  {tool.New("a", "d", func(context.Context, query) (onlyMarshals, error) { panic("") }), ""},
		"input is a time":    {tool.New("a", "d", func(context.Context, time.Time) (string, error) { return "", nil }), "chooses its own JSON"},
		"nil option":         {tool.New("a", "d", echo, tool.Readonly(), nil), "option 2 is nil"},
		"bad version":        {tool.New("a", "d", echo, tool.Version("1\n2")), "without control characters"},
		"no tool":            {&tool.Tool{}, "not made by tool.New"},
		"enumerated default": {tool.New("a", "d", echo, tool.Uncertain(), tool.Uncertain()), ""},
	} {
		err := tc.tool.Err()
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%s: %v does not say %q", name, err, tc.says)
		}
		if tc.says != "" {
			if r := invoke(tc.tool, `{"name":"x"}`); r.Outcome != record.Infrastructure {
				t.Errorf("%s: a broken tool ran: %+v", name, r)
			}
		}
	}
}

func TestFacts(t *testing.T) {
	f := tool.New("a", "d", echo, tool.Idempotent(), tool.Version("v2"), tool.Timeout(time.Second), tool.Sequential()).Facts()
	schema := f.Schema
	f.Schema = nil
	want := tool.Facts{Name: "a", Description: "d", Version: "v2", Class: record.Idempotent, Sequential: true, Timeout: time.Second}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
	wantSchema := `{"additionalProperties":false,"properties":{` +
		`"at":{"format":"date-time","type":"string"},"count":{"type":"integer"},"data":{"contentEncoding":"base64","type":["null","string"]},` +
		`"inner":{"additionalProperties":false,"properties":{"X":{"type":"integer"}},"required":["X"],"type":"object"},` +
		`"level":{"enum":["low","high"],"type":"string"},"name":{"description":"who","type":"string"},` +
		`"ratio":{"type":["null","number"]},"raw":{},"tags":{"items":{"type":"string"},"type":["null","array"]}},` +
		`"required":["name"],"type":"object"}`
	if diff := cmp.Diff(wantSchema, string(schema)); diff != "" {
		t.Error(diff)
	}
	tl := tool.New("a", "d", echo)
	tl.Facts().Schema[0], tl.ForModel().Schema[0] = 'x', 'x'
	if string(tl.Facts().Schema) != wantSchema {
		t.Error("a caller changed the schema")
	}
	if d := tl.Facts(); d.Class != record.Uncertain || d.Timeout != tool.DefaultTimeout || d.Approval {
		t.Errorf("defaults: %+v", d)
	}
}

func TestCheck(t *testing.T) {
	tl := tool.New("a", "d", echo)
	for args, want := range map[string][]tool.Problem{
		`{"name":"x"}`:                                nil,
		`{"name":"x","count":1.0,"ratio":null}`:       nil,
		`{"name":"x","level":"high","data":"YQ=="}`:   nil,
		`{"name":"x","raw":{"any":[1]},"tags":["a"]}`: nil,
		`{}`:                          {{"", "missing property 'name'"}},
		`null`:                        {{"", "got null, want object"}},
		`[]`:                          {{"", "got array, want object"}},
		`{"name":"x","Name":"y"}`:     {{"/Name", "unknown property"}},
		`{"count":"1","name":2}`:      {{"/count", "got string, want integer"}, {"/name", "got number, want string"}},
		`{"name":"x","level":"mid"}`:  {{"/level", "value must be one of 'low', 'high'"}},
		`{"name":"x","tags":["a",1]}`: {{"/tags/1", "got number, want string"}},
		`{"name":"x","count":1.5}`:    {{"/count", "got number, want integer"}},
		`{"name":"x","count":123456789012345678901}`:      {{"/count", "number 123456789012345678901 does not fit int64"}},
		`{"name":"x","inner":{"X":99999999999999999999}}`: {{"/inner/X", "number 99999999999999999999 does not fit int"}},
		`{"name":"x","at":"yesterday"}`:                   {{"/at", `"yesterday" is no RFC 3339 time, such as 2026-01-02T15:04:05Z`}},
	} {
		err := tl.Check(json.RawMessage(args))
		var got *tool.ArgumentsError
		if errors.As(err, &got) != (want != nil) {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if want != nil {
			if diff := cmp.Diff(want, got.Problems); diff != "" {
				t.Errorf("%s: %s", args, diff)
			}
		}
	}
	for _, args := range []string{``, `{`, `{"name":"x"}x`, `{"name":"x","name":"y"}`} {
		if err := tl.Check(json.RawMessage(args)); err == nil || !strings.Contains(err.Error(), "not valid JSON: at byte") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestCheckListsABoundedNumberOfProblemsInOrder(t *testing.T) {
	type wide struct{ Tags []string }
	tl := tool.New("a", "d", func(context.Context, wide) (string, error) { return "", nil })
	err := tl.Check(json.RawMessage(`{"Tags":[` + strings.TrimSuffix(strings.Repeat("1,", 40), ",") + `]}`))
	var got *tool.ArgumentsError
	if !errors.As(err, &got) || len(got.Problems) != tool.MaxProblems || got.Total != 40 {
		t.Fatalf("%v", err)
	}
	if !strings.HasSuffix(err.Error(), "and 30 more") || !strings.HasPrefix(err.Error(), "/Tags/0: got number, want string; /Tags/1: ") {
		t.Errorf("%v", err)
	}
}

// conformance: RUN-003
func TestHandlerOnlySeesValidArguments(t *testing.T) {
	entered := 0
	tl := tool.New("a", "d", func(_ context.Context, in query) (reply, error) { entered++; return reply{in.Name}, nil })
	for _, args := range []string{``, `null`, `{}`, `{"name":1}`, `{"name":"x","more":1}`, `{"name":"x","count":1e30}`, `{"name":"x","level":"mid"}`} {
		r := invoke(tl, args)
		if r.Outcome != record.Failed || r.Tag != tool.TagInvalidArguments || entered != 0 {
			t.Errorf("%s: %+v, handler entered %d times", args, r, entered)
		}
	}
	if r := invoke(tl, `{"name":"x"}`); entered != 1 || string(r.Value) != `{"said":"x"}` {
		t.Errorf("%+v", r)
	}
}

type codedError struct{ tag, message string }

func (e codedError) Error() string        { return "secret detail" }
func (e codedError) Tag() string          { return e.tag }
func (e codedError) ModelMessage() string { return e.message }

type panickingError struct{}

func (panickingError) Error() string { return "x" }
func (panickingError) Tag() string   { panic("in Tag") }

type endingError struct{}

func (endingError) Error() string { runtime.Goexit(); return "" }
func (endingError) Tag() string   { runtime.Goexit(); return "" }

func envelope(tag, message string) string {
	return string(record.MustValue(map[string]any{"error": map[string]string{"tag": tag, "message": message}}).Inline)
}

// The table of D-59: what a handler's error means.
//
// conformance: RET-02
// conformance: RET-04
// conformance: RET-05
func TestOutcomes(t *testing.T) {
	secret := errors.New("password=hunter2")
	for name, tc := range map[string]struct {
		handler func(ctx context.Context) (any, error)
		outcome record.Outcome
		tag     string
		value   string
		defect  string
		is      error
	}{
		"success":           {handler: func(context.Context) (any, error) { return reply{"<hi>"}, nil }, outcome: record.Succeeded, value: `{"said":"<hi>"}`},
		"nothing":           {handler: func(context.Context) (any, error) { return nil, nil }, outcome: record.Succeeded, value: `null`},
		"ordinary error":    {handler: func(context.Context) (any, error) { return nil, secret }, outcome: record.Failed, tag: "ToolError", value: envelope("ToolError", "the tool failed"), is: secret},
		"chosen message":    {handler: func(context.Context) (any, error) { return nil, tool.Failf("gone", "no order %d: %w", 7, secret) }, outcome: record.Failed, tag: "gone", value: envelope("gone", "no order 7: password=hunter2"), is: secret},
		"interfaces":        {handler: func(context.Context) (any, error) { return nil, errors.Join(secret, codedError{"coded", "told"}) }, outcome: record.Failed, tag: "coded", value: envelope("coded", "told"), is: secret},
		"empty choice":      {handler: func(context.Context) (any, error) { return nil, codedError{"coded", ""} }, outcome: record.Failed, tag: "coded", value: envelope("coded", "the tool failed")},
		"unusable tag":      {handler: func(context.Context) (any, error) { return nil, codedError{strings.Repeat("x", 65), "told"} }, outcome: record.Failed, tag: "ToolError", value: envelope("ToolError", "told")},
		"abort":             {handler: func(context.Context) (any, error) { return nil, tool.Abort(secret) }, outcome: record.Aborted, tag: "Aborted", value: envelope("Aborted", "the tool failed"), is: secret},
		"abort with a tag":  {handler: func(context.Context) (any, error) { return nil, tool.Abort(tool.Failf("closed", "books closed")) }, outcome: record.Aborted, tag: "closed", value: envelope("closed", "books closed")},
		"no encoding":       {handler: func(context.Context) (any, error) { return math.NaN(), nil }, outcome: record.Infrastructure, tag: "ResultEncoding", value: envelope("ResultEncoding", "the tool ran; its result could not be encoded")},
		"panic":             {handler: func(context.Context) (any, error) { panic(secret) }, outcome: record.Infrastructure, tag: "Defect", value: envelope("Defect", "the tool failed"), defect: "password=hunter2"},
		"panic in encoding": {handler: func(context.Context) (any, error) { return panicsEncoding{}, nil }, outcome: record.Infrastructure, tag: "Defect", value: envelope("Defect", "the tool failed"), defect: "in MarshalJSON"},
		"two causes": {handler: func(context.Context) (any, error) {
			return nil, tool.Failf("gone", "%w and %w", errors.New("x"), secret)
		}, outcome: record.Failed, tag: "gone", value: envelope("gone", "x and password=hunter2"), is: secret},
		"no tag":            {handler: func(context.Context) (any, error) { return nil, tool.Failf("", "told") }, outcome: record.Failed, tag: "ToolError", value: envelope("ToolError", "told")},
		"the end":           {handler: func(context.Context) (any, error) { runtime.Goexit(); return nil, nil }, outcome: record.Infrastructure, tag: "Defect", value: envelope("Defect", "the tool failed"), defect: "the handler ended its goroutine"},
		"end in an error":   {handler: func(context.Context) (any, error) { return nil, endingError{} }, outcome: record.Infrastructure, tag: "Defect", value: envelope("Defect", "the tool failed"), defect: "the handler ended its goroutine"},
		"panic of a panic":  {handler: func(context.Context) (any, error) { panic(endingError{}) }, outcome: record.Infrastructure, tag: "Defect", value: envelope("Defect", "the tool failed"), defect: "a value that cannot be rendered"},
		"panic in an error": {handler: func(context.Context) (any, error) { return nil, panickingError{} }, outcome: record.Infrastructure, tag: "Defect", value: envelope("Defect", "the tool failed"), defect: "in Tag"},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			r := invoke(tool.New("a", "d", func(ctx context.Context, _ struct{}) (any, error) { runs++; return tc.handler(ctx) }), `{}`)
			if runs != 1 {
				t.Errorf("the handler ran %d times", runs)
			}
			if r.Outcome != tc.outcome || r.Tag != tc.tag || string(r.Value) != tc.value {
				t.Errorf("got %s %s %s", r.Outcome, r.Tag, r.Value)
			}
			if (r.Defect != nil) != (tc.defect != "") || r.Defect != nil && (r.Defect.Value != tc.defect || len(r.Defect.Stack) == 0) {
				t.Errorf("defect %+v", r.Defect)
			}
			if tc.is != nil && !errors.Is(r.Err, tc.is) {
				t.Errorf("the cause is lost: %v", r.Err)
			}
			if (r.Err == nil) != (r.Outcome == record.Succeeded) {
				t.Errorf("error %v with %s", r.Err, r.Outcome)
			}
		})
	}
}

type panicsEncoding struct{}

func (panicsEncoding) MarshalJSON() ([]byte, error) { panic("in MarshalJSON") }

func TestInterruption(t *testing.T) {
	waits := func(ctx context.Context, _ struct{}) (string, error) { <-ctx.Done(); return "", tool.Abort(ctx.Err()) }
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := tool.New("a", "d", waits).Invoke(ctx, tool.Call{Args: json.RawMessage(`{}`)})
	if r.Outcome != record.Interrupted || r.Tag != tool.TagInterrupted || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("cancelled: %+v", r)
	}
	r = invoke(tool.New("a", "d", waits, tool.Timeout(time.Millisecond)), `{}`)
	if r.Outcome != record.Interrupted || r.Tag != tool.TagTimeout || !errors.Is(r.Err, context.DeadlineExceeded) {
		t.Errorf("timed out: %+v", r)
	}
	finishes := func(ctx context.Context, _ struct{}) (string, error) { <-ctx.Done(); return "done", nil }
	if r := tool.New("a", "d", finishes).Invoke(ctx, tool.Call{Args: json.RawMessage(`{}`)}); r.Outcome != record.Succeeded {
		t.Errorf("a value that exists is kept: %+v", r)
	}
}

func TestReconcile(t *testing.T) {
	var answer record.Resolution
	var fails error
	probe := func(ctx context.Context, in query) (reply, record.Resolution, error) {
		info, ok := tool.CallInfo(ctx)
		if !ok || info.Operation != "op1" {
			t.Errorf("call info %+v", info)
		}
		if in.Name == "panic" {
			panic("probe")
		}
		if in.Name == "end" {
			runtime.Goexit()
		}
		return reply{"paid"}, answer, fails
	}
	tl := tool.New("a", "d", echo, tool.Reconcile(probe))
	ask := func(args string) (tool.Result, record.Resolution, error) {
		return tl.Reconcile(context.Background(), tool.Call{Operation: "op1", Args: json.RawMessage(args)})
	}
	answer = record.Happened
	if r, got, err := ask(`{"name":"x"}`); err != nil || got != record.Happened || string(r.Value) != `{"said":"paid"}` || r.Outcome != record.Succeeded {
		t.Errorf("%+v %s %v", r, got, err)
	}
	for _, answer = range []record.Resolution{record.NotHappened, record.SafeToRetry} {
		if r, got, err := ask(`{"name":"x"}`); err != nil || got != answer || r.Value != nil {
			t.Errorf("%+v %s %v", r, got, err)
		}
	}
	for name, err := range map[string]error{
		"unknown answer": func() error { answer = "maybe"; _, _, err := ask(`{"name":"x"}`); return err }(),
		"error": func() error {
			answer, fails = record.Happened, errors.New("down")
			_, _, err := ask(`{"name":"x"}`)
			return err
		}(),
		"panic":     func() error { _, _, err := ask(`{"name":"panic"}`); return err }(),
		"end":       func() error { _, _, err := ask(`{"name":"end"}`); return err }(),
		"arguments": func() error { _, _, err := ask(`{}`); return err }(),
		"no probe": func() error {
			_, _, err := tool.New("a", "d", echo).Reconcile(context.Background(), tool.Call{Args: json.RawMessage(`{"name":"x"}`)})
			return err
		}(),
	} {
		if err == nil {
			t.Errorf("%s: a probe that does not know must not decide", name)
		}
	}
}

func TestSchemaNeverFetches(t *testing.T) {
	for _, ref := range []string{"https://example.com/s.json", "file:///etc/hostname", "other.json"} {
		if _, err := tool.CompileSchema(json.RawMessage(`{"$ref":"` + ref + `"}`)); err == nil || !strings.Contains(err.Error(), "only references inside one schema") {
			t.Errorf("%s: %v", ref, err)
		}
	}
	s, err := tool.CompileSchema(json.RawMessage(`{"$ref":"#/$defs/n","$defs":{"n":{"type":"integer"}}}`))
	if err != nil || s.Check(json.RawMessage(`1`)) != nil || s.Check(json.RawMessage(`"1"`)) == nil {
		t.Errorf("a reference inside the schema: %v", err)
	}
}
