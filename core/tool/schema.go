package tool

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/layover-run/layover/core/record"
)

// Enumerated is implemented by string types with a fixed set of values. The
// schema then lists them, so the model is told and held to them:
//
//	type Priority string
//
//	func (Priority) Enum() []string { return []string{"low", "high"} }
type Enumerated interface{ Enum() []string }

// Schema is the JSON Schema of one Go type together with its validator. It is
// immutable and safe for concurrent use.
//
// Fields are required unless they are tagged omitempty or omitzero; a
// `jsonschema:"…"` tag describes a field; unknown properties are refused.
type Schema struct {
	text  json.RawMessage
	rules *validator.Schema
}

// SchemaFor derives the schema of T. It fails for types JSON cannot carry,
// such as functions, channels and types that contain themselves.
func SchemaFor[T any]() (*Schema, error) {
	t := reflect.TypeFor[T]()
	special := map[reflect.Type]*jsonschema.Schema{}
	collect(t, special, map[reflect.Type]bool{})
	derived, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: special})
	if err != nil {
		return nil, fmt.Errorf("no JSON Schema for %s: %w", t, err)
	}
	raw, err := json.Marshal(derived)
	if err != nil {
		return nil, fmt.Errorf("schema of %s does not encode: %w", t, err)
	}
	s, err := CompileSchema(raw)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t, err)
	}
	return s, nil
}

// CompileSchema makes a Schema of JSON Schema text (draft 2020-12 unless it
// says otherwise). References to other documents are refused, never fetched.
func CompileSchema(raw json.RawMessage) (*Schema, error) {
	text, err := record.Canonical(raw)
	if err != nil {
		return nil, err
	}
	doc, err := decodeAny(text)
	if err != nil {
		return nil, err
	}
	const location = "layover://schema"
	c := validator.NewCompiler()
	c.UseLoader(refuse{})
	c.DefaultDraft(validator.Draft2020)
	if err := c.AddResource(location, doc); err != nil {
		return nil, err
	}
	rules, err := c.Compile(location)
	if err != nil {
		return nil, err
	}
	return &Schema{text: text, rules: rules}, nil
}

type refuse struct{}

func (refuse) Load(url string) (any, error) {
	return nil, fmt.Errorf("schema refers to %s: only references inside one schema are allowed", url)
}

// JSON is the schema as canonical JSON. Callers do not change it.
func (s *Schema) JSON() json.RawMessage { return s.text }

// Check validates one JSON value. Its error is an *ArgumentsError with every
// problem.
func (s *Schema) Check(raw json.RawMessage) error {
	canonical, err := record.Canonical(raw)
	if err != nil {
		return oneProblem("", "not JSON: "+err.Error())
	}
	return s.check(canonical)
}

func (s *Schema) check(canonical []byte) error {
	instance, err := decodeAny(canonical)
	if err != nil {
		return oneProblem("", "not JSON: "+err.Error())
	}
	err = s.rules.Validate(instance)
	if err == nil {
		return nil
	}
	var invalid *validator.ValidationError
	if !errors.As(err, &invalid) {
		return oneProblem("", err.Error())
	}
	return newArgumentsError(invalid)
}

// Decode validates raw against the schema and decodes it strictly: a value
// that T cannot hold exactly is refused like one the schema refuses, with an
// *ArgumentsError.
func Decode[T any](s *Schema, raw json.RawMessage) (T, error) {
	var v T
	canonical, err := record.Canonical(raw)
	if err != nil {
		return v, oneProblem("", "not JSON: "+err.Error())
	}
	if err := s.check(canonical); err != nil {
		return v, err
	}
	if err := decodeInto(canonical, &v); err != nil {
		var zero T
		return zero, err
	}
	return v, nil
}

