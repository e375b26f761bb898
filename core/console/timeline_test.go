package console

import (
	"testing"

	"github.com/layover-run/layover/core/event"
)

// A provider may leave a call of its own open and bring the result with its next
// response: the timeline shows it where the call was made.
func TestLateResultOfTheProvider(t *testing.T) {
	r := &run{}
	for _, e := range []event.Event{
		{Turn: 1, Data: event.TurnStarted{}},
		{Turn: 1, Call: "w1", Data: event.ToolCallDeclared{Tool: "web_search", ProviderExecuted: true}},
		{Turn: 1, Call: "w2", Data: event.ToolCallDeclared{Tool: "web_search", ProviderExecuted: true}},
		{Turn: 2, Data: event.TurnStarted{}},
		{Turn: 2, Call: "w1", Data: event.ToolCallSucceeded{Tool: "web_search", ProviderExecuted: true}},
		{Turn: 2, Call: "w2", Data: event.ToolCallFailed{Tool: "web_search", ProviderExecuted: true}},
		{Turn: 2, Call: "c1", Data: event.ToolCallDeclared{Tool: "look"}},
		{Turn: 2, Call: "c1", Data: event.ToolCallSucceeded{Tool: "look"}},
	} {
		r.inside(e)
	}
	states := map[string]string{}
	for _, turn := range r.Turns {
		for _, c := range turn.Calls {
			states[c.ID] += c.Tool + " " + c.State
		}
	}
	want := map[string]string{"w1": "web_search succeeded", "w2": "web_search failed", "c1": "look succeeded"}
	if len(r.Turns[0].Calls) != 2 || len(r.Turns[1].Calls) != 1 || len(states) != 3 || states["w1"] != want["w1"] || states["w2"] != want["w2"] || states["c1"] != want["c1"] {
		t.Errorf("%d and %d calls: %v", len(r.Turns[0].Calls), len(r.Turns[1].Calls), states)
	}
}
