package journaltest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// of is a batch of an epoch.
func (f *fixture) of(epoch, slot uint64, id string) record.Sealed {
	b := f.batch(slot, id)
	b.Epoch = epoch
	return b
}

func (f *fixture) takenBy(err error, epoch uint64) {
	f.t.Helper()
	var taken *journal.TakenError
	if !errors.As(err, &taken) {
		f.t.Fatalf("got %v, want a TakenError", err)
	}
	f.equal(taken.Occupant.Epoch, epoch)
}

// taking are the checks of owners that take over from each other.
var taking = map[string]check{
	"Takeover/ThePausedOwnerMeetsItsFence": func(t *testing.T, f *fixture) {
		f.admit("s1")
		old := f.claim("a1", t0)
		f.check(f.Append(f.ctx, f.lane, f.of(1, 1, "b1")))
		now := t0.Add(lease)
		newer := f.claim("a2", now)
		f.check(f.Append(f.ctx, f.lane, f.of(2, 2, "started 2")))

		f.takenBy(f.Append(f.ctx, f.lane, f.of(1, 2, "late")), 2)
		for _, to := range []journal.State{journal.Parked, journal.Idle, journal.Ready} {
			f.want(f.Park(f.ctx, f.release(old, to, now.Add(time.Hour))), journal.ErrFenced)
		}
		_, err := f.Claim(f.ctx, f.request("a1", now))
		f.want(err, journal.ErrNotClaimable)
		f.equal(f.head(), newer)
		f.equal(len(f.log(1)), 2)
	},
	"Takeover/TheOldOwnerMayWriteUntilTheFirstNewBatch": func(t *testing.T, f *fixture) {
		// What it wrote before that batch is true history: the new owner finds it
		// in its slot, folds it and takes the next one.
		f.admit("s1")
		f.claim("a1", t0)
		f.claim("a2", t0.Add(lease))
		f.check(f.Append(f.ctx, f.lane, f.of(1, 1, "true history")))
		f.takenBy(f.Append(f.ctx, f.lane, f.of(2, 1, "started 2")), 1)
		f.check(f.Append(f.ctx, f.lane, f.of(2, 2, "started 2")))
		f.takenBy(f.Append(f.ctx, f.lane, f.of(1, 2, "late")), 2)
	},
	"Takeover/AnOldEpochOfTheSameOwnerIsFenced": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		stale := h
		stale.Epoch--
		f.want(f.Park(f.ctx, f.release(stale, journal.Ready, t0.Add(grace))), journal.ErrFenced)
		other := h
		other.Owner = "a2"
		f.want(f.Park(f.ctx, f.release(other, journal.Ready, t0.Add(grace))), journal.ErrFenced)
		f.equal(f.head(), h)
	},
	"Takeover/AStaleFinishDoesNotFreeTheNextRun": func(t *testing.T, f *fixture) {
		// F3: settle frees, its answer is lost, the next attempt starts a run, and
		// settle tries again.
		f.admit("s1")
		h := f.claim("a1", t0)
		f.append(1, "b1")
		done := f.finish(h, "s1", 1)
		f.check(f.Finish(f.ctx, done))
		f.admit("s2")
		running := f.claim("a2", t0)
		f.check(f.Finish(f.ctx, done))
		f.equal(f.head(), running)
		done.To, done.Due = journal.Ready, t0.Add(grace)
		f.check(f.Finish(f.ctx, done))
		f.equal(f.head(), running)
	},
	"Takeover/EpochsNeverGoBack": func(t *testing.T, f *fixture) {
		// Owners whose lease is over at once take the lane from each other and
		// write until they see a higher epoch.
		f.admit("s1")
		var claims atomic.Int64
		f.race(func(racer int) error {
			h, err := f.Claim(f.ctx, journal.ClaimRequest{Lane: f.lane, Owner: fmt.Sprint("racer ", racer), Boot: f.boot,
				Now: t0.Add(time.Hour), Lease: t0.Add(time.Second)})
			if errors.Is(err, journal.ErrNotClaimable) {
				return nil
			}
			if err != nil {
				return err
			}
			claims.Add(1)
			return f.writeUntilFenced(h.Epoch, fmt.Sprint("racer ", racer))
		})
		f.equal(f.head().Epoch, uint64(claims.Load()))
		epoch := uint64(0)
		for i, b := range f.log(1) {
			if f.equal(b.Slot, uint64(i+1)); b.Epoch < epoch {
				t.Fatalf("slot %d is of epoch %d behind epoch %d", b.Slot, b.Epoch, epoch)
			}
			epoch = b.Epoch
		}
		if claims.Load() == 0 || epoch == 0 {
			t.Fatal("nobody claimed or wrote")
		}
	},
	"Parked/ADecisionWakesWithinTheGrace": func(t *testing.T, f *fixture) {
		// Parked until next week, the decision is in, its wake is lost.
		f.admit("s1")
		week := t0.Add(7 * 24 * time.Hour)
		f.check(f.Park(f.ctx, f.release(f.claim("a1", t0), journal.Parked, week)))
		later := t0.Add(24 * time.Hour)
		f.due(week.Add(-time.Millisecond), 10)
		_, err := f.Signal(f.ctx, f.lane, f.steer("decision"), 0, later, grace)
		f.check(err)
		f.due(later.Add(grace), 10, "c1")
		f.due(later.Add(grace-time.Millisecond), 10)
		f.equal(f.claim("a2", later.Add(grace)).Epoch, uint64(2))
	},
	"Parked/ManySignalsKeepTheFirstGrace": func(t *testing.T, f *fixture) {
		f.admit("s1")
		f.check(f.Park(f.ctx, f.release(f.claim("a1", t0), journal.Parked, t0.Add(7*24*time.Hour))))
		for i := range 5 {
			_, err := f.Signal(f.ctx, f.lane, f.steer(fmt.Sprint(i)), 0, t0.Add(time.Duration(i)*time.Minute), grace)
			f.check(err)
		}
		f.equal(f.head().Due, t0.Add(grace))
	},
	"Inbox/FirstDecisionWins": func(t *testing.T, f *fixture) {
		f.admit("s1")
		var won atomic.Int64
		losers := make(chan journal.Entry, racers)
		f.race(func(racer int) error {
			e := f.steer("decision")
			e.Digest, e.By = fmt.Sprint("digest ", racer), fmt.Sprint("person ", racer)
			s, err := f.Signal(f.ctx, f.lane, e, 0, t0, grace)
			var conflict *journal.ConflictError
			switch {
			case errors.As(err, &conflict):
				losers <- conflict.First
				return nil
			case err == nil && s.Duplicate:
				return fmt.Errorf("racer %d is told it is a duplicate of another digest", racer)
			case err == nil:
				won.Add(1)
			}
			return err
		})
		f.equal(won.Load(), int64(1))
		entries := f.inbox(0)
		f.equal(len(entries), 2)
		for range racers - 1 {
			f.equal(<-losers, entries[1])
		}
	},
	"Due/ManyLanes": func(t *testing.T, f *fixture) {
		var want []string
		for i := range 40 {
			s := f.submission(fmt.Sprint("s", i))
			s.Lane.Conversation = fmt.Sprintf("lane %02d", i)
			_, err := f.Admit(f.ctx, s, t0, time.Duration(i+1)*time.Minute)
			f.check(err)
			if i < 20 {
				want = append(want, s.Lane.Conversation)
			}
		}
		f.due(t0.Add(20*time.Minute), 100, want...)
		f.due(t0.Add(20*time.Minute), 7, want[:7]...)
	},
	"Context/EndedMeansNoOperationWrites": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		f.append(1, "b1")
		ctx, live := f.ended()
		_, err := f.Signal(ctx, f.lane, f.steer("k"), 0, t0, grace)
		f.want(err, live)
		_, err = f.Claim(ctx, f.request("a2", t0.Add(lease)))
		f.want(err, live)
		f.want(f.Append(ctx, f.lane, f.batch(2, "b2")), live)
		f.want(f.Park(ctx, f.release(h, journal.Idle, time.Time{})), live)
		f.want(f.Finish(ctx, f.finish(h, "s1", 1)), live)
		f.want(f.PutPayload(ctx, "acme", record.Digest(nil), nil), live)
		f.equal(f.head(), h)
		f.equal(len(f.log(1)), 1)
		f.equal(len(f.inbox(0)), 1)
	},
}

// writeUntilFenced appends batches of an epoch behind whatever is there, and
// stops at a higher epoch or after a few.
func (f *fixture) writeUntilFenced(epoch uint64, who string) error {
	slot, wrote := uint64(1), 0
	for b, err := range f.Read(f.ctx, f.lane, 1) {
		if err != nil || b.Epoch > epoch {
			return err
		}
		slot = b.Slot + 1
	}
	for wrote < 4 {
		err := f.Append(f.ctx, f.lane, f.of(epoch, slot, fmt.Sprint(who, " ", wrote)))
		var taken *journal.TakenError
		switch {
		case err == nil:
			wrote++
		case !errors.As(err, &taken):
			return err
		case taken.Occupant.Epoch > epoch:
			return nil
		}
		slot++
	}
	return nil
}
