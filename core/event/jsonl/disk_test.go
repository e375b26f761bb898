package jsonl

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/layover-run/layover/core/event"
)

// faulty counts what is made durable and fails when it is told to.
type faulty struct {
	disk
	syncs int
	fail  map[string]error
}

func (f *faulty) Sync() error {
	f.syncs++
	return errors.Join(f.fail["sync"], f.disk.Sync())
}

func (f *faulty) WriteAt(b []byte, at int64) (int, error) {
	if err := f.fail["write"]; err != nil {
		n, _ := f.disk.WriteAt(b[:len(b)/2], at)
		return n, err
	}
	return f.disk.WriteAt(b, at)
}

func faultyStore(t *testing.T) (*Store, *faulty) {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{disk: s.file, fail: map[string]error{}}
	s.file = f
	return s, f
}

func at(sequence uint64, d event.Data) event.Event {
	return event.Event{Run: "r", Sequence: sequence, Data: d}
}

// The end of a trace is made durable, and with it all before; nothing else is.
func TestSyncAtTheEnd(t *testing.T) {
	for _, end := range []event.Data{event.RunCompleted{}, event.RunFailed{}, event.RunInterrupted{}, event.RunSuspended{}} {
		s, f := faultyStore(t)
		for i, d := range []event.Data{event.RunStarted{}, event.TurnStarted{}} {
			if err := s.Append(at(uint64(i+1), d)); err != nil || f.syncs != 0 {
				t.Errorf("%s: %d syncs, %v", d.Kind(), f.syncs, err)
			}
		}
		if err := s.Append(at(3, end)); err != nil || f.syncs != 1 {
			t.Errorf("%s: %d syncs, %v", end.Kind(), f.syncs, err)
		}
		if err := s.Close(); err != nil || f.syncs != 2 {
			t.Errorf("close: %d syncs, %v", f.syncs, err)
		}
	}
}

// After a disk error nothing more is taken: what the file holds is not known.
// The next opening finds what was written before.
func TestDiskErrors(t *testing.T) {
	boom := errors.New("boom")
	for fault, kept := range map[string]int{"write": 1, "sync": 2} {
		s, f := faultyStore(t)
		if err := s.Append(at(1, event.RunStarted{})); err != nil {
			t.Fatal(err)
		}
		f.fail[fault] = boom
		if err := s.Append(at(2, event.RunFailed{})); !errors.Is(err, boom) {
			t.Errorf("%s: %v", fault, err)
		}
		delete(f.fail, fault)
		if err := s.Append(at(3, event.RunFailed{})); !errors.Is(err, boom) {
			t.Errorf("%s, and then: %v", fault, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := Open(s.path)
		if err != nil {
			t.Fatalf("%s, opened again: %v", fault, err)
		}
		if again.lines != kept {
			t.Errorf("%s: %d lines are left, want %d", fault, again.lines, kept)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
