package explore_test

import (
	"errors"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/record"
)

// settler hands terminal records over. One is woken by a message; the other is
// the sweep, which looks at the lane when it is due and settles on the spot.
type settler struct {
	at     settlerPlace
	was    uint64 // the head's settled, as read first
	slot   uint64 // of the terminal record
	run    byte
	queued bool   // submissions wait in the log
	cursor uint64 // inbox slot up to which the log has entries
	tell   *memjournal.Signalling
	look   *memjournal.Looking
	finish *memjournal.Finishing
}

type settlerPlace uint8

const (
	resting settlerPlace = iota
	readHead
	readLog
	tellParent
	looking
	finishing
)

func (s *settler) moves(w *world, sweep bool, add func(how)) {
	if s.at == resting {
		h, _, _ := w.j.Peek(lane)
		switch {
		case sweep && h.State != journal.Idle && !h.Due.After(at(w.now)) && !(w.wake && s.onlyWakes(w, h)):
			add(plain)
		case !sweep && w.settle:
			add(plain)
			if w.left.doubled > 0 {
				add(twice)
			}
		}
		return
	}
	add(plain)
	if w.mayCrash('s') {
		add(crash)
	}
	writes := s.at == tellParent && s.tell.Writes() || s.at == finishing && s.finish.Writes()
	if w.mayLose('s') && writes {
		add(lose)
	}
}

func (s *settler) step(w *world, h how, sweep bool) {
	switch h {
	case crash:
		w.left.crashes--
		w.say("go on")
		*s = settler{}
		return
	case lose:
		w.left.lost--
	case twice:
		w.left.doubled--
	}
	switch s.at {
	case resting:
		if !sweep {
			w.settle = h == twice
		}
		s.readHead(w, sweep)
	case readHead:
		s.readHead(w, sweep)
	case readLog:
		s.readLog(w, sweep)
	case tellParent:
		s.tellParent(w, h)
	case looking:
		s.lookStep(w)
	case finishing:
		s.finishStep(w, h)
	}
}

// onlyWakes says that a sweep has nothing to settle.
func (s *settler) onlyWakes(w *world, h journal.Head) bool {
	return h.State == journal.Ready || w.sc.control == nc18
}

func (s *settler) readHead(w *world, sweep bool) {
	h, _, _ := w.j.Peek(lane)
	w.say("reads the head: %s, settled %d", h.State, h.Settled)
	*s = settler{at: readLog, was: h.Settled}
	switch {
	case sweep && s.onlyWakes(w, h):
		s.send(w)
	case h.State == journal.Idle:
		*s = settler{}
	}
}

// send wakes an attempt, which is the last a settler does.
func (s *settler) send(w *world) {
	w.say("%s; wakes an attempt", w.what)
	w.wake = true
	*s = settler{}
}

// readLog finds the terminal record behind settled.
func (s *settler) readLog(w *world, sweep bool) {
	_, _, log := w.j.Peek(lane)
	f := fold(log)
	w.say("reads the log: terminal record in slot %d", f.terminal)
	switch {
	case f.terminal <= s.was && sweep:
		s.send(w)
		return
	case f.terminal <= s.was:
		*s = settler{}
		return
	}
	s.slot, s.cursor = f.terminal, f.cursor
	s.run = f.ended[len(f.ended)-1]
	s.queued = fold(log[:f.terminal]).queue != ""
	s.look = &memjournal.Looking{Lane: lane, After: s.cursor}
	s.at = looking
	if w.sc.parent && w.sc.control != nc5 {
		s.tellParentNext(w)
	}
}

func (s *settler) tellParentNext(w *world) {
	s.at = tellParent
	s.tell = &memjournal.Signalling{Lane: parent, Entry: journal.Entry{Kind: journal.EntryChild, Key: "child", Digest: "d"}, After: 1,
		Now: at(w.now), Grace: grace * time.Second}
}

func (s *settler) tellParent(w *world, h how) {
	before := w.j.Writes()
	if w.explain {
		w.say("tells the parent: %s", s.tell.Next())
	}
	s.tell = copyOf(s.tell)
	done, err := s.tell.Step(w.j)
	w.must(err)
	switch {
	case h == lose:
		w.skip = w.j.Writes() == before
		s.tellParentNext(w)
	case done && w.sc.control == nc5:
		*s = settler{}
	case done:
		s.at = looking
	}
}

// lookStep reads the head and then the inbox.
func (s *settler) lookStep(w *world) {
	w.say("looks at the head and the inbox, item by item")
	s.look = copyOf(s.look)
	done, err := s.look.Step(w.j)
	w.must(err)
	if !done {
		return
	}
	if s.look.Head.Settled != s.was && w.sc.control != nc9 {
		s.at = readHead
		return
	}
	s.finishNext(w)
}

func (s *settler) finishNext(w *world) {
	r := journal.FinishRequest{Lane: lane, Outcomes: []record.RunSettled{{Run: markSubmit + string(s.run)}}, At: at(0), Was: s.was,
		Settled: s.slot, Version: s.look.Head.Version, To: journal.Idle, Drained: s.cursor}
	if len(s.look.Entries) > 0 || s.queued && w.sc.control != nc16 {
		r.To, r.Due = journal.Ready, at(w.now+grace)
	}
	s.at, s.finish = finishing, &memjournal.Finishing{Request: r}
}

func (s *settler) finishStep(w *world, h how) {
	before := w.j.Writes()
	s.finish = copyOf(s.finish)
	frees := s.finish.AtHead()
	if w.explain {
		w.say("%s", s.finish.Next())
	}
	done, err := s.free(w)
	switch {
	case h == lose && (err != nil || w.j.Writes() == before):
		w.skip = true
	case h == lose && w.sc.control == nc9: // the same write again, with nothing read before
	case h == lose:
		s.finish = &memjournal.Finishing{Request: s.finish.Request}
	case errors.Is(err, journal.ErrRefused):
		s.at = readHead
		if w.sc.control == nc9 {
			s.at, s.look = looking, &memjournal.Looking{Lane: lane, After: s.cursor}
		}
	case err != nil:
		w.must(err)
	case done && w.sc.control == nc5:
		s.tellParentNext(w)
	case done && s.finish.Request.To == journal.Ready:
		s.send(w)
	case done:
		*s = settler{}
	}
	if _, _, log := w.j.Peek(lane); frees && w.j.Writes() > before && fold(log).run != 0 {
		w.broken = "I11: the lane is freed under an open run"
	}
}

// free is the step, or what a control makes of it.
func (s *settler) free(w *world) (bool, error) {
	switch {
	case w.sc.control == nc8 && s.finish.AtHead():
		h, _, _ := w.j.Peek(lane)
		s.finish.Request.Version = h.Version
	case w.sc.control == nc9 && s.finish.AtHead():
		return s.freeAnyway(w)
	}
	return s.finish.Step(w.j)
}

// freeAnyway is NC9: nothing says for which terminal record the lane is freed.
func (s *settler) freeAnyway(w *world) (bool, error) {
	r := s.finish.Request
	h, _, _ := w.j.Peek(lane)
	if r.To == journal.Idle && h.Version != r.Version {
		return false, journal.ErrRefused
	}
	w.j.DamageHead(lane, func(h *journal.Head) {
		h.State, h.Due, h.Lease, h.Settled = r.To, r.Due, time.Time{}, max(h.Settled, r.Settled)
		h.Version++
	})
	return true, nil
}
