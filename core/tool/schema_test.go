package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/layover-run/layover/core/tool"
)

type tree struct {
	Name     string
	Children []*tree
}

type onlyMarshals struct{}

func (onlyMarshals) MarshalJSON() ([]byte, error) { return []byte(`1`), nil }

type onlyUnmarshalsText struct{}

func (*onlyUnmarshalsText) UnmarshalText([]byte) error { return nil }

type pointerText struct{ s string }

func (p *pointerText) MarshalText() ([]byte, error) { return []byte(p.s), nil }
func (p *pointerText) UnmarshalText(b []byte) error { p.s = string(b); return nil }

// free takes any JSON but what a made-up value of it would be.
type free struct{ raw string }

func (f free) MarshalJSON() ([]byte, error) {
	if f.raw == "" {
		return nil, fmt.Errorf("an empty free")
	}
	return []byte(f.raw), nil
}
func (f *free) UnmarshalJSON(b []byte) error { f.raw = string(b); return nil }

type shouts string

func (shouts) Enum() []string                 { return []string{"a"} }
func (s shouts) MarshalText() ([]byte, error) { return []byte(strings.ToUpper(string(s))), nil }
func (s *shouts) UnmarshalText([]byte) error  { return nil }

type numbered int

func (numbered) Enum() []string { return []string{"1"} }

type (
	none    string
	twice   string
	panics  string
	pointed string
)

func (none) Enum() []string     { return nil }
func (twice) Enum() []string    { return []string{"a", "a"} }
func (panics) Enum() []string   { panic("no values today") }
func (*pointed) Enum() []string { return []string{"x", "y"} }

type base struct {
	ID string `json:"id"`
}

type left struct{ ID string }

type right struct{ ID string }

type Exported struct {
	ID string `json:"id"`
}

type loop struct{ *Loop }

type Loop struct{ *Loop }

func derive[T any]() (string, error) {
	s, err := tool.SchemaFor[T]()
	if err != nil {
		return "", err
	}
	return string(s.JSON()), nil
}

func TestTypesWithoutSchema(t *testing.T) {
	for name, tc := range map[string]struct {
		err  func() (string, error)
		says string
	}{
		"channel":       {derive[struct{ Lines []struct{ C chan int } }], "field Lines[].C: a channel has no JSON form"},
		"function":      {derive[struct{ M map[string]func() }], "field M[key]: a function has no JSON form"},
		"complex":       {derive[complex128], "no JSON Schema for complex128: a complex number"},
		"tree":          {derive[tree], "field Children[]: tool_test.tree contains itself: make the recursive field a json.RawMessage"},
		"embedded loop": {derive[loop], "contains itself"},
		"interface":     {derive[struct{ S fmt.Stringer }], "field S: fmt.Stringer is an interface with methods"},
		"error":         {derive[struct{ E error }], "field E: error is an interface with methods"},
		"option string": {derive[struct {
			N int `json:"n,string"`
		}], "field N: the json option string is not supported"},
		"half JSON":       {derive[struct{ X onlyMarshals }], "has MarshalJSON and no UnmarshalJSON"},
		"half text":       {derive[struct{ X onlyUnmarshalsText }], "has UnmarshalText and no MarshalText"},
		"pointer methods": {derive[struct{ X pointerText }], "field X: MarshalText of tool_test.pointerText has a pointer receiver, which encoding/json does not call here: use *tool_test.pointerText"},
		"in a map":        {derive[map[string]pointerText], "pointer receiver"},
		"big.Int":         {derive[struct{ N big.Int }], "use *big.Int"},
		"enum of int":     {derive[struct{ N numbered }], "numbered has a method Enum and is no string type"},
		"empty enum":      {derive[struct{ N none }], "lists no value"},
		"double enum":     {derive[struct{ N twice }], `lists "a" twice`},
		"panicking enum":  {derive[struct{ N panics }], "a method of the type failed: panic: no values today"},
		"other encoding":  {derive[struct{ S shouts }], `encodes as {"S":"A"}, which is not what its fields say: /S: value must be 'a'`},
		"map key":         {derive[struct{ M map[float64]int }], "field M: a map key of type float64: keys are strings, integers"},
		"text map key":    {derive[map[netip.Addr]int], ""},
		"two embedded": {derive[struct {
			left
			right
		}], `field right.ID: left.ID is also named "ID" in JSON`},
		"hidden pointer": {derive[struct{ *base }], "field base: encoding/json cannot decode into an embedded pointer"},
		"json name": {derive[struct {
			//lint:ignore SA5008 the slip this is about
			A int `json:"a'b"`
		}], `field A: the json name "a'b" has characters`},
		"empty tag": {derive[struct {
			A int `jsonschema:""`
		}], "field A: an empty jsonschema tag"},
		"keyword": {derive[struct {
			A int `jsonschema:"required"`
		}], `is the description of the field, in plain words, and takes no "required"`},
		"keyword value": {derive[struct {
			A int `jsonschema:"description=what it is"`
		}], `takes no "description="`},
	} {
		_, err := tc.err()
		switch {
		case tc.says == "":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case err == nil || !strings.Contains(err.Error(), tc.says):
			t.Errorf("%s: %v\n does not say %q", name, err, tc.says)
		case strings.Contains(err.Error(), "cycle detected") || strings.Contains(err.Error(), "For["):
			t.Errorf("%s: the text of a dependency: %v", name, err)
		}
	}
}

