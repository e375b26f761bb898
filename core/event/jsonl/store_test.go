package jsonl_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/event/jsonl"
)

var at = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func canonical(run string, sequence uint64, d event.Data) event.Event {
	return event.Event{Run: run, Conversation: "c", Agent: "a", Sequence: sequence, Epoch: 1, At: at, Data: d}
}

// told is two runs of one conversation.
func told() []event.Event {
	text := event.Event{Run: "r1", Conversation: "c", Agent: "a", Sequence: 2, Epoch: 1, At: at, Turn: 1, Data: event.ResponseCompleted{Text: "a\nb \u2028 ü"}}
	return []event.Event{
		canonical("r1", 1, event.RunStarted{Principal: "ada", Deadline: at}), text,
		canonical("r1", 3, event.RunCompleted{FinishReason: "model-stop", Output: json.RawMessage(`"done"`)}),
		canonical("r2", 1, event.RunStarted{Principal: "ada", Deadline: at}), canonical("r2", 2, event.RunFailed{}),
	}
}

func open(t *testing.T, path string) *jsonl.Store {
	t.Helper()
	s, err := jsonl.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func add(t *testing.T, s *jsonl.Store, events ...event.Event) {
	t.Helper()
	for _, e := range events {
		if err := s.Append(e); err != nil {
			t.Fatal(err)
		}
	}
}

func replayed(t *testing.T, s *jsonl.Store) (events []event.Event) {
	t.Helper()
	for e, err := range s.Events() {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// conformance: APP-06 @embedded
//
// What was stored is replayed as it was, also by the next process; lines that
// are there never change; provisional events are not kept.
func TestReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := open(t, path)
	var before []byte
	for i, e := range told() {
		add(t, s, e)
		add(t, s, event.Event{Run: e.Run, Sequence: e.Sequence, Sub: 1, Provisional: true, Data: event.TextDelta{Text: "x"}})
		now := contents(t, path)
		if !bytes.HasPrefix(now, before) || bytes.Count(now, []byte("\n")) != i+1 {
			t.Fatalf("after event %d the file is %q", i, now)
		}
		before = now
	}
	if diff := cmp.Diff(told(), replayed(t, s)); diff != "" {
		t.Errorf("-stored +replayed:\n%s", diff)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(canonical("r3", 1, event.RunStarted{})); !errors.Is(err, jsonl.ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	again := open(t, path)
	if diff := cmp.Diff(told(), replayed(t, again)); diff != "" {
		t.Errorf("-stored +replayed by the next process:\n%s", diff)
	}
	if err := again.Append(canonical("r1", 3, event.RunFailed{})); !errors.Is(err, jsonl.ErrOrder) {
		t.Errorf("a sequence twice: %v", err)
	}
	add(t, again, canonical("r3", 1, event.RunStarted{}))
	if now := contents(t, path); !bytes.HasPrefix(now, before) {
		t.Error("earlier lines changed")
	}
}

// conformance: APP-06 @embedded
//
// A file cut anywhere is a file whose last line is missing, and it is whole
// again after the next event.
func TestTornTail(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole.jsonl")
	s := open(t, whole)
	add(t, s, told()...)
	bytesOf := contents(t, whole)
	for cut := range len(bytesOf) + 1 {
		if cut < len(bytesOf)-40 && cut%11 != 0 && !bytes.Contains(bytesOf[max(0, cut-2):cut+2], []byte("\n")) {
			continue // every border of a line, the whole last one, and some of the rest: each makes a disk wait
		}
		path := filepath.Join(t.TempDir(), "cut.jsonl")
		if err := os.WriteFile(path, bytesOf[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		lines := bytes.Count(bytesOf[:cut], []byte("\n"))
		s, err := jsonl.Open(path)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if diff := cmp.Diff(told()[:lines:lines], append([]event.Event{}, replayed(t, s)...)); diff != "" {
			t.Fatalf("cut at %d:\n%s", cut, diff)
		}
		if now := contents(t, path); !bytes.Equal(now, bytesOf[:cut]) {
			t.Fatalf("cut at %d: opening changed the file", cut)
		}
		add(t, s, told()[lines:]...)
		add(t, s, canonical("r9", 1, event.RunStarted{Deadline: at}))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := jsonl.Open(path)
		if err != nil {
			t.Fatalf("cut at %d, then completed: %v", cut, err)
		}
		if n := len(replayed(t, again)); n != len(told())+1 {
			t.Fatalf("cut at %d, then completed: %d events", cut, n)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// conformance: APP-06 @embedded
//
// Nothing of a torn line is left behind the next one, however long it was.
func TestTornTailIsCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := open(t, path)
	add(t, s, told()[0], told()[1])
	want := contents(t, path)
	other := filepath.Join(t.TempDir(), "torn.jsonl")
	first := want[:bytes.IndexByte(want, '\n')+1]
	if err := os.WriteFile(other, append(bytes.Clone(first), bytes.Repeat([]byte("x"), 1<<16)...), 0o600); err != nil {
		t.Fatal(err)
	}
	add(t, open(t, other), told()[1])
	if got := contents(t, other); !bytes.Equal(got, want) {
		t.Errorf("%d bytes are left, want %d", len(got), len(want))
	}
}

// conformance: APP-05 @embedded
//
// Damage anywhere else is an error that names its line, and so is a version or
// a kind this build does not know: nothing is written behind either.
func TestDamage(t *testing.T) {
	line := func(e event.Event) string {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	first := line(told()[0])
	for name, row := range map[string]struct {
		second string
		want   error
	}{
		"no JSON":           {"{\"v\":1,\n", jsonl.ErrDamaged},
		"zeros":             {"\x00\x00\x00\n", jsonl.ErrDamaged},
		"an empty line":     {"\n", jsonl.ErrDamaged},
		"two in one":        {first[:len(first)-1] + first, jsonl.ErrDamaged},
		"no event":          {"{}\n", event.ErrUnknownVersion},
		"no run":            {line(event.Event{Sequence: 2, Data: event.RunFailed{}}), jsonl.ErrDamaged},
		"a newer version":   {`{"v":2,"kind":"RunFailed","run":"r1","sequence":2,"data":{}}` + "\n", event.ErrUnknownVersion},
		"an unknown kind":   {`{"v":1,"kind":"RunExploded","run":"r1","sequence":2,"data":{}}` + "\n", event.ErrUnknownKind},
		"the same again":    {first, jsonl.ErrOrder},
		"a provisional one": {line(event.Event{Run: "r1", Sequence: 2, Sub: 1, Provisional: true, Data: event.TextDelta{}}), jsonl.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events.jsonl")
			before := []byte(first + row.second + line(told()[2]))
			if err := os.WriteFile(path, before, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := jsonl.Open(path)
			var at *jsonl.LineError
			if !errors.Is(err, row.want) || !errors.As(err, &at) {
				t.Fatalf("%v, %v", s, err)
			}
			if at.Line != 2 || at.Offset != int64(len(first)) {
				t.Errorf("line %d, offset %d", at.Line, at.Offset)
			}
			if now := contents(t, path); !bytes.Equal(now, before) {
				t.Error("the file was changed")
			}
		})
	}
}

// A stream is stored on its way, and one that cannot be stored ends.
func TestRecord(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "events.jsonl"))
	stream := func(events ...event.Event) func(func(event.Event, error) bool) {
		return func(yield func(event.Event, error) bool) {
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	seen := 0
	for _, err := range s.Record(stream(told()...)) {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 3 {
			break
		}
	}
	if n := len(replayed(t, s)); n != 3 {
		t.Errorf("%d events are stored, %d were read", n, seen)
	}
	for _, err := range s.Record(stream(told()[0])) {
		if !errors.Is(err, jsonl.ErrOrder) {
			t.Errorf("an event that cannot be stored: %v", err)
		}
	}
}

func ExampleStore() {
	dir, err := os.MkdirTemp("", "jsonl")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := jsonl.Open(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range told() {
		if err := s.Append(e); err != nil {
			fmt.Println(err)
		}
	}
	for e := range s.Events() {
		fmt.Println(e.Run, e.Sequence, e.Data.Kind())
	}
	fmt.Println(s.Close())
	// Output:
	// r1 1 RunStarted
	// r1 2 ResponseCompleted
	// r1 3 RunCompleted
	// r2 1 RunStarted
	// r2 2 RunFailed
	// <nil>
}
