package agent

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/layover-run/layover/core/tool"
)

// examplesOf renders the author's examples, or one made of the type, so that
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
	if example := schema.Example(); example != nil {
		return []json.RawMessage{example}, nil
	}
	return nil, errors.New("no example can be made up: give one in Config.Examples")
}

// withExamples adds the examples to the schema, as canonical JSON.
func withExamples(schema json.RawMessage, examples []json.RawMessage) (json.RawMessage, error) {
	var members map[string]any
	if err := json.Unmarshal(schema, &members); err != nil {
		return nil, err
	}
	members["examples"] = examples
	return tool.Encode(members)
}
