package explore_test

import "github.com/layover-run/layover/core/journal"

// advance decides what an attempt does next, from what it has folded and seen.
func (a *attempt) advance(w *world) {
	f := a.fold(w)
	switch {
	case f.epoch > a.epoch && w.sc.control != nc6:
		a.fenced(w)
	case f.terminal > a.settled && w.sc.control != nc14 && !(w.sc.control == nc14b && f.queue != ""):
		a.handOver(w, f)
	case !a.first && !a.fresh:
		// The claim's answer is the version known before this look.
		a.at = lookInbox
	default:
		a.plan(w, f)
	}
}

// handOver leaves the terminal record to settle.
func (a *attempt) handOver(w *world, f folded) {
	w.say("%s; wakes settle for the terminal record of slot %d", w.what, f.terminal)
	if w.sc.deaf {
		*a = attempt{}
		return
	}
	a.send(&w.settle)
}

// plan drains what was seen and writes what follows from it, or rests.
func (a *attempt) plan(w *world, f folded) {
	marksNow := ""
	if !a.first && w.sc.control != nc3 {
		marksNow = markStarted + "-"
	}
	_, inbox, _ := w.j.Peek(lane)
	if a.tail > f.cursor {
		marksNow += marks(inbox[f.cursor:a.tail])
		f.add(marksNow, a.epoch)
	}
	if f.run == 0 && f.queue != "" {
		next := markRun
		if has(f.aborts, f.queue[0]) {
			next = markAborted
		}
		marksNow += next + f.queue[:1]
	}
	if marksNow != "" {
		a.at, a.marks = appending, marksNow
		return
	}
	a.follow(w, &f)
}

// follow is what an open run does next; without one the lane idles.
func (a *attempt) follow(w *world, f *folded) {
	open := f.prepared && !f.result
	switch {
	case f.run == 0:
		a.rest(w, journal.Idle, 0)
	case open:
		a.settleCall(w, f)
	case has(f.aborts, f.run):
		a.write(markAborted, f)
	case w.sc.approval && !f.asked:
		a.write(markAsked, f)
	case w.sc.approval && !f.decided:
		a.rest(w, journal.Parked, w.now+far)
	case w.sc.tool && !f.prepared:
		a.write(markPrepared, f)
	default:
		a.write(markDone, f)
	}
}

// settleCall goes on with a prepared call that has no result.
func (a *attempt) settleCall(w *world, f *folded) {
	switch {
	case f.by == a.epoch && !a.started:
		a.at = handling
	case f.by == a.epoch, f.late:
		a.write(markResult, f)
	case !w.sc.probe:
		a.rest(w, journal.Parked, w.now+far)
	case w.starts > 0:
		a.write(markResult, f) // the probe says that it happened
	case w.dead > w.now && w.sc.control != nc12:
		a.rest(w, journal.Parked, w.dead)
	default:
		a.write(markPrepared, f) // it did not happen, and nobody can start it any more
	}
}

func (a *attempt) write(mark string, f *folded) { a.at, a.marks = appending, mark+string(f.run) }

// rest gives the lane back after a look that found nothing.
func (a *attempt) rest(w *world, to journal.State, due int) {
	if a.to, a.due = to, due; a.fresh {
		a.at = parking
		return
	}
	a.lookAgain(w)
}
