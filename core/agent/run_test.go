package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/tool"
)

var quiet = slog.New(slog.DiscardHandler)

// What does not fit the definition is refused before anything runs.
func TestRunRefuses(t *testing.T) {
	bg := context.Background()
	m := modeltest.Script()
	b := adviser.Bind(m)
	for name, ask := range map[string]func() error{
		"another output": func() error { _, err := agent.Run[string](bg, b, Question{}); return err },
		"another input":  func() error { _, err := agent.Run[Advice](bg, b, Advice{}); return err },
		"no binding":     func() error { _, err := agent.Run[Advice](bg, nil, Question{}); return err },
		"started":        func() error { _, err := agent.Start[string](bg, b, Question{}); return err },
		"a bad name":     func() error { _, err := agent.Run[Advice](bg, b, Question{}, agent.InConversation("a\nb")); return err },
	} {
		err := ask()
		var failure agent.Failure
		if err == nil || errors.As(err, &failure) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(m.Requests()); n != 0 {
		t.Errorf("the model was asked %d times", n)
	}
	// Raw JSON is taken as it is, and decoded by the run first of all.
	_, err := agent.Run[Advice](bg, b, json.RawMessage(`{"city":7}`))
	var failed *agent.RunError
	if !errors.As(err, &failed) || failed.Kind != core.InputError {
		t.Errorf("raw input of another type: %v", err)
	}
}

// conformance: LIFE-04
//
// What an author changes after Bind changes no run: it keeps the definition it
// was created with, and says so.
func TestRunPinsItsDefinition(t *testing.T) {
	tools := []*tool.Tool{getWeather}
	def := agent.MustDefine[Question, Advice]("adviser", agent.Config[Question]{Instructions: agent.Text[Question]("Go."), Tools: tools})
	b := def.Bind(advising())
	digest := b.Engine().Facts.Digest
	changed := b.Engine()
	for e, err := range agent.Stream(context.Background(), b, Question{City: "Oslo"}) {
		if err != nil {
			t.Fatal(err)
		}
		tools[0] = nil
		changed.Spec.Tools[0].Name, changed.Tools[0] = "other", nil
		if started, ok := e.Data.(event.RunStarted); ok && started.Definition != digest {
			t.Errorf("the run is pinned to %s, the definition is %s", started.Definition, digest)
		}
	}
	result, err := agent.Run[Advice](context.Background(), def.Bind(advising()), Question{City: "Oslo"})
	if err != nil || result.Definition != digest || !result.Output.Coat {
		t.Errorf("%+v, %v", result, err)
	}
}

// Each option does what it says, and none widens anything.
func TestOptions(t *testing.T) {
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	bg := context.Background()
	loop := func() *modeltest.Model {
		look := modeltest.Calls(modeltest.Call{Tool: "get_weather", Args: Question{"Oslo"}})
		return modeltest.Script(look, look, look, modeltest.Text(`{"coat":true}`))
	}
	bubble("MaxTurns", func(t *testing.T) {
		result, err := agent.Run[Advice](bg, adviser.Bind(loop()), Question{"Oslo"}, agent.MaxTurns(1), agent.MaxTurns(50))
		if err == nil || result.Turns > 2 {
			t.Errorf("%+v, %v", result, err)
		}
	})
	bubble("MaxToolCalls", func(t *testing.T) {
		started := 0
		for e := range agent.Stream(bg, adviser.Bind(loop()), Question{"Oslo"}, agent.MaxToolCalls(2)) {
			if e.Data != nil && e.Data.Kind() == event.KindToolCallStarted {
				started++
			}
		}
		if started != 2 {
			t.Errorf("%d handlers", started)
		}
	})
	for name, row := range map[string]struct {
		policy time.Duration
		opts   []agent.Option
		want   time.Duration
	}{
		"five minutes":          {0, nil, 5 * time.Minute},
		"shorter":               {0, []agent.Option{agent.MaxDuration(time.Minute)}, time.Minute},
		"not longer":            {0, []agent.Option{agent.MaxDuration(time.Hour)}, 5 * time.Minute},
		"the agent's":           {time.Hour, nil, time.Hour},
		"not over the agent's":  {time.Hour, []agent.Option{agent.MaxDuration(2 * time.Hour)}, time.Hour},
		"shorter than agent's":  {time.Hour, []agent.Option{agent.MaxDuration(time.Second)}, time.Second},
		"nothing to tighten to": {0, []agent.Option{agent.MaxDuration(-1)}, 5 * time.Minute},
	} {
		bubble("MaxDuration, "+name, func(t *testing.T) {
			def := agent.MustDefine[Question, string]("slow", agent.Config[Question]{Instructions: agent.Text[Question]("Go."), Policy: agent.Policy{MaxDuration: row.policy}})
			began := time.Now()
			_, err := agent.Run[string](bg, def.Bind(modeltest.Script(modeltest.Hang())), Question{"Oslo"}, row.opts...)
			var failed *agent.RunError
			if !errors.As(err, &failed) || failed.Limit != core.DimDuration {
				t.Errorf("%v", err)
			}
			if took := time.Since(began); took != row.want {
				t.Errorf("it took %s, want %s", took, row.want)
			}
		})
	}
	bubble("names", func(t *testing.T) {
		frozen := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for e, err := range agent.Stream(bg, adviser.Bind(loop()), Question{"Oslo"}, agent.As("ada"), agent.InConversation("c7"), agent.Clock(func() time.Time { return frozen })) {
			if err != nil {
				t.Fatal(err)
			}
			if started, ok := e.Data.(event.RunStarted); ok && (started.Principal != "ada" || e.Conversation != "c7" || !e.At.Equal(frozen)) {
				t.Errorf("%+v", e)
			}
		}
	})
	bubble("OnUserError", func(t *testing.T) {
		boom := errors.New("boom")
		var heard []engine.UserError
		_, err := agent.Run[Advice](bg, adviser.Bind(modeltest.Script(modeltest.Fail(boom), modeltest.Hang())), Question{"Oslo"},
			agent.OnUserError(func(e engine.UserError) { heard = append(heard, e) }), agent.MaxDuration(time.Minute))
		if err == nil || strings.Contains(err.Error(), "boom") || len(heard) != 1 || !errors.Is(heard[0].Err, boom) {
			t.Errorf("%v; heard %v", err, heard)
		}
	})
	bubble("CleanupTimeout", func(t *testing.T) {
		deaf := tool.New("deaf", "Ignores its context.", func(context.Context, Question) (string, error) { time.Sleep(time.Hour); return "", nil }, tool.Readonly(), tool.Timeout(time.Minute))
		def := agent.MustDefine[Question, string]("slow", agent.Config[Question]{Instructions: agent.Text[Question]("Go."), Tools: []*tool.Tool{deaf}})
		began := time.Now()
		_, err := agent.Run[string](bg, def.Bind(modeltest.Script(modeltest.Calls(modeltest.Call{Tool: "deaf", Args: Question{"Oslo"}}), modeltest.Text("done"))), Question{"Oslo"},
			agent.CleanupTimeout(5*time.Second), agent.Log(quiet))
		if took := time.Since(began); took > 2*time.Minute || err != nil {
			t.Errorf("%v after %s", err, took)
		}
		time.Sleep(2 * time.Hour) // the handler ends by itself
	})
}
