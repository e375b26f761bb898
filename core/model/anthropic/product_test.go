package anthropic_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/agent/agenttest"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
)

// played runs one conversation of these answers through the whole product.
func played(t *testing.T, c anthropic.Config, answers ...string) (run *agenttest.Run, ran []string, replay *modeltest.Replay) {
	t.Helper()
	var exchanges []modeltest.Exchange
	for _, a := range answers {
		exchanges = append(exchanges, modeltest.Stream(a))
	}
	replay = modeltest.NewReplay(exchanges...)
	c.HTTPClient = replay.Client()
	h := agenttest.Bind(t, reader(t, "Help.", &ran).Bind(newModel(t, c)))
	run = h.Run("Oslo?")
	h.Verify()
	return run, ran, replay
}

// repairs are what the run's records say was mended.
func repairs(run *agenttest.Run) (names []string) {
	for _, r := range run.Records() {
		if response, ok := r.(record.ResponseRecorded); ok {
			for _, repair := range response.Repairs {
				names = append(names, repair.Name+" "+repair.Raw)
			}
		}
	}
	return names
}

var warm = stream(start, textBlock(0, "Warm."), finish("end_turn"))

// failure: A07
func TestToolWithoutParametersRuns(t *testing.T) {
	for name, events := range map[string]string{
		"nothing": toolBlock(0, "a", "clock"), "empty text": toolBlock(0, "a", "clock", "", ""), "null": toolBlock(0, "a", "clock", "null"),
	} {
		run, ran, replay := played(t, anthropic.Config{}, stream(start, events, finish("tool_use")), warm)
		run.Completed(nil)
		run.Said("user: Oslo?\nassistant: clock {}\ntool: clock \"noon\"\nassistant: Warm.")
		if got := repairs(run); len(ran) != 1 || len(got) != 1 || !strings.HasPrefix(got[0], "empty-arguments") {
			t.Errorf("%s: handlers %v, repairs %q", name, ran, got)
		}
		if !strings.Contains(string(replay.Requests()[1]), `"input":{}`) {
			t.Errorf("%s: what went back is %s", name, replay.Requests()[1])
		}
	}
	// With the repair off nothing runs and the run fails.
	run, ran, _ := played(t, anthropic.Config{Compat: anthropic.Compat{KeepEmptyArguments: true}}, stream(start, toolBlock(0, "a", "clock"), finish("tool_use")))
	if run.Failed("ModelProtocolError"); len(ran) != 0 {
		t.Error(ran)
	}
}

// failure: A06
func TestContentDecidesBeforeTheReason(t *testing.T) {
	run, ran, _ := played(t, anthropic.Config{}, stream(start, toolBlock(0, "a", "weather", `{"location":"Oslo"}`), finish("end_turn")), warm)
	if run.Completed(nil); !slices.Equal(ran, []string{"weather Oslo"}) || !slices.Equal(repairs(run), []string{"stop-reason end_turn"}) {
		t.Errorf("handlers %v, repairs %q", ran, repairs(run))
	}
	for name, answer := range map[string]string{
		"refusal": stream(start, finish("refusal")), "unknown": stream(start, finish("bored")), "nothing": stream(start, finish("end_turn")),
		"reasoning only": stream(start, opened(0, `{"type":"thinking","thinking":"hm"}`), closed(0), finish("end_turn")),
		"half and bound": stream(start, textBlock(0, "Wa"), finish("max_tokens")),
	} {
		if run, _, _ := played(t, anthropic.Config{}, answer); run.Progress().Status != "failed" || run.Progress().Outcome.Error == nil {
			t.Errorf("%s: %+v", name, run.Progress())
		}
	}
}

// failure: A08
func TestCutOffCallRunsNothing(t *testing.T) {
	for _, arguments := range []string{`{"location":"Os`, `{"location":"Oslo"}`} {
		run, ran, _ := played(t, anthropic.Config{}, stream(start, toolBlock(0, "a", "weather", `{"location":"Rome"}`), toolBlock(1, "b", "weather", arguments), finish("max_tokens")))
		run.Failed("ModelProtocolError")
		if len(ran) != 0 || len(run.Messages()) != 0 {
			t.Errorf("handlers %v, history %v", ran, run.Messages())
		}
	}
}

