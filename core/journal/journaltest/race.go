package journaltest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/layover-run/layover/core/journal"
)

// racers is how many goroutines compete in each race.
const racers = 50

// rounds is how often a race is run that a bad store loses only sometimes.
const rounds = 20

var racing = map[string]check{
	"Race/OneWinnerPerLogSlot": func(t *testing.T, f *fixture) {
		const slots = 10
		var wins [slots + 1]atomic.Int64
		f.race(func(racer int) error {
			for slot := uint64(1); slot <= slots; slot++ {
				err := f.Append(f.ctx, f.lane, f.batch(slot, fmt.Sprint("racer ", racer)))
				switch {
				case err == nil:
					wins[slot].Add(1)
				case !errors.Is(err, journal.ErrTaken):
					return err
				}
			}
			return nil
		})
		for slot := 1; slot <= slots; slot++ {
			f.equal(wins[slot].Load(), int64(1))
		}
		log := f.log(1)
		f.equal(len(log), slots)
		for i, b := range log {
			f.equal(b.Slot, uint64(i+1))
		}
	},
	"Race/InboxSlotsHaveNoGaps": func(t *testing.T, f *fixture) {
		var slots sync.Map
		f.race(func(racer int) error {
			for i := range 4 {
				s, err := f.Signal(f.ctx, f.lane, f.steer(fmt.Sprint(racer, "/", i)), 0, t0, grace)
				if err != nil {
					return err
				}
				if _, twice := slots.LoadOrStore(s.Slot, racer); twice {
					return fmt.Errorf("slot %d given twice", s.Slot)
				}
			}
			return nil
		})
		entries := f.inbox(0)
		f.equal(len(entries), 4*racers)
		for i, e := range entries {
			f.equal(e.Slot, uint64(i+1))
		}
		f.equal(f.head().Version, uint64(4*racers))
	},
	"Race/OneAdmissionPerSubmission": func(t *testing.T, f *fixture) {
		var first atomic.Int64
		f.race(func(int) error {
			a, err := f.Admit(f.ctx, f.submission("s1"), t0, grace)
			if err == nil && !a.Duplicate {
				first.Add(1)
			}
			return err
		})
		f.equal(first.Load(), int64(1))
		f.equal(len(f.inbox(0)), 1)
	},
	"Race/OneClaim": func(t *testing.T, f *fixture) {
		// A store that checks a condition and writes in two steps lets two win now
		// and then only.
		for lane := range rounds {
			f.lane.Conversation = fmt.Sprint("lane ", lane)
			f.admit(fmt.Sprint("s", lane))
			var won atomic.Int64
			f.race(func(racer int) error {
				_, err := f.Claim(f.ctx, f.request(fmt.Sprint("racer ", racer), t0))
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, journal.ErrNotClaimable):
					return err
				}
				return nil
			})
			f.equal(won.Load(), int64(1))
			f.equal(f.head().Epoch, uint64(1))
		}
	},
	"Race/NoEntryIsLostBehindAPark": func(t *testing.T, f *fixture) {
		f.admit("s1")
		h := f.claim("a1", t0)
		var idle atomic.Int64
		f.race(func(racer int) error {
			if racer%2 == 0 {
				_, err := f.Signal(f.ctx, f.lane, f.steer(fmt.Sprint(racer)), 0, t0, grace)
				return err
			}
			err := f.Park(f.ctx, f.release(h, journal.Idle, t0))
			switch {
			case err == nil:
				idle.Add(1)
			case !errors.Is(err, journal.ErrRefused) && !errors.Is(err, journal.ErrFenced):
				return err
			}
			return nil
		})
		got := f.head()
		f.equal(len(f.inbox(0)), 1+racers/2)
		if idle.Load() > 1 || got.State == journal.Idle {
			t.Fatalf("%d parks, lane %s with entries nobody looked at", idle.Load(), got.State)
		}
	},
}

// race runs f in many goroutines at once and fails on the first error.
func (f *fixture) race(run func(racer int) error) {
	f.t.Helper()
	start := make(chan struct{})
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for racer := range racers {
		wg.Go(func() {
			<-start
			errs[racer] = run(racer)
		})
	}
	close(start)
	wg.Wait()
	f.check(errors.Join(errs...))
}
