package ddbjournal

import (
	"context"
	"fmt"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var pointRow = newPoint("row")

// Admit implements journal.Journal: the input's chunks when it is large, the
// row, the inbox entry, the bump. The entry's key and ref are the submission's
// ID.
func (j *Journal) Admit(ctx context.Context, s journal.Submission, now time.Time, grace time.Duration) (journal.Admission, error) {
	a, err := j.admit(ctx, s, now, grace)
	if err != nil {
		return journal.Admission{}, failed("admit", s.Lane, err)
	}
	return a, nil
}

func (j *Journal) admit(ctx context.Context, s journal.Submission, now time.Time, grace time.Duration) (a journal.Admission, err error) {
	seen, err := j.look(ctx, s.Lane, func() (uint64, *entry, error) {
		tail, err := j.tail(ctx, s.Lane)
		return tail, nil, err
	})
	if err != nil {
		return a, err
	}
	r, err := newRow(s, now, seen.tail)
	if err != nil {
		return a, err
	}
	if r.aside != nil {
		if err := j.putPayload(ctx, s.Lane.Tenant, r.aside.SHA256, s.Input); err != nil {
			return a, err
		}
	}
	occupant, err := j.put(ctx, pointRow, r.it)
	if err != nil {
		return a, err
	}
	tail := seen.tail
	if occupant == nil {
		a.Submission = r.sub
	} else {
		if a, err = j.again(ctx, occupant, s, r.nonce); err != nil || a.Submission.Outcome != nil {
			return a, err
		}
		if tail, seen.first, err = j.find(ctx, s.Lane, s.ID, a.Submission.Tail); err != nil {
			return a, err
		}
	}
	first := seen.first
	if first == nil {
		e := entry{journal.Entry{Kind: journal.EntrySubmit, Key: s.ID, Digest: s.Digest, Ref: s.ID, By: s.Principal, At: record.Time(now)}, nonce()}
		if _, first, err = j.enter(ctx, s.Lane, e, a.Submission.Tail, tail); err != nil {
			return a, err
		}
	}
	return a, j.bumpFor(ctx, seen.head, first, now.Add(grace))
}

// again answers a submission whose row exists: from another call, or from this
// one if it bears its nonce.
func (j *Journal) again(ctx context.Context, occupant item, s journal.Submission, nonce string) (journal.Admission, error) {
	known, err := rowOf(occupant, s.Lane.Tenant, s.ID)
	switch {
	case err != nil:
		return journal.Admission{}, err
	case known.sub.Digest != s.Digest || known.sub.Lane != s.Lane:
		return journal.Admission{}, fmt.Errorf("%w: submission %s", journal.ErrConflict, s.ID)
	}
	stored, err := j.complete(ctx, known)
	return journal.Admission{Submission: stored, Duplicate: known.nonce != nonce}, err
}
