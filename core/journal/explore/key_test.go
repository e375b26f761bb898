package explore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Key implements explore.System. Times are told as distances from now, versions
// as distances from the head's and epochs by their rank, because nothing else
// about them matters: states that differ in nothing else are one.
func (w *world) Key(b []byte) []byte {
	h, inbox, log := w.j.Peek(lane)
	w.rankEpochs(h, log)
	b = w.head(b, h)
	for _, e := range inbox {
		b = append(b, e.Key...)
	}
	for _, s := range log {
		b = append(append(b, '|', w.ranks[s.Epoch], w.rank(s.ID)), s.Body...)
	}
	if w.sc.parent {
		ph, entries, _ := w.j.Peek(parent)
		b = append(w.head(b, ph), byte(len(entries)))
	}
	for _, c := range w.clients {
		if c.mark != "" && c.submits() {
			row, found := w.j.PeekRow(lane.Tenant, c.mark)
			b = append(b, flag(found), flag(row.Outcome != nil), byte(row.Tail))
		}
	}
	l := w.left
	b = append(b, byte(l.crashes), byte(l.lost), byte(l.early), byte(l.doubled), byte(l.drops), byte(l.yields))
	b = append(b, flag(w.wake), flag(w.settle), flag(w.late), byte(w.starts), w.tick(w.dead))
	b = append(append(b, w.rank(w.flight.owner)), w.flight.marks...)
	b = append(b, byte(w.flight.slot), w.ranks[w.flight.epoch])
	b = w.unordered(b, h)
	for i := range w.settlers {
		b = w.settlers[i].key(b, w, h)
	}
	for i := range w.clients {
		b = w.clients[i].key(b, w)
	}
	return b
}

// rankEpochs numbers the epochs that occur, in their order.
func (w *world) rankEpochs(h journal.Head, log []record.Sealed) {
	w.ranks = [maxEpoch]byte{}
	note := func(epoch uint64, owner string) {
		w.ranks[epoch] = 1
		w.ranks[epochOf(owner)] = 1
	}
	note(h.Epoch, h.Owner)
	note(w.flight.epoch, w.flight.owner)
	for _, s := range log {
		note(s.Epoch, s.ID)
	}
	for i := range w.attempts {
		note(w.attempts[i].epoch, w.attempts[i].owner)
	}
	next := byte(0)
	for epoch := range w.ranks {
		if w.ranks[epoch] == 1 {
			w.ranks[epoch] = next
			next++
		}
	}
}

// maxEpoch is above every epoch that the bounds let happen; an index out of
// range would say so.
const maxEpoch = 64

// epochOf is the epoch an attempt, or one of its batches, is named after.
func epochOf(id string) int {
	if len(id) < 2 {
		return 0
	}
	return int(id[1] - '0')
}

// rank tells an attempt by the rank of its epoch.
func (w *world) rank(id string) byte { return w.ranks[epochOf(id)] }

// unordered appends the attempts: which of the two does what is all the same.
func (w *world) unordered(b []byte, h journal.Head) []byte {
	from := len(b)
	b = w.attempts[0].key(b, w, h)
	middle := len(b)
	b = w.attempts[1].key(b, w, h)
	if first, second := b[from:middle], b[middle:]; bytes.Compare(first, second) > 0 {
		swapped := append(slices.Clone(second), first...)
		b = append(b[:from], swapped...)
	}
	return b
}

func (w *world) head(b []byte, h journal.Head) []byte {
	b = append(append(b, h.State...), w.rank(h.Owner), w.ranks[h.Epoch], byte(h.Settled), byte(h.Drained))
	if h.State == journal.Idle {
		return b
	}
	b = append(b, w.tick(ticks(h.Due)))
	if h.State == journal.Running {
		b = append(b, w.tick(ticks(h.Lease)))
	}
	return b
}

// tick is how far an instant is away: what has passed is all the same, and so
// is what is never reached.
func (w *world) tick(at int) byte {
	switch d := at - w.now; {
	case d <= 0:
		return 0
	case d > far/2:
		return 255
	default:
		return byte(d)
	}
}

func (a *attempt) key(b []byte, w *world, h journal.Head) []byte {
	b = append(b, byte(a.at))
	if a.at == off {
		return b
	}
	b = append(b, w.rank(a.owner), w.ranks[a.epoch], byte(a.settled), w.tick(a.end), byte(a.read), flag(a.first), flag(a.started), flag(a.unclear),
		byte(h.Version-a.version), byte(a.tail), flag(a.fresh))
	switch a.at {
	case appending:
		b = append(b, a.marks...)
	case parking:
		b = append(append(b, a.to...), w.tick(a.due))
	case telling:
		b = a.late.AppendPosition(append(b, w.tick(ticks(a.late.Now))))
	}
	return b
}

