package demo

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// object is a JSON object.
type object = map[string]any

// filler fills schemas from the pool.
type filler struct {
	root object
	*reading
	// A schema may contain itself: both bounds end such a walk.
	left  *int // schemas still to be looked at
	taken *int // values from the pool
}

const (
	maxVisits = 2_000
	maxPath   = 16
)

func newFiller(root object, r *reading) filler {
	left, taken := maxVisits, 0
	return filler{root, r, &left, &taken}
}

func (f filler) spent(path []string) bool {
	*f.left--
	return *f.left < 0 || len(path) > maxPath
}

// resolve follows references inside the document and takes the first choice.
func (f filler) resolve(schema any) object {
	for range 16 {
		s, ok := schema.(object)
		if !ok {
			return object{}
		}
		if ref, ok := s["$ref"].(string); ok && strings.HasPrefix(ref, "#") {
			schema = f.at(ref)
			continue
		}
		next := any(nil)
		for _, word := range []string{"anyOf", "oneOf", "allOf"} {
			if choices, ok := s[word].([]any); ok && len(choices) > 0 && next == nil {
				next = choices[0]
			}
		}
		if next == nil || s["type"] != nil {
			return s
		}
		schema = next
	}
	return object{}
}

func (f filler) at(ref string) any {
	v := any(f.root)
	for _, token := range strings.Split(strings.TrimPrefix(ref, "#"), "/")[1:] {
		members, ok := v.(object)
		if !ok {
			return nil
		}
		v = members[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
	}
	return v
}

// object fills the properties the pool has; ok only if all required ones are.
func (f filler) object(path []string, schema object) (object, bool) {
	out := object{}
	properties, _ := schema["properties"].(object)
	for name, property := range properties {
		if v, ok := f.value(append(slices.Clone(path), name), property); ok {
			out[name] = v
		}
	}
	return out, complete(out, schema)
}

func complete(members, schema object) bool {
	for name := range required(schema) {
		if _, ok := members[name]; !ok {
			return false
		}
	}
	return true
}

func required(schema object) map[string]bool {
	names := map[string]bool{}
	list, _ := schema["required"].([]any)
	for _, v := range list {
		if name, ok := v.(string); ok {
			names[name] = true
		}
	}
	return names
}

// value is the pool's value for a property, if it fits the schema.
func (f filler) value(path []string, schema any) (any, bool) {
	if f.spent(path) {
		return nil, false
	}
	s := f.resolve(schema)
	if v, ok := s["const"]; ok {
		return v, true
	}
	for i := range path { // the whole path first: customerId before id
		if found, ok := f.pool[normal(strings.Join(path[i:], ""))]; ok {
			if v, ok := f.fit(found, s); ok {
				*f.taken++
				return v, true
			}
		}
	}
	if typeOf(s) == "object" && s["properties"] != nil {
		return f.object(path, s)
	}
	if len(path) > 0 && slices.Contains(questions, normal(path[len(path)-1])) {
		for _, name := range freeNames {
			if v, ok := f.fit(f.pool[name], s); ok {
				*f.taken++
				return v, true
			}
		}
	}
	return nil, false
}

// A search for something takes the sentence the user wrote.
var (
	questions = []string{"query", "q", "question", "search"}
	freeNames = []string{"message", "text", "question", "description", "subject", "input"}
)

// fit converts a pool value to what the schema asks for.
func (f filler) fit(v any, s object) (any, bool) {
	if options, ok := s["enum"].([]any); ok {
		for _, option := range options {
			if text, ok := option.(string); ok && strings.EqualFold(text, textOf(v)) || reflect.DeepEqual(option, v) {
				return option, true
			}
		}
		return nil, false
	}
	switch typeOf(s) {
	case "string":
		text, ok := v.(string)
		if w, is := v.(written); is {
			text, ok = string(w), true
		}
		if !ok {
			return nil, false
		}
		return fitText(text, s)
	case "integer", "number":
		n, ok := numberOf(v)
		return n, ok && inRange(n, s)
	case "boolean":
		if w, ok := v.(written); ok {
			b, err := strconv.ParseBool(strings.ToLower(string(w)))
			return b, err == nil
		}
		b, ok := v.(bool)
		return b, ok
	case "array":
		list, ok := v.([]any)
		if !ok || !inRange(json.Number(strconv.Itoa(len(list))), object{"minimum": s["minItems"], "maximum": s["maxItems"]}) {
			return nil, false
		}
		out := make([]any, 0, len(list))
		for _, item := range list {
			fitted, ok := f.fit(item, f.resolve(s["items"]))
			if !ok {
				return nil, false
			}
			out = append(out, fitted)
		}
		return out, true
	case "object":
		return f.fitObject(v, s)
	}
	if w, ok := v.(written); ok {
		return string(w), true
	}
	return v, true
}

// fitText checks the two kinds of strings that Go types are made of.
func fitText(text string, s object) (any, bool) {
	switch {
	case s["contentEncoding"] == "base64":
		_, err := base64.StdEncoding.DecodeString(text)
		return text, err == nil
	case s["format"] == "date-time":
		if day, err := time.Parse(time.DateOnly, text); err == nil {
			return day.Format(time.RFC3339), true
		}
		return text, new(time.Time).UnmarshalText([]byte(text)) == nil
	}
	return text, true
}

// fitObject takes over the properties the schema knows.
func (f filler) fitObject(v any, s object) (any, bool) {
	given, ok := v.(object)
	if !ok {
		return nil, false
	}
	properties, _ := s["properties"].(object)
	others, open := s["additionalProperties"].(object)
	if properties == nil && !open && s["additionalProperties"] != false {
		return given, true
	}
	out := object{}
	for name, inner := range given {
		property, known := properties[name]
		if !known && !open {
			continue
		} else if !known {
			property = others
		}
		if fitted, ok := f.fit(inner, f.resolve(property)); ok {
			out[name] = fitted
		}
	}
	return out, complete(out, s)
}

func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case written:
		return string(v)
	}
	return ""
}

// typeOf is the first type of a schema that is not null.
func typeOf(s object) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		for _, v := range t {
			if name, ok := v.(string); ok && name != "null" {
				return name
			}
		}
	}
	return ""
}
