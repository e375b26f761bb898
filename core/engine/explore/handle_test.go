package explore_test

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
)

var errReset = errors.New("connection reset")

// handle is the journal of one actor: every item it reads or writes is a step
// of the scheduler. Watch is deaf, because what it tells is a hint.
type handle struct {
	*memjournal.Journal
	s       *scheduler
	actor   string
	control control
}

// control takes one rule away from the journal the engine sees.
type control uint8

const (
	none        control = iota
	parkBlindly         // NC1: a park does not compare the version
	lookFirst           // NC2: the version is read after the inbox
	freeBlindly         // NC8: settle does not compare the version
)

// step does one thing when the scheduler lets it happen.
func (h handle) step(what string, write bool, do func() error) error {
	switch h.s.ask(h.actor, what, write) {
	case die:
		return journal.ErrClosed
	case lose:
		if err := do(); err != nil {
			return err
		}
		return errReset
	}
	return do()
}

// operation is a call of several items.
type operation interface {
	Step(*memjournal.Journal) (bool, error)
	Writes() bool
	Next() string
}

func (h handle) all(op string, o operation) error {
	for {
		done := false
		err := h.step(op+": "+o.Next(), o.Writes(), func() (err error) { done, err = o.Step(h.Journal); return err })
		if done || err != nil {
			return err
		}
	}
}

func (h handle) Admit(_ context.Context, s journal.Submission, now time.Time, grace time.Duration) (journal.Admission, error) {
	o := &memjournal.Admitting{Sub: s, Now: now, Grace: grace}
	err := h.all("admit", o)
	return o.Answer, err
}

func (h handle) Signal(_ context.Context, l journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (journal.Signalled, error) {
	o := &memjournal.Signalling{Lane: l, Entry: e, After: after, Now: now, Grace: grace}
	err := h.all("signal", o)
	return o.Answer, err
}

func (h handle) Finish(_ context.Context, r journal.FinishRequest) error {
	o := &memjournal.Finishing{Request: r}
	if h.control == freeBlindly {
		return h.all("finish", blind{o})
	}
	return h.all("finish", o)
}

// blind frees a lane at whatever version its head has.
type blind struct{ *memjournal.Finishing }

func (b blind) Step(j *memjournal.Journal) (bool, error) {
	h, _, _ := j.Peek(b.Request.Lane)
	b.Request.Version = h.Version
	return b.Finishing.Step(j)
}

func (h handle) Inbox(_ context.Context, l journal.Lane, after uint64) (journal.Head, []journal.Entry, error) {
	if h.control == lookFirst {
		return h.inboxBackwards(l, after)
	}
	o := &memjournal.Looking{Lane: l, After: after}
	for _, what := range []string{"look: read the head", "look: read the inbox"} {
		if err := h.step(what, false, func() error { _, err := o.Step(h.Journal); return err }); err != nil {
			return journal.Head{}, nil, err
		}
	}
	return o.Head, o.Entries, nil
}

func (h handle) inboxBackwards(l journal.Lane, after uint64) (head journal.Head, entries []journal.Entry, err error) {
	err = h.step("look: read the inbox", false, func() (err error) { _, entries, err = h.Journal.Inbox(context.Background(), l, after); return err })
	if err == nil {
		err = h.step("look: read the head", false, func() (err error) { head, err = h.Journal.Head(context.Background(), l); return err })
	}
	return head, entries, err
}

func (h handle) Claim(ctx context.Context, r journal.ClaimRequest) (head journal.Head, err error) {
	err = h.step("claim", true, func() (err error) { head, err = h.Journal.Claim(ctx, r); return err })
	return head, err
}

func (h handle) Append(ctx context.Context, l journal.Lane, b record.Sealed) error {
	return h.step("append", true, func() error { return h.Journal.Append(ctx, l, b) })
}

func (h handle) Park(ctx context.Context, r journal.ReleaseRequest) error {
	return h.step("release to "+string(r.To), true, func() error {
		if h.control == parkBlindly {
			head, _, _ := h.Peek(r.Lane)
			r.Version = head.Version
		}
		return h.Journal.Park(ctx, r)
	})
}

func (h handle) Read(ctx context.Context, l journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		if err := h.step("read the log", false, func() error { return nil }); err != nil {
			yield(record.Sealed{}, err)
			return
		}
		h.Journal.Read(ctx, l, from)(yield)
	}
}

func (h handle) Head(ctx context.Context, l journal.Lane) (head journal.Head, err error) {
	err = h.step("read the head", false, func() (err error) { head, err = h.Journal.Head(ctx, l); return err })
	return head, err
}

func (h handle) Watch(ctx context.Context, _ journal.Lane, _ journal.Head) (journal.Head, error) {
	<-ctx.Done()
	return journal.Head{}, ctx.Err()
}

// wakes is the queue: how many messages of each kind wait.
type wakes struct{ waiting map[queue.Kind]int }

// Send implements queue.Queue.
func (w *wakes) Send(_ context.Context, wake queue.Wake, _ time.Duration) error {
	w.waiting[wake.Kind]++
	return nil
}

// slow is a model whose call is a step, so that others may move meanwhile.
type slow struct {
	model.Model
	s     *scheduler
	actor string
}

func (m slow) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	if m.s.ask(m.actor, "ask the model", false) == die {
		return context.Canceled
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.Model.Stream(ctx, req, emit)
}
