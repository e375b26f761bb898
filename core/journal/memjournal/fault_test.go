package memjournal_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/record"
)

var errReset = errors.New("connection reset")

// operations are the calls of several items, each with what it writes in order
// and with what must hold once it has been repeated to its end.
var operations = []struct {
	name  string
	items []memjournal.Item
	call  func(t *testing.T, j *memjournal.Journal) error
}{
	{"admit", []memjournal.Item{memjournal.Row, memjournal.Inbox, memjournal.Head}, func(t *testing.T, j *memjournal.Journal) error {
		_, err := j.Admit(t.Context(), journal.Submission{Lane: lane, ID: "s2", Digest: "d"}, start, time.Second)
		return err
	}},
	{"signal", []memjournal.Item{memjournal.Inbox, memjournal.Head}, func(t *testing.T, j *memjournal.Journal) error {
		_, err := j.Signal(t.Context(), lane, journal.Entry{Kind: journal.EntrySteer, Key: "k", Digest: "d"}, 0, start, time.Second)
		return err
	}},
	{"finish", []memjournal.Item{memjournal.Outcome, memjournal.Head}, func(t *testing.T, j *memjournal.Journal) error {
		h, err := j.Head(t.Context(), lane)
		if err != nil {
			return err
		}
		return j.Finish(t.Context(), journal.FinishRequest{Lane: lane, Outcomes: []record.RunSettled{{Run: "s1"}}, At: start,
			Was: 0, Settled: 1, Version: h.Version, To: journal.Idle, Drained: 1})
	}},
}

// A fault at every single-item write of every operation, before it and after
// it: the items before it are in place, nothing behind it is, and the same call
// again completes the operation with no item twice.
func TestWriteFaults(t *testing.T) {
	for _, o := range operations {
		for n := range o.items {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/after=%v", o.name, n+1, after), func(t *testing.T) {
					j := memjournal.New()
					admit(t, j)
					if _, err := claim(j, t, "a1"); err != nil {
						t.Fatal(err)
					}
					var asked []memjournal.Item
					fail := memjournal.FailNth(n+1, after, errReset)
					j.SetWriteFault(func(w memjournal.Write) error {
						if w.After {
							asked = append(asked, w.Item)
						}
						return fail(w)
					})
					began := j.Writes()
					if err := o.call(t, j); !errors.Is(err, errReset) {
						t.Fatalf("the fault was answered by %v", err)
					}
					want := int64(n)
					if after {
						want++
					}
					if got := j.Writes() - began; got != want {
						t.Errorf("%d writes, want %d", got, want)
					}
					if !slices.Equal(asked, o.items[:want]) {
						t.Errorf("wrote %v, want the first %d of %v", asked, want, o.items)
					}
					j.SetWriteFault(nil)
					if err := o.call(t, j); err != nil {
						t.Fatalf("repeated: %v", err)
					}
					complete(t, j, o.name)
				})
			}
		}
	}
}

// complete holds the store to the end of an operation.
func complete(t *testing.T, j *memjournal.Journal, op string) {
	t.Helper()
	h, entries, err := j.Inbox(t.Context(), lane, 0)
	if err != nil {
		t.Fatal(err)
	}
	switch op {
	case "admit", "signal":
		if len(entries) != 2 || h.Version < 2 {
			t.Errorf("%d entries, version %d", len(entries), h.Version)
		}
	case "finish":
		s, err := j.Submission(t.Context(), "acme", "s1")
		if err != nil || s.Outcome == nil || h.Settled != 1 || h.State != journal.Idle {
			t.Errorf("head %+v, row %+v, %v", h, s, err)
		}
	}
}

// Who finds an entry may rely on the lane being due, also when whoever put it
// died before the bump.
func TestAnEntryFoundIsBumped(t *testing.T) {
	for _, digest := range []string{"d", "other"} {
		j := memjournal.New()
		e := journal.Entry{Kind: journal.EntryDecision, Key: "k", Digest: "d"}
		j.SetWriteFault(memjournal.FailNth(2, false, errReset))
		if _, err := j.Signal(t.Context(), lane, e, 0, start, time.Second); !errors.Is(err, errReset) {
			t.Fatal(err)
		}
		e.Digest = digest
		_, err := j.Signal(t.Context(), lane, e, 0, start, time.Second)
		if (digest == "other") != errors.Is(err, journal.ErrConflict) {
			t.Fatal(err)
		}
		if h, _ := j.Head(t.Context(), lane); h.State != journal.Ready {
			t.Errorf("digest %q: the lane is %s with an entry whose writer was answered", digest, h.State)
		}
	}
}

// An entry the log has needs no bump: the lane would be claimed for nothing.
func TestAConsumedEntryIsNotBumped(t *testing.T) {
	j := memjournal.New()
	admit(t, j)
	h, err := claim(j, t, "a1")
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Park(t.Context(), journal.ReleaseRequest{Lane: lane, Epoch: 1, Owner: "a1", To: journal.Parked, Due: start.Add(time.Hour),
		Version: h.Version, Drained: 1}); err != nil {
		t.Fatal(err)
	}
	admit(t, j)
	if h, _ = j.Head(t.Context(), lane); h.State != journal.Parked {
		t.Errorf("the lane is %s after a duplicate of what it has", h.State)
	}
}

func TestAwayAndClosed(t *testing.T) {
	j := memjournal.New()
	admit(t, j)
	ask := func(want error) {
		t.Helper()
		_, head := j.Head(t.Context(), lane)
		_, _, inbox := j.Inbox(t.Context(), lane, 0)
		_, due := j.Due(t.Context(), start, 1)
		_, row := j.Submission(t.Context(), "acme", "s1")
		_, claimed := claim(j, t, "a1")
		for _, err := range []error{head, inbox, due, row, claimed, j.PutPayload(t.Context(), "acme", "d", nil)} {
			if !errors.Is(err, want) {
				t.Errorf("answered %v, want %v", err, want)
			}
		}
	}
	began := j.Writes()
	j.SetAway(errReset)
	ask(errReset)
	j.SetAway(nil)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	ask(journal.ErrClosed)
	if j.Writes() != began {
		t.Error("a store that is away was written")
	}
}

func TestCloneIsIndependent(t *testing.T) {
	j := memjournal.New()
	admit(t, j)
	c := j.Clone()
	for i, one := range []*memjournal.Journal{j, c} {
		if _, err := one.Signal(t.Context(), lane, journal.Entry{Key: fmt.Sprint(i), Digest: "d"}, 0, start, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for i, one := range []*memjournal.Journal{j, c} {
		_, entries, err := one.Inbox(t.Context(), lane, 1)
		if err != nil || len(entries) != 1 || entries[0].Key != fmt.Sprint(i) {
			t.Errorf("copy %d: %+v, %v", i, entries, err)
		}
	}
	if j.Boot() != c.Boot() || j.Writes() != 5 || c.Writes() != 5 {
		t.Errorf("boots %s and %s, writes %d and %d", j.Boot(), c.Boot(), j.Writes(), c.Writes())
	}
}
