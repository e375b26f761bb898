package modeltest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
)

func request(text string) *model.Request {
	return &model.Request{Messages: []record.Message{record.TextMessage(record.User, text)}}
}

func TestScript(t *testing.T) {
	down := errors.New("down")
	m := modeltest.Script(
		modeltest.Calls(modeltest.Call{Tool: "a"}, modeltest.Call{ID: "own", Tool: "b", Args: map[string]int{"n": 1}}),
		modeltest.Fail(down),
		modeltest.Check(func(r *model.Request) error {
			if len(r.Messages) != 1 {
				return errors.New("messages")
			}
			return nil
		}), modeltest.Text("done"),
		modeltest.Check(func(*model.Request) error { return down }), modeltest.Text("never"),
		modeltest.Emit(model.Start{}, model.TextDelta{Text: "cut"}),
	)
	ctx := context.Background()
	resp, err := modeltest.Ask(ctx, m, request("1"))
	if err != nil || resp.Stop != model.ToolCalls {
		t.Fatal(resp, err)
	}
	calls := resp.Message.Calls()
	if calls[0].ID != "call-1-1" || string(calls[0].Args.Inline) != "{}" || calls[1].ID != "own" || string(calls[1].Args.Inline) != `{"n":1}` {
		t.Errorf("%+v", calls)
	}
	if _, err := modeltest.Ask(ctx, m, request("2")); err != down {
		t.Error(err)
	}
	if resp, err := modeltest.Ask(ctx, m, request("3")); err != nil || modeltest.FinalText([]record.Message{resp.Message}) != "done" {
		t.Error(resp, err)
	}
	if _, err := modeltest.Ask(ctx, m, request("4")); err != down {
		t.Error(err)
	}
	if _, err := modeltest.Ask(ctx, m, request("5")); model.ClassOf(err) != model.Protocol {
		t.Error(err)
	}
	if m.Left() != 0 {
		t.Error(m.Left())
	}
	if _, err := modeltest.Ask(ctx, m, request("6")); err == nil || !strings.Contains(err.Error(), "no step left") {
		t.Error(err)
	}
	if got := m.Requests(); len(got) != 6 || got[5].Messages[0].Parts[0].(record.TextPart).Text.Text() != "6" {
		t.Error(got)
	}
}

func TestFailuresOnTheWay(t *testing.T) {
	down := errors.New("down")
	text := modeltest.Text("hello") // four parts
	for n := range 5 {
		m := modeltest.Script(modeltest.FailAfter(n, down, text), modeltest.CutAfter(n, text), text)
		got := 0
		err := m.Stream(t.Context(), request("1"), func(model.Part) error { got++; return nil })
		if err != down || got != n {
			t.Errorf("fail after %d: %d parts, %v", n, got, err)
		}
		resp, err := modeltest.Ask(t.Context(), m, request("2"))
		if whole := n == 4; whole != (err == nil) || !whole && model.ClassOf(err) != model.Protocol {
			t.Errorf("cut after %d: %v, %v", n, resp, err)
		}
		if _, err := modeltest.Ask(t.Context(), m, request("3")); err != nil {
			t.Error(err)
		}
	}
	gone := errors.New("the caller has enough")
	m := modeltest.Script(modeltest.FailAfter(3, down, text))
	if err := m.Stream(t.Context(), request("1"), func(model.Part) error { return gone }); err != gone {
		t.Error(err)
	}
	m = modeltest.Script(modeltest.Malform(text, func(parts []model.Part) []model.Part { return append(parts, parts[0]) }))
	if _, err := modeltest.Ask(t.Context(), m, request("1")); err == nil || !strings.Contains(err.Error(), "after the completion") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m = modeltest.Script(modeltest.HangAfter(2, text))
	got := 0
	err := m.Stream(ctx, request("1"), func(model.Part) error {
		if got++; got == 2 {
			cancel()
		}
		return nil
	})
	if got != 2 || !errors.Is(err, context.Canceled) {
		t.Error(got, err)
	}
}

func TestTurnsAnswerTheSameAgain(t *testing.T) {
	m := modeltest.Turns(modeltest.Check(func(*model.Request) error { return nil }), modeltest.Calls(modeltest.Call{Tool: "a"}), modeltest.Text("done"))
	first := request("1")
	second := &model.Request{Messages: append(first.Messages, record.TextMessage(record.Assistant, "x"))}
	for _, tc := range []struct {
		req  *model.Request
		stop model.StopReason
	}{{first, model.ToolCalls}, {first, model.ToolCalls}, {second, model.Stop}, {first, model.ToolCalls}, {second, model.Stop}} {
		if resp, err := modeltest.Ask(t.Context(), m, tc.req); err != nil || resp.Stop != tc.stop {
			t.Errorf("%s, %v; want %s", resp.Stop, err, tc.stop)
		}
	}
	third := &model.Request{Messages: append(second.Messages, record.TextMessage(record.Assistant, "y"))}
	if _, err := modeltest.Ask(t.Context(), m, third); err == nil {
		t.Error("there is no third step")
	}
}

func TestHangEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := modeltest.Ask(ctx, modeltest.Script(modeltest.Hang()), request("")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestScriptIsSafeForConcurrentUse(t *testing.T) {
	var steps []modeltest.Step
	for range 20 {
		steps = append(steps, modeltest.Check(func(*model.Request) error { return nil }), modeltest.Text("x"))
	}
	m := modeltest.Script(steps...)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := modeltest.Ask(context.Background(), m, request("x")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if m.Left() != 0 || len(m.Requests()) != 20 {
		t.Error(m.Left(), len(m.Requests()))
	}
}