func decodeInto(canonical []byte, target any) error {
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.DisallowUnknownFields()
	err := dec.Decode(target)
	if err == nil {
		return nil
	}
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		return oneProblem("", strings.TrimPrefix(err.Error(), "json: "))
	}
	pointer := ""
	if mismatch.Field != "" {
		pointer = "/" + strings.ReplaceAll(mismatch.Field, ".", "/")
	}
	return oneProblem(pointer, fmt.Sprintf("%s does not fit %s", mismatch.Value, mismatch.Type))
}

// Encode renders a Go value as canonical JSON.
func Encode(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return record.Canonical(buf.Bytes())
}

// decodeAny keeps numbers exact.
func decodeAny(canonical []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return v, nil
}

// The standard library types the derivation knows by itself also implement
// the marshaling interfaces; these must stay as they are.
var derivable = map[string]bool{
	"time.Time": true, "slog.Level": true, "big.Int": true, "big.Rat": true, "big.Float": true,
}

// collect finds the types whose JSON is not what their Go structure says:
// enumerations, bytes, raw JSON and types with an encoding of their own.
func collect(t reflect.Type, into map[reflect.Type]*jsonschema.Schema, seen map[reflect.Type]bool) {
	if seen[t] || derivable[t.String()] {
		return
	}
	seen[t] = true
	if t.Kind() != reflect.Pointer {
		if s := special(t); s != nil {
			into[t] = s
			return
		}
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		collect(t.Elem(), into, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() || f.Anonymous {
				collect(f.Type, into, seen)
			}
		}
	}
}

func special(t reflect.Type) *jsonschema.Schema {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return &jsonschema.Schema{}
	case t.Kind() == reflect.String && implements[Enumerated](t):
		var values []any
		for _, v := range reflect.New(t).Interface().(Enumerated).Enum() {
			values = append(values, v)
		}
		return &jsonschema.Schema{Type: "string", Enum: values}
	case t.Kind() == reflect.Interface:
		return nil
	case implements[json.Unmarshaler](t):
		return &jsonschema.Schema{} // only the type itself knows
	case implements[encoding.TextUnmarshaler](t):
		return &jsonschema.Schema{Type: "string"}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
	}
	return nil
}

// implements reports whether T or *T has the methods of I.
func implements[I any](t reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return t.Implements(i) || reflect.PointerTo(t).Implements(i)
}

// MaxProblems is how many problems of one value are listed.
const MaxProblems = 10

// Problem is one thing wrong with a JSON value.
type Problem struct {
	Pointer string // JSON Pointer to the place; empty for the whole value
	Message string
}

// ArgumentsError says everything that is wrong with a JSON value, sorted by
// place. Its text is written for the model that sent the value.
type ArgumentsError struct {
	Problems []Problem // at most MaxProblems
	Total    int       // how many there are
}

func (e *ArgumentsError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		if p.Pointer != "" {
			b.WriteString(p.Pointer + ": ")
		}
		b.WriteString(p.Message)
	}
	if more := e.Total - len(e.Problems); more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

func oneProblem(pointer, message string) error {
	return &ArgumentsError{Problems: []Problem{{Pointer: bounded(pointer, 200), Message: bounded(message, 300)}}, Total: 1}
}

func newArgumentsError(invalid *validator.ValidationError) *ArgumentsError {
	var problems []Problem
	var walk func(units []validator.OutputUnit)
	walk = func(units []validator.OutputUnit) {
		for _, u := range units {
			if u.Error != nil && len(u.Errors) == 0 {
				problems = append(problems, Problem{
					Pointer: bounded(u.InstanceLocation, 200),
					Message: bounded(u.Error.String(), 300),
				})
			}
			walk(u.Errors)
		}
	}
	walk([]validator.OutputUnit{*invalid.BasicOutput()})
	slices.SortFunc(problems, func(a, b Problem) int {
		if c := strings.Compare(a.Pointer, b.Pointer); c != 0 {
			return c
		}
		return strings.Compare(a.Message, b.Message)
	})
	problems = slices.Compact(problems)
	e := &ArgumentsError{Problems: problems, Total: len(problems)}
	if len(problems) > MaxProblems {
		e.Problems = problems[:MaxProblems]
	}
	return e
}
