package memjournal

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Admit implements journal.Journal. The entry's key and ref are the
// submission's ID.
func (j *Journal) Admit(ctx context.Context, sub journal.Submission, now time.Time, grace time.Duration) (journal.Admission, error) {
	o := Admitting{Sub: sub, Now: now, Grace: grace}
	if err := j.run(ctx, "admit", sub.Lane, &o); err != nil {
		return journal.Admission{}, err
	}
	return o.Answer, nil
}

// Admitting is an Admit one item at a time: the tail is read, the row put, the
// inbox entry looked for and put, the head bumped. The exported fields above
// Answer are its arguments; a copy is the same call at the same point.
type Admitting struct {
	Sub   journal.Submission
	Now   time.Time
	Grace time.Duration
	// Answer is complete once Step said done.
	Answer journal.Admission

	haveTail, haveRow bool
	tail              uint64
	put               putting
}

// Step implements one step; see the package comment.
func (o *Admitting) Step(j *Journal) (done bool, err error) {
	switch {
	case !o.haveTail:
		o.haveTail = true
		return false, j.locked(func(s *store) error {
			o.tail = uint64(len(s.lane(o.Sub.Lane).inbox))
			return nil
		})
	case !o.haveRow:
		return o.Answer.Submission.Outcome != nil, j.item("admit", Row, o.putRow)
	}
	return o.put.step(j, "admit")
}

// putRow puts the submission's row where there is none.
func (o *Admitting) putRow(s *store) (bool, error) {
	name := key{o.Sub.Lane.Tenant, o.Sub.ID}
	stored, found := s.subs[name]
	if found && stored.Digest != o.Sub.Digest {
		return false, fmt.Errorf("%w: submission %s", journal.ErrConflict, o.Sub.ID)
	}
	if !found {
		stored = newSubmission(o.Sub, o.Now, o.tail)
		s.subs[name] = stored
	}
	o.haveRow = true
	o.Answer = journal.Admission{Submission: cloneSubmission(stored), Duplicate: found}
	o.put = putting{lane: o.Sub.Lane, after: stored.Tail, due: o.Now.Add(o.Grace), entry: journal.Entry{
		Kind: journal.EntrySubmit, Key: o.Sub.ID, Digest: o.Sub.Digest, Ref: o.Sub.ID, By: o.Sub.Principal, At: record.Time(o.Now),
	}}
	return !found, nil
}

// Writes says whether the next step may write.
func (o *Admitting) Writes() bool { return o.haveTail && !o.haveRow || o.haveRow && o.put.writes() }

// Next says what the next step reads or writes.
func (o *Admitting) Next() string {
	switch {
	case !o.haveTail:
		return "read the inbox tail"
	case !o.haveRow:
		return "put the submission row"
	}
	return o.put.next()
}

// AppendPosition appends to b how far the call is: two calls with the same
// arguments and the same position go on alike.
func (o *Admitting) AppendPosition(b []byte) []byte {
	b = append(b, flag(o.haveTail), flag(o.haveRow))
	b = binary.AppendUvarint(b, o.tail)
	return o.put.appendPosition(b)
}

func newSubmission(sub journal.Submission, now time.Time, tail uint64) journal.Submission {
	if sub.AdmittedAt.IsZero() {
		sub.AdmittedAt = now
	}
	sub.AdmittedAt = record.Time(sub.AdmittedAt)
	sub.Tail, sub.Outcome, sub.SettledAt = tail, nil, time.Time{}
	return cloneSubmission(sub)
}

// Signal implements journal.Journal.
func (j *Journal) Signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (journal.Signalled, error) {
	o := Signalling{Lane: lane, Entry: e, After: after, Now: now, Grace: grace}
	if err := j.run(ctx, "signal", lane, &o); err != nil {
		return journal.Signalled{}, err
	}
	return o.Answer, nil
}

// Signalling is a Signal one item at a time: the entry is looked for and put,
// the head bumped. The exported fields above Answer are its arguments; a copy
// is the same call at the same point.
type Signalling struct {
	Lane  journal.Lane
	Entry journal.Entry
	After uint64
	Now   time.Time
	Grace time.Duration
	// Answer is complete once Step said done.
	Answer journal.Signalled

	put putting
}

