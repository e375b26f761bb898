// Package memjournal is the journal port in memory: for ephemeral runs and for
// tests. One mutex, plain maps, nothing clever; what it does is the reference
// for what other adapters must do.
package memjournal

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Journal is a journal.Journal in memory. New makes one.
type Journal struct {
	s      *store
	boot   string
	closed bool // guarded by s.mu
	fault  func(op string, after bool) error
}

var _ journal.Journal = (*Journal)(nil)

// store is the data, which outlives a Journal that is restarted.
type store struct {
	mu       sync.Mutex
	writes   int64
	lanes    map[journal.Lane]*lane
	subs     map[key]journal.Submission
	payloads map[key][]byte
	watched  map[journal.Lane]chan struct{} // closed when the lane's head changes
}

type lane struct {
	head  journal.Head
	inbox []journal.Entry
	log   []record.Sealed
}

// key is a tenant with a submission's id or a payload's digest.
type key struct{ tenant, name string }

// New returns an empty journal with a fresh boot id.
func New() *Journal {
	return &Journal{boot: newBoot(), s: &store{
		lanes:    make(map[journal.Lane]*lane),
		subs:     make(map[key]journal.Submission),
		payloads: make(map[key][]byte),
		watched:  make(map[journal.Lane]chan struct{}),
	}}
}

func newBoot() string { return uuid.Must(uuid.NewV7()).String() }

// Boot is the id of this journal's process; see Restart.
func (j *Journal) Boot() string { return j.boot }

// Writes counts the rows written so far, over all restarts.
func (j *Journal) Writes() int64 {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return j.s.writes
}

// SetFault installs f, which is asked before every write (nothing has happened
// yet) and after every write that succeeded. An error it returns becomes the
// operation's error: after the write that is a lost answer. The operations are
// admit, signal, claim, append, park, finish and payload. f may be called
// from several goroutines; nil removes it.
func (j *Journal) SetFault(f func(op string, after bool) error) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.fault = f
}

// Restart is the death of the process and the start of the next: it returns a
// journal over the same data with a fresh boot id, and no fault. The old one
// answers journal.ErrClosed from now on.
func (j *Journal) Restart() *Journal {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.close()
	return &Journal{boot: newBoot(), s: j.s}
}

// Close makes every later operation answer journal.ErrClosed.
func (j *Journal) Close() error {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.close()
	return nil
}

func (j *Journal) close() {
	j.closed = true
	for lane := range j.s.watched {
		j.s.wake(lane)
	}
}

// write runs one operation that writes, with its faults.
func (j *Journal) write(ctx context.Context, op string, lane journal.Lane, f func(*store) error) error {
	err := j.inject(op, false)
	if err == nil {
		err = j.locked(ctx, f)
	}
	if err == nil {
		err = j.inject(op, true)
	}
	return failed(op, lane, err)
}

// inject asks the fault, outside the lock.
func (j *Journal) inject(op string, after bool) error {
	j.s.mu.Lock()
	f := j.fault
	j.s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(op, after)
}

// locked runs f on the data of an open journal.
func (j *Journal) locked(ctx context.Context, f func(*store) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if j.closed {
		return journal.ErrClosed
	}
	return f(j.s)
}

func failed(op string, lane journal.Lane, err error) error {
	if err == nil {
		return nil
	}
	if lane == (journal.Lane{}) {
		return fmt.Errorf("memjournal: %s: %w", op, err)
	}
	return fmt.Errorf("memjournal: %s %s/%s: %w", op, lane.Tenant, lane.Conversation, err)
}

// lane finds a lane; one never used is empty and not stored until it is kept.
func (s *store) lane(name journal.Lane) *lane {
	if l := s.lanes[name]; l != nil {
		return l
	}
	return &lane{head: journal.Head{Lane: name, State: journal.Idle}}
}

func (s *store) keep(l *lane) { s.lanes[l.head.Lane] = l }

// putHead writes a lane's head and wakes whoever watches.
func (s *store) putHead(l *lane, h journal.Head) {
	l.head = h
	s.keep(l)
	s.writes++
	s.wake(h.Lane)
}

func (s *store) putEntry(l *lane, e journal.Entry) uint64 {
	e.Slot = uint64(len(l.inbox)) + 1
	l.inbox = append(l.inbox, e)
	s.keep(l)
	s.writes++
	return e.Slot
}

// next is closed at the lane's next change.
func (s *store) next(lane journal.Lane) <-chan struct{} {
	changed := s.watched[lane]
	if changed == nil {
		changed = make(chan struct{})
		s.watched[lane] = changed
	}
	return changed
}

func (s *store) wake(lane journal.Lane) {
	if changed := s.watched[lane]; changed != nil {
		close(changed)
		delete(s.watched, lane)
	}
}

// cloneSubmission shares no bytes with s.
func cloneSubmission(s journal.Submission) journal.Submission {
	s.Input = slices.Clone(s.Input)
	if s.Outcome != nil {
		o := cloneSettled(*s.Outcome)
		s.Outcome = &o
	}
	return s
}

func cloneSettled(o record.RunSettled) record.RunSettled {
	o.Output.Inline, o.Disposition.Inline = slices.Clone(o.Output.Inline), slices.Clone(o.Disposition.Inline)
	o.Usage.Raw = slices.Clone(o.Usage.Raw)
	o.Queued, o.Joined = slices.Clone(o.Queued), slices.Clone(o.Joined)
	return o
}

func cloneEntry(e journal.Entry) journal.Entry {
	e.Body = slices.Clone(e.Body)
	return e
}

func cloneBatch(b record.Sealed) record.Sealed {
	b.Body = slices.Clone(b.Body)
	return b
}
