package journaltest

import (
	"errors"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var admitting = map[string]check{
	"Admit/FirstMakesTheLaneDue": func(t *testing.T, f *fixture) {
		want := f.submission("s1")
		f.equal(f.admit("s1"), journal.Admission{Submission: want})
		f.equal(f.head(), journal.Head{Lane: f.lane, State: journal.Ready, Version: 1, Due: t0.Add(grace)})
		f.equal(f.inbox(0), []journal.Entry{{
			Slot: 1, Kind: journal.EntrySubmit, Key: "s1", Digest: want.Digest, Ref: "s1", By: "ann", At: t0,
		}})
		got, err := f.Submission(f.ctx, "acme", "s1")
		f.check(err)
		f.equal(got, want)
	},
	"Admit/StoresTheTailReadBefore": func(t *testing.T, f *fixture) {
		f.signal("k", 0)
		f.equal(f.admit("s1").Submission.Tail, uint64(1))
	},
	"Admit/SameDigestIsDuplicate": func(t *testing.T, f *fixture) {
		f.admit("s1")
		again := f.admit("s1")
		f.equal(again, journal.Admission{Submission: f.submission("s1"), Duplicate: true})
		f.equal(len(f.inbox(0)), 1)
		f.equal(f.head().State, journal.Ready)
	},
	"Admit/OtherDigestIsConflict": func(t *testing.T, f *fixture) {
		f.admit("s1")
		s := f.submission("s1")
		s.Digest = "other"
		_, err := f.Admit(f.ctx, s, t0, grace)
		f.want(err, journal.ErrConflict)
		f.equal(len(f.inbox(0)), 1)
	},
	"Admit/SettledAnswersTheOutcome": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.append(1, "b1")
		f.check(f.Finish(f.ctx, f.finish(h, "s1", 1)))
		again := f.admit("s1")
		want := f.outcome("s1")
		f.equal(again.Duplicate, true)
		f.equal(again.Submission.Outcome, &want)
		f.equal(again.Submission.SettledAt, t0.Add(time.Minute))
		f.equal(f.head().State, journal.Idle)
	},
	"Admit/TenantsAreApart": func(t *testing.T, f *fixture) {
		f.admit("s1")
		s := f.submission("s1")
		s.Lane.Tenant, s.Digest = "globex", "other"
		a, err := f.Admit(f.ctx, s, t0, grace)
		f.check(err)
		f.equal(a, journal.Admission{Submission: s})
	},
	"Admit/KeepsTheCallersBytesApart": func(t *testing.T, f *fixture) {
		s := f.submission("s1")
		a, err := f.Admit(f.ctx, s, t0, grace)
		f.check(err)
		s.Input[0], a.Submission.Input[0] = 'x', 'y'
		got, err := f.Submission(f.ctx, "acme", "s1")
		f.check(err)
		f.equal(got.Input, f.submission("s1").Input)
		got.Input[0] = 'z'
		f.equal(f.admit("s1").Submission.Input, f.submission("s1").Input)
	},
	"Submission/NotFound": func(t *testing.T, f *fixture) {
		_, err := f.Submission(f.ctx, "acme", "nobody")
		f.want(err, journal.ErrNotFound)
	},
	"Signal/SlotsRiseWithoutGaps": func(t *testing.T, f *fixture) {
		f.admit("s1")
		f.equal(f.signal("a", 0), journal.Signalled{Slot: 2})
		f.equal(f.signal("b", 0), journal.Signalled{Slot: 3})
		want := f.steer("b")
		want.Slot = 3
		f.equal(f.inbox(2), []journal.Entry{want})
	},
	"Signal/WakesALaneNeverUsed": func(t *testing.T, f *fixture) {
		f.signal("a", 0)
		f.equal(f.head(), journal.Head{Lane: f.lane, State: journal.Ready, Version: 1, Due: t0.Add(grace)})
	},
	"Signal/SameDigestIsDuplicate": func(t *testing.T, f *fixture) {
		f.signal("a", 0)
		f.signal("b", 0)
		f.equal(f.signal("a", 0), journal.Signalled{Slot: 1, Duplicate: true})
		f.equal(len(f.inbox(0)), 2)
	},
	"Signal/OtherDigestNamesTheFirst": func(t *testing.T, f *fixture) {
		f.signal("a", 0)
		e := f.steer("a")
		e.Digest = "other"
		_, err := f.Signal(f.ctx, f.lane, e, 0, t0, grace)
		f.want(err, journal.ErrConflict)
		var conflict *journal.ConflictError
		if !errors.As(err, &conflict) {
			t.Fatalf("%T is no ConflictError", err)
		}
		first := f.steer("a")
		first.Slot = 1
		f.equal(conflict.First, first)
		f.equal(len(f.inbox(0)), 1)
	},
	"Signal/KeysCountAboveAfterOnly": func(t *testing.T, f *fixture) {
		f.signal("a", 0)
		f.equal(f.signal("a", 1), journal.Signalled{Slot: 2})
	},
	"Signal/RefusesALargeBody": func(t *testing.T, f *fixture) {
		e := f.steer("a")
		e.Body = make([]byte, journal.EntryLimit+1)
		_, err := f.Signal(f.ctx, f.lane, e, 0, t0, grace)
		f.want(err, record.ErrTooLarge)
		f.equal(f.head().Version, uint64(0))
	},
	"Bump/ByState": func(t *testing.T, f *fixture) {
		h := f.head()
		f.signal("idle", 0)
		f.equal(f.head(), journal.Head{Lane: f.lane, State: journal.Ready, Version: h.Version + 1, Due: t0.Add(grace)})

		// Ready: an earlier look stays, a later one moves forward.
		_, err := f.Signal(f.ctx, f.lane, f.steer("ready"), 0, t0.Add(time.Hour), grace)
		f.check(err)
		f.equal(f.head(), journal.Head{Lane: f.lane, State: journal.Ready, Version: h.Version + 2, Due: t0.Add(grace)})
		_, err = f.Signal(f.ctx, f.lane, f.steer("sooner"), 0, t0, time.Second)
		f.check(err)
		f.equal(f.head().Due, t0.Add(time.Second))

		running := f.claim("a1", t0)
		f.signal("running", 0)
		want := running
		want.Version++
		f.equal(f.head(), want)

		f.check(f.Park(f.ctx, f.release(want, journal.Parked, t0.Add(24*time.Hour))))
		parked := f.head()
		f.signal("parked", 0)
		want = parked
		want.State, want.Due, want.Version = journal.Ready, t0.Add(grace), parked.Version+1
		f.equal(f.head(), want)
	},
}