// Every schema accepts what encoding/json writes, null included.
func TestSchemasOfTypes(t *testing.T) {
	type deep struct{ N int }
	for _, tc := range []struct {
		derive  func() (string, error)
		want    string
		example func() json.RawMessage
		makes   string
	}{
		{derive[time.Time], `{"format":"date-time","type":"string"}`, example[time.Time], `"2026-01-02T15:04:05Z"`},
		{derive[time.Duration], `{"description":"in nanoseconds","type":"integer"}`, example[time.Duration], `1000000000`},
		{derive[struct {
			D *time.Duration `jsonschema:"how long"`
		}], `{"additionalProperties":false,"properties":{"D":{"description":"how long, in nanoseconds","type":["null","integer"]}},"required":["D"],"type":"object"}`,
			example[struct{ D *time.Duration }], `{"D":1000000000}`},
		{derive[map[string]bool], `{"additionalProperties":{"type":"boolean"},"type":["null","object"]}`, example[map[string]bool], `{"example":true}`},
		{derive[map[int8][]byte], `{"additionalProperties":{"contentEncoding":"base64","type":["null","string"]},"propertyNames":{"pattern":"^(0|-?[1-9][0-9]*)$"},"type":["null","object"]}`,
			example[map[int8][]byte], `{"1":"ZXhhbXBsZQ=="}`},
		{derive[map[level]any], `{"additionalProperties":{},"propertyNames":{"enum":["low","high"],"type":"string"},"type":["null","object"]}`,
			example[map[level]any], `{"low":"example"}`},
		{derive[*level], `{"enum":["low","high",null],"type":["null","string"]}`, example[*level], `"low"`},
		{derive[pointed], `{"enum":["x","y"],"type":"string"}`, example[pointed], `"x"`},
		{derive[[]uint8], `{"contentEncoding":"base64","type":["null","string"]}`, example[[]uint8], `"ZXhhbXBsZQ=="`},
		{derive[[2]uint8], `{"items":{"maximum":255,"minimum":0,"type":"integer"},"maxItems":2,"minItems":2,"type":"array"}`, example[[2]uint8], `[1,1]`},
		{derive[json.Number], `{"type":"number"}`, example[json.Number], `1`},
		{derive[[]*big.Int], `{"items":{"type":["null","integer"]},"type":["null","array"]}`, example[[]*big.Int], `[0]`},
		{derive[*pointerText], `{"type":["null","string"]}`, example[*pointerText], `""`},
		{derive[[]pointerText], `{"items":{"type":"string"},"type":["null","array"]}`, example[[]pointerText], `[""]`},
		{derive[slog.Level], `{"type":"string"}`, example[slog.Level], `"INFO"`},
		{derive[any], `{}`, example[any], `"example"`},
		{derive[free], `{}`, example[free], ``},
		{derive[[]free], `{"items":{},"type":["null","array"]}`, example[[]free], `null`},
		{derive[struct {
			base  `json:"base"`
			*deep `json:"-"`
			*Exported
		}], `{"additionalProperties":false,"properties":{"base":{"additionalProperties":false,"properties":{"id":{"type":"string"}},"required":["id"],"type":"object"},"id":{"type":"string"}},"type":"object","required":["base"]}`,
			example[struct {
				base  `json:"base"`
				*deep `json:"-"`
				*Exported
			}], `{"base":{"id":"example"},"id":"example"}`},
		{derive[struct {
			base
			deep `json:",omitempty"`
			ID   int `json:"id"` // the shallower one
		}], `{"additionalProperties":false,"properties":{"N":{"type":"integer"},"id":{"type":"integer"}},"required":["id","N"],"type":"object"}`,
			example[struct {
				base
				deep
				ID int `json:"id"`
			}], `{"N":1,"id":1}`},
	} {
		got, err := tc.derive()
		if err != nil {
			t.Errorf("%v, want %s", err, tc.want)
			continue
		}
		var a, b any
		if json.Unmarshal([]byte(got), &a) != nil || json.Unmarshal([]byte(tc.want), &b) != nil || !cmp.Equal(a, b) {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
		if made := string(tc.example()); made != tc.makes {
			t.Errorf("%s: example %s, want %s", got, made, tc.makes)
		}
	}
}

// Whatever value a Go type has, its schema accepts what encoding/json writes,
// and what is read back encodes the same.
func TestSchemaAcceptsEveryValue(t *testing.T) {
	type inner struct {
		U uint64
		B []byte `json:"b,omitempty"`
	}
	type everything struct {
		*Exported
		Text  string
		Small *int8
		Maps  map[string]*uint16
		IDs   map[int32]bool `json:"ids"`
		Pair  [2]inner
		Deep  []map[uint8][]string `json:"deep,omitempty"`
		For   time.Duration        `json:"for,omitzero"`
	}
	s, err := tool.SchemaFor[everything]()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		raw, err := tool.Encode(rapid.Make[everything]().Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		back, err := tool.Decode[everything](s, raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if again, err := tool.Encode(back); err != nil || string(again) != string(raw) {
			t.Fatalf("%s became %s, %v", raw, again, err)
		}
	})
}

func example[T any]() json.RawMessage {
	s, err := tool.SchemaFor[T]()
	if err != nil {
		return json.RawMessage(err.Error())
	}
	return s.Example()
}

func TestNumbersStayExact(t *testing.T) {
	type loose struct {
		Any  any            `json:"any"`
		More map[string]any `json:"more"`
		Big  *big.Int       `json:"big"`
	}
	s, err := tool.SchemaFor[loose]()
	if err != nil {
		t.Fatal(err)
	}
	const text = `{"any":9007199254740993,"big":123456789012345678901234567890,"more":{"a":[0.1000000000000000055]}}`
	v, err := tool.Decode[loose](s, json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := tool.Encode(v); err != nil || string(again) != text || v.Any != json.Number("9007199254740993") {
		t.Errorf("%s became %s, %v", text, again, err)
	}
	r := run(func(ctx context.Context) (any, error) {
		return tool.Step(ctx, "s", func(context.Context) (any, error) { return int64(9007199254740993), nil })
	}, nil)
	if string(r.Value) != "9007199254740993" {
		t.Errorf("a step's number: %s", r.Value)
	}
}

func TestPointersOfProblems(t *testing.T) {
	type item struct {
		N int8 `json:"a/b"`
		U int64
	}
	type all struct {
		List []map[string]item `json:"list,omitempty"`
		Data []byte            `json:"data,omitempty"`
		IDs  map[int8]bool     `json:"ids,omitempty"`
		Pair [2]int64          `json:"pair,omitempty"`
	}
	tl := tool.New("a", "d", func(context.Context, all) (string, error) { return "", nil })
	for args, want := range map[string]string{
		`{"data":"*"}`:                                            "/data: not encoded as base64",
		`{"ids":{"01":true}}`:                                     `'01' does not match pattern`,
		`{"ids":{"300":true}}`:                                    "/ids/300: number 300 does not fit int8",
		`{"list":[{"x~y":{"a/b":300,"U":1}}]}`:                    "/list/0/x~0y/a~1b: maximum: got 300, want 127",
		`{"list":[{"x":{"a/b":1,"U":1,"c/d":0}}]}`:                "/list/0/x/c~1d: unknown property",
		`{"list":[{"x":{"a/b":1,"U":99999999999999999999}}]}`:     "/list/0/x/U: number 99999999999999999999 does not fit int64",
		`{"list":[{},{"k/":{"U":99999999999999999999,"a/b":1}}]}`: "/list/1/k~1/U: number",
		`{"pair":[1,99999999999999999999]}`:                       "/pair/1: number 99999999999999999999 does not fit int64",
	} {
		if err := tl.Check(json.RawMessage(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", args, err, want)
		}
	}
}
