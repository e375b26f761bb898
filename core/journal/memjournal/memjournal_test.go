package memjournal_test

import (
	"errors"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/journaltest"
	"github.com/layover-run/layover/core/journal/memjournal"
)

func TestJournal(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) journal.Journal { return memjournal.New() },
		journaltest.WithFaults(func(j journal.Journal, f journaltest.Fault) {
			if f == nil {
				j.(*memjournal.Journal).SetWriteFault(nil)
				return
			}
			j.(*memjournal.Journal).SetWriteFault(func(w memjournal.Write) error { return f(w.Op+" "+string(w.Item), w.After) })
		}))
}

var (
	lane  = journal.Lane{Tenant: "acme", Conversation: "c1"}
	start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func admit(t *testing.T, j *memjournal.Journal) {
	t.Helper()
	if _, err := j.Admit(t.Context(), journal.Submission{Lane: lane, ID: "s1", Digest: "d"}, start, time.Second); err != nil {
		t.Fatal(err)
	}
}

func claim(j *memjournal.Journal, t *testing.T, owner string) (journal.Head, error) {
	return j.Claim(t.Context(), journal.ClaimRequest{Lane: lane, Owner: owner, Boot: j.Boot(), Now: start, Lease: start.Add(time.Hour)})
}

func TestRestartMakesRunningLanesDue(t *testing.T) {
	old := memjournal.New()
	admit(t, old)
	if _, err := claim(old, t, "a1"); err != nil {
		t.Fatal(err)
	}
	seen, err := old.Head(t.Context(), lane)
	if err != nil {
		t.Fatal(err)
	}
	watching := make(chan error)
	go func() {
		_, err := old.Watch(t.Context(), lane, seen)
		watching <- err
	}()

	j := old.Restart()
	if err := <-watching; !errors.Is(err, journal.ErrClosed) {
		t.Errorf("watch on the old journal: %v", err)
	}
	if _, err := old.Head(t.Context(), lane); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("the old journal answers %v", err)
	}
	due, err := j.Due(t.Context(), start, 10)
	if err != nil || len(due) != 1 {
		t.Fatalf("due: %v, %v", due, err)
	}
	h, err := claim(j, t, "a2")
	if err != nil || h.Epoch != 2 || h.Boot != j.Boot() {
		t.Fatalf("claim after the restart: %+v, %v", h, err)
	}
	if due, _ := j.Due(t.Context(), start, 10); len(due) != 0 {
		t.Fatalf("still due: %v", due)
	}
}

func TestFaults(t *testing.T) {
	for _, after := range []bool{false, true} {
		j := memjournal.New()
		boom := errors.New("boom")
		j.SetFault(func(op string, at bool) error {
			if op == "admit" && at == after {
				return boom
			}
			return nil
		})
		_, err := j.Admit(t.Context(), journal.Submission{Lane: lane, ID: "s1", Digest: "d"}, start, time.Second)
		if !errors.Is(err, boom) {
			t.Fatalf("after=%v: %v", after, err)
		}
		want := int64(0)
		if after {
			want = 3
		}
		if got := j.Writes(); got != want {
			t.Errorf("after=%v: %d writes, want %d", after, got, want)
		}
		j.SetFault(nil)
		admit(t, j)
		if got := j.Writes(); got != 3 {
			t.Errorf("after=%v: %d writes once retried, want 3", after, got)
		}
	}
}
