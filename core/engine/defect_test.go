package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// errSecret is what the user functions of these tests panic with.
var errSecret = errors.New("secret " + strings.Repeat("x", 1<<20))

// panics is a run whose user function at a place panics with v.
func panics(t *testing.T, place string, v any) engine.RunRequest {
	t.Helper()
	at := func(here string) {
		if here == place {
			if v == nil {
				runtime.Goexit()
			}
			panic(v)
		}
	}
	opts := []tool.Option{tool.Readonly()}
	if strings.HasSuffix(place, "uncertain") {
		opts = nil
	}
	def, err := agent.Define[input, string]("a", agent.Config[input]{
		Instructions: func(context.Context, input) (string, error) { at("instructions"); return "Go.", nil },
		Tools: []*tool.Tool{tool.New("look", "Looks.", func(context.Context, arg) (string, error) {
			at("handler")
			at("handler, uncertain")
			return "seen", nil
		}, opts...)}})
	if err != nil {
		t.Fatal(err)
	}
	if place == "output" {
		d := def.Bind(modeltest.Script(modeltest.Text("done"))).Engine()
		d.Hooks.Conclude = func(string) (json.RawMessage, error) { at("output"); return nil, nil }
		return engine.RunRequest{Definition: d, Input: json.RawMessage(kim), Conversation: "c"}
	}
	return request(def, modeltest.Script(
		modeltest.Check(func(*model.Request) error { at("model"); return nil }), modeltest.Calls(call("look", 0)), modeltest.Text("done")))
}

// follow reads a stream to its end.
func follow(stream engine.EventStream) (events []event.Event, err error) {
	for e, end := range stream {
		if err = end; end == nil {
			events = append(events, e)
		}
	}
	return events, err
}

var places = []string{"instructions", "model", "handler", "handler, uncertain", "output"}

// conformance: EV-11, EV-12, RUN-002b
//
// A panic in any user function ends the stream with the panic value and its
// stack, and with no terminal event: it is no failure anybody expected.
func TestDefectEndsStream(t *testing.T) {
	for _, place := range places {
		for name, v := range map[string]any{"error": errSecret, "value": 7, "goexit": nil} {
			t.Run(place+" "+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					events, err := follow(newLocal(t).runner.Events(bg, panics(t, place, v)))
					var defect *engine.DefectError
					if !errors.As(err, &defect) {
						t.Fatalf("the stream ends with %v", err)
					}
					if !cmp.Equal(defect.Value, v, cmp.Comparer(func(a, b error) bool { return a == b })) || len(defect.Stack) == 0 {
						t.Errorf("value %T, %d bytes of stack", defect.Value, len(defect.Stack))
					}
					if v == any(errSecret) && !errors.Is(err, errSecret) {
						t.Error("the original error is not found")
					}
					if text := err.Error(); strings.Contains(text, "secret") || len(text) > 600 {
						t.Errorf("the text of the error: %.100s", text)
					}
					var failure engine.Failure
					if errors.As(err, &failure) {
						t.Errorf("a defect is a typed failure: %v", failure)
					}
					for _, e := range events {
						switch e.Data.(type) {
						case event.RunCompleted, event.RunFailed, event.RunInterrupted, event.RunSuspended:
							t.Errorf("%s", e.Data.Kind())
						}
					}
				})
			})
		}
	}
}

// conformance: EV-13, EV-14
//
// The wrapper adds one bounded event to a stream that ends in a defect, takes
// nothing of the panic value into it, and leaves every other stream alone.
func TestTerminalDefectEvent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, place := range places {
			bare, cause := follow(newLocal(t).runner.Events(bg, panics(t, place, errSecret)))
			events, err := follow(engine.WithTerminalDefectEvent(newLocal(t).runner.Events(bg, panics(t, place, errSecret))))
			if len(events) != len(bare)+1 || !errors.Is(err, errSecret) || err.Error() != cause.Error() {
				t.Fatalf("%s: %d events for %d, %v", place, len(events), len(bare), err)
			}
			last, before := events[len(events)-1], events[len(events)-2]
			failed, ok := last.Data.(event.RunFailed)
			if !ok || failed.Error.Kind != "Defect" || last.Provisional {
				t.Fatalf("%s: the last event is %+v", place, last)
			}
			if last.Run != before.Run || last.Conversation != before.Conversation || last.Agent != before.Agent || last.Sequence != before.Sequence+1 {
				t.Errorf("%s: %+v after %+v", place, last, before)
			}
			line, err := json.Marshal(last)
			if err != nil {
				t.Fatal(err)
			}
			if len(line) > 2<<10 || bytes.Contains(line, []byte("secret")) {
				t.Errorf("%s: an event of %d bytes: %.300s", place, len(line), line)
			}
		}
		streams := map[string]func() engine.EventStream{
			"failing": func() engine.EventStream {
				return newLocal(t).runner.Events(bg, request(define(t, agent.Policy{MaxTurns: 1, OnExhaustion: agent.FailOnExhaustion}, tool.New("look", "Looks.",
					func(context.Context, arg) (string, error) { return "", nil })), modeltest.Script(modeltest.Calls(call("look", 1)))))
			},
			"cancelled": func() engine.EventStream {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				t.Cleanup(cancel)
				return newLocal(t).runner.Events(ctx, request(define(t, agent.Policy{}), speaking(hangs("Hel"))))
			},
			"completed": func() engine.EventStream {
				return newLocal(t).runner.Events(bg, request(define(t, agent.Policy{}), modeltest.Script(modeltest.Text("done"))))
			},
		}
		for name, stream := range streams {
			bare, cause := follow(stream())
			events, err := follow(engine.WithTerminalDefectEvent(stream()))
			if len(events) != len(bare) || !cmp.Equal(err, cause) {
				t.Errorf("%s: %d events and %v, bare %d and %v", name, len(events), err, len(bare), cause)
			}
			for i := range min(len(events), len(bare)) {
				if events[i].Data.Kind() != bare[i].Data.Kind() {
					t.Errorf("%s: %s for %s", name, events[i].Data.Kind(), bare[i].Data.Kind())
				}
			}
		}
	})
}

