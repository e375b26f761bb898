package demo

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// reading is what the messages of the current run say.
type reading struct {
	pool   object          // normalised name → value
	latest []string        // strings in the order they were said, for enumerations
	inputs []string        // user messages
	called map[string]bool // tools
	ended  []ended
	failed bool
	asked  asked
}

// ended is one answered call.
type ended struct {
	tool   string
	result json.RawMessage
	failed bool
}

// written is a value from plain text: what type it has is for the reader to
// decide.
type written string

// read takes in the current run, with those results that count.
func read(req *model.Request, counts func(record.ToolResultPart) bool) *reading {
	r := &reading{pool: object{}, called: map[string]bool{}}
	for _, m := range currentRun(req.Messages) {
		for _, p := range m.Parts {
			switch p := p.(type) {
			case record.TextPart:
				text := p.Text.Text()
				switch {
				case m.Role == record.User:
					r.inputs = append(r.inputs, text)
					r.readText(text)
					r.ask(text)
				case m.Role == record.System && !contract(text, req.Output):
					r.ask(text)
				}
			case record.ToolCallPart:
				r.called[p.Tool] = true
			case record.ToolResultPart:
				if counts(p) {
					r.readResult(p)
				}
			}
		}
	}
	return r
}

// ask hears prose, or the texts in JSON.
func (r *reading) ask(text string) {
	if v := parse([]byte(text)); v != nil {
		r.asked.hearValue(v)
	} else {
		r.asked.hear(text)
	}
}

// contract reports whether a system message only says what the answer looks
// like: nobody asks for anything with it.
func contract(text string, output json.RawMessage) bool {
	return len(output) > 2 && strings.Contains(text, string(output))
}

// currentRun leaves out earlier runs of the conversation: a new run begins
// with the first user message after a final answer, with a system message
// after tool results, and with a user message that is a JSON object. Plain
// text among tool results is steering.
func currentRun(messages []record.Message) []record.Message {
	start, answered, worked := 0, false, false
	for i, m := range messages {
		switch m.Role {
		case record.Assistant:
			answered = len(m.Calls()) == 0
			worked = true
		case record.System, record.User:
			if worked && (answered || m.Role == record.System || isObject(m)) {
				start, answered, worked = i, false, false
			}
		}
	}
	return messages[start:]
}

func isObject(m record.Message) bool {
	for _, p := range m.Parts {
		if t, ok := p.(record.TextPart); ok {
			_, is := parse([]byte(t.Text.Text())).(object)
			return is
		}
	}
	return false
}

func (r *reading) readResult(p record.ToolResultPart) {
	r.ended = append(r.ended, ended{tool: p.Tool, result: p.Result.Inline, failed: p.Failed})
	if p.Failed {
		r.failed = true // what an error says is no value to work with
		return
	}
	switch v := parse(p.Result.Inline).(type) {
	case object:
		if v["truncated"] == true && v["bytes"] != nil {
			return
		}
		r.walk(nil, v)
	case string:
		r.readText(v)
		r.name([]string{p.Tool}, v)
	case nil:
	default:
		r.walk([]string{p.Tool}, v)
	}
}

var keyValue = regexp.MustCompile(`^\s*[-*]?\s*([A-Za-z][A-Za-z0-9 _.-]{0,40}?)\s*[:=]\s*(\S.*?)\s*$`)

// freeText are the names under which a plain sentence may be asked for.
var freeText = []string{"input", "text", "message", "question", "query", "request", "prompt"}

// readText takes JSON, or "key: value" lines, or a sentence.
func (r *reading) readText(text string) {
	if v := parse([]byte(text)); v != nil {
		if s, ok := v.(string); ok {
			text = s
		} else {
			r.walk(nil, v)
			return
		}
	}
	for _, name := range freeText {
		if _, taken := r.pool[name]; !taken {
			r.pool[name] = text
		}
	}
	for line := range strings.Lines(text) {
		if m := keyValue.FindStringSubmatch(line); m != nil {
			r.name([]string{m[1]}, written(m[2]))
		}
	}
}

// maxNames is how much of a nested value's path may be part of its name.
const maxNames = 6

// walk names every value below v, the deepest first, so that a name near the
// top of a document is not taken by one inside.
func (r *reading) walk(path []string, v any) {
	path = path[max(0, len(path)-maxNames):]
	switch v := v.(type) {
	case object:
		for _, deep := range []bool{true, false} {
			for _, key := range slices.Sorted(maps.Keys(v)) {
				child := v[key]
				if nested(child) == deep {
					r.walk(append(slices.Clone(path), key), child)
				}
			}
		}
	case []any:
		for i := len(v) - 1; i >= 0; i-- {
			r.walk(path, v[i])
		}
	}
	r.name(path, v)
}

func nested(v any) bool {
	switch v.(type) {
	case object, []any:
		return true
	}
	return false
}

// name puts a value under every suffix of its path.
func (r *reading) name(path []string, v any) {
	if s, ok := v.(string); ok {
		r.latest = append(r.latest, s)
	} else if w, ok := v.(written); ok {
		r.latest = append(r.latest, string(w))
	}
	if v == nil {
		return
	}
	joined := ""
	for i := len(path) - 1; i >= 0; i-- {
		joined = normal(path[i]) + joined
		r.pool[joined] = v
	}
}

func normal(name string) string {
	return strings.Map(func(c rune) rune {
		if c == '_' || c == '-' || c == ' ' || c == '.' {
			return -1
		}
		return c
	}, strings.ToLower(name))
}

// parse reads JSON with exact numbers; nil when it is none.
func parse(raw []byte) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil || dec.More() {
		return nil
	}
	return v
}
