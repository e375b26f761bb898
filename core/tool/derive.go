package tool

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"
)

// object is a JSON Schema on its way to text; an empty one accepts anything.
type object = map[string]any

// deriver turns Go types into schemas that accept exactly what encoding/json
// writes for them and reads into them. Where there is no such schema it says
// which field is in the way.
type deriver struct {
	path string         // the Go field it looks at, such as Order.Lines[].Price
	open []reflect.Type // the named types around it
}

// A typeError is a Go type without a schema, and the field that has it.
type typeError struct{ path, reason string }

func (e *typeError) Error() string {
	if e.path == "" {
		return e.reason
	}
	return "field " + e.path + ": " + e.reason
}

func (d *deriver) refuse(format string, args ...any) error {
	return &typeError{d.path, fmt.Sprintf(format, args...)}
}

// at derives an inner type under a longer path.
func (d *deriver) at(path string, t reflect.Type, addressable bool) (object, error) {
	outer := d.path
	d.path = path
	defer func() { d.path = outer }()
	return d.schema(t, addressable)
}

// schema derives t. Whether encoding/json can take the address of the value
// decides whether it calls methods with a pointer receiver.
func (d *deriver) schema(t reflect.Type, addressable bool) (object, error) {
	if s, ok := known[t]; ok && (addressable || t != reflect.TypeFor[big.Int]()) {
		return s(), nil
	}
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface {
		switch s, err := d.methods(t, addressable); {
		case err != nil:
			return nil, err
		case s != nil:
			return s, nil
		}
	}
	if err := d.enter(t); err != nil {
		return nil, err
	}
	defer d.leave()
	switch t.Kind() {
	case reflect.Pointer:
		s, err := d.at(d.path, t.Elem(), true)
		return nullable(s), err
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return nil, d.refuse("%s is an interface with methods: JSON does not say which type to decode into; use a concrete type, or any", t)
		}
		return object{}, nil
	case reflect.Struct:
		return d.structure(t, addressable)
	case reflect.Map:
		return d.mapping(t)
	case reflect.Slice:
		if isBytes(t) {
			return object{"type": []any{"null", "string"}, "contentEncoding": "base64"}, nil
		}
		items, err := d.at(d.path+"[]", t.Elem(), true)
		return object{"type": []any{"null", "array"}, "items": items}, err
	case reflect.Array:
		items, err := d.at(d.path+"[]", t.Elem(), addressable)
		return object{"type": "array", "items": items, "minItems": t.Len(), "maxItems": t.Len()}, err
	}
	if s := scalar(t.Kind()); s != nil {
		return s, nil
	}
	return nil, d.refuse("%s", noJSON(t))
}

// enter refuses a type inside itself. Only a type with a name can be there.
func (d *deriver) enter(t reflect.Type) error {
	if t.Name() != "" && slices.Contains(d.open, t) {
		return d.refuse("%s contains itself: make the recursive field a json.RawMessage", t)
	}
	d.open = append(d.open, t)
	return nil
}

func (d *deriver) leave() { d.open = d.open[:len(d.open)-1] }

// known are the types of the standard library that have a better schema than
// their methods tell.
var known = map[reflect.Type]func() object{
	reflect.TypeFor[json.RawMessage](): func() object { return object{} },
	reflect.TypeFor[json.Number]():     func() object { return object{"type": "number"} },
	reflect.TypeFor[time.Time]():       func() object { return object{"type": "string", "format": "date-time"} },
	reflect.TypeFor[time.Duration]():   func() object { return object{"type": "integer", "description": nanoseconds} },
	reflect.TypeFor[slog.Level]():      func() object { return object{"type": "string"} },
	reflect.TypeFor[big.Int]():         func() object { return object{"type": "integer"} },
}

const nanoseconds = "in nanoseconds"

func scalar(k reflect.Kind) object {
	integer := func(least, most any) object {
		s := object{"type": "integer"}
		if least != nil {
			s["minimum"] = least
		}
		if most != nil {
			s["maximum"] = most
		}
		return s
	}
	switch k {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int64:
		return integer(nil, nil)
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return integer(0, nil)
	case reflect.Int8:
		return integer(math.MinInt8, math.MaxInt8)
	case reflect.Int16:
		return integer(math.MinInt16, math.MaxInt16)
	case reflect.Int32:
		return integer(math.MinInt32, math.MaxInt32)
	case reflect.Uint8:
		return integer(0, math.MaxUint8)
	case reflect.Uint16:
		return integer(0, math.MaxUint16)
	case reflect.Uint32:
		return integer(0, int64(math.MaxUint32))
	}
	return nil
}

