package explore_test

import (
	"context"
	"errors"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/record"
)

var bg = context.Background()

// place is where an actor stands: what its next step is.
type place uint8

const (
	off place = iota
	claiming
	reading     // the log
	lookVersion // the head's version, before the inbox is read
	lookInbox
	appending
	handling // the handler starts
	parking
	telling   // a late outcome, through the inbox
	rereading // NC17: the head, after an unclear claim
	checking  // NC15: the slot, after an unclear append
)

// attempt is one invocation of the attempt function, or none.
type attempt struct {
	at      place
	owner   string
	epoch   uint64
	settled uint64 // the head's, as claimed
	end     int    // of the invocation; 0 while nothing is claimed
	read    int    // log slots folded
	first   bool   // the first batch is confirmed
	started bool   // the handler of this epoch's preparation
	unclear bool   // the last write's answer was lost

	version uint64 // known before the look
	tail    uint64 // inbox slot up to which it has looked
	fresh   bool   // nothing was decided since the look

	marks string        // of the batch to append
	to    journal.State // of the release
	due   int
	late  *memjournal.Signalling
}

func (a *attempt) moves(w *world, add func(how)) {
	if a.at == off {
		if w.wake {
			a.starts(w, add)
		}
		return
	}
	add(plain)
	if w.mayCrash('a') {
		add(crash)
	}
	if a.at == claiming && w.mayLose('k') {
		add(lose)
	}
	writes := a.at == appending || a.at == parking || a.at == telling && a.late.Writes()
	if w.mayLose('a') && writes {
		add(lose)
		if a.at == appending && w.flight.owner == "" {
			add(delay)
		}
	}
	if w.left.yields > 0 && !a.unclear && a.first && (a.at == appending || a.at == lookVersion) && !a.holds(w) {
		add(yield)
	}
}

// starts are the ways a message begins an invocation, which claims at once.
func (a *attempt) starts(w *world, add func(how)) {
	h, _, _ := w.j.Peek(lane)
	add(plain)
	if w.left.doubled > 0 {
		add(twice)
	}
	if w.mayLose('k') {
		add(lose)
	}
	if w.left.early > 0 && h.State == journal.Running && h.Lease.After(at(w.now)) {
		add(early)
	}
}

// holds says that a prepared call of this attempt is not settled.
func (a *attempt) holds(w *world) bool {
	f := a.fold(w)
	return f.prepared && !f.result && f.by == a.epoch
}

func (a *attempt) fold(w *world) folded {
	_, _, log := w.j.Peek(lane)
	return fold(log[:a.read])
}

func (a *attempt) step(w *world, h how) {
	switch h {
	case crash:
		w.left.crashes--
		w.say("go on")
		*a = attempt{}
		return
	case lose, delay:
		w.left.lost--
	case early:
		w.left.early--
	case twice:
		w.left.doubled--
	case yield:
		w.left.yields--
		a.at, a.to, a.due = parking, journal.Ready, w.now+grace
		w.say("will give the lane back")
		return
	}
	switch a.at {
	case off, claiming:
		if a.at == off {
			w.wake = h == twice
		}
		a.at = claiming
		a.claim(w, h)
	case rereading:
		a.reread(w)
	case reading:
		a.fold1(w)
	case lookVersion, lookInbox:
		a.look(w)
	case appending:
		a.append(w, h)
	case checking:
		a.check(w)
	case handling:
		a.handle(w)
	case parking:
		a.park(w, h)
	case telling:
		a.tell(w, h)
	}
}

// send leaves a message and ends the attempt. That a message may take its time
// is in when it is taken; that its sender may die before, in its loss.
func (a *attempt) send(message *bool) {
	*message = true
	*a = attempt{}
}

// claim raises the epoch. The owner id is fresh: nobody else ever commits it,
// because an epoch is committed once.
func (a *attempt) claim(w *world, h how) {
	head, _, _ := w.j.Peek(lane)
	if a.owner == "" {
		a.owner = "a" + digit(head.Epoch+1)
		if w.sc.control == nc10 {
			a.owner = "m1"
		}
	}
	now := at(w.now)
	if h == early {
		now = head.Lease
	}
	got, err := w.j.Claim(bg, journal.ClaimRequest{Lane: lane, Owner: a.owner, Now: now, Lease: at(w.now + lease)})
	w.say("claims the lane for epoch %d: %s", got.Epoch, answer(err))
	switch {
	case err != nil && h == lose:
		w.skip = true
	case err != nil:
		*a = attempt{}
	case h == lose:
		a.unclear = true
		if w.sc.control == nc17 {
			a.at = rereading
		}
	default:
		a.own(w, got)
	}
}

// own begins to work under a claim.
func (a *attempt) own(w *world, h journal.Head) {
	*a = attempt{at: reading, owner: a.owner, epoch: h.Epoch, settled: h.Settled, version: h.Version, end: w.now + lease}
}

// reread is NC17: a claim counts as mine by owner and epoch alone.
func (a *attempt) reread(w *world) {
	h, _, _ := w.j.Peek(lane)
	w.say("reads the head: epoch %d of %s, %s", h.Epoch, h.Owner, h.State)
	if h.Owner != a.owner {
		*a = attempt{}
		return
	}
	a.own(w, h)
}

func (a *attempt) fold1(w *world) {
	_, _, log := w.j.Peek(lane)
	a.read = len(log)
	w.say("reads the log up to slot %d", a.read)
	a.advance(w)
}

