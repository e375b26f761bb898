package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/tool"
)

// deafQueue takes nothing.
type deafQueue struct{}

func (deafQueue) Send(context.Context, queue.Wake, time.Duration) error {
	return errors.New("no such queue")
}

// logged works on the lane once and gives the lines of its log.
func (r *rig) logged() []map[string]any {
	r.t.Helper()
	var out bytes.Buffer
	n := 0
	a, err := engine.NewAttempter(engine.Config{Journal: r.journal, Queue: deafQueue{}, Boot: r.journal.Boot(),
		Log: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), NewID: func() string { n++; return r.journal.Boot() + string(rune('a'+n)) }}, r.registry(r.model))
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := a.Attempt(bg, r.lane); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			r.t.Fatal(err)
		}
		lines = append(lines, m)
	}
	return lines
}

// Every line of an attempt says whose it is: conversation, attempt, epoch, run
// and turn, and the call where it is about one.
func TestLogLines(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		r := newRig(t, define(t, agent.Policy{},
			tool.New("hang", "Hangs.", func(context.Context, arg) (string, error) { <-hang; return "", nil }, tool.Timeout(time.Second), tool.Readonly()),
			tool.New("panic", "Panics.", func(context.Context, arg) (string, error) { panic("its text") }, tool.Readonly())),
			modeltest.Calls(call("hang", 0)), modeltest.Calls(call("panic", 0)))
		id := r.submit(kim)
		want := []struct {
			message, call string
			turn          float64
		}{
			{"a handler does not return although its context has ended", "call-1-1", 1},
			{"tool call ended", "call-2-1", 2},
			{"defect", "call-2-1", 2},
			{"wake not sent; the sweep repairs it", "", 2},
		}
		lines := r.logged()
		if len(lines) != len(want) {
			t.Fatalf("%d lines: %v", len(lines), lines)
		}
		for i, w := range want {
			got := lines[i]
			call, _ := got["call"].(string)
			if got["msg"] != w.message || call != w.call || got["turn"] != w.turn || got["run"] != id || got["conversation"] != "c" ||
				got["epoch"] != 1.0 || got["attempt"] != r.journal.Boot()+"b" {
				t.Errorf("line %d is %v, want %+v", i, got, w)
			}
		}
		if stack, _ := lines[len(lines)-2]["stack"].(string); !strings.Contains(stack, "observe_test.go") || strings.Contains(stack, "its text") {
			t.Errorf("the stack of the defect is %q", stack)
		}
	})
}

// What a panic says reaches the author of the code, with where it was.
func TestPanicIsHeard(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}, tool.New("do", "Does.", func(context.Context, arg) (string, error) { panic("password=hunter2") })),
			modeltest.Calls(call("do", 0)))
		r.submit(kim)
		r.once(engine.ParkedLane)
		if len(r.heard) != 1 || r.heard[0].Where != "tool do" || r.heard[0].Call != "call-1-1" || !strings.Contains(r.heard[0].Err.Error(), "hunter2") {
			t.Errorf("heard %+v", r.heard)
		}
	})
}
