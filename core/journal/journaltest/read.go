package journaltest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
)

var reading = map[string]check{
	"Head/NeverUsedIsIdle": func(t *testing.T, f *fixture) {
		f.equal(f.head(), journal.Head{Lane: f.lane, State: journal.Idle})
	},
	"Inbox/HeadAndEntries": func(t *testing.T, f *fixture) {
		for i := range 400 {
			f.signal(fmt.Sprint("k", i), uint64(i))
		}
		for _, after := range []uint64{0, 1, 200, 399, 400, 500} {
			h, entries, err := f.Inbox(f.ctx, f.lane, after)
			f.check(err)
			f.equal(h, f.head())
			f.equal(len(entries), max(0, 400-int(after)))
			for i, e := range entries {
				want := f.steer(fmt.Sprint("k", int(after)+i))
				want.Slot = after + uint64(i) + 1
				f.equal(e, want)
			}
		}
	},
	"Inbox/KeepsTheCallersBytesApart": func(t *testing.T, f *fixture) {
		e := f.steer("k")
		_, err := f.Signal(f.ctx, f.lane, e, 0, t0, grace)
		f.check(err)
		e.Body[0] = 'x'
		got := f.inbox(0)[0]
		f.equal(got.Body, f.steer("k").Body)
		got.Body[0] = 'y'
		f.equal(f.inbox(0)[0].Body, f.steer("k").Body)
	},
	"Due/OldestFirstAndBounded": func(t *testing.T, f *fixture) {
		for i, after := range []time.Duration{3, 1, 2, 5, 4} {
			s := f.submission(fmt.Sprint("s", i))
			s.Lane.Conversation = fmt.Sprint("due in ", int(after))
			_, err := f.Admit(f.ctx, s, t0, after*time.Minute)
			f.check(err)
		}
		f.due(t0.Add(time.Minute-time.Millisecond), 10)
		f.due(t0.Add(3*time.Minute), 10, "due in 1", "due in 2", "due in 3")
		f.due(t0.Add(time.Hour), 2, "due in 1", "due in 2")
		f.due(t0.Add(time.Hour), 0)
	},
	"Due/EveryStateButIdle": func(t *testing.T, f *fixture) {
		far := t0.AddDate(100, 0, 0)
		f.admit("s1")
		f.due(far, 10, "c1")
		h := f.claim("a1", t0)
		f.due(far, 10, "c1")
		f.due(h.Lease.Add(-time.Millisecond), 10)
		f.check(f.Park(f.ctx, f.release(h, journal.Parked, t0.Add(time.Hour))))
		heads := f.dueWhen(t0.Add(time.Hour), 10, shown)
		f.equal(heads, []journal.Head{f.head()})
		h = f.claim("a2", t0.Add(time.Hour))
		f.check(f.Park(f.ctx, f.release(h, journal.Idle, time.Time{})))
		f.due(far, 10)
	},
	"Watch/ReturnsAtOnceWhenChanged": func(t *testing.T, f *fixture) {
		before := f.head()
		f.admit("s1")
		h, err := f.Watch(f.ctx, f.lane, before)
		f.check(err)
		f.equal(h, f.head())
	},
	"Watch/WakesAtEveryChange": func(t *testing.T, f *fixture) {
		var h journal.Head
		steps := map[string]func(){
			"1 admit":     func() { f.admit("s1") },
			"2 claim":     func() { f.claim("a1", t0) },
			"3 take over": func() { f.claim("a2", f.head().Lease) }, // only the epoch tells
			"4 signal":    func() { f.signal("k", 0) },
			"5 park":      func() { f.check(f.Park(f.ctx, f.release(f.head(), journal.Parked, t0.Add(grace)))) },
			"6 finish":    func() { f.check(f.Finish(f.ctx, f.finish(f.head(), "s1", 1))) },
		}
		for _, name := range []string{"1 admit", "2 claim", "3 take over", "4 signal", "5 park", "6 finish"} {
			seen := f.head()
			woken := make(chan error, 1)
			go func() {
				var err error
				h, err = f.Watch(f.ctx, f.lane, seen)
				woken <- err
			}()
			steps[name]()
			f.check(<-woken)
			f.equal(h, f.head())
		}
	},
	"Watch/EndsWithItsContext": func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		_, err := f.Watch(ctx, f.lane, f.head())
		f.want(err, context.Canceled)
	},
	"Context/EndedMeansNothingIsWritten": func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		_, err := f.Admit(ctx, f.submission("s1"), t0, grace)
		f.want(err, context.Canceled)
		f.equal(f.head().Version, uint64(0))
	},
}

// dueWhen lists what is due, once it is as it has to be or the lag is over.
func (f *fixture) dueWhen(until time.Time, limit int, right func([]journal.Head) bool) []journal.Head {
	f.t.Helper()
	for late := time.Now().Add(f.lag); ; time.Sleep(lagPause) {
		heads, err := f.Due(f.ctx, until, limit)
		f.check(err)
		if right(heads) || !time.Now().Before(late) {
			return heads
		}
	}
}

func shown(heads []journal.Head) bool { return len(heads) > 0 }

// lagPause is the time between two looks at an index that is late.
const lagPause = 5 * time.Millisecond

// due holds the conversations that are due to those wanted, in their order.
func (f *fixture) due(until time.Time, limit int, want ...string) {
	f.t.Helper()
	var got []string
	f.dueWhen(until, limit, func(heads []journal.Head) bool {
		got = nil
		for _, h := range heads {
			got = append(got, h.Lane.Conversation)
		}
		return slices.Equal(got, want)
	})
	f.equal(got, want)
}
