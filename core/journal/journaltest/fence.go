package journaltest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
)

// untouched are the checks of what an operation leaves alone: one that is
// refused, or has nothing to do, writes nothing.
var untouched = map[string]check{
	"Untouched/ByAClaimWithoutLeaseOrOwner": func(t *testing.T, f *fixture) {
		f.admit("s1")
		before := f.head()
		leaseless, ownerless := f.request("a1", t0), f.request("", t0)
		leaseless.Lease = time.Time{}
		for _, r := range []journal.ClaimRequest{leaseless, ownerless} {
			if _, err := f.Claim(f.ctx, r); err == nil {
				t.Fatalf("claimed with %+v", r)
			}
		}
		f.equal(f.head(), before)
		f.equal(f.claim("a2", t0).Epoch, uint64(1))
	},
	"Untouched/ByAReleaseThatLeavesNoDueTime": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		for _, to := range []journal.State{journal.Parked, journal.Ready, journal.Running, "asleep"} {
			if f.Park(f.ctx, f.release(h, to, time.Time{})) == nil {
				t.Fatalf("released to %s without a due time", to)
			}
			f.equal(f.head(), h)
		}
	},
	"Untouched/ByAReleaseToNoRestingState": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		for _, to := range []journal.State{journal.Running, "asleep", ""} {
			if f.Park(f.ctx, f.release(h, to, t0.Add(time.Hour))) == nil {
				t.Fatalf("released to %q", to)
			}
		}
		f.equal(f.head(), h)
	},
	"Untouched/ByAYieldOnceReleased": func(t *testing.T, f *fixture) {
		// A yield compares no version: that it runs no more is all that holds.
		f.admit("s1")
		h := f.claim("a1", t0)
		f.check(f.Park(f.ctx, f.release(h, journal.Parked, t0.Add(time.Hour))))
		yield := f.release(h, journal.Ready, t0.Add(24*time.Hour))
		before := f.head()
		f.want(f.Park(f.ctx, yield), journal.ErrFenced)
		f.equal(f.head(), before)
		f.signal("k", 0)
		before = f.head()
		f.want(f.Park(f.ctx, yield), journal.ErrFenced)
		f.equal(f.head(), before)
		h = f.claim("a2", t0)
		f.append(1, "b1")
		f.check(f.Finish(f.ctx, f.finish(h, "s1", 1)))
		before = f.head()
		f.want(f.Park(f.ctx, f.release(h, journal.Ready, t0.Add(time.Hour))), journal.ErrFenced)
		f.equal(f.head(), before)
	},
	"Untouched/ByAFinishThatFreesToNowhere": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.append(1, "b1")
		for _, to := range []journal.State{journal.Ready, journal.Parked, journal.Running} {
			r := f.finish(h, "s1", 1)
			if r.To = to; f.Finish(f.ctx, r) == nil {
				t.Fatalf("freed to %s without a due time", to)
			}
			r.Due = t0.Add(time.Hour)
			if to != journal.Ready && f.Finish(f.ctx, r) == nil {
				t.Fatalf("freed to %s", to)
			}
		}
		f.equal(f.head(), h)
		s, err := f.Submission(f.ctx, "acme", "s1")
		f.check(err)
		if s.Outcome != nil {
			t.Fatal("the row is settled by a finish that was refused")
		}
	},
	"Untouched/ByASettledSubmissionAdmittedAgain": func(t *testing.T, f *fixture) {
		// Nobody has noted that its entry is in the log: drained is a hint.
		f.admit("s1")
		r := f.finish(f.claim("a1", t0), "s1", 1)
		f.append(1, "b1")
		r.Drained = 0
		f.check(f.Finish(f.ctx, r))
		before := f.head()
		f.equal(f.admit("s1").Duplicate, true)
		f.equal(f.head(), before)
		f.equal(len(f.inbox(0)), 1)
	},
	"Untouched/ByAnEntryThatIsInTheLog": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		r := f.release(h, journal.Parked, t0.Add(24*time.Hour))
		f.check(f.Park(f.ctx, r)) // drained 1
		before := f.head()
		f.equal(f.admit("s1").Duplicate, true)
		f.equal(f.head(), before)
	},
}

// admissions are the checks of an admission in pieces: what lies aside before
// the row, the row, the entry, the bump.
func admissions() map[string]check {
	checks := map[string]check{}
	for _, to := range []journal.State{journal.Parked, journal.Idle} {
		for look := range 4 {
			for release := look; release < 4; release++ {
				checks[fmt.Sprintf("Order/%s beside an admission/look %d, release %d", to, look, release)] = func(t *testing.T, f *fixture) {
					f.arrival(to, look, release, 4, func() { f.admit("s2") })
				}
			}
		}
	}
	for name, twice := range map[string]struct{ mine, rival string }{
		"Order/two entries at once": {"mine", "rival"}, "Order/one entry twice at once": {"mine", "mine"},
	} {
		checks[name] = func(t *testing.T, f *fixture) { f.twoEntries(twice.mine, twice.rival) }
	}
	checks["Order/a claim beside a settle that frees"] = func(t *testing.T, f *fixture) { f.claimBesideSettle() }
	checks["Lost/AClaimThatSettleFreesMeanwhile"] = func(t *testing.T, f *fixture) { f.freedClaim() }
	checks["Order/one submission twice at once"] = func(t *testing.T, f *fixture) { f.oneSubmissionTwice() }
	for _, after := range []bool{false, true} {
		name := map[bool]string{false: "Failed", true: "Lost"}[after]
		checks[name+"/ALargeAdmissionCutOff"] = func(t *testing.T, f *fixture) { f.cutOffAdmission(after) }
	}
	return checks
}

