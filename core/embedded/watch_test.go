package embedded

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// logs is what a journal would have.
type logs struct {
	mu    sync.Mutex
	lanes map[journal.Lane][]record.Batch
	reads int
}

func (l *logs) Records(_ context.Context, lane journal.Lane) iter.Seq2[record.Batch, error] {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	log := slices.Clone(l.lanes[lane])
	return func(yield func(record.Batch, error) bool) {
		for _, b := range log {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// add makes the next batch of a lane durable.
func (l *logs) add(lane journal.Lane, records ...record.Record) record.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := record.Batch{Tenant: lane.Tenant, Conversation: lane.Conversation, Slot: uint64(len(l.lanes[lane]) + 1), Epoch: 1, At: time.Unix(0, 0), Records: records}
	l.lanes[lane] = append(l.lanes[lane], b)
	return b
}

// run adds a run of three batches.
func (l *logs) run(lane journal.Lane, id string) []record.Batch {
	return []record.Batch{
		l.add(lane, record.SubmissionQueued{Submission: id, Agent: "a"}, record.RunStarted{Run: id, Agent: "a", Duration: time.Hour}),
		l.add(lane, record.ResponseRecorded{Turn: 1}),
		l.add(lane, record.RunSettled{Run: id, Status: record.StatusCompleted}),
	}
}

// shown collects events as run:sequence.
type shown struct{ events []string }

func (s *shown) show(lane journal.Lane, e event.Event) {
	s.events = append(s.events, fmt.Sprintf("%s/%s:%d", lane.Conversation, e.Run, e.Sequence))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func lane(name string) journal.Lane { return journal.Lane{Tenant: "local", Conversation: name} }

// everything is what a run of three batches shows.
func everything(lane, run string) []string {
	var want []string
	for i := range 4 {
		want = append(want, fmt.Sprintf("%s/%s:%d", lane, run, i+1))
	}
	return want
}

func TestWatchShowsEachEventOnce(t *testing.T) {
	log := &logs{lanes: map[journal.Lane][]record.Batch{}}
	w, s := newWatch(), &shown{}
	for _, id := range []string{"r1", "r2"} {
		for _, b := range log.run(lane("c1"), id) {
			w.onBatch(lane("c1"), b)
		}
	}
	w.stop()
	w.run(log, s.show, quiet())
	if want := append(everything("c1", "r1"), everything("c1", "r2")...); !slices.Equal(s.events, want) {
		t.Errorf("shown %v, want %v", s.events, want)
	}
}

// After a restart the trace goes on: what was before is known, and not shown.
func TestWatchGoesOnAfterARestart(t *testing.T) {
	log := &logs{lanes: map[journal.Lane][]record.Batch{}}
	w, s := newWatch(), &shown{}
	for _, b := range log.run(lane("c1"), "r1")[1:] {
		w.onBatch(lane("c1"), b)
	}
	w.stop()
	w.run(log, s.show, quiet())
	if want := everything("c1", "r1")[1:]; !slices.Equal(s.events, want) {
		t.Errorf("shown %v, want %v", s.events, want)
	}
}

// Attempts never wait for the terminal, and nothing is lost for it.
func TestWatchOverflow(t *testing.T) {
	log := &logs{lanes: map[journal.Lane][]record.Batch{}}
	w, s := newWatch(), &shown{}
	const lanes, runs = 40, 20 // more batches than the buffer holds
	for r := range runs {
		for c := range lanes {
			name := fmt.Sprintf("c%d", c)
			for _, b := range log.run(lane(name), fmt.Sprintf("r%d", r)) {
				w.onBatch(lane(name), b) // nobody reads
			}
		}
	}
	if lanes*runs*3 < 2*watchBuffer {
		t.Fatal("the buffer was not full")
	}
	w.stop()
	w.run(log, s.show, quiet())
	got := map[string][]string{}
	for _, e := range s.events {
		conversation, _, _ := strings.Cut(e, "/")
		got[conversation] = append(got[conversation], e)
	}
	for c := range lanes {
		name, want := fmt.Sprintf("c%d", c), []string(nil)
		for r := range runs {
			want = append(want, everything(name, fmt.Sprintf("r%d", r))...)
		}
		if !slices.Equal(got[name], want) {
			t.Fatalf("%s: shown %v", name, got[name])
		}
	}
}

// Many attempts at once, and a watch that reads while they write.
func TestWatchConcurrently(t *testing.T) {
	log := &logs{lanes: map[journal.Lane][]record.Batch{}}
	w, s := newWatch(), &shown{}
	watching := make(chan struct{})
	go func() { defer close(watching); w.run(log, s.show, quiet()) }()
	var attempts sync.WaitGroup
	for c := range 20 {
		attempts.Go(func() {
			name := lane(fmt.Sprintf("c%d", c))
			for r := range 50 {
				for _, b := range log.run(name, fmt.Sprintf("r%d", r)) {
					w.onBatch(name, b)
				}
			}
		})
	}
	attempts.Wait()
	w.stop()
	<-watching
	seen := map[string]bool{}
	for _, e := range s.events {
		if seen[e] {
			t.Fatalf("%s was shown twice", e)
		}
		seen[e] = true
	}
	if want := 20 * 50 * 4; len(seen) != want {
		t.Errorf("%d events shown, want %d", len(seen), want)
	}
}

// A lane whose run is over is forgotten: its next batch is read from the log.
func TestWatchForgetsIdleLanes(t *testing.T) {
	log := &logs{lanes: map[journal.Lane][]record.Batch{}}
	s := &shown{}
	f := follower{log: log, show: s.show, report: quiet(), lanes: map[journal.Lane]*event.Projector{}}
	for _, id := range []string{"r1", "r2"} {
		for _, b := range log.run(lane("c1"), id) {
			f.batch(lane("c1"), b)
		}
		if len(f.lanes) != 0 {
			t.Errorf("%s is over and %d lanes are kept", id, len(f.lanes))
		}
	}
	if want := append(everything("c1", "r1"), everything("c1", "r2")...); !slices.Equal(s.events, want) {
		t.Errorf("shown %v, want %v", s.events, want)
	}
}
