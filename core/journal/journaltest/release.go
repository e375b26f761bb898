package journaltest

import (
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var releasing = map[string]check{
	"Park/Parked": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		due := t0.Add(time.Hour)
		f.check(f.Park(f.ctx, f.release(h, journal.Parked, due)))
		want := h
		want.State, want.Due, want.Lease, want.Version, want.Drained = journal.Parked, due, time.Time{}, h.Version+1, 1
		f.equal(f.head(), want)
	},
	"Park/IdleHasNoDueTime": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.check(f.Park(f.ctx, f.release(h, journal.Idle, t0.Add(time.Hour))))
		want := h
		want.State, want.Due, want.Lease, want.Version, want.Drained = journal.Idle, time.Time{}, time.Time{}, h.Version+1, 1
		f.equal(f.head(), want)
	},
	"Park/AYieldNeedsNoVersion": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.signal("k", 0)
		f.check(f.Park(f.ctx, f.release(h, journal.Ready, t0.Add(grace))))
		got := f.head()
		f.equal(got.State, journal.Ready)
		f.equal(got.Due, t0.Add(grace))
		f.equal(got.Version, h.Version+2)
	},
	"Park/RefusedWhenTheVersionMoved": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.signal("k", 0)
		now := f.head()
		f.want(f.Park(f.ctx, f.release(h, journal.Parked, t0.Add(time.Hour))), journal.ErrRefused)
		f.want(f.Park(f.ctx, f.release(h, journal.Idle, time.Time{})), journal.ErrRefused)
		f.equal(f.head(), now)
		// Look again, and it works.
		f.check(f.Park(f.ctx, f.release(now, journal.Parked, t0.Add(time.Hour))))
	},
	"Park/FencedByANewerOwner": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		newer := f.claim("a2", t0.Add(lease))
		for _, to := range []journal.State{journal.Parked, journal.Idle, journal.Ready} {
			f.want(f.Park(f.ctx, f.release(h, to, t0.Add(time.Hour))), journal.ErrFenced)
		}
		f.equal(f.head(), newer)
	},
	"Park/FencedOnceReleased": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		r := f.release(h, journal.Parked, t0.Add(time.Hour))
		f.check(f.Park(f.ctx, r))
		f.want(f.Park(f.ctx, r), journal.ErrFenced)
	},
	"Park/NotIdleNeedsADueTime": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		for _, to := range []journal.State{journal.Parked, journal.Ready} {
			if f.Park(f.ctx, f.release(h, to, time.Time{})) == nil {
				t.Fatalf("%s without a due time: nobody would look there again", to)
			}
		}
	},
	"Finish/SettlesTheRowAndFreesTheLane": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.append(1, "b1")
		f.check(f.Finish(f.ctx, f.finish(h, "s1", 1)))
		want := h
		want.State, want.Due, want.Lease, want.Version = journal.Idle, time.Time{}, time.Time{}, h.Version+1
		want.Settled, want.Drained = 1, 1
		f.equal(f.head(), want)
		s, err := f.Submission(f.ctx, "acme", "s1")
		f.check(err)
		outcome := f.outcome("s1")
		f.equal(s.Outcome, &outcome)
		f.equal(string(s.Outcome.Output.Inline), string(outcome.Output.Inline))
		f.equal(s.SettledAt, t0.Add(time.Minute))
	},
	"Finish/ReadyNeedsNoVersion": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.append(1, "b1")
		f.signal("k", 0)
		r := f.finish(h, "s1", 1)
		f.want(f.Finish(f.ctx, r), journal.ErrRefused)
		r.To, r.Due = journal.Ready, t0.Add(grace)
		f.check(f.Finish(f.ctx, r))
		got := f.head()
		f.equal(got.State, journal.Ready)
		f.equal(got.Due, t0.Add(grace))
		f.equal(got.Settled, uint64(1))
	},
	"Finish/RefusedWhenSettledMoved": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.append(1, "b1")
		r := f.finish(h, "s1", 2)
		r.Was = 1
		f.want(f.Finish(f.ctx, r), journal.ErrRefused)
		f.equal(f.head(), h)
	},
	"Finish/Idempotent": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.append(1, "b1")
		r := f.finish(h, "s1", 1)
		f.check(f.Finish(f.ctx, r))
		f.admit("s2")
		now := f.head()
		late := r
		late.At = t0.Add(time.Hour)
		f.check(f.Finish(f.ctx, late))
		f.equal(f.head(), now)
		s, err := f.Submission(f.ctx, "acme", "s1")
		f.check(err)
		f.equal(s.SettledAt, r.At)
	},
	"Finish/AfterARefusalKeepsTheFirstOutcome": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.append(1, "b1")
		f.signal("k", 0)
		f.want(f.Finish(f.ctx, f.finish(h, "s1", 1)), journal.ErrRefused)
		again := f.finish(f.head(), "s1", 1)
		again.At = again.At.Add(time.Hour)
		again.Outcomes[0].Turns = 99
		f.check(f.Finish(f.ctx, again))
		s, err := f.Submission(f.ctx, "acme", "s1")
		f.check(err)
		outcome := f.outcome("s1")
		f.equal(s.Outcome, &outcome)
		f.equal(s.SettledAt, t0.Add(time.Minute))
	},
	"Finish/SeveralRows": func(t *testing.T, f *fixture) {
		f.admit("s1")
		f.admit("s2")
		h := f.claim("a1", t0)
		f.append(1, "b1")
		r := f.finish(h, "s1", 1)
		r.Outcomes = append(r.Outcomes, f.outcome("s2"))
		f.check(f.Finish(f.ctx, r))
		for _, id := range []string{"s1", "s2"} {
			s, err := f.Submission(f.ctx, "acme", id)
			f.check(err)
			f.equal(s.Outcome.Run, id)
		}
	},
	"Finish/ARunWithoutRowIsCorrupt": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		r := f.finish(h, "s1", 1)
		r.Outcomes = append(r.Outcomes, f.outcome("nobody"))
		f.want(f.Finish(f.ctx, r), record.ErrCorrupt)
		f.equal(f.head(), h)
	},
}