// beside has somebody else do something between what an operation has read and
// each of its writes in turn, the nth of them. It says whether there was one.
func (f *fixture) beside(n int, other, do func()) (was bool) {
	busy, writes := false, 0
	f.faults(f.Journal, func(_ string, after bool) error {
		if after || busy {
			return nil
		}
		if writes++; writes == n {
			busy, was = true, true
			other()
			busy = false
		}
		return nil
	})
	do()
	f.faults(f.Journal, nil)
	return was
}

// twoEntries has a rival put its entry in the middle of a signal: both are in,
// in slots of their own, or they are one.
func (f *fixture) twoEntries(mine, rival string) {
	for n := 1; ; n++ {
		f.lane.Conversation = fmt.Sprint("lane ", n)
		var second, first journal.Signalled
		if !f.beside(n, func() { second = f.signal(rival, 0) }, func() { first = f.signal(mine, 0) }) {
			return
		}
		entries := f.inbox(0)
		for i, e := range entries {
			f.equal(e.Slot, uint64(i+1))
		}
		if mine == rival {
			f.equal([]any{len(entries), first.Slot, second.Slot}, []any{1, uint64(1), uint64(1)})
			if first.Duplicate == second.Duplicate {
				f.t.Fatalf("two of one entry, and both are told duplicate %v", first.Duplicate)
			}
			continue
		}
		f.equal(len(entries), 2)
		f.equal([]string{entries[first.Slot-1].Key, entries[second.Slot-1].Key}, []string{mine, rival})
	}
}

// claimBesideSettle has settle free the lane between what a claim has read and
// its write: epoch and lease are as they were, and there is no work.
func (f *fixture) claimBesideSettle() {
	f.admit("s1")
	h := f.claim("a1", t0)
	f.append(1, "b1")
	f.append(2, "b2")
	first := f.finish(h, "s1", 1)
	first.To, first.Due = journal.Ready, t0.Add(grace)
	f.check(f.Finish(f.ctx, first))
	second := f.finish(f.head(), "s1", 2)
	second.Outcomes = nil
	var err error
	was := f.beside(1, func() { f.check(f.Finish(f.ctx, second)) }, func() { _, err = f.Claim(f.ctx, f.request("a2", t0)) })
	if !was {
		f.t.Fatal("the claim wrote nothing")
	}
	f.want(err, journal.ErrNotClaimable)
	f.equal([]any{f.head().State, f.head().Epoch}, []any{journal.Idle, uint64(1)})
}

// freedClaim loses the answer of a claim until settle has freed the lane: the
// claim took effect, and it is nobody's any more (F4).
func (f *fixture) freedClaim() {
	f.admit("s1")
	f.append(1, "b1")
	busy, lost := false, false
	f.faults(f.Journal, func(_ string, after bool) error {
		if !after || busy || lost {
			return nil
		}
		busy, lost = true, true
		h := f.head()
		f.equal([]any{h.State, h.Owner}, []any{journal.Running, "a1"})
		f.check(f.Finish(f.ctx, f.finish(h, "s1", 1)))
		return errReset
	})
	err := f.clear(func() error { _, err := f.Claim(f.ctx, f.request("a1", t0)); return err })
	f.faults(f.Journal, nil)
	if !lost {
		f.t.Fatal("no answer was lost")
	}
	f.want(err, journal.ErrNotClaimable)
	f.equal(f.head().State, journal.Idle)
}

func (f *fixture) oneSubmissionTwice() {
	for n := 1; ; n++ {
		f.lane.Conversation = fmt.Sprint("lane ", n)
		id := fmt.Sprint("s", n)
		var first, second journal.Admission
		if !f.beside(n, func() { second = f.admit(id) }, func() { first = f.admit(id) }) {
			return
		}
		f.equal(f.keys(), []string{id})
		if first.Duplicate == second.Duplicate {
			f.t.Fatalf("one submission twice, and both are told duplicate %v", first.Duplicate)
		}
		f.equal(f.head().State, journal.Ready)
	}
}

// cutOffAdmission ends the writer of a large submission at each of its writes.
// What it leaves is either no submission or a whole one, and the writer's retry
// finishes it.
func (f *fixture) cutOffAdmission(after bool) {
	for n := 1; ; n++ {
		s := f.submission(fmt.Sprint("s", n))
		s.Lane.Conversation = s.ID
		s.Input = jsonOf(600_000)
		fired := f.count(func(_ string, write int, at bool) bool { return at == after && write >= n || !at && write > n })
		_, err := f.Admit(f.ctx, s, t0, grace)
		f.faults(f.Journal, nil)
		if *fired == 0 {
			f.check(err)
			return
		}
		found, err := f.Submission(f.ctx, s.Lane.Tenant, s.ID)
		switch {
		case errors.Is(err, journal.ErrNotFound):
		case err != nil:
			f.t.Fatalf("cut off at write %d: %v", n, err)
		case !bytes.Equal(found.Input, s.Input):
			f.t.Fatalf("cut off at write %d: %d bytes of %d are there", n, len(found.Input), len(s.Input))
		}
		f.check(f.clear(func() error { _, err := f.Admit(f.ctx, s, t0, grace); return err }))
		found, err = f.Submission(f.ctx, s.Lane.Tenant, s.ID)
		f.check(err)
		h, entries, err := f.Inbox(f.ctx, s.Lane, 0)
		f.check(err)
		f.equal([]any{len(found.Input), len(entries), h.State, h.Due}, []any{len(s.Input), 1, journal.Ready, t0.Add(grace)})
	}
}
