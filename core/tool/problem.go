package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// MaxProblems is how many problems of one value are listed.
const MaxProblems = 10

// Problem is one thing wrong with a JSON value.
type Problem struct {
	Pointer string // JSON Pointer (RFC 6901) to the place; empty for the whole value
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

func problem(pointer, message string) Problem {
	return Problem{Pointer: bounded(pointer, 200), Message: bounded(message, 300)}
}

func oneProblem(pointer, message string) error {
	return &ArgumentsError{Problems: []Problem{problem(pointer, message)}, Total: 1}
}

func notJSON(err error) error {
	return oneProblem("", "not valid JSON: "+strings.TrimPrefix(err.Error(), "invalid JSON "))
}

func newArgumentsError(invalid *validator.ValidationError) *ArgumentsError {
	var problems []Problem
	var walk func(units []validator.OutputUnit)
	walk = func(units []validator.OutputUnit) {
		for _, u := range units {
			if u.Error != nil && len(u.Errors) == 0 {
				problems = append(problems, problemsOf(u)...)
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

func problemsOf(u validator.OutputUnit) (problems []Problem) {
	switch k := u.Error.Kind.(type) {
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			problems = append(problems, problem(u.InstanceLocation+"/"+token(name), "unknown property"))
		}
		return problems
	case *kind.Format:
		if text, ok := k.Got.(string); ok && k.Want == "date-time" {
			return []Problem{problem(u.InstanceLocation, fmt.Sprintf("%.40q is no RFC 3339 time, such as 2026-01-02T15:04:05Z", text))}
		}
	case *kind.ContentEncoding:
		return []Problem{problem(u.InstanceLocation, "not encoded as "+k.Want)}
	}
	return []Problem{problem(u.InstanceLocation, u.Error.String())}
}

// token is a member name inside a JSON Pointer.
func token(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// unfit describes an error of decoding a value into its Go type.
func unfit(canonical []byte, err error) error {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		return oneProblem("", strings.TrimPrefix(err.Error(), "json: "))
	}
	return oneProblem(pointerAt(canonical, mismatch.Offset), fmt.Sprintf("%s does not fit %s", mismatch.Value, mismatch.Type))
}

// pointerAt is the JSON Pointer of the value that holds byte offset.
func pointerAt(canonical []byte, offset int64) string {
	type level struct {
		array bool
		index int
		name  string
		value bool // of an object: the next token is a value
	}
	var levels []level
	pointer := func() string {
		var b strings.Builder
		for _, l := range levels {
			if l.array {
				b.WriteString("/" + strconv.Itoa(l.index))
			} else {
				b.WriteString("/" + token(l.name))
			}
		}
		return b.String()
	}
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.UseNumber()
	next := func() { // a value of the innermost level is complete
		if n := len(levels); n > 0 {
			levels[n-1].index++
			levels[n-1].value = false
		}
	}
	for {
		t, err := dec.Token()
		if err != nil {
			return ""
		}
		n := len(levels)
		isName := n > 0 && !levels[n-1].array && !levels[n-1].value
		if text, ok := t.(string); ok && isName {
			levels[n-1].name, levels[n-1].value = text, true
		}
		closes := t == json.Delim(']') || t == json.Delim('}')
		if dec.InputOffset() >= offset && !closes {
			return pointer()
		}
		switch {
		case closes:
			levels = levels[:n-1]
			next()
		case t == json.Delim('['), t == json.Delim('{'):
			levels = append(levels, level{array: t == json.Delim('[')})
		case !isName:
			next()
		}
	}
}
