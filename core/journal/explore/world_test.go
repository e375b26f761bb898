package explore_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/explore"
	"github.com/layover-run/layover/core/journal/memjournal"
)

// The clock counts seconds. Far is further than any run of the explorer goes:
// an approval's expiry, the next look at an unknown call.
const (
	grace = 1
	lease = 4
	far   = 1000
)

var (
	lane   = journal.Lane{Tenant: "t", Conversation: "c"}
	parent = journal.Lane{Tenant: "t", Conversation: "p"}
	t0     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func at(tick int) time.Time { return t0.Add(time.Duration(tick) * time.Second) }

// bounds is how much of each disturbance may still happen.
type bounds struct {
	crashes int8 // of any actor
	lost    int8 // answers of writes
	early   int8 // leases judged to be over too early
	doubled int8 // messages delivered twice
	drops   int8 // messages lost
	yields  int8
}

// scenario is what is explored: the work, the actors, the bounds, and for a
// negative control the rule that is taken out.
type scenario struct {
	name     string
	before   string // marks of submissions that are admitted before it begins
	clients  string // marks of what arrives: s1 a submission, d1 a decision, x1 an abort
	approval bool   // the runs wait for a decision
	tool     bool   // the runs call an uncertain tool
	probe    bool   // the tool can be asked what became of a call
	parent   bool   // run 1 is a child
	attempts int
	// deaf loses every settle message.
	deaf   bool
	bounds bounds
	// crashing and losing narrow who crashes and whose answers are lost: a for
	// attempts, k for their claims, s for settle and sweep, c for clients. Empty
	// means anybody.
	crashing, losing string
	// heavy runs among the big bounds only.
	heavy   bool
	control control
}

func (w *world) mayCrash(who byte) bool {
	return w.left.crashes > 0 && (w.sc.crashing == "" || has(w.sc.crashing, who))
}

func (w *world) mayLose(who byte) bool {
	return w.left.lost > 0 && (w.sc.losing == "" || has(w.sc.losing, who))
}

// world is one state: the real store, and the actors around it.
type world struct {
	sc       *scenario
	j        *memjournal.Journal
	now      int
	left     bounds
	wake     bool // a message for an attempt waits
	settle   bool // a message for settle waits
	flight   flight
	attempts [2]attempt
	settlers [2]settler // woken by a message; by the sweep
	clients  [3]client

	starts int8 // of the handler
	dead   int  // when the invocation that prepared last has certainly ended
	late   bool // a late outcome was acknowledged
	broken string
	explain,
	skip bool // the move is none after all
	what  string
	ranks [maxEpoch]byte // see Key
}

// actors in the order of their moves.
const (
	actorAttempt = 0
	actorSettler = 2
	actorClient  = 4
	actorClock   = 7
	actorNetwork = 8
)

// how a move goes.
type how uint8

const (
	plain how = iota
	crash     // the actor dies here
	lose      // the write happens, its answer is lost
	delay     // the write happens later, its answer is lost
	early     // the lease is judged to be over before it is
	twice     // the message stays for another delivery
	drop      // the message for an attempt is lost
	mute      // the message for settle is lost
	yield     // the invocation ends here
	hows
)

func newWorld(sc *scenario) *world {
	w := &world{sc: sc, j: memjournal.New(), left: sc.bounds}
	arrive := sc.before + sc.clients
	for i := range len(arrive) / 2 {
		c := &w.clients[i]
		c.mark = arrive[2*i : 2*i+2]
		for 2*i < len(sc.before) && c.at != gone {
			c.step(w, plain)
		}
	}
	if sc.parent {
		w.must(parkedParent(w.j))
	}
	return w
}

// parkedParent makes the parent's lane, which waits for its child.
func parkedParent(j *memjournal.Journal) error {
	_, err := j.Admit(bg, journal.Submission{Lane: parent, ID: "parent", Digest: "d"}, at(0), grace*time.Second)
	h, claimed := j.Claim(bg, journal.ClaimRequest{Lane: parent, Owner: "p1", Now: at(0), Lease: at(lease)})
	parked := j.Park(bg, journal.ReleaseRequest{Lane: parent, Epoch: 1, Owner: "p1", To: journal.Parked, Due: at(far), Version: h.Version, Drained: 1})
	return errors.Join(err, claimed, parked)
}

func (w *world) must(err error) {
	if err != nil {
		panic(err)
	}
}

// Moves implements explore.System.
func (w *world) Moves(out []explore.Move) []explore.Move {
	add := func(actor int, h how, outside bool) {
		out = append(out, explore.Move{Code: uint16(actor*int(hows)) + uint16(h), Outside: outside})
	}
	for i := range w.sc.attempts {
		w.attempts[i].moves(w, func(h how) { add(actorAttempt+i, h, h != plain) })
	}
	for i := range w.settlers {
		w.settlers[i].moves(w, i == 1, func(h how) { add(actorSettler+i, h, h != plain) })
	}
	for i := range w.clients {
		w.clients[i].moves(w, func(h how) { add(actorClient+i, h, true) })
	}
	if w.nextTick() > w.now {
		add(actorClock, plain, false)
	}
	if w.flight.owner != "" {
		add(actorNetwork, plain, false)
	}
	if w.wake && w.left.drops > 0 {
		add(actorNetwork, drop, true)
	}
	if w.settle && w.left.drops > 0 {
		add(actorNetwork, mute, true)
	}
	return out
}

// Apply implements explore.System.
func (w *world) Apply(m explore.Move, explain bool) (*world, string) {
	next := *w
	n := &next
	n.j, n.explain, n.what = w.j.Clone(), explain, ""
	actor, h := int(m.Code)/int(hows), how(int(m.Code)%int(hows))
	switch {
	case actor < actorSettler:
		n.attempts[actor].step(n, h)
		n.who(fmt.Sprint("attempt ", actor+1), h)
	case actor < actorClient:
		n.settlers[actor-actorSettler].step(n, h, actor-actorSettler == 1)
		n.who([]string{"settle", "sweep"}[actor-actorSettler], h)
	case actor < actorClock:
		c := &n.clients[actor-actorClient]
		c.step(n, h)
		n.who("client "+c.mark, h)
	case actor == actorClock:
		n.now = w.nextTick()
		n.say("time passes to %d s", n.now)
		n.who("clock", h)
	default:
		n.network(h)
		n.who("network", h)
	}
	if n.skip {
		return w, "nothing"
	}
	return n, n.what
}

func (w *world) say(format string, args ...any) {
	if w.explain {
		w.what = fmt.Sprintf(format, args...)
	}
}

// who puts the actor's name before what it did.
func (w *world) who(name string, h how) {
	if !w.explain {
		return
	}
	how := map[how]string{crash: "dies before it would ", lose: "(answer lost) ", delay: "(on its way, no answer) ", early: "(lease judged too early) ",
		twice: "(message stays) ", yield: "(time is up) "}[h]
	w.what = fmt.Sprintf("%-10s %s%s", name, how, w.what)
}

// flight is an append that the store has not seen yet and whose answer its
// writer has given up waiting for.
type flight struct {
	owner string
	slot  uint64
	epoch uint64
	marks string
}

// network loses a message, or lets what is on its way arrive.
func (w *world) network(h how) {
	switch h {
	case plain:
		w.land()
		return
	case drop:
		w.wake = false
	case mute:
		w.settle = false
	}
	w.say("a message is lost")
	w.left.drops--
}

// land lets the store see it.
func (w *world) land() {
	f := w.flight
	w.flight = flight{}
	err := w.j.Append(bg, lane, batch(f.owner, f.epoch, f.slot, f.marks))
	w.say("%q arrives at slot %d: %s", f.marks, f.slot, answer(err))
}

// nextTick is the next instant at which something becomes due. A live attempt's
// invocation does not outlast it: whoever pauses longer is dead, which is a
// crash.
func (w *world) nextTick() int {
	next := far
	consider := func(tick int) {
		if tick > w.now && tick < next {
			next = tick
		}
	}
	for _, l := range w.lanes() {
		if h, _, _ := w.j.Peek(l); h.State != journal.Idle {
			consider(ticks(h.Due))
		}
	}
	consider(w.dead)
	for i := range w.attempts {
		if a := &w.attempts[i]; a.end > 0 && a.end <= next {
			return w.now
		}
	}
	if next >= far/2 {
		return w.now
	}
	return next
}

func (w *world) lanes() []journal.Lane {
	if w.sc.parent {
		return []journal.Lane{lane, parent}
	}
	return []journal.Lane{lane}
}

func ticks(t time.Time) int { return int(t.Sub(t0) / time.Second) }

// answer is an error of the journal in a word.
func answer(err error) string {
	for _, known := range []struct {
		err  error
		text string
	}{
		{nil, "done"}, {journal.ErrRefused, "refused, the version moved"}, {journal.ErrFenced, "fenced"}, {journal.ErrTaken, "taken"},
		{journal.ErrNotClaimable, "not claimable"},
	} {
		if errors.Is(err, known.err) {
			return known.text
		}
	}
	return err.Error()
}
