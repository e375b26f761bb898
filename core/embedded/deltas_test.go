package embedded_test

import (
	"strings"
	"testing"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// Deltas are not recorded here, and nothing is lost by that: what a reader was
// told piece by piece is, word for word, what the log alone gives to one who
// reads it in another process.
//
// conformance: RSP-10 @embedded
func TestTheLogRebuildsWhatWasStreamed(t *testing.T) {
	oneProcess(t, "live events are told in the process that runs")
	sent, on := make(chan struct{}), make(chan struct{})
	m := &pausing{sent: sent, on: on,
		first: stream(begin, model.ReasoningDelta{Index: 0, Text: "It is "}, model.TextDelta{Index: 1, Text: "Take "}, model.TextDelta{Index: 1, Text: "a "}),
		last:  stream(model.TextDelta{Index: 1, Text: "coat."}, stop)}
	h := buildOn(t, embedded.Config{}, agentOf(t, agent.Policy{}), m)
	id := h.submit("k")
	<-sent

	var told strings.Builder
	for n, err := range h.rt.Events(h.ctx(), "", "c", engine.EventsOptions{Follow: true, Live: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := n.Event.Data.(event.TextDelta); ok {
			if told.WriteString(d.Text); strings.Contains(told.String(), "Take a ") && on != nil {
				close(on)
				on = nil
			}
		}
		if n.Event.Data.Kind() == event.KindRunCompleted {
			break
		}
	}
	h.ends(id, "completed", "")
	h.crash()

	var rebuilt string
	for _, e := range h.events() {
		switch d := e.Data.(type) {
		case event.ResponseCompleted:
			rebuilt = d.Text
		case event.TextDelta, event.ReasoningDelta:
			t.Errorf("the log gives a delta: %+v", e)
		}
	}
	if !strings.HasPrefix(rebuilt, told.String()) || rebuilt != "Take a coat." || told.Len() < len("Take a ") {
		t.Errorf("streamed %q, rebuilt %q", told.String(), rebuilt)
	}
	if n := len(h.records(record.KindResponseRecorded)); n != 1 {
		t.Errorf("%d responses on record", n)
	}
}
