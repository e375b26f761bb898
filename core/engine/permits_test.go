package engine

import (
	"context"
	"testing"
)

// Places are taken all at once or not at all, in the order of the line, and are
// given back by whoever leaves it, whatever became of the call.
func TestPermits(t *testing.T) {
	p := newPermits(ToolLimits{Process: 2, Groups: map[string]int{"db": 1}})
	db, other := want{"a", "db"}, want{"a", ""}
	used := func(what string, n int) {
		t.Helper()
		if p.process != n {
			t.Fatalf("%s: %d places are taken, want %d", what, p.process, n)
		}
	}
	given := func(w *waiter) bool {
		select {
		case <-w.given:
			return true
		default:
			return false
		}
	}
	if p.take(db) != nil {
		t.Fatal("an empty process has no place")
	}
	first, second := p.take(db), p.take(db)
	if first == nil || second == nil {
		t.Fatal("a group of one has room for two")
	}
	used("waiting for a group takes no place of the process", 1)
	if p.take(other) != nil {
		t.Fatal("who waits for a group holds others up")
	}
	third := p.take(other)
	gone, leave := context.WithCancel(context.Background())
	leave()
	if p.wait(gone, first) {
		t.Fatal("a place was given to who left")
	}
	p.give(db)
	if given(first) || !given(second) || given(third) || !p.wait(gone, second) {
		t.Fatal("the line is not in order")
	}
	used("second and the other", 2)

	var h held
	if !h.hold(p, "c1", db) || !h.hold(p, "c2", other) {
		t.Fatal("an attempt that lives holds nothing")
	}
	if w, ok := h.pass("c2"); !ok || w != other {
		t.Fatal("the handler gets no place")
	}
	h.close(p)
	used("what no handler took is given back, and goes to the next", 2)
	if !given(third) {
		t.Fatal("nobody got the place")
	}
	p.give(other)
	p.give(other)
	used("all gone", 0)

	p.count(db, 1)
	if h.hold(p, "late", db) {
		t.Fatal("an attempt that is over holds a place")
	}
	used("late", 0)
	var again held
	p.count(db, 2)
	again.hold(p, "c", db)
	again.hold(p, "c", db)
	used("the place of an earlier call of that id", 1)
}
