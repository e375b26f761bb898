package journaltest

import (
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
)

// headStates are the heads a claim may meet at t0+1h, how to get there, and
// whether the claim succeeds.
var headStates = []struct {
	name      string
	reach     func(*fixture)
	claimable bool
}{
	{"never used", func(f *fixture) {}, false},
	{"ready", func(f *fixture) { f.admit("s1") }, true},
	{"ready, due later", func(f *fixture) {
		f.admit("s1")
		f.check(f.Park(f.ctx, f.release(f.claim("a1", t0), journal.Ready, t0.Add(2*time.Hour))))
	}, true},
	{"running", func(f *fixture) {
		f.admit("s1")
		f.claim("a1", t0.Add(time.Hour-time.Minute))
	}, false},
	{"running, one millisecond of lease left", func(f *fixture) {
		f.admit("s1")
		f.claim("a1", t0.Add(time.Hour-lease+time.Millisecond))
	}, false},
	{"running, lease just over", func(f *fixture) {
		f.admit("s1")
		f.claim("a1", t0.Add(time.Hour-lease))
	}, true},
	{"parked", func(f *fixture) {
		f.admit("s1")
		f.check(f.Park(f.ctx, f.release(f.claim("a1", t0), journal.Parked, t0.Add(time.Hour+time.Millisecond))))
	}, false},
	{"parked, just due", func(f *fixture) {
		f.admit("s1")
		f.check(f.Park(f.ctx, f.release(f.claim("a1", t0), journal.Parked, t0.Add(time.Hour))))
	}, true},
	{"parked, then signalled", func(f *fixture) {
		f.admit("s1")
		f.check(f.Park(f.ctx, f.release(f.claim("a1", t0), journal.Parked, t0.Add(24*time.Hour))))
		f.signal("k", 0)
	}, true},
	{"idle", func(f *fixture) {
		f.admit("s1")
		f.check(f.Park(f.ctx, f.release(f.claim("a1", t0), journal.Idle, time.Time{})))
	}, false},
}

var claiming = func() map[string]check {
	tests := map[string]check{
		"Claim/ItsOwnClaimAgain": func(t *testing.T, f *fixture) {
			f.admit("s1")
			first := f.claim("a1", t0)
			f.equal(f.claim("a1", t0.Add(time.Second)), first)
			f.equal(f.head(), first)
		},
		"Claim/NotItsOwnOnceReleased": func(t *testing.T, f *fixture) {
			f.admit("s1")
			f.check(f.Park(f.ctx, f.release(f.claim("a1", t0), journal.Idle, time.Time{})))
			_, err := f.Claim(f.ctx, f.request("a1", t0))
			f.want(err, journal.ErrNotClaimable)
		},
		"Claim/KeepsWhatIsNotItsOwn": func(t *testing.T, f *fixture) {
			f.admit("s1")
			h := f.claim("a1", t0)
			f.append(1, "b1")
			done := f.finish(h, "s1", 1)
			done.To, done.Due = journal.Ready, t0.Add(time.Second)
			f.check(f.Finish(f.ctx, done))
			before := f.head()
			got := f.claim("a2", t0)
			f.equal([]uint64{got.Version, got.Settled, got.Drained}, []uint64{before.Version, 1, 1})
			f.equal(got.Epoch, before.Epoch+1)
		},
		"Claim/NeedsALease": func(t *testing.T, f *fixture) {
			f.admit("s1")
			r := f.request("a1", t0)
			r.Lease = time.Time{}
			if _, err := f.Claim(f.ctx, r); err == nil {
				t.Fatal("claimed without a lease: the lane would run without a due time")
			}
		},
	}
	for _, s := range headStates {
		tests["Claim/When/"+s.name] = func(t *testing.T, f *fixture) {
			s.reach(f)
			before, now := f.head(), t0.Add(time.Hour)
			got, err := f.Claim(f.ctx, f.request("mine", now))
			if !s.claimable {
				f.want(err, journal.ErrNotClaimable)
				f.equal(f.head(), before)
				return
			}
			f.check(err)
			want := before
			want.Epoch, want.Owner, want.Boot, want.State = before.Epoch+1, "mine", f.boot, journal.Running
			want.Lease, want.Due = now.Add(lease), now.Add(lease)
			f.equal(got, want)
			f.equal(f.head(), want)
		}
	}
	return tests
}()
