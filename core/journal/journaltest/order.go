package journaltest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
)

// orders are the checks of a park against an arriving entry, at every order of
// the owner's two steps (look at the inbox, release) and the writer's (entry,
// bump): whatever the order, an entry whose writer was answered was seen by the
// owner or has made the lane due within the grace, though no wake is sent.
func orders() map[string]check {
	checks := map[string]check{"Order/two claims at once": func(t *testing.T, f *fixture) { f.twoClaims() }}
	for _, to := range []journal.State{journal.Parked, journal.Idle, journal.Ready} {
		for look := range 3 {
			for release := look; release < 3; release++ {
				checks[fmt.Sprintf("Order/%s/look %s, release %s", to, moments[look], moments[release])] = func(t *testing.T, f *fixture) {
					f.arrival(to, look, release, len(moments), func() { f.signal("entry", 0) })
				}
			}
		}
	}
	return checks
}

// twoClaims has a second claim happen between the first one's look at the head
// and its write, where nothing on the head but the epoch tells them apart.
func (f *fixture) twoClaims() {
	f.admit("s1")
	over := func(owner string) journal.ClaimRequest {
		return journal.ClaimRequest{Lane: f.lane, Owner: owner, Boot: f.boot, Now: t0.Add(time.Hour), Lease: t0.Add(time.Second)}
	}
	_, err := f.Claim(f.ctx, over("a1"))
	f.check(err)
	var second journal.Head
	busy := false
	f.faults(f.Journal, func(_ string, after bool) error {
		if !after && !busy && second.Epoch == 0 {
			busy = true
			second, err = f.Claim(f.ctx, over("a3"))
			f.check(err)
			busy = false
		}
		return nil
	})
	first, err := f.Claim(f.ctx, over("a2"))
	f.faults(f.Journal, nil)
	if err != nil {
		f.want(err, journal.ErrNotClaimable)
		f.equal(f.head(), second)
		return
	}
	if second.Epoch == 0 || first.Epoch <= second.Epoch {
		f.t.Fatalf("two owners: epochs %d and %d", second.Epoch, first.Epoch)
	}
	f.equal(f.head(), first)
}

// moments of an inbox write, between its items.
var moments = []string{"before the entry", "before the bump", "after the bump"}

// arrival plays an inbox write of so many moments beside an owner that looks
// and releases at two of them.
func (f *fixture) arrival(to journal.State, look, release, moments int, put func()) {
	f.admit("s1")
	o := &owner{f: f, head: f.claim("a1", t0), to: to}
	writes := 0
	f.faults(f.Journal, func(write string, after bool) error {
		if after || o.busy {
			return nil
		}
		o.at(writes, look, release)
		writes++
		return nil
	})
	put()
	f.faults(f.Journal, nil)
	for ; writes < moments; writes++ { // where an operation is one write, or found its head changed
		o.at(writes, look, release)
	}
	if o.done == nil {
		f.t.Fatal("the owner never released the lane")
	}
	h, entries, err := f.Inbox(f.ctx, f.lane, 0)
	f.check(err)
	f.equal(len(entries), 2)
	seen := o.saw == 2
	soon := h.State == journal.Ready && !h.Due.After(t0.Add(grace))
	if to == journal.Ready {
		soon = h.State == journal.Ready && !h.Due.After(t0.Add(7*24*time.Hour))
	}
	if !seen && !soon {
		f.t.Fatalf("the entry was not seen and the lane is %s, due %s", h.State, h.Due)
	}
	if !seen {
		f.equal(f.dueWhen(h.Due, 10, shown), []journal.Head{h})
		f.equal(f.claim("a2", t0).Epoch, uint64(2))
	}
}

// owner looks at the inbox and gives its lane back. When it is refused it looks
// again and goes on, as the protocol says.
type owner struct {
	f    *fixture
	head journal.Head // as claimed, then as last looked at
	to   journal.State
	saw  int // entries
	busy bool
	done error
}

var errReleased = errors.New("released")

func (o *owner) at(moment, look, release int) {
	o.f.t.Helper()
	o.busy = true
	defer func() { o.busy = false }()
	if moment == look {
		o.look()
	}
	if moment == release {
		o.release()
	}
}

// look takes the version before the entries: Inbox reads in that order.
func (o *owner) look() {
	h, entries, err := o.f.Inbox(o.f.ctx, o.f.lane, 0)
	o.f.check(err)
	o.head, o.saw = h, len(entries)
}

func (o *owner) release() {
	for range 3 {
		due := t0.Add(7 * 24 * time.Hour)
		if o.to == journal.Idle {
			due = time.Time{}
		}
		r := o.f.release(o.head, o.to, due)
		r.Drained = uint64(o.saw)
		err := o.f.Park(o.f.ctx, r)
		if err == nil {
			o.done = errReleased
			return
		}
		o.f.want(err, journal.ErrRefused)
		o.look()
	}
	o.f.t.Fatal("refused again and again with nobody else at work")
}