// failure: A27
func TestRepeatedCallIDsRunOnceEach(t *testing.T) {
	call := func(index int, place string) string {
		return toolBlock(index, "weather:0", "weather", `{"location":"`+place+`"}`)
	}
	run, ran, replay := played(t, anthropic.Config{}, stream(start, call(0, "Oslo"), call(1, "Rome"), finish("tool_use")), stream(start, call(0, "Bergen"), finish("tool_use")), warm)
	run.Completed(nil)
	if !slices.Equal(ran, []string{"weather Oslo", "weather Rome", "weather Bergen"}) {
		t.Error(ran)
	}
	for _, id := range []string{"weather_0", "weather_0_2", "weather_0_3"} {
		if n := strings.Count(string(replay.Requests()[2]), `"`+id+`"`); n != 2 {
			t.Errorf("id %s is %d times in the last request, want a call and a result\n%s", id, n, replay.Requests()[2])
		}
	}
}

// failure: A28
func TestMixedCallsRunWithTheirOwnArguments(t *testing.T) {
	block := func(index int, id string) string {
		return opened(index, `{"type":"tool_use","id":"`+id+`","name":"weather","input":{}}`)
	}
	args := func(index int, text string) string { return more(index, "input_json_delta", "partial_json", text) }
	run, ran, _ := played(t, anthropic.Config{}, stream(start, block(0, "a"), args(0, `{"loc`), block(1, "b"), args(1, `{"location":"Ro`), args(0, `ation":"Oslo"}`),
		args(1, `me"}`), closed(1), closed(0), finish("tool_use")), warm)
	if run.Completed(nil); !slices.Equal(ran, []string{"weather Oslo", "weather Rome"}) {
		t.Error(ran)
	}
	run, ran, _ = played(t, anthropic.Config{}, stream(start, block(0, "a"), args(0, `{"location":"Oslo"}`), args(0, `{"location":"Rome"}`), closed(0), finish("tool_use")))
	if run.Failed("ModelProtocolError"); len(ran) != 0 {
		t.Error(ran)
	}
}

// A kill at any durable write loses no signature: what the request after the
// tool call carries is what the provider sent, and it is accepted by a provider
// that insists on it.
//
// failure: A02, A30
func TestReasoningSurvivesAKill(t *testing.T) {
	recording, err := modeltest.LoadRecording("testdata/thinking.json")
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			var ran []string
			strict := &strictProvider{t: t, answers: recording.Exchanges}
			h := agenttest.Bind(t, reader(t, "Help.", &ran).Bind(newModel(t, anthropic.Config{HTTPClient: strict.client(), Thinking: anthropic.Thinking{Budget: 2000}})))
			h.Kill(n, after)
			h.Run("Oslo?", agenttest.In("c"), agenttest.Key("k"))
			if !h.Killed() {
				break
			}
			kills++
			h.Restart()
			h.Work()
			h.Run("Oslo?", agenttest.In("c"), agenttest.Key("k")).Completed(nil)
			h.Verify()
		}
	}
	if kills < 10 {
		t.Errorf("only %d kills", kills)
	}
}

// A short wait is waited for inside the attempt.
//
// failure: A29
func TestShortWaitIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := modeltest.Exchange{Status: 429, ContentType: "application/json", Response: failed("rate_limit_error", "slow down"), Header: modeltest.Header{"Retry-After": "8"}}
		replay := modeltest.NewReplay(limited, modeltest.Stream(warm))
		var ran []string
		began := time.Now()
		run := agenttest.Bind(t, reader(t, "Help.", &ran).Bind(newModel(t, anthropic.Config{HTTPClient: replay.Client()}))).Run("Oslo?")
		run.Completed(nil)
		if waited := time.Since(began); waited < 8*time.Second || waited > 13*time.Second || run.Progress().Attempts != 1 {
			t.Errorf("waited %s in %d attempts", waited, run.Progress().Attempts)
		}
	})
}
