package engine_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// invocation is the journal in the hands of one invocation of a schedule, with
// what becomes of it: at one of its operations it may die, stand still until it
// is thawed, or hear no answer.
type invocation struct {
	journal.Journal
	s     *schedule
	ended chan error
	still chan struct{}
	thaw  chan struct{}

	mu    sync.Mutex
	ops   int // so far
	at    int // the operation at which something happens
	what  fate
	after bool // it happens behind the operation, which takes effect
	dead  bool
}

// fate is what becomes of an invocation.
type fate int

const (
	unharmed fate = iota
	dies
	standsStill
	hearsNothing // once
)

var errSilence = errors.New("the connection was reset")

// invocation draws what will become of the next one.
func (s *schedule) invocation() *invocation {
	i := &invocation{Journal: s.journal, s: s, ended: make(chan error, 1), still: make(chan struct{}), thaw: make(chan struct{})}
	if s.calmed {
		return i
	}
	i.what, i.at, i.after = []fate{unharmed, dies, standsStill, hearsNothing}[s.pick(4)], 1+s.pick(14), s.pick(2) == 0
	return i
}

// step is one operation.
func (i *invocation) step(do func() error) error {
	i.mu.Lock()
	i.ops++
	now := i.ops == i.at
	dead := i.dead || now && i.what == dies && !i.after
	i.dead = i.dead || now && i.what == dies
	i.mu.Unlock()
	if dead {
		return journal.ErrClosed
	}
	if now && !i.after {
		switch i.what {
		case standsStill:
			close(i.still)
			<-i.thaw
		case hearsNothing:
			return errSilence
		}
	}
	err := do()
	if !now || !i.after {
		return err
	}
	switch i.what {
	case dies:
		return journal.ErrClosed
	case standsStill:
		close(i.still)
		<-i.thaw
	case hearsNothing:
		if err == nil {
			return errSilence
		}
	}
	return err
}

func (i *invocation) Admit(ctx context.Context, s journal.Submission, now time.Time, grace time.Duration) (a journal.Admission, err error) {
	err = i.step(func() (err error) { a, err = i.Journal.Admit(ctx, s, now, grace); return err })
	return a, err
}

func (i *invocation) Signal(ctx context.Context, l journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (a journal.Signalled, err error) {
	err = i.step(func() (err error) { a, err = i.Journal.Signal(ctx, l, e, after, now, grace); return err })
	return a, err
}

func (i *invocation) Claim(ctx context.Context, r journal.ClaimRequest) (h journal.Head, err error) {
	err = i.step(func() (err error) { h, err = i.Journal.Claim(ctx, r); return err })
	return h, err
}

func (i *invocation) Append(ctx context.Context, l journal.Lane, b record.Sealed) error {
	return i.step(func() error { return i.Journal.Append(ctx, l, b) })
}

func (i *invocation) Park(ctx context.Context, r journal.ReleaseRequest) error {
	return i.step(func() error { return i.Journal.Park(ctx, r) })
}

func (i *invocation) Finish(ctx context.Context, r journal.FinishRequest) error {
	return i.step(func() error { return i.Journal.Finish(ctx, r) })
}

func (i *invocation) Inbox(ctx context.Context, l journal.Lane, after uint64) (h journal.Head, entries []journal.Entry, err error) {
	err = i.step(func() (err error) { h, entries, err = i.Journal.Inbox(ctx, l, after); return err })
	return h, entries, err
}

func (i *invocation) Head(ctx context.Context, l journal.Lane) (h journal.Head, err error) {
	err = i.step(func() (err error) { h, err = i.Journal.Head(ctx, l); return err })
	return h, err
}

// Read hands the log out after the step: it was read before.
func (i *invocation) Read(ctx context.Context, l journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		var log []record.Sealed
		err := i.step(func() error {
			for b, err := range i.Journal.Read(ctx, l, from) {
				if err != nil {
					return err
				}
				log = append(log, b)
			}
			return nil
		})
		if err != nil {
			yield(record.Sealed{}, err)
			return
		}
		for _, b := range log {
			if !yield(b, nil) {
				return
			}
		}
	}
}
