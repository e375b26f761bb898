package explore_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// summary is what the checks need to know about a log, or about one batch.
type summary struct {
	epoch    uint64
	drained  uint64
	started  []string // runs
	ended    []string
	terminal uint64 // slot of the last terminal record
	unknown  string // the call that waits for an operator
	settles  bool   // of one batch: it says what became of a call
	broken   string
}

// opened keeps what was read of a batch: most schedules write the same ones.
var opened = map[string]summary{}

func (w *world) batch(b record.Sealed) summary {
	if s, found := opened[b.Digest]; found {
		return s
	}
	batch, err := record.Open(b, lane.Tenant, lane.Conversation)
	w.must(err)
	s := summary{epoch: b.Epoch}
	for _, r := range batch.Records {
		s.drained = max(s.drained, record.Drained(r))
		switch r := r.(type) {
		case record.RunStarted:
			s.started = append(s.started, r.Run)
		case record.RunSettled:
			s.ended = append(s.ended, r.Run)
			s.terminal = b.Slot
		case record.CallUnknown:
			s.unknown = r.Call
		case record.CallResolved, record.CallSettled, record.CallPrepared:
			s.settles = true
		}
	}
	opened[b.Digest] = s
	return s
}

// log folds the batches, and notes what the protocol forbids.
func (w *world) log() summary {
	_, _, log := w.j.Peek(lane)
	var all summary
	for _, b := range log {
		s := w.batch(b)
		if s.epoch < all.epoch {
			all.broken = fmt.Sprintf("I2: slot %d of epoch %d behind epoch %d", b.Slot, s.epoch, all.epoch)
		}
		all.epoch, all.drained = max(all.epoch, s.epoch), max(all.drained, s.drained)
		for _, run := range s.started {
			if slices.Contains(all.started, run) || len(all.started) > len(all.ended) {
				all.broken = "I1: run " + run + " starts again, or under another run"
			}
		}
		for _, run := range s.ended {
			if slices.Contains(all.ended, run) {
				all.broken = "I1: run " + run + " has two terminal records"
			}
			all.terminal = s.terminal
		}
		all.started, all.ended = append(all.started, s.started...), append(all.ended, s.ended...)
		if s.unknown != "" || s.settles || len(s.ended) > 0 {
			all.unknown = s.unknown
		}
	}
	return all
}

// check names the invariant that is broken now.
func (w *world) check() string {
	h, inbox, _ := w.j.Peek(lane)
	log := w.log()
	switch {
	case log.broken != "":
		return log.broken
	case w.started > max(1, len(log.started)):
		return "I6: the uncertain handler started twice"
	case h.State == journal.Idle && len(log.started) > len(log.ended):
		return "I8: the lane is idle under an open run"
	case h.State == journal.Idle && log.terminal > h.Settled:
		return "I8: the lane is idle with a terminal record that is not handed over"
	case h.State != journal.Idle && h.Due.IsZero():
		return "I9: the lane has no due time"
	}
	for _, e := range inbox[min(log.drained, uint64(len(inbox))):] {
		late := h.Due.After(time.Now().Add(lease + skew))
		if w.acknowledged(e) && (h.State == journal.Idle || h.State == journal.Parked || late) {
			return fmt.Sprintf("I4: entry %d (%s) is acknowledged, and its lane is %s, due %s", e.Slot, e.Kind, h.State, h.Due)
		}
	}
	return ""
}

func (w *world) acknowledged(e journal.Entry) bool {
	for _, key := range w.entries {
		if key == e.Key {
			return true
		}
	}
	return false
}

// checkEnd names what is wrong once nothing happens any more.
func (w *world) checkEnd() string {
	h, _, log := w.j.Peek(lane)
	if len(w.ids) < w.sc.submissions() || h.State != journal.Idle {
		return fmt.Sprintf("L1: nothing happens any more, and the lane is %s with %d batches", h.State, len(log))
	}
	v, err := w.reader.Verify(bg, lane)
	switch {
	case err != nil:
		return err.Error()
	case !v.OK:
		return fmt.Sprintf("verify: %+v", v)
	}
	completed := 0
	for _, id := range w.ids {
		row, found := w.j.PeekRow(lane.Tenant, id)
		if !found || row.Outcome == nil {
			return "the lane is idle and submission " + id + " has no outcome"
		}
		if row.Outcome.Status == record.StatusCompleted {
			completed++
		}
	}
	if w.started < completed && !w.answeredByHand {
		return fmt.Sprintf("%d runs completed with %d starts of the handler", completed, w.started)
	}
	return ""
}
