// Package memjournal is the journal port in memory: for ephemeral runs and for
// tests. One mutex, plain maps, nothing clever; what it does is the reference
// for what other adapters must do.
//
// An operation of several items is a value with a Step method that reads or
// conditionally writes one item. The port's methods take the steps one after
// another and let go of the mutex between them; a test may take them one at a
// time, lose the answer of any, or stop after any.
package memjournal

import (
	"fmt"
	"maps"
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
	closed bool  // guarded by s.mu
	away   error // guarded by s.mu
	fault  func(op string, after bool) error
	items  func(Write) error
}

var _ journal.Journal = (*Journal)(nil)

// store is the data, which outlives a Journal that is restarted.
type store struct {
	mu       sync.Mutex
	writes   int64
	lanes    map[journal.Lane]*lane
	opened   []journal.Lane // the lanes in the order of their first write
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

// Restart is the death of the process and the start of the next: it returns a
// journal over the same data with a fresh boot id, and no fault. The old one
// answers journal.ErrClosed from now on.
func (j *Journal) Restart() *Journal {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.close()
	return &Journal{boot: newBoot(), s: j.s}
}

// Clone returns an independent copy of the journal as it is now, with the same
// boot id. Faults, watchers and the store's absence are not copied.
func (j *Journal) Clone() *Journal {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	s := &store{writes: j.s.writes, lanes: make(map[journal.Lane]*lane, len(j.s.lanes)), subs: maps.Clone(j.s.subs),
		payloads: maps.Clone(j.s.payloads), opened: slices.Clip(j.s.opened)}
	for name, l := range j.s.lanes {
		// Slots never change once written: the copies share them, clipped, so
		// that the next slot of one is not the next slot of the other.
		s.lanes[name] = &lane{head: l.head, inbox: slices.Clip(l.inbox), log: slices.Clip(l.log)}
	}
	return &Journal{boot: j.boot, closed: j.closed, s: s}
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

func (s *store) keep(l *lane) {
	if s.lanes[l.head.Lane] == nil {
		s.opened = append(s.opened, l.head.Lane)
	}
	s.lanes[l.head.Lane] = l
}

// next is closed at the lane's next change.
func (s *store) next(lane journal.Lane) <-chan struct{} {
	changed := s.watched[lane]
	if changed == nil {
		if s.watched == nil {
			s.watched = make(map[journal.Lane]chan struct{})
		}
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
