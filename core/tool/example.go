package tool

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// prove encodes two values of t, one with everything in it and one with
// nothing, and reads them back through the schema. It returns the first that
// made it. A type whose own methods do not take a value that was made up is
// not refused for it.
func (s *Schema) prove(t reflect.Type) (example json.RawMessage, err error) {
	for _, full := range []bool{true, false} {
		var raw json.RawMessage
		var refused, broken error
		defect := apart(func() {
			v := reflect.New(t).Elem()
			fill(v, full)
			if raw, broken = Encode(v.Interface()); broken != nil {
				return
			}
			if refused = s.check(raw); refused == nil {
				broken = decodeInto(raw, reflect.New(t).Interface())
			}
		})
		switch {
		case refused != nil:
			return nil, fmt.Errorf("%s encodes as %s, which is not what its fields say: %w", typeName(t), bounded(string(raw), 200), refused)
		case defect == nil && broken == nil && example == nil:
			example = raw
		}
	}
	return example, nil
}

// sampleTime is the time in examples.
var sampleTime = time.Date(2026, time.January, 2, 15, 4, 5, 0, time.UTC)

// fill makes a value: with everything in it, or with as little as its schema
// allows. Types with their own JSON stay zero: only they know their values.
func fill(v reflect.Value, full bool) {
	t := v.Type()
	switch {
	case t.Kind() == reflect.String && implements[Enumerated](t):
		v.SetString(enumOf(t)[0])
		return
	case !full && t.Kind() != reflect.Struct && t.Kind() != reflect.Array:
		return
	}
	var p any // nil for an embedded unexported struct
	if v.CanInterface() {
		p = v.Addr().Interface()
	}
	switch p := p.(type) {
	case *time.Time:
		if full {
			*p = sampleTime
		}
		return
	case *time.Duration:
		*p = time.Second
		return
	case *json.RawMessage:
		*p = json.RawMessage(`"example"`)
		return
	case *json.Number:
		*p = "1"
		return
	case json.Marshaler, json.Unmarshaler, encoding.TextMarshaler, encoding.TextUnmarshaler:
		return
	}
	switch t.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.String:
		v.SetString("example")
	case reflect.Interface:
		v.Set(reflect.ValueOf("example"))
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		fill(v.Elem(), full)
	case reflect.Slice:
		if isBytes(t) {
			v.SetBytes([]byte("example"))
			return
		}
		v.Set(reflect.MakeSlice(t, 1, 1))
		fill(v.Index(0), full)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), full)
		}
	case reflect.Map:
		key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		fill(key, full)
		fill(value, full)
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Tag.Get("json") != "-" && (f.IsExported() || f.Anonymous && f.Type.Kind() == reflect.Struct) {
				fill(v.Field(i), full)
			}
		}
	}
}

// encodable says why a value of t may have no JSON, or nothing that says what
// is in it. A handler's result is only ever encoded, so that much less is
// asked of its type than of an input.
func encodable(t reflect.Type) error {
	return (&walker{seen: map[reflect.Type]bool{}}).walk("", t)
}

type walker struct{ seen map[reflect.Type]bool }

func (w *walker) walk(path string, t reflect.Type) error {
	if w.seen[t] {
		return nil
	}
	w.seen[t] = true
	refuse := func(format string, args ...any) error { return &typeError{path, fmt.Sprintf(format, args...)} }
	if implements[json.Marshaler](t) || implements[encoding.TextMarshaler](t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return refuse("%s", noJSON(t))
	case reflect.Interface:
		if t.Implements(reflect.TypeFor[error]()) {
			return refuse("an error encodes as {}, without its text: use a string, or return it as the handler's error")
		}
	case reflect.Pointer:
		return w.walk(path, t.Elem())
	case reflect.Slice, reflect.Array:
		return w.walk(path+"[]", t.Elem())
	case reflect.Map:
		if k := t.Key(); k.Kind() != reflect.String && (k.Kind() < reflect.Int || k.Kind() > reflect.Uintptr) && !k.Implements(textMarshaler) {
			return refuse("a map key of type %s: keys are strings, integers, or types with MarshalText", k)
		}
		return w.walk(path+"[key]", t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			embedded := f.Type
			if f.Anonymous && embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if f.Tag.Get("json") == "-" || !f.IsExported() && (!f.Anonymous || embedded.Kind() != reflect.Struct) {
				continue
			}
			inner := f.Name
			if path != "" {
				inner = path + "." + inner
			}
			if err := w.walk(inner, f.Type); err != nil {
				return err
			}
		}
	}
	return nil
}

// typeName is a type in a message: anonymous structs can be long.
func typeName(t reflect.Type) string { return bounded(t.String(), 120) }
