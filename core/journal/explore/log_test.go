package explore_test

import (
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// The log of the explored protocol is made of marks of two characters, what
// they are about behind what they are. Small letters are drained inbox entries,
// one for each slot, capitals are records of the run.
const (
	markStarted  = "A" // an attempt's first batch
	markSubmit   = "s"
	markDecision = "d"
	markAbort    = "x"
	markLate     = "l"
	markRun      = "R" // a run starts
	markAsked    = "Q" // an approval is asked for
	markPrepared = "P" // a handler may start, in the attempt that wrote this
	markResult   = "S"
	markDone     = "T" // terminal: completed
	markAborted  = "X" // terminal: aborted
)

// folded is what a log says.
type folded struct {
	slots    int
	epoch    uint64 // the highest
	cursor   uint64 // inbox slot up to which entries are drained
	queue    string // submissions drained and not started, by their digit
	run      byte   // open run, or 0
	asked    bool
	decided  bool
	prepared bool
	by       uint64 // epoch of the last preparation
	late     bool   // a late outcome came in
	result   bool
	aborts   string
	started  string
	ended    string
	terminal uint64 // slot of the last terminal record
	broken   string // the invariant a batch broke
}

func fold(log []record.Sealed) folded {
	var f folded
	for _, b := range log {
		f.slots++
		if b.Epoch < f.epoch {
			f.fail("I2: a batch of epoch " + digit(b.Epoch) + " behind one of epoch " + digit(f.epoch))
		}
		f.epoch = max(f.epoch, b.Epoch)
		f.add(string(b.Body), b.Epoch)
	}
	return f
}

// add folds the marks of one batch.
func (f *folded) add(marks string, epoch uint64) {
	for ; marks != ""; marks = marks[2:] {
		about := marks[1]
		switch mark := marks[:1]; mark {
		case markSubmit:
			f.cursor++
			f.queue += string(about)
		case markDecision:
			f.cursor++
			f.decided = f.decided || f.asked && f.run == about
		case markAbort:
			f.cursor++
			f.aborts += string(about)
		case markLate:
			f.cursor++
			f.late = f.late || f.run == about && f.prepared && !f.result
		case markRun:
			f.start(about)
		case markAsked:
			f.asked = true
		case markPrepared:
			f.prepared, f.by = true, epoch
		case markResult:
			f.result = true
		case markDone, markAborted:
			f.end(about)
		}
	}
}

func (f *folded) start(run byte) {
	switch {
	case f.run != 0:
		f.fail("I1: run " + string(run) + " starts while run " + string(f.run) + " is open")
	case has(f.started, run):
		f.fail("I1: run " + string(run) + " starts twice")
	case f.queue == "" || f.queue[0] != run:
		f.fail("I5: run " + string(run) + " starts out of turn, the queue is " + f.queue)
	default:
		f.queue = f.queue[1:]
	}
	f.run = run
	f.started += string(run)
	f.asked, f.decided, f.prepared, f.result, f.late = false, false, false, false, false
}

func (f *folded) end(run byte) {
	if has(f.ended, run) {
		f.fail("I1: run " + string(run) + " has two terminal records")
	}
	f.ended += string(run)
	if f.run == run {
		f.run = 0
	} else if f.queue != "" && f.queue[0] == run {
		f.queue = f.queue[1:]
	}
	f.terminal = uint64(f.slots)
}

func (f *folded) fail(what string) {
	if f.broken == "" {
		f.broken = what
	}
}

// waits says that the open run can do nothing until something arrives.
func (f *folded) waits(sc *scenario) bool {
	switch {
	case f.run == 0 || has(f.aborts, f.run) && !(f.prepared && !f.result):
		return false
	case sc.approval:
		return f.asked && !f.decided
	}
	return sc.tool && !sc.probe && f.prepared && !f.result && !f.late
}

// marks are the drained form of inbox entries: their keys.
func marks(entries []journal.Entry) string {
	out := ""
	for _, e := range entries {
		out += e.Key
	}
	return out
}

func has(list string, one byte) bool {
	for i := range len(list) {
		if list[i] == one {
			return true
		}
	}
	return false
}

func digit(n uint64) string { return string(rune('0' + n)) }