// Step implements one step; see the package comment.
func (o *Signalling) Step(j *Journal) (done bool, err error) {
	if o.put.lane == (journal.Lane{}) {
		if len(o.Entry.Body) > journal.EntryLimit {
			return true, fmt.Errorf("%w: entry of %d bytes, limit %d", record.ErrTooLarge, len(o.Entry.Body), journal.EntryLimit)
		}
		e := cloneEntry(o.Entry)
		if e.At.IsZero() {
			e.At = o.Now
		}
		e.At = record.Time(e.At)
		o.put = putting{lane: o.Lane, after: o.After, entry: e, due: o.Now.Add(o.Grace)}
	}
	if done, err = o.put.step(j, "signal"); !done || err != nil {
		return done, err
	}
	if first := o.put.first; first != nil && first.Digest != o.Entry.Digest {
		return true, &journal.ConflictError{First: cloneEntry(*first)}
	}
	o.Answer = journal.Signalled{Slot: o.put.slot, Duplicate: o.put.first != nil}
	return true, nil
}

// Writes says whether the next step may write.
func (o *Signalling) Writes() bool { return o.put.writes() }

// AtBump says that only the bump is left.
func (o *Signalling) AtBump() bool { return o.put.looked && o.put.in }

// Next says what the next step reads or writes.
func (o *Signalling) Next() string { return o.put.next() }

// AppendPosition appends to b how far the call is: two calls with the same
// arguments and the same position go on alike.
func (o *Signalling) AppendPosition(b []byte) []byte { return o.put.appendPosition(b) }

// putting is what every inbox writer does: look for an entry of the same key,
// put one where there is none, and then bump the head. An entry that was there
// gets its bump too, because its writer may have died before it: whoever hears
// that an entry is in may rely on the lane being due.
type putting struct {
	lane  journal.Lane
	entry journal.Entry
	after uint64 // an entry of this key can only be above
	due   time.Time

	looked bool
	in     bool   // the entry is in its slot
	slot   uint64 // where it is, or where it shall go
	first  *journal.Entry
}

func (p *putting) step(j *Journal, op string) (done bool, err error) {
	switch {
	case !p.looked:
		p.looked = true
		return false, j.locked(p.look)
	case !p.in:
		return false, j.item(op, Inbox, p.putEntry)
	}
	return true, j.item(op, Head, p.bump)
}

// look finds the entry, or the slot it shall take.
func (p *putting) look(s *store) error {
	inbox := s.lane(p.lane).inbox
	p.slot = uint64(len(inbox)) + 1
	for _, e := range above(inbox, p.after) {
		if e.Key == p.entry.Key {
			p.first, p.slot, p.in = &e, e.Slot, true
			return nil
		}
	}
	return nil
}

// putEntry takes the slot if it is still empty, else the look is repeated.
func (p *putting) putEntry(s *store) (bool, error) {
	l := s.lane(p.lane)
	if uint64(len(l.inbox))+1 != p.slot {
		p.looked = false
		return false, nil
	}
	e := p.entry
	e.Slot = p.slot
	l.inbox = append(l.inbox, e)
	s.keep(l)
	p.in = true
	return true, nil
}

// bump makes the lane due. An entry found in its slot needs none when the log
// has it already, or when the lane is ready and due in time: whoever claims it
// looks after that.
func (p *putting) bump(s *store) (bool, error) {
	l := s.lane(p.lane)
	h := l.head
	waits := h.State == journal.Ready && !record.Time(p.due).Before(h.Due)
	if p.first != nil && (h.Drained >= p.slot || waits) {
		return false, nil
	}
	s.putHead(l, bumped(h, p.due))
	return true, nil
}

func (p *putting) writes() bool { return p.looked }

func (p *putting) next() string {
	switch {
	case !p.looked:
		return "look for the entry in the inbox"
	case !p.in:
		return fmt.Sprintf("put the entry into inbox slot %d", p.slot)
	}
	return "bump the head"
}

func (p *putting) appendPosition(b []byte) []byte {
	b = append(b, flag(p.looked), flag(p.in), flag(p.first != nil))
	b = binary.AppendUvarint(b, p.after)
	return binary.AppendUvarint(b, p.slot)
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// bumped is the head after an inbox write: work waits, and the lane is looked
// at by due at the latest. A running owner sees the version move.
func bumped(h journal.Head, due time.Time) journal.Head {
	due = record.Time(due)
	h.Version++
	switch {
	case h.State == journal.Idle, h.State == journal.Parked:
		h.State, h.Due = journal.Ready, due
	case h.State == journal.Ready && due.Before(h.Due):
		h.Due = due
	}
	return h
}

// above is the part of a gapless slot list, counted from 1, above a slot.
func above[T any](list []T, slot uint64) []T {
	return list[min(slot, uint64(len(list))):]
}
