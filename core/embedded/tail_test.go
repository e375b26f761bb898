package embedded

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// read collects what a reader sees, as run:sequence@id and gap@id, until it has n.
func readTail(t *testing.T, f *tail, tenant, after string, n int) (seen []string, last string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e, err := range f.Follow(ctx, tenant, after) {
		if err != nil {
			t.Fatal(err)
		}
		last = e.ID
		if e.Gap {
			seen = append(seen, "gap")
		} else {
			seen = append(seen, fmt.Sprintf("%s:%d", e.Event.Run, e.Event.Sequence))
		}
		if len(seen) == n {
			break
		}
	}
	return seen, last
}

// follow starts a reader and waits until it listens.
func follow(t *testing.T, f *tail, tenant, after string, n int) <-chan []string {
	done := make(chan []string, 1)
	go func() {
		seen, _ := readTail(t, f, tenant, after, n)
		done <- seen
	}()
	synctest.Wait()
	return done
}

func TestTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logs{lanes: map[journal.Lane][]record.Batch{}}
		f := newTail(log, quiet(), "boot")
		run := func(lane journal.Lane, id string) {
			for _, b := range log.run(lane, id) {
				f.onBatch(lane, b)
			}
			synctest.Wait()
		}
		run(lane("c1"), "before") // nobody listens yet

		one := follow(t, f, "local", "", 8)
		other := follow(t, f, "acme", "", 4)
		run(lane("c1"), "r1")
		run(journal.Lane{Tenant: "acme", Conversation: "c1"}, "theirs")
		run(lane("c2"), "r2")
		want := []string{"r1:1", "r1:2", "r1:3", "r1:4", "r2:1", "r2:2", "r2:3", "r2:4"}
		if got := <-one; !slices.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
		if got := <-other; !slices.Equal(got, []string{"theirs:1", "theirs:2", "theirs:3", "theirs:4"}) {
			t.Errorf("the other tenant read %v", got)
		}
		// A reader that comes back goes on behind its last event.
		if got, _ := readTail(t, f, "local", "boot-2", 2); !slices.Equal(got, []string{"r1:3", "r1:4"}) {
			t.Errorf("resumed with %v", got)
		}
		// One of another process, or with nonsense, is told that it missed some.
		for _, id := range []string{"dead-1", "x", "boot-", "boot-99999"} {
			if got, _ := readTail(t, f, "local", id, 2); !slices.Equal(got, []string{"gap", "r1:1"}) {
				t.Errorf("resumed behind %q with %v", id, got)
			}
		}
		// What is kept is bounded; who is too late is told so.
		for i := range tailSize / 4 {
			run(lane("c3"), fmt.Sprintf("x%d", i))
		}
		got, id := readTail(t, f, "local", "boot-2", 1)
		if !slices.Equal(got, []string{"gap"}) || len(f.ring) != tailSize {
			t.Errorf("too late: %v, %d kept", got, len(f.ring))
		}
		if again, _ := readTail(t, f, "local", id, 1); !slices.Equal(again, []string{"x0:1"}) {
			t.Errorf("behind the gap: %v", again)
		}

		end := follow(t, f, "local", "", 100)
		f.stop()
		if got := <-end; len(got) != 0 {
			t.Errorf("after the end: %v", got)
		}
		if got, _ := readTail(t, f, "local", "", 1); len(got) != 0 {
			t.Errorf("a reader after the end: %v", got)
		}
	})
}
