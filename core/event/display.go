package event

import "strings"

// Display folds the events of one conversation, as a reader gets them, into
// the text a person should see: what is certain, and what is on its way.
//
// Provisional events are retracted: by the response of their turn, by the end
// of their run, by any event of a newer epoch (an attempt that took over), and
// by a provisional TurnStarted, with which a turn begins again. The zero
// Display has seen nothing.
type Display struct {
	epoch   uint64
	certain []string
	pending []piece
}

// piece is a block of text on its way.
type piece struct {
	run   string
	turn  int
	index int
	text  string
}

// Add takes the next event and reports whether it took text back that was
// shown before.
func (d *Display) Add(e Event) (retracted bool) {
	if e.Epoch < d.epoch && e.Provisional {
		return false // of an attempt that is over
	}
	if e.Epoch > d.epoch {
		d.epoch, retracted = e.Epoch, d.drop(func(piece) bool { return true })
	}
	switch data := e.Data.(type) {
	case TurnStarted:
		if e.Provisional {
			return d.drop(func(p piece) bool { return p.run == e.Run }) || retracted
		}
	case TextDelta:
		d.append(e, data)
	case ResponseCompleted:
		answered := func(p piece) bool { return p.run == e.Run && p.turn <= e.Turn }
		shown := d.text(answered)
		d.drop(answered)
		if data.Text != "" {
			d.certain = append(d.certain, data.Text)
		}
		return retracted || !strings.HasPrefix(data.Text, shown)
	case RunCompleted, RunFailed, RunInterrupted:
		return d.drop(func(p piece) bool { return p.run == e.Run }) || retracted
	}
	return retracted
}

func (d *Display) append(e Event, delta TextDelta) {
	if n := len(d.pending); n > 0 {
		if last := &d.pending[n-1]; last.run == e.Run && last.turn == e.Turn && last.index == delta.Index {
			last.text += delta.Text
			return
		}
	}
	d.pending = append(d.pending, piece{run: e.Run, turn: e.Turn, index: delta.Index, text: delta.Text})
}

func (d *Display) drop(which func(piece) bool) (any bool) {
	kept := d.pending[:0]
	for _, p := range d.pending {
		if which(p) {
			any = any || p.text != ""
			continue
		}
		kept = append(kept, p)
	}
	d.pending = kept
	return any
}

func (d *Display) text(of func(piece) bool) string {
	var out strings.Builder
	for _, p := range d.pending {
		if of(p) {
			out.WriteString(p.text)
		}
	}
	return out.String()
}

// Certain lists the texts of recorded responses, in order. An aside text is not
// among them: an event names it and does not hold it.
func (d *Display) Certain() []string { return d.certain }

// Pending is the text on its way; it can still be taken back.
func (d *Display) Pending() string { return d.text(func(piece) bool { return true }) }
