package demo

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/layover-run/layover/core/model"
)

// answer is the final text: JSON for the output schema, or a few sentences.
func answer(req *model.Request, r *reading) string {
	if len(req.Output) > 0 {
		root, _ := parse(req.Output).(object) // the schema true is no object, and asks for nothing
		raw, err := json.Marshal(newFiller(root, r).compose(nil, root))
		if err == nil {
			return string(raw)
		}
	}
	return r.report()
}

// compose builds a value that conforms to the schema: from the pool where it
// can, otherwise a modest one. Optional properties come from the pool only.
func (f filler) compose(path []string, schema any) any {
	if f.spent(path) {
		return nil
	}
	s := f.resolve(schema)
	isObject := typeOf(s) == "object"
	if v, ok := f.value(path, schema); ok && !isObject {
		return v
	}
	if options, ok := s["enum"].([]any); ok && len(options) > 0 {
		return f.choose(options, s)
	}
	switch typeOf(s) {
	case "object":
		out, must := object{}, required(s)
		properties, _ := s["properties"].(object)
		for name, property := range properties {
			inner := append(slices.Clone(path), name)
			if must[name] {
				out[name] = f.compose(inner, property)
			} else if v, ok := f.value(inner, property); ok {
				out[name] = v
			}
		}
		return out
	case "array":
		var n int64
		if least, ok := s["minItems"].(json.Number); ok {
			n, _ = least.Int64()
		}
		out := []any{}
		for range min(n, 100) {
			if *f.left < 0 {
				break
			}
			out = append(out, f.compose(path, s["items"]))
		}
		return out
	case "integer", "number":
		return modest(s)
	case "boolean":
		return false
	case "null":
		return nil
	}
	switch {
	case s["format"] == "date-time":
		return "1970-01-01T00:00:00Z"
	case s["contentEncoding"] != nil:
		return "" // no bytes
	}
	if len(path) > 0 && identifier(path[len(path)-1]) {
		return "" // better none than an invented one
	}
	return f.summary()
}

// choose takes the last thing said that is one of the options.
func (f filler) choose(options []any, s object) any {
	for _, said := range slices.Backward(f.latest) {
		if v, ok := f.fit(said, s); ok {
			return v
		}
	}
	return options[0]
}

func identifier(name string) bool {
	for _, ending := range []string{"id", "code", "number", "key", "url", "reference"} {
		if strings.HasSuffix(normal(name), ending) {
			return true
		}
	}
	return false
}

// summary is one sentence about what the tools did.
func (r *reading) summary() string {
	if len(r.ended) == 0 {
		return "No tool was needed or could be called with what was given."
	}
	var said []string
	for _, e := range r.ended {
		if e.failed {
			said = append(said, e.tool+" did not succeed: "+short(failure(e.result), 160))
		} else {
			said = append(said, e.tool+" returned "+short(facts(e.result), 160))
		}
	}
	return strings.Join(said, "; ") + "."
}

// report is the free-text answer.
func (r *reading) report() string {
	var b strings.Builder
	for _, input := range r.inputs {
		fmt.Fprintf(&b, "Asked: %s\n", short(input, 400))
	}
	for _, e := range r.ended {
		if e.failed {
			fmt.Fprintf(&b, "%s did not succeed: %s\n", e.tool, short(failure(e.result), 400))
		} else {
			fmt.Fprintf(&b, "%s returned: %s\n", e.tool, short(string(e.result), 400))
		}
	}
	if len(r.ended) == 0 {
		b.WriteString(r.summary())
	}
	return strings.TrimSpace(b.String())
}

// facts lists the plain values of a result.
func facts(result json.RawMessage) string {
	members, ok := parse(result).(object)
	if !ok {
		return string(result)
	}
	var said []string
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if v := members[key]; !nested(v) && v != nil && v != "" && len(said) < 5 {
			said = append(said, fmt.Sprintf("%s %v", key, v))
		}
	}
	if len(said) == 0 {
		return string(result)
	}
	return strings.Join(said, ", ")
}

// failure is the message of a failed result, or the result itself.
func failure(result json.RawMessage) string {
	switch v := parse(result).(type) {
	case string:
		return v
	case object:
		switch e := v["error"].(type) {
		case string:
			return e
		case object:
			if text, ok := e["message"].(string); ok {
				return text
			}
		}
	}
	return string(result)
}

func short(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}