// conformance: EV-15
//
// A defect before the first event leaves nothing to take an identity from.
func TestTerminalDefectEventWithoutIdentity(t *testing.T) {
	cause := &engine.DefectError{Where: "somewhere", Value: errSecret}
	events, err := follow(engine.WithTerminalDefectEvent(func(yield func(event.Event, error) bool) { yield(event.Event{}, cause) }))
	if len(events) != 0 || err != error(cause) {
		t.Errorf("%v, %v", events, err)
	}
}

// conformance: EV-11 @embedded
//
// Every kind of failure the transitions know is one RunFailed with its kind,
// and an error of the closed set.
func TestTypedFailures(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		look := tool.New("look", "Looks.", func(context.Context, arg) (string, error) { return "", tool.Abort(errors.New("no")) })
		plain := define(t, agent.Policy{})
		for kind, req := range map[string]engine.RunRequest{
			core.InputError: func() engine.RunRequest {
				r := request(plain, modeltest.Script())
				r.Input = json.RawMessage(`7`)
				return r
			}(),
			core.ModelRefused:       request(plain, modeltest.Script(modeltest.Fail(&model.Error{Class: model.Refused}))),
			core.ModelProtocolError: request(plain, modeltest.Script(modeltest.Fail(&model.Error{Class: model.Protocol}))),
			core.ContextOverflow:    request(plain, modeltest.Script(modeltest.Fail(&model.Error{Class: model.ContextOverflow}))),
			core.ModelStopped: request(plain, speaking(func(_ context.Context, emit func(model.Part) error) error {
				return emit(model.Finish{Reason: model.Length})
			})),
			core.ToolAborted:     request(define(t, agent.Policy{}, look), modeltest.Script(modeltest.Calls(call("look", 1)))),
			core.InvalidToolCall: request(define(t, agent.Policy{OnInvalidToolCall: agent.FailInvalid}), modeltest.Script(modeltest.Calls(call("lok", 1)))),
			record.PolicyError: request(define(t, agent.Policy{MaxTurns: 1, OnExhaustion: agent.FailOnExhaustion}, handler(&counter{}, "look")),
				modeltest.Script(modeltest.Calls(call("look", 0)))),
		} {
			events, err := follow(newLocal(t).runner.Events(bg, req))
			failsAs(t, kind, err, kind)
			var failure engine.Failure
			if !errors.As(err, &failure) {
				t.Errorf("%s is not in the closed set", kind)
			}
			failures := slices.DeleteFunc(events, func(e event.Event) bool { return e.Data.Kind() != event.KindRunFailed })
			if len(failures) != 1 || failures[0].Data.(event.RunFailed).Error.Kind != kind {
				t.Errorf("%s: %+v", kind, failures)
			}
		}
	})
}

// conformance: CLS-07 @embedded
//
// A call that succeeds or fails is told once, in one bounded line; one that is
// interrupted is not told at all.
func TestOutcomeLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for name, row := range map[string]struct {
			n    int // 0 succeeds, 1 fails, 2 is interrupted
			want string
		}{"success": {0, "success"}, "failure": {1, "failure"}, "interruption": {2, ""}} {
			var log bytes.Buffer
			l := newLocal(t, func(c *engine.RunnerConfig) {
				c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			})
			look := tool.New("look", "Looks.", func(ctx context.Context, in arg) (string, error) {
				switch in.N {
				case 1:
					return "", tool.Failf("Secret", "%s", strings.Repeat("secret", 1000))
				case 2:
					<-ctx.Done()
					return "", ctx.Err()
				}
				return strings.Repeat("secret", 1000), nil
			})
			h := l.start(request(define(t, agent.Policy{}, look), modeltest.Script(modeltest.Calls(call("look", row.n)), modeltest.Text("done"))))
			time.Sleep(time.Second)
			_ = h.Cancel()
			_, _ = h.Await(bg)
			var lines []string
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "tool call ended") {
					lines = append(lines, line)
				}
			}
			switch {
			case row.want == "" && len(lines) > 0, row.want != "" && len(lines) != 1:
				t.Errorf("%s: %d lines: %q", name, len(lines), lines)
			case row.want != "" && (!strings.Contains(lines[0], "outcome="+row.want) || len(lines[0]) > 512 || strings.Contains(lines[0], "secretsecret")):
				t.Errorf("%s: %q", name, lines[0])
			}
		}
	})
}
