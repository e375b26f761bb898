package demo

import (
	"encoding/json"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/layover-run/layover/core/model"
)

// call is one tool call the model decided on.
type call struct {
	tool string
	args json.RawMessage
}

// readers are the first words of tools that only read.
var readers = []string{"get", "look", "find", "search", "list", "read", "fetch", "check", "lookup"}

// plan chooses the calls of this response; none means it is time to answer.
func plan(req *model.Request, r *reading) []call {
	if req.Choice == model.None {
		return nil
	}
	var reading, acting []call
	for _, t := range req.Tools {
		if r.called[t.Name] {
			continue
		}
		args, ok := arguments(t.Schema, r)
		switch {
		case !ok:
		case slices.Contains(readers, firstWord(t.Name)):
			reading = append(reading, call{t.Name, args})
		default:
			acting = append(acting, call{t.Name, args})
		}
	}
	switch {
	case len(reading) > 0:
		return reading
	case len(acting) > 0 && !r.failed:
		return acting[:1]
	}
	return nil
}

func firstWord(name string) string {
	end := strings.IndexFunc(name, func(c rune) bool { return c == '_' || c == '-' || unicode.IsUpper(c) })
	if end > 0 {
		name = name[:end]
	}
	return strings.ToLower(name)
}

func arguments(schema json.RawMessage, r *reading) (json.RawMessage, bool) {
	root, ok := parse(schema).(map[string]any)
	if !ok {
		return json.RawMessage("{}"), true
	}
	v, ok := newFiller(root, r).object(nil, root)
	if !ok {
		return nil, false
	}
	raw, err := json.Marshal(v)
	return raw, err == nil
}

// filler fills schemas from the pool.
type filler struct {
	root map[string]any
	*reading
	// A schema may contain itself: both bounds end such a walk.
	left *int // schemas still to be looked at
}

const (
	maxVisits = 2_000
	maxPath   = 16
)

func newFiller(root map[string]any, r *reading) filler {
	left := maxVisits
	return filler{root, r, &left}
}

func (f filler) spent(path []string) bool {
	*f.left--
	return *f.left < 0 || len(path) > maxPath
}

// resolve follows references inside the document and takes the first choice.
func (f filler) resolve(schema any) map[string]any {
	for range 16 {
		s, ok := schema.(map[string]any)
		if !ok {
			return map[string]any{}
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
	return map[string]any{}
}

func (f filler) at(ref string) any {
	v := any(f.root)
	for _, token := range strings.Split(strings.TrimPrefix(ref, "#"), "/")[1:] {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
	}
	return v
}

// object fills the properties the pool has; ok only if all required ones are.
func (f filler) object(path []string, schema map[string]any) (map[string]any, bool) {
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		if v, ok := f.value(append(slices.Clone(path), name), property); ok {
			out[name] = v
		}
	}
	return out, complete(out, schema)
}

func complete(object, schema map[string]any) bool {
	for name := range required(schema) {
		if _, ok := object[name]; !ok {
			return false
		}
	}
	return true
}

func required(schema map[string]any) map[string]bool {
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
				return v, true
			}
		}
	}
	if typeOf(s) == "object" && s["properties"] != nil {
		return f.object(path, s)
	}
	if len(path) > 0 && slices.Contains(questions, normal(path[len(path)-1])) {
		for _, name := range sentences {
			if v, ok := f.fit(f.pool[name], s); ok {
				return v, true
			}
		}
	}
	return nil, false
}

// A search for something takes the sentence the user wrote.
var (
	questions = []string{"query", "q", "question", "search"}
	sentences = []string{"message", "text", "question", "description", "subject", "input"}
)

// fit converts a pool value to what the schema asks for.
func (f filler) fit(v any, s map[string]any) (any, bool) {
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
		if w, ok := v.(written); ok {
			return string(w), true
		}
		text, ok := v.(string)
		return text, ok
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
		if !ok {
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

// fitObject takes over the properties the schema knows.
func (f filler) fitObject(v any, s map[string]any) (any, bool) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	properties, known := s["properties"].(map[string]any)
	if !known {
		return object, true
	}
	out := map[string]any{}
	for name, property := range properties {
		if inner, ok := object[name]; ok {
			if fitted, ok := f.fit(inner, f.resolve(property)); ok {
				out[name] = fitted
			}
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

func numberOf(v any) (json.Number, bool) {
	switch v := v.(type) {
	case json.Number:
		return v, true
	case written:
		n, ok := parse([]byte(v)).(json.Number)
		return n, ok
	}
	return "", false
}

// inRange checks the bounds of a numeric schema.
func inRange(n json.Number, s map[string]any) bool {
	value, ok := new(big.Rat).SetString(n.String())
	if !ok || typeOf(s) == "integer" && !value.IsInt() {
		return false
	}
	for _, bound := range []struct {
		word string
		sign int
	}{{"minimum", -1}, {"maximum", 1}} {
		if limit, ok := s[bound.word].(json.Number); ok {
			if l, ok := new(big.Rat).SetString(limit.String()); ok && value.Cmp(l) == bound.sign {
				return false
			}
		}
	}
	return true
}

// typeOf is the first type of a schema that is not null.
func typeOf(s map[string]any) string {
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
