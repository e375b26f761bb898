package explore_test

import (
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
)

// client submits, decides or aborts: one call of the port, its steps one by
// one, with a wake behind the last. After a crash it may come again with the same key.
type client struct {
	mark   string // what it is about: also the entry's key
	at     clientPlace
	ack    bool // it was told that the entry is in
	submit *memjournal.Admitting
	signal *memjournal.Signalling
}

type clientPlace uint8

const (
	absent clientPlace = iota
	calling
	gone
)

func (c *client) moves(w *world, add func(how)) {
	switch {
	case c.mark == "":
		return
	case c.at == absent:
		if c.mark[:1] != markDecision || w.asks(c.mark[1]) {
			add(plain)
		}
		return
	case c.at == gone:
		return
	}
	add(plain)
	if w.mayCrash('c') {
		add(crash)
	}
	if w.mayLose('c') && c.at == calling && c.writes() {
		add(lose)
	}
}

// copyOf is the value behind p in a place of its own: states share what they
// do not change.
func copyOf[T any](p *T) *T {
	c := *p
	return &c
}

// asks says that an approval of a run waits.
func (w *world) asks(run byte) bool {
	_, _, log := w.j.Peek(lane)
	f := fold(log)
	return f.run == run && f.asked && !f.decided
}

func (c *client) submits() bool { return c.mark[:1] == markSubmit }

func (c *client) writes() bool {
	if c.submits() {
		return c.submit.Writes()
	}
	return c.signal.Writes()
}

func (c *client) step(w *world, h how) {
	switch {
	case h == crash:
		w.left.crashes--
		w.say("go on")
		c.at, c.submit, c.signal = absent, nil, nil
	case c.at == absent:
		c.begin(w)
		w.say("begins")
	default:
		c.call(w, h)
	}
}

// begin starts the call, or starts it again.
func (c *client) begin(w *world) {
	c.at = calling
	now := at(w.now)
	if c.submits() {
		c.submit = &memjournal.Admitting{Sub: journal.Submission{Lane: lane, ID: c.mark, Digest: "d"}, Now: now, Grace: grace * time.Second}
		return
	}
	kind := journal.EntryDecision
	if c.mark[:1] == markAbort {
		kind = journal.EntryAbort
	}
	c.signal = &memjournal.Signalling{Lane: lane, Entry: journal.Entry{Kind: kind, Key: c.mark, Digest: "d"}, Now: now, Grace: grace * time.Second}
	if w.sc.control == nc4 {
		w.j.DamageHead(lane, func(h *journal.Head) { bumpOnly(h, w.now+grace) })
	}
}

// call takes one step. The bump's due time is counted from when it is written.
func (c *client) call(w *world, h how) {
	var call interface {
		Step(*memjournal.Journal) (bool, error)
		Next() string
	}
	if c.submits() {
		c.submit = copyOf(c.submit)
		call = c.submit
	} else {
		c.signal = copyOf(c.signal)
		call = c.signal
	}
	before := w.j.Writes()
	if w.explain {
		w.say("will %s", call.Next())
	}
	var done bool
	var err error
	if done = c.bumpBroken(w); !done {
		done, err = call.Step(w.j)
		w.must(err)
	}
	switch {
	case h == lose:
		w.left.lost--
		w.skip = w.j.Writes() == before
		c.begin(w)
	case done:
		c.ack, c.at, w.wake = true, gone, true
		c.submit, c.signal = nil, nil
	}
}

// bumpBroken is the bump under the controls that take a rule of it away.
func (c *client) bumpBroken(w *world) bool {
	if c.submits() || !c.signal.AtBump() {
		return false
	}
	switch w.sc.control {
	case nc4: // it was bumped before the entry was in
		return true
	case nc7:
		w.j.DamageHead(lane, func(h *journal.Head) { h.Version++ })
		return true
	}
	return false
}

func bumpOnly(h *journal.Head, due int) {
	h.Version++
	if h.State == journal.Idle || h.State == journal.Parked {
		h.State, h.Due = journal.Ready, at(due)
	}
}