func (s *settler) key(b []byte, w *world, h journal.Head) []byte {
	b = append(b, byte(s.at))
	if s.at == resting {
		return b
	}
	b = append(b, byte(s.was), byte(s.slot), s.run, flag(s.queued), byte(s.cursor))
	switch s.at {
	case tellParent:
		b = s.tell.AppendPosition(append(b, w.tick(ticks(s.tell.Now))))
	case looking:
		b = append(b, flag(s.look.HaveHead()))
		if s.look.HaveHead() {
			b = append(b, byte(h.Version-s.look.Head.Version), byte(s.look.Head.Settled))
		}
	case finishing:
		r := s.finish.Request
		b = append(append(b, r.To...), byte(h.Version-r.Version))
		b = s.finish.AppendPosition(append(b, w.tick(ticks(r.Due))))
	}
	return b
}

func (c *client) key(b []byte, w *world) []byte {
	b = append(b, byte(c.at), flag(c.ack))
	if c.mark == "" || c.at != calling {
		return b
	}
	if c.submits() {
		return c.submit.AppendPosition(binary.AppendUvarint(b, uint64(w.tick(ticks(c.submit.Now)+grace))))
	}
	return c.signal.AppendPosition(append(b, w.tick(ticks(c.signal.Now)+grace)))
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// Check implements explore.System.
func (w *world) Check() error {
	h, inbox, log := w.j.Peek(lane)
	f := fold(log)
	switch {
	case w.broken != "":
		return errors.New(w.broken)
	case f.broken != "":
		return errors.New(f.broken)
	case h.State != journal.Idle && h.Due.IsZero():
		return errors.New("I9: a lane that is not idle has no due time")
	case h.State == journal.Idle && f.run != 0:
		return errors.New("I8: the lane is idle with an open run")
	case h.State == journal.Idle && f.queue != "":
		return errors.New("I8: the lane is idle with a queued submission")
	case h.State == journal.Idle && f.terminal > h.Settled:
		return errors.New("I8: the lane is idle with a terminal record that is not handed over")
	}
	if w.sc.parent && h.Settled > 0 {
		if _, told, _ := w.j.Peek(parent); len(told) < 2 {
			return errors.New("I7: the child is settled and its entry is not in the parent's inbox")
		}
	}
	return w.checkInbox(h, inbox, f.cursor)
}

// checkInbox is I4: an acknowledged entry that nobody has drained is in a lane
// that is looked at soon.
func (w *world) checkInbox(h journal.Head, inbox []journal.Entry, cursor uint64) error {
	for i, e := range inbox {
		if e.Slot != uint64(i)+1 {
			return errors.New("I4: entry " + e.Key + " is not in the slot it was given")
		}
	}
	for _, e := range inbox[cursor:] {
		switch {
		case !w.acknowledged(e.Key):
		case h.State == journal.Idle || h.State == journal.Parked:
			return errors.New("I4: entry " + e.Key + " is acknowledged and waits in a lane that is " + string(h.State))
		case ticks(h.Due) > w.now+lease:
			return errors.New("I4: entry " + e.Key + " is acknowledged and its lane is due too late")
		}
	}
	return nil
}

func (w *world) acknowledged(key string) bool {
	for _, c := range w.clients {
		if c.mark == key && c.ack {
			return true
		}
	}
	return key == markLate+"1" && w.late
}

// Rest implements explore.System: nobody works, and the lane is idle with every
// acknowledged submission settled, or its run waits for somebody outside.
func (w *world) Rest() bool {
	for _, a := range w.attempts {
		if a.at != off {
			return false
		}
	}
	for _, s := range w.settlers {
		if s.at != resting {
			return false
		}
	}
	h, inbox, log := w.j.Peek(lane)
	f := fold(log)
	if w.flight.owner != "" || f.terminal > h.Settled || !w.parentWoken(h) {
		return false
	}
	for _, e := range inbox[f.cursor:] {
		if w.acknowledged(e.Key) {
			return false
		}
	}
	if h.State == journal.Parked {
		return f.waits(w.sc)
	}
	return h.State == journal.Idle && f.run == 0 && f.queue == "" && w.settledRows(f)
}

// parentWoken says that the parent of a child that has ended is due.
func (w *world) parentWoken(child journal.Head) bool {
	if !w.sc.parent || child.Settled == 0 {
		return true
	}
	h, _, _ := w.j.Peek(parent)
	return h.State == journal.Ready
}

// settledRows says that every run that ended has its outcome in its row.
func (w *world) settledRows(f folded) bool {
	for i := range len(f.ended) {
		row, found := w.j.PeekRow(lane.Tenant, markSubmit+f.ended[i:i+1])
		if !found || row.Outcome == nil {
			return false
		}
	}
	return true
}