func (a *attempt) look(w *world) {
	h, inbox, _ := w.j.Peek(lane)
	backwards := w.sc.control == nc2
	if a.at == lookVersion {
		a.version = h.Version
		w.say("reads the head's version %d", h.Version)
	} else {
		a.tail = uint64(len(inbox))
		w.say("reads the inbox up to slot %d", a.tail)
	}
	switch {
	case a.at == lookVersion && !backwards:
		a.at = lookInbox
	case a.at == lookInbox && backwards:
		a.at = lookVersion
	default:
		a.fresh = true
		a.advance(w)
	}
}

// lookAgain begins a look.
func (a *attempt) lookAgain(w *world) {
	a.fresh, a.at = false, lookVersion
	if w.sc.control == nc2 {
		a.at = lookInbox
	}
}

func batch(owner string, epoch, slot uint64, marks string) record.Sealed {
	return record.Sealed{Slot: slot, ID: owner + "." + digit(slot), Epoch: epoch, Digest: marks, Body: []byte(marks)}
}

func (a *attempt) append(w *world, h how) {
	slot := uint64(a.read) + 1
	if h == delay {
		w.flight = flight{owner: a.owner, slot: slot, epoch: a.epoch, marks: a.marks}
		w.say("appends %q to slot %d", a.marks, slot)
		a.unclearAppend(w)
		return
	}
	err := w.j.Append(bg, lane, batch(a.owner, a.epoch, slot, a.marks))
	w.say("appends %q to slot %d under epoch %d: %s", a.marks, slot, a.epoch, answer(err))
	var taken *journal.TakenError
	switch {
	case err != nil && h == lose:
		w.skip = true
	case h == lose:
		a.unclearAppend(w)
	case errors.As(err, &taken) && taken.Occupant.Epoch > a.epoch:
		a.fenced(w)
	case errors.As(err, &taken) && taken.Occupant.Epoch == a.epoch:
		*a = attempt{} // a defect: it stops
	case err != nil:
		a.at = reading
	default:
		a.appended(w)
	}
}

func (a *attempt) unclearAppend(w *world) {
	a.unclear = true
	if w.sc.control == nc15 && (a.marks[0:1] == markDone) {
		a.at = checking
	}
}

func (a *attempt) appended(w *world) {
	a.read++
	a.first, a.unclear, a.fresh = true, false, false
	if a.prepares() {
		w.dead, a.started = a.end, false
	}
	a.advance(w)
}

func (a *attempt) prepares() bool {
	return len(a.marks) >= 2 && a.marks[len(a.marks)-2:][0:1] == markPrepared
}

// check is NC15: an append without an answer is given up when its slot is empty.
func (a *attempt) check(w *world) {
	_, _, log := w.j.Peek(lane)
	w.say("finds slot %d empty: %v", a.read+1, len(log) == a.read)
	if len(log) > a.read {
		a.at = appending
		return
	}
	a.at, a.unclear, a.to, a.due = parking, false, journal.Parked, w.now+far
}

// handle starts the handler, which only an invocation that still has time does.
func (a *attempt) handle(w *world) {
	w.say("starts the handler")
	a.started = true
	if w.starts++; w.starts > 1 {
		w.broken = "I6: the handler starts a second time"
	}
	a.advance(w)
}

func (a *attempt) park(w *world, h how) {
	f := a.fold(w)
	head, _, _ := w.j.Peek(lane)
	version := a.version
	if w.sc.control == nc1 {
		version = head.Version
	}
	r := journal.ReleaseRequest{Lane: lane, Epoch: a.epoch, Owner: a.owner, To: a.to, Version: version, Drained: f.cursor}
	if a.to != journal.Idle {
		r.Due = at(a.due)
	}
	err := w.j.Park(bg, r)
	w.say("makes the lane %s: %s", a.to, answer(err))
	goesOn := errors.Is(err, journal.ErrRefused) || w.sc.control == nc13 && a.unclear
	switch {
	case err != nil && h == lose:
		w.skip = true
	case h == lose:
		a.unclear = true
	case err != nil && goesOn:
		a.unclear = false
		a.lookAgain(w)
	case err == nil && a.to == journal.Ready:
		a.send(&w.wake)
	default:
		*a = attempt{}
	}
}

// fenced ends the attempt; a result in hand goes to the inbox as evidence.
func (a *attempt) fenced(w *world) {
	if !a.started || a.fold(w).result {
		*a = attempt{}
		return
	}
	*a = attempt{at: telling, late: &memjournal.Signalling{Lane: lane, Entry: journal.Entry{Kind: journal.EntryLateOutcome, Key: markLate + "1", Digest: "d"},
		Now: at(w.now), Grace: grace * time.Second}}
}

func (a *attempt) tell(w *world, h how) {
	a.late = copyOf(a.late)
	if a.late.Now = at(w.now); h == lose {
		before := w.j.Writes()
		_, err := a.late.Step(w.j)
		w.must(err)
		w.skip = w.j.Writes() == before
		a.late = &memjournal.Signalling{Lane: lane, Entry: a.late.Entry, Grace: a.late.Grace}
		w.say("tells a late outcome")
		return
	}
	w.say("tells a late outcome: %s", a.late.Next())
	done, err := a.late.Step(w.j)
	w.must(err)
	if done {
		w.late = true
		a.send(&w.wake)
	}
}
