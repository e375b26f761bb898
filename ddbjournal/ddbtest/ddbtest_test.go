package ddbtest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/ddbjournal/ddbtest"
)

var lane = journal.Lane{Tenant: "t", Conversation: "c"}

func admit(t *testing.T, j *ddbtest.Journal) error {
	t.Helper()
	_, err := j.Admit(t.Context(), journal.Submission{Lane: lane, ID: "s1", Digest: "d", Agent: "a", Input: []byte("{}")}, time.Now(), time.Second)
	return err
}

// A process that is closed reaches the store no more, at once; another one
// finds what it left.
func TestClosed(t *testing.T) {
	table := ddbtest.NewPeer().NewTable(t)
	first, second := table.Open(t), table.Open(t)
	if err := admit(t, first); err != nil || table.Writes() != 3 {
		t.Fatalf("%v, %d writes", err, table.Writes())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Head(t.Context(), lane); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("a read: %v", err)
	}
	if err := admit(t, first); !errors.Is(err, journal.ErrClosed) || table.Writes() != 3 {
		t.Errorf("a write: %v, %d writes", err, table.Writes())
	}
	if h, err := second.Head(t.Context(), lane); err != nil || h.State != journal.Ready {
		t.Errorf("the other process: %+v, %v", h, err)
	}
}

// A fault is met by every try of every write, before it and after it.
func TestWriteFault(t *testing.T) {
	table := ddbtest.NewPeer().NewTable(t)
	j := table.Open(t)
	var before, after int
	j.SetWriteFault(func(_ string, done bool) error {
		if done {
			after++
			return nil
		}
		if before++; before%2 == 1 {
			return errors.New("broken")
		}
		return nil
	})
	if err := admit(t, j); err != nil || before != 6 || after != 3 {
		t.Errorf("%v; %d tries, %d writes", err, before, after)
	}
}

// On a lossy way each write is made twice, and the second one meets the first:
// of a bump, which has no condition against itself, both count.
func TestLossyPeer(t *testing.T) {
	table := ddbtest.NewLossyPeer().NewTable(t)
	j := table.Open(t)
	tries := 0
	j.SetWriteFault(func(_ string, done bool) error {
		if !done {
			tries++
		}
		return nil
	})
	if err := admit(t, j); err != nil || tries < 6 || table.Writes() < 3 {
		t.Errorf("%v; %d tries, %d writes", err, tries, table.Writes())
	}
	_, entries, err := j.Inbox(t.Context(), lane, 0)
	if err != nil || len(entries) != 1 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}
