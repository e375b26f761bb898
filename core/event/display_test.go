package event_test

import (
	"slices"
	"testing"

	"github.com/layover-run/layover/core/event"
)

// The text a reader shows: what is on its way is replaced by its record, and
// taken back when an attempt takes over, when the turn begins again, and when
// the run ends.
func TestDisplay(t *testing.T) {
	live := func(epoch uint64, turn int, d event.Data) event.Event {
		return event.Event{Run: "r", Sequence: 1, Epoch: epoch, Turn: turn, Provisional: true, Data: d}
	}
	text := func(epoch uint64, turn int, s string) event.Event { return live(epoch, turn, event.TextDelta{Text: s}) }
	canonical := func(epoch uint64, turn int, d event.Data) event.Event {
		return event.Event{Run: "r", Sequence: 2, Epoch: epoch, Turn: turn, Data: d}
	}
	said := func(epoch uint64, turn int, s string) event.Event {
		return canonical(epoch, turn, event.ResponseCompleted{Text: s})
	}
	for _, row := range []struct {
		name      string
		events    []event.Event
		certain   []string
		pending   string
		retracted bool // by the last event
	}{
		{"on its way", []event.Event{text(1, 1, "He"), text(1, 1, "llo")}, nil, "Hello", false},
		{"recorded", []event.Event{text(1, 1, "He"), said(1, 1, "Hello")}, []string{"Hello"}, "", false},
		{"recorded otherwise", []event.Event{text(1, 1, "Ha"), said(1, 1, "Hello")}, []string{"Hello"}, "", true},
		{"the next turn", []event.Event{said(1, 1, "One"), text(1, 2, "Tw")}, []string{"One"}, "Tw", false},
		{"asked again", []event.Event{text(1, 1, "Ha"), live(1, 1, event.TurnStarted{})}, nil, "", true},
		{"asked the first time", []event.Event{live(1, 1, event.TurnStarted{}), text(1, 1, "He")}, nil, "He", false},
		{"taken over, live", []event.Event{text(1, 1, "Ha"), text(2, 1, "He")}, nil, "He", true},
		{"taken over, canonical", []event.Event{text(1, 1, "Ha"), canonical(2, 0, event.SteeringApplied{})}, nil, "", true},
		{"taken over before anything was shown", []event.Event{canonical(1, 0, event.RunStarted{}), text(2, 1, "He")}, nil, "He", false},
		{"a word from the dead", []event.Event{text(2, 1, "He"), text(1, 1, "Ha")}, nil, "He", false},
		{"history of an older epoch", []event.Event{text(2, 2, "Tw"), said(1, 1, "One")}, []string{"One"}, "Tw", false},
		{"failed", []event.Event{text(1, 1, "Ha"), canonical(1, 0, event.RunFailed{})}, nil, "", true},
		{"calls only", []event.Event{said(1, 1, "")}, nil, "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			var d event.Display
			retracted := false
			for _, e := range row.events {
				retracted = d.Add(e)
			}
			if !slices.Equal(d.Certain(), row.certain) || d.Pending() != row.pending || retracted != row.retracted {
				t.Errorf("certain %q, pending %q, retracted %v; want %q, %q, %v", d.Certain(), d.Pending(), retracted,
					row.certain, row.pending, row.retracted)
			}
		})
	}
}
