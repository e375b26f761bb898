package engine_test

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
)

// hooked is a journal that a test can watch, hold up, or let answer something
// else. Every hook is optional. Those of writes run before the write and can
// fail it; those of reads run after the read and can change its answer.
type hooked struct {
	Journal
	claimed func()
	append  func(record.Sealed) error
	park    func(journal.ReleaseRequest) error
	finish  func(journal.FinishRequest) error
	signal  func(journal.Entry) error
	log     func(journal.Lane) error
	inbox   func(h *journal.Head, entries *[]journal.Entry) error
	row     func(id string, s *journal.Submission) error
	watch   func(*journal.Head)
	moved   func(seen journal.Head) (journal.Head, bool) // Watch answers this
	deaf    bool                                         // Watch hears nothing
}

func (j *hooked) Claim(ctx context.Context, r journal.ClaimRequest) (journal.Head, error) {
	h, err := j.Journal.Claim(ctx, r)
	if err == nil && j.claimed != nil {
		j.claimed()
	}
	return h, err
}

func (j *hooked) Append(ctx context.Context, lane journal.Lane, b record.Sealed) error {
	if j.append != nil {
		if err := j.append(b); err != nil {
			return err
		}
	}
	return j.Journal.Append(ctx, lane, b)
}

func (j *hooked) Park(ctx context.Context, r journal.ReleaseRequest) error {
	if j.park != nil {
		if err := j.park(r); err != nil {
			return err
		}
	}
	return j.Journal.Park(ctx, r)
}

func (j *hooked) Finish(ctx context.Context, r journal.FinishRequest) error {
	if j.finish != nil {
		if err := j.finish(r); err != nil {
			return err
		}
	}
	return j.Journal.Finish(ctx, r)
}

func (j *hooked) Signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (journal.Signalled, error) {
	if j.signal != nil {
		if err := j.signal(e); err != nil {
			return journal.Signalled{}, err
		}
	}
	return j.Journal.Signal(ctx, lane, e, after, now, grace)
}

func (j *hooked) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	if j.log != nil {
		if err := j.log(lane); err != nil {
			return func(yield func(record.Sealed, error) bool) { yield(record.Sealed{}, err) }
		}
	}
	return j.Journal.Read(ctx, lane, from)
}

func (j *hooked) Inbox(ctx context.Context, lane journal.Lane, after uint64) (journal.Head, []journal.Entry, error) {
	h, entries, err := j.Journal.Inbox(ctx, lane, after)
	if err == nil && j.inbox != nil {
		err = j.inbox(&h, &entries)
	}
	return h, entries, err
}

func (j *hooked) Submission(ctx context.Context, tenant, id string) (journal.Submission, error) {
	s, err := j.Journal.Submission(ctx, tenant, id)
	if err == nil && j.row != nil {
		err = j.row(id, &s)
	}
	return s, err
}

func (j *hooked) Watch(ctx context.Context, lane journal.Lane, seen journal.Head) (journal.Head, error) {
	if j.deaf {
		<-ctx.Done()
		return journal.Head{}, ctx.Err()
	}
	if j.moved != nil {
		if h, ok := j.moved(seen); ok {
			return h, nil
		}
	}
	h, err := j.Journal.Watch(ctx, lane, seen)
	if err == nil && j.watch != nil {
		j.watch(&h)
	}
	return h, err
}

// wakes is a queue that remembers what was sent and delivers nothing.
type wakes struct {
	mu   sync.Mutex
	sent []queue.Wake
}

func (w *wakes) Send(_ context.Context, wake queue.Wake, _ time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, wake)
	return nil
}

// take counts the wakes of a kind for a conversation, and forgets them.
func (w *wakes) take(kind queue.Kind, conversation string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for i, wake := range w.sent {
		if wake.Kind == kind && wake.Conversation == conversation {
			w.sent[i].Kind = "taken"
			n++
		}
	}
	return n
}

// services assembles the three services with another configuration.
func (r *rig) services(j journal.Journal, change func(*engine.Config)) *wakes {
	r.t.Helper()
	q := &wakes{}
	cfg := engine.Config{Journal: j, Queue: q, Boot: r.journal.Boot(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnUserError: func(e engine.UserError) { r.mu.Lock(); defer r.mu.Unlock(); r.heard = append(r.heard, e) }}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.attempt, err = engine.NewAttempter(cfg, r.registry(r.model)); err != nil {
		r.t.Fatal(err)
	}
	if r.admitter, err = engine.NewAdmitter(cfg, r.registry(r.model).Manifest()); err != nil {
		r.t.Fatal(err)
	}
	if r.settler, err = engine.NewSettler(cfg); err != nil {
		r.t.Fatal(err)
	}
	return q
}

func (r *rig) registry(m model.Model) *engine.Registry {
	r.t.Helper()
	registry, err := engine.NewRegistry(0, r.def.Bind(m).Engine())
	if err != nil {
		r.t.Fatal(err)
	}
	return registry
}

// once attempts once and wants it to end so.
func (r *rig) once(want engine.Ended) {
	r.t.Helper()
	if ended, err := r.attempt.Attempt(bg, r.lane); ended != want || err != nil {
		r.t.Fatalf("the attempt ended %q, %v; want %q", ended, err, want)
	}
}

func (r *rig) head() journal.Head {
	r.t.Helper()
	h, err := r.journal.Head(bg, r.lane)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) settle() {
	r.t.Helper()
	if did, err := r.settler.Settle(bg, r.lane); err != nil || !did {
		r.t.Fatalf("settled %v, %v", did, err)
	}
}
