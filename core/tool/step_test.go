package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// steps is a recorder in memory.
type steps struct {
	mu   sync.Mutex
	done map[string]json.RawMessage
	fail error
}

func (s *steps) Recorded(name string) (json.RawMessage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, ok := s.done[name]
	return raw, ok
}

func (s *steps) Record(_ context.Context, name string, result json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil {
		s.done[name] = result
	}
	return s.fail
}

func run(handler func(ctx context.Context) (any, error), recorder tool.StepRecorder) tool.Result {
	return tool.New("a", "d", func(ctx context.Context, _ struct{}) (any, error) { return handler(ctx) }).
		Invoke(context.Background(), tool.Call{Conversation: "conv", Run: "run", ID: "c1", Operation: "op", Args: json.RawMessage(`{}`), Steps: recorder})
}

func TestStepRunsOnceAcrossExecutions(t *testing.T) {
	recorder := &steps{done: map[string]json.RawMessage{}}
	bodies := 0
	handler := func(ctx context.Context) (any, error) {
		first, err := tool.Step(ctx, "first", func(context.Context) (map[string]int, error) { bodies++; return map[string]int{"n": bodies}, nil })
		if err != nil {
			return nil, err
		}
		if bodies == 1 {
			bodies++
			return nil, errors.New("crash between the steps")
		}
		second, err := tool.Step(ctx, "second", func(context.Context) (int, error) { return first["n"] + 1, nil })
		return []int{first["n"], second}, err
	}
	if r := run(handler, recorder); r.Outcome != record.Failed {
		t.Fatalf("%+v", r)
	}
	if r := run(handler, recorder); string(r.Value) != `[1,2]` {
		t.Fatalf("%+v: the recorded step must not run again", r)
	}
}

func TestStepErrors(t *testing.T) {
	one := func(context.Context) (int, error) { return 1, nil }
	if _, err := tool.Step(context.Background(), "s", one); err == nil {
		t.Error("outside a handler")
	}
	var kept context.Context
	own := errors.New("the body's own")
	r := run(func(ctx context.Context) (any, error) {
		kept = ctx
		if _, err := tool.Step(ctx, "own", func(context.Context) (int, error) { return 0, own }); err != own {
			t.Errorf("body error: %v", err)
		}
		if _, err := tool.Step(ctx, "own", one); err == nil || !strings.Contains(err.Error(), "two steps") {
			t.Errorf("duplicate: %v", err)
		}
		for _, name := range []string{"", strings.Repeat("x", tool.MaxStepName+1)} {
			if _, err := tool.Step(ctx, name, one); err == nil {
				t.Errorf("name %q", name)
			}
		}
		if _, err := tool.Step(ctx, "chan", func(context.Context) (chan int, error) { return nil, nil }); err == nil {
			t.Error("a step whose result does not encode")
		}
		v, err := tool.Step(ctx, "plain", one) // without a recorder a step just runs
		return v, err
	}, nil)
	if string(r.Value) != "1" {
		t.Errorf("%+v", r)
	}
	if _, err := tool.Step(kept, "late", one); err == nil || !strings.Contains(err.Error(), "returned") {
		t.Errorf("after the handler: %v", err)
	}
}

func TestStepRecordingFailureIsNotTheToolsFailure(t *testing.T) {
	ran := false
	r := run(func(ctx context.Context) (any, error) {
		return tool.Step(ctx, "s", func(context.Context) (int, error) { ran = true; return 1, nil })
	}, &steps{fail: errors.New("dsn=secret")})
	if !ran || r.Outcome != record.Infrastructure || r.Tag != tool.TagStepRecording || strings.Contains(string(r.Value), "secret") {
		t.Errorf("%+v %s", r, r.Value)
	}
}

func TestStepDoesNotStartAfterTheEnd(t *testing.T) {
	r := run(func(ctx context.Context) (any, error) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		return tool.Step(ended, "s", func(context.Context) (int, error) { t.Error("started"); return 1, nil })
	}, nil)
	if !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%+v", r)
	}
}

func TestStepsMayRunInParallel(t *testing.T) {
	recorder := &steps{done: map[string]json.RawMessage{}}
	run(func(ctx context.Context) (any, error) {
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c", "d"} {
			wg.Go(func() {
				if v, err := tool.Step(ctx, name, func(context.Context) (string, error) { return name, nil }); err != nil || v != name {
					t.Errorf("%s: %v", v, err)
				}
			})
		}
		wg.Wait()
		return nil, nil
	}, recorder)
	if len(recorder.done) != 4 {
		t.Errorf("%v", recorder.done)
	}
}

func TestCallInfo(t *testing.T) {
	if _, ok := tool.CallInfo(context.Background()); ok {
		t.Error("outside a handler")
	}
	run(func(ctx context.Context) (any, error) {
		want := tool.Info{Conversation: "conv", Run: "run", Call: "c1", Operation: "op"}
		if got, ok := tool.CallInfo(ctx); !ok || got != want {
			t.Errorf("%+v", got)
		}
		return nil, nil
	}, nil)
}

func TestBoundKeepsWhatFits(t *testing.T) {
	exact := record.TextValue(strings.Repeat("x", tool.DefaultResultBound-2)).Inline
	if got, size := tool.Bound(exact, 0); string(got) != string(exact) || size != 0 {
		t.Errorf("%d bytes: truncated to %d", len(exact), len(got))
	}
	over := record.TextValue(strings.Repeat("x", tool.DefaultResultBound-1)).Inline
	got, size := tool.Bound(over, 0)
	if size != tool.DefaultResultBound+1 || len(got) > tool.DefaultResultBound {
		t.Errorf("%d bytes: %d left, original %d", len(over), len(got), size)
	}
	if got, size := tool.Bound(over, 1); len(got) > tool.MinResultBound || size == 0 {
		t.Errorf("a tiny bound gave %d bytes", len(got))
	}
}

// conformance: RUN-022c
func TestBoundEnvelope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SampledFrom([]rune("ab\"\\\n\t\u0001é漢🙂\u2028"))
		source := record.TextValue(rapid.StringOfN(letters, 300, 2000, -1).Draw(t, "text")).Inline
		limit := rapid.IntRange(tool.MinResultBound, 1500).Draw(t, "limit")
		got, size := tool.Bound(source, limit)
		if len(source) <= limit {
			if size != 0 || string(got) != string(source) {
				t.Fatalf("a result within its bound changed")
			}
			return
		}
		var envelope struct {
			Truncated  bool
			Head, Tail string
			Bytes      int
		}
		if err := json.Unmarshal(got, &envelope); err != nil {
			t.Fatal(err)
		}
		canonical, err := record.Canonical(got)
		switch {
		case err != nil || string(canonical) != string(got):
			t.Fatalf("not canonical: %s", got)
		case len(got) > limit || len(got) < limit-24:
			t.Fatalf("%d bytes for a limit of %d", len(got), limit)
		case !envelope.Truncated || envelope.Bytes != len(source) || size != len(source):
			t.Fatalf("%+v of %d bytes", envelope, len(source))
		case !strings.HasPrefix(string(source), envelope.Head) || !strings.HasSuffix(string(source), envelope.Tail):
			t.Fatal("head and tail are no pieces of the source")
		case !utf8.ValidString(envelope.Head) || !utf8.ValidString(envelope.Tail):
			t.Fatal("cut inside a character")
		}
	})
}
