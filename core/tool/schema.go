package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/layover-run/layover/core/record"
)

// Enumerated is implemented by string types with a fixed set of values, and by
// no other types. The schema then lists them, so the model is told and held to
// them:
//
//	type Priority string
//
//	func (Priority) Enum() []string { return []string{"low", "high"} }
type Enumerated interface{ Enum() []string }

// Schema is the JSON Schema of one Go type together with its validator. It is
// immutable and safe for concurrent use.
type Schema struct {
	text    json.RawMessage
	example json.RawMessage
	rules   *validator.Schema
}

// SchemaFor derives the schema of T, which accepts what encoding/json writes
// for a T and reads into one:
//
//   - A field is required unless it is tagged omitempty or omitzero. Fields of
//     embedded structs are the outer struct's own, unless the struct is
//     embedded with a JSON name. Unknown properties are refused.
//   - A `jsonschema:"…"` tag describes a field, in plain words.
//   - Pointers, slices and maps may be null. A []byte is base64, and a map has
//     keys that are strings, integers, or types with both text methods.
//   - A string type that is Enumerated has exactly its values.
//   - A time.Time is an RFC 3339 date-time, a time.Duration an integer of
//     nanoseconds, a json.Number any number, a *big.Int an integer.
//   - A json.RawMessage, an any, and a type with MarshalJSON and UnmarshalJSON
//     accept every JSON value; the latter may then refuse it. A type with
//     MarshalText and UnmarshalText is a string.
//
// It fails for the types that encoding/json cannot write or read back:
// channels, functions, complex numbers, interfaces with methods, types with
// only one half of a pair of methods, and structs in which two fields have one
// name; and for types that contain themselves and the json option string. The
// error names the field.
func SchemaFor[T any]() (*Schema, error) {
	t := reflect.TypeFor[T]()
	s, err := schemaOf(t)
	if err != nil {
		return nil, fmt.Errorf("no JSON Schema for %s: %w", typeName(t), err)
	}
	return s, nil
}

func schemaOf(t reflect.Type) (s *Schema, err error) {
	var derived object
	if defect := apart(func() { derived, err = new(deriver).schema(t, false) }); defect != nil {
		return nil, fmt.Errorf("a method of the type failed: %w", defect)
	}
	if err != nil {
		return nil, err
	}
	raw, err := Encode(derived)
	if err != nil {
		return nil, err
	}
	if s, err = CompileSchema(raw); err != nil {
		return nil, err
	}
	s.example, err = s.prove(t)
	return s, err
}

// CompileSchema makes a Schema of JSON Schema text (draft 2020-12 unless it
// says otherwise). References to other documents are refused, never fetched.
// The words format, contentEncoding and contentMediaType are checked too.
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
	c.AssertFormat()
	c.AssertContent()
	c.RegisterFormat(&validator.Format{Name: "date-time", Validate: dateTime})
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

// dateTime accepts exactly what time.Time does.
func dateTime(v any) error {
	if text, ok := v.(string); ok {
		return new(time.Time).UnmarshalText([]byte(text))
	}
	return nil
}

// JSON is the schema as canonical JSON.
func (s *Schema) JSON() json.RawMessage { return slices.Clone(s.text) }

// Example is a value that the schema accepts, as canonical JSON: made up, and
// the same every time. It is nil for a compiled schema, and for a type whose
// own methods take neither a made-up nor a zero value.
func (s *Schema) Example() json.RawMessage { return slices.Clone(s.example) }

// isObject reports whether the schema is the one of a struct's fields.
func (s *Schema) isObject() bool {
	return s.rules.Types != nil && slices.Equal(s.rules.Types.ToStrings(), []string{"object"})
}

// Check validates one JSON value. Its error is an *ArgumentsError with every
// problem.
func (s *Schema) Check(raw json.RawMessage) error {
	canonical, err := record.Canonical(raw)
	if err != nil {
		return notJSON(err)
	}
	return s.check(canonical)
}

func (s *Schema) check(canonical []byte) error {
	instance, err := decodeAny(canonical)
	if err != nil {
		return notJSON(err)
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

// Decode validates raw against the schema and decodes it the way encoding/json
// does, with two differences: unknown fields are refused, and a number inside
// an any is a json.Number with all its digits. What T cannot hold, such as an
// integer beyond 64 bits, is refused like a value the schema refuses, with an
// *ArgumentsError. A number for a float64 is rounded to the nearest one.
func Decode[T any](s *Schema, raw json.RawMessage) (T, error) {
	var v T
	canonical, err := record.Canonical(raw)
	if err != nil {
		return v, notJSON(err)
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
	dec.UseNumber()
	if err := dec.Decode(target); err != nil {
		return unfit(canonical, err)
	}
	return nil
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
