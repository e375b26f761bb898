package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// examplesOf renders the author's examples, or one made of the schema, so that
// whoever sees the schema also sees a value it accepts.
func examplesOf[In any](schema *tool.Schema, given []In) ([]json.RawMessage, error) {
	var examples []json.RawMessage
	for i, example := range given {
		raw, err := tool.Encode(example)
		if err == nil {
			_, err = tool.Decode[In](schema, raw)
		}
		if err != nil {
			return nil, fmt.Errorf("example %d is no valid input: %w", i+1, err)
		}
		examples = append(examples, raw)
	}
	if len(examples) > 0 {
		return examples, nil
	}
	var zero In
	for _, candidate := range []any{sample(decoded(schema.JSON())), zero} {
		raw, err := tool.Encode(candidate)
		if err != nil {
			continue
		}
		if _, err := tool.Decode[In](schema, raw); err == nil {
			return []json.RawMessage{raw}, nil
		}
	}
	return nil, fmt.Errorf("no example input can be derived from the schema: give one in Config.Examples")
}

// withExamples adds the examples to the schema, as canonical JSON.
func withExamples(schema json.RawMessage, examples []json.RawMessage) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(schema, &members); err != nil { // the schema of any is true
		members = map[string]json.RawMessage{}
	}
	list, err := tool.Encode(examples)
	if err != nil {
		return nil, err
	}
	members["examples"] = list
	raw, err := tool.Encode(members)
	if err != nil {
		return nil, err
	}
	return record.Canonical(raw)
}

func decoded(raw json.RawMessage) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil
	}
	return v
}

// sample makes a value of a derived schema: every property, the first of an
// enumeration, the smallest allowed number.
func sample(schema any) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return "example"
	}
	if values, ok := s["enum"].([]any); ok && len(values) > 0 {
		return values[0]
	}
	switch typeOf(s) {
	case "object":
		object := map[string]any{}
		properties, _ := s["properties"].(map[string]any)
		for name, property := range properties {
			object[name] = sample(property)
		}
		return object
	case "array":
		n := 1
		if least, ok := s["minItems"].(json.Number); ok {
			if v, err := least.Int64(); err == nil && v < 1000 {
				n = int(v)
			}
		}
		items := make([]any, n)
		for i := range items {
			items[i] = sample(s["items"])
		}
		return items
	case "integer", "number":
		if least, ok := s["minimum"].(json.Number); ok {
			return least
		}
		return 1
	case "boolean":
		return true
	case "null":
		return nil
	}
	return "example"
}

// typeOf is the first type of a schema that is not null.
func typeOf(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		if i := slices.IndexFunc(t, func(v any) bool { return v != "null" }); i >= 0 {
			name, _ := t[i].(string)
			return name
		}
	}
	return ""
}
