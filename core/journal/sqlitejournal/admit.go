package sqlitejournal

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/layover-run/layover/core/failpoint"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var (
	pointAdmitBefore  = failpoint.New("sqlite.admit.before")
	pointAdmitAfter   = failpoint.New("sqlite.admit.after")
	pointSignalBefore = failpoint.New("sqlite.signal.before")
	pointSignalAfter  = failpoint.New("sqlite.signal.after")
)

// Admit implements journal.Journal. Its three rows are one transaction, so
// there is never an earlier try to finish. The entry's key and ref are the
// submission's ID.
func (j *Journal) Admit(ctx context.Context, s journal.Submission, now time.Time, grace time.Duration) (journal.Admission, error) {
	a, err := newAdmission(s, now, grace)
	if err != nil {
		return journal.Admission{}, failed("admit", s.Lane, err)
	}
	pointAdmitBefore.Hit()
	if err := j.do(ctx, a.run); err != nil {
		return journal.Admission{}, failed("admit", s.Lane, err)
	}
	pointAdmitAfter.Hit()
	stored, err := a.stored.submission()
	if err != nil {
		return journal.Admission{}, failed("admit", s.Lane, err)
	}
	return journal.Admission{Submission: stored, Duplicate: a.duplicate}, nil
}

// admission is one Admit on its way through the writer.
type admission struct {
	row               subRow
	allowance, parent []byte
	now, due          time.Time

	stored    *subRow
	duplicate bool
}

func newAdmission(s journal.Submission, now time.Time, grace time.Duration) (*admission, error) {
	a := &admission{now: record.Time(now), due: record.Time(now.Add(grace))}
	var err error
	if a.allowance, err = encodeOptional(s.Allowance); err != nil {
		return nil, err
	}
	if a.parent, err = encodeOptional(s.Parent); err != nil {
		return nil, err
	}
	if s.AdmittedAt.IsZero() {
		s.AdmittedAt = now
	}
	s.AdmittedAt, s.Input = record.Time(s.AdmittedAt), bytes.Clone(s.Input)
	s.Outcome, s.SettledAt = nil, time.Time{}
	a.row.sub = s
	return a, nil
}

func (a *admission) run(t *tx) error {
	key := subKey{a.row.sub.Lane.Tenant, a.row.sub.ID}
	if known := t.knownSub(key); known != nil {
		return a.again(known)
	}
	l, err := t.lane(a.row.sub.Lane)
	if err != nil {
		return err
	}
	row := a.row
	row.sub.Tail = l.tail
	inserted, err := t.write(a.bind(t.w.subInsert, &row.sub))
	if err != nil {
		return err
	}
	if inserted == 0 {
		known, err := t.sub(key)
		if err != nil {
			return err
		}
		return a.again(known)
	}
	next := *l
	s := &row.sub
	entry := journal.Entry{Kind: journal.EntrySubmit, Key: s.ID, Digest: s.Digest, Ref: s.ID, By: s.Principal, At: a.now}
	if err := t.putEntry(&next, entry); err != nil {
		return err
	}
	bump(&next.head, a.due)
	if err := t.putHead(l, &next); err != nil {
		return err
	}
	t.stage(s.Lane, l, next)
	t.subs[key] = &row
	a.stored, a.duplicate = &row, false
	return nil
}

func (a *admission) bind(s *stmt, sub *journal.Submission) *stmt {
	return s.text(sub.ID).text(sub.Lane.Tenant).text(sub.Lane.Conversation).text(sub.Key).text(sub.Digest).
		text(sub.Agent).text(sub.Principal).blob(sub.Input).text(sub.ReplyTo).blob(a.allowance).blob(a.parent).
		optInt(millis(sub.AdmittedAt)).uint(sub.Tail)
}

// again answers a submission whose row exists.
func (a *admission) again(known *subRow) error {
	if known == nil {
		return fmt.Errorf("%w: submission %s is in an index but not in its table", record.ErrCorrupt, a.row.sub.ID)
	}
	if known.sub.Digest != a.row.sub.Digest {
		return fmt.Errorf("%w: submission %s", journal.ErrConflict, known.sub.ID)
	}
	a.stored, a.duplicate = known, true
	return nil
}

// bump is what every inbox writer does to the head: work waits, and the lane
// is looked at by due at the latest. A running owner sees the version move.
func bump(h *journal.Head, due time.Time) {
	h.Version++
	switch h.State {
	case journal.Idle, journal.Parked:
		h.State, h.Due = journal.Ready, due
	case journal.Ready:
		if due.Before(h.Due) {
			h.Due = due
		}
	}
}

// Signal implements journal.Journal.
func (j *Journal) Signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (journal.Signalled, error) {
	if len(e.Body) > journal.EntryLimit {
		return journal.Signalled{}, failed("signal", lane, fmt.Errorf("%w: entry of %d bytes, limit %d", record.ErrTooLarge, len(e.Body), journal.EntryLimit))
	}
	if e.At.IsZero() {
		e.At = now
	}
	e.At, e.Body = record.Time(e.At), bytes.Clone(e.Body)
	s := &signal{lane: lane, entry: e, after: after, due: record.Time(now.Add(grace))}
	pointSignalBefore.Hit()
	if err := j.do(ctx, s.run); err != nil {
		return journal.Signalled{}, failed("signal", lane, err)
	}
	pointSignalAfter.Hit()
	return s.answer, nil
}

// signal is one Signal on its way through the writer.
type signal struct {
	lane   journal.Lane
	entry  journal.Entry
	after  uint64
	due    time.Time
	answer journal.Signalled
}

func (s *signal) run(t *tx) error {
	l, err := t.lane(s.lane)
	if err != nil {
		return err
	}
	first, found, err := t.entryByKey(l, s.entry.Key, s.after)
	if err != nil {
		return err
	}
	if found {
		if first.Digest != s.entry.Digest {
			return &journal.ConflictError{First: first}
		}
		s.answer = journal.Signalled{Slot: first.Slot, Duplicate: true}
		return nil
	}
	next := *l
	if err := t.putEntry(&next, s.entry); err != nil {
		return err
	}
	bump(&next.head, s.due)
	if err := t.putHead(l, &next); err != nil {
		return err
	}
	t.stage(s.lane, l, next)
	s.answer = journal.Signalled{Slot: next.tail}
	return nil
}

// entryByKey finds the first entry of a key above a slot.
func (t *tx) entryByKey(l *lane, key string, after uint64) (e journal.Entry, found bool, err error) {
	entries, known := l.entriesAbove(after)
	if !known {
		found, err = t.w.entryByKey.int(l.id).uint(after).text(key).one(func(r row) { e = entryOf(r) })
		return e, found, t.fail(err)
	}
	for _, e := range entries {
		if e.Key == key {
			e.Body = bytes.Clone(e.Body)
			return e, true, nil
		}
	}
	return e, false, nil
}
