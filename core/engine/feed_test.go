package engine

import (
	"strings"
	"testing"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
)

func delta(epoch uint64, turn, index int, text string) event.Event {
	return event.Event{Run: "r", Epoch: epoch, Turn: turn, Provisional: true, Data: event.TextDelta{Index: index, Text: text}}
}

func spoken(events []event.Event) string {
	var out strings.Builder
	for _, e := range events {
		if d, ok := e.Data.(event.TextDelta); ok {
			out.WriteString(d.Text)
		}
	}
	return out.String()
}

// What waits for a reader is bounded in bytes and in number, and what is
// dropped is the end of a text, never its middle.
func TestPiecesAreBounded(t *testing.T) {
	for name, row := range map[string]struct {
		size  int
		index func(i int) int
	}{
		"one long block":    {100, func(int) int { return 0 }},
		"many small blocks": {1, func(i int) int { return i }},
	} {
		t.Run(name, func(t *testing.T) {
			var p pieces
			var all strings.Builder
			for i := range 2000 {
				text := strings.Repeat(string(rune('a'+i%26)), row.size)
				all.WriteString(text)
				p.add(delta(1, 1, row.index(i), text))
			}
			if len(p.events) > maxPieces || p.bytes > maxPieceBytes {
				t.Errorf("%d pieces, %d bytes", len(p.events), p.bytes)
			}
			got := spoken(p.events)
			if !strings.HasPrefix(all.String(), got) || len(got) < maxPieces {
				t.Errorf("%d characters, which are not how the text begins", len(got))
			}
			p.take()
			if p.add(delta(1, 1, 9999, "rest")); len(p.events) > 0 {
				t.Error("a piece behind a hole was kept")
			}
			if p.add(delta(1, 2, 0, "next")); spoken(p.events) != "next" {
				t.Error("the next turn is lost too")
			}
		})
	}
}

// A newer attempt, a turn that begins again and a record each make room.
func TestPiecesAreSuperseded(t *testing.T) {
	for name, row := range map[string]struct {
		then func(p *pieces)
		want string
	}{
		"by a newer attempt":   {func(p *pieces) { p.add(delta(2, 1, 0, "b")) }, "b"},
		"by the turn, again":   {func(p *pieces) { p.add(event.Event{Run: "r", Epoch: 1, Turn: 1, Data: event.TurnStarted{}}) }, ""},
		"by its record":        {func(p *pieces) { p.supersede(event.Event{Run: "r", Turn: 1, Data: event.ResponseCompleted{}}) }, ""},
		"not by another":       {func(p *pieces) { p.supersede(event.Event{Run: "r", Turn: 0, Data: event.ResponseCompleted{}}) }, "a"},
		"by the end":           {func(p *pieces) { p.supersede(event.Event{Run: "r", Data: event.RunFailed{}}) }, ""},
		"not by another's end": {func(p *pieces) { p.supersede(event.Event{Run: "s", Data: event.RunFailed{}}) }, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var p pieces
			p.add(delta(1, 1, 0, "a"))
			row.then(&p)
			if got := spoken(p.events); got != row.want {
				t.Errorf("%q is left, want %q", got, row.want)
			}
		})
	}
}

// A lane that is neither worked on nor read costs nothing.
func TestFeedForgets(t *testing.T) {
	f, lane := NewFeed(), journal.Lane{Tenant: "t", Conversation: "c"}
	f.begin(lane)
	r := f.join(lane, true)
	f.live(lane, delta(1, 1, 0, "a"))
	f.end(lane)
	if got := spoken(f.take(r)); got != "a" {
		t.Errorf("the reader got %q", got)
	}
	if late := f.join(lane, true); spoken(f.take(late)) != "" {
		t.Error("what an attempt had on its way outlived it")
	} else {
		f.leave(lane, late)
	}
	f.leave(lane, r)
	f.recorded(lane, nil)
	if len(f.lanes) != 0 {
		t.Errorf("%d lanes are kept", len(f.lanes))
	}
}
