package modeltest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

func (s suite) answers(t *testing.T) {
	kinds := map[string]bool{}
	for name, a := range s.Answers {
		got, err := s.ask(t, Stream(a.Body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var calls []Call
		for _, c := range got.Message.Calls() {
			if !c.ProviderExecuted {
				calls = append(calls, Call{Tool: c.Tool, Args: string(c.Args.Inline)})
			}
			kinds["no arguments"] = kinds["no arguments"] || string(c.Args.Inline) == "{}"
		}
		if text := FinalText([]record.Message{got.Message}); text != a.Text || got.Stop != a.Stop || !cmp.Equal(calls, a.Calls) {
			t.Errorf("%s: %s, %q, %v; want %s, %q, %v", name, got.Stop, text, calls, a.Stop, a.Text, a.Calls)
		}
		usage := got.Usage
		usage.Raw = nil
		if !a.Usage.IsZero() && !cmp.Equal(usage, a.Usage) {
			t.Errorf("%s: usage (-want +got)\n%s", name, cmp.Diff(a.Usage, usage))
		}
		kinds["usage"] = kinds["usage"] || !a.Usage.IsZero()
		if got.Provider == "" || got.Model == "" {
			t.Errorf("%s: the response does not say whose it is: %q %q", name, got.Provider, got.Model)
		}
		kinds["text"] = kinds["text"] || len(calls) == 0
		kinds["call"] = kinds["call"] || len(calls) == 1
		kinds["parallel calls"] = kinds["parallel calls"] || len(calls) > 1
	}
	for _, kind := range []string{"text", "call", "parallel calls", "no arguments", "usage"} {
		if !kinds[kind] {
			t.Errorf("the suite has no answer with %s", kind)
		}
	}
}

func (s suite) pieces(t *testing.T) {
	for name, a := range s.Answers {
		whole, err := s.ask(t, Stream(a.Body))
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(30) {
			if got, err := s.ask(t, Stream(a.Body).Rechunk(seed)); err != nil || !cmp.Equal(got, whole) {
				t.Errorf("%s in pieces of seed %d: %+v, %v", name, seed, got, err)
			}
		}
	}
}

func (s suite) cut(t *testing.T) {
	for name, a := range s.Answers {
		whole, err := s.ask(t, Stream(a.Body))
		if err != nil {
			t.Fatal(err)
		}
		shortest := len(strings.TrimRight(a.Body, "\r\n"))
		for n := range len(a.Body) {
			got, err := s.ask(t, Stream(a.Body).Cut(n))
			switch {
			case err == nil && n < shortest:
				t.Fatalf("%s cut at %d of %d bytes became %+v", name, n, len(a.Body), got)
			case err == nil && !cmp.Equal(got, whole):
				t.Fatalf("%s cut behind its end, at %d, became %+v", name, n, got)
			case err != nil && (model.ClassOf(err) != model.Transient || len(got.Message.Parts) > 0):
				t.Fatalf("%s cut at %d: %+v, %v", name, n, got, err)
			}
		}
	}
}

func (s suite) longLines(t *testing.T) {
	for _, size := range []int{65 << 10, 1_100_000, 5 << 20} {
		long := strings.Repeat("é", size/2)
		got, err := s.ask(t, Stream(s.Text(long)))
		if err != nil || FinalText([]record.Message{got.Message}) != long {
			t.Errorf("a line of %d bytes: %v", size, err)
		}
	}
	_, err := s.ask(t, Stream(s.Text(strings.Repeat("x", 17<<20))))
	s.class(t, err, model.Protocol)
}