// nullable lets a schema accept null too.
func nullable(s object) object {
	if kind, ok := s["type"].(string); ok {
		s["type"] = []any{"null", kind}
		if values, ok := s["enum"].([]any); ok {
			s["enum"] = append(values, nil)
		}
	}
	return s
}

// methods is the schema of a type that chose its own JSON: an enumeration, or
// one with the methods of package encoding. It is nil for any other type.
func (d *deriver) methods(t reflect.Type, addressable bool) (object, error) {
	if implements[Enumerated](t) {
		return d.enumeration(t)
	}
	for _, kind := range []struct {
		name               string
		encodes, byPointer bool
		decodes            bool
		schema             object
	}{
		{"JSON", t.Implements(marshaler), implements[json.Marshaler](t), implements[json.Unmarshaler](t), object{}},
		{"Text", t.Implements(textMarshaler), implements[encoding.TextMarshaler](t), implements[encoding.TextUnmarshaler](t), object{"type": "string"}},
	} {
		switch {
		case !kind.byPointer && !kind.decodes:
			continue
		case !kind.byPointer:
			return nil, d.refuse("%s has Unmarshal%[2]s and no Marshal%[2]s: it does not encode the way it decodes", t, kind.name)
		case !kind.decodes:
			return nil, d.refuse("%s has Marshal%[2]s and no Unmarshal%[2]s: it does not decode the way it encodes", t, kind.name)
		case !kind.encodes && !addressable:
			return nil, d.refuse("Marshal%s of %s has a pointer receiver, which encoding/json does not call here: use *%[2]s", kind.name, t)
		}
		return kind.schema, nil
	}
	return nil, nil
}

func (d *deriver) enumeration(t reflect.Type) (object, error) {
	if t.Kind() != reflect.String {
		return nil, d.refuse("%s has a method Enum and is no string type: only string types can be enumerated", t)
	}
	values := []any{}
	seen := map[string]bool{}
	for _, v := range enumOf(t) {
		if seen[v] {
			return nil, d.refuse("Enum of %s lists %q twice", t, v)
		}
		seen[v] = true
		values = append(values, v)
	}
	if len(values) == 0 {
		return nil, d.refuse("Enum of %s lists no value", t)
	}
	return object{"type": "string", "enum": values}, nil
}

func enumOf(t reflect.Type) []string { return reflect.New(t).Interface().(Enumerated).Enum() }

func (d *deriver) mapping(t reflect.Type) (object, error) {
	values, err := d.at(d.path+"[key]", t.Elem(), false)
	if err != nil {
		return nil, err
	}
	s := object{"type": []any{"null", "object"}, "additionalProperties": values}
	key := t.Key()
	encodes, decodes := key.Implements(textMarshaler), implements[encoding.TextUnmarshaler](key)
	switch k := key.Kind(); {
	case implements[Enumerated](key):
		if s["propertyNames"], err = d.enumeration(key); err != nil {
			return nil, err
		}
	case k == reflect.String && !decodes, k != reflect.String && encodes && decodes:
	case encodes || decodes:
		return nil, d.refuse("a map key of type %s: it does not encode the way it decodes", key)
	case k >= reflect.Int && k <= reflect.Int64:
		s["propertyNames"] = object{"pattern": "^(0|-?[1-9][0-9]*)$"}
	case k >= reflect.Uint && k <= reflect.Uintptr:
		s["propertyNames"] = object{"pattern": "^(0|[1-9][0-9]*)$"}
	default:
		return nil, d.refuse("a map key of type %s: keys are strings, integers, or types with MarshalText and UnmarshalText", key)
	}
	return s, nil
}

// isBytes reports whether encoding/json writes a slice as base64.
func isBytes(t reflect.Type) bool {
	e := t.Elem()
	return t.Kind() == reflect.Slice && e.Kind() == reflect.Uint8 && !implements[json.Marshaler](e) && !implements[encoding.TextMarshaler](e)
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// implements reports whether T or *T has the methods of I.
func implements[I any](t reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return t.Implements(i) || reflect.PointerTo(t).Implements(i)
}

// noJSON says why a kind of type is refused.
func noJSON(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Chan:
		return "a channel has no JSON form"
	case reflect.Func:
		return "a function has no JSON form"
	case reflect.Complex64, reflect.Complex128:
		return "a complex number has no JSON form"
	}
	return strings.TrimSpace(t.String()) + " has no JSON form"
}
