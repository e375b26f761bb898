package memjournal

import (
	"context"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Item says what a single-item write writes.
type Item string

// The items of the store.
const (
	Row     Item = "row"     // a submission's ledger row
	Inbox   Item = "inbox"   // one inbox slot
	Head    Item = "head"    // a lane's head
	Batch   Item = "log"     // one log slot
	Outcome Item = "outcome" // a submission's row, settled
	Payload Item = "payload" // bytes stored aside
)

// Write is one single-item write as a fault meets it.
type Write struct {
	Op    string // admit, signal, claim, append, park, finish or payload
	Item  Item
	After bool // the write has happened: an error now is a lost answer
}

// SetWriteFault installs f, which is asked before every single-item write
// (nothing of it has happened yet) and after each that took effect. An error it
// returns ends the operation there, with the items before it in place. f may be
// called from several goroutines; nil removes it.
func (j *Journal) SetWriteFault(f func(Write) error) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.items = f
}

// FailNth is a write fault that answers err at the nth single-item write,
// counted from 1, and only then: before it happens, or after it when the answer
// is to be lost. It is for one goroutine.
func FailNth(n int, after bool, err error) func(Write) error {
	return func(w Write) error {
		if w.After != after {
			return nil
		}
		if n--; n == 0 {
			return err
		}
		return nil
	}
}

// SetFault installs f, which is asked before every operation that writes
// (nothing has happened yet) and after every one that succeeded: an operation
// as a whole, where SetWriteFault has its items. An error it returns becomes
// the operation's error. f may be called from several goroutines; nil removes
// it.
func (j *Journal) SetFault(f func(op string, after bool) error) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.fault = f
}

// SetAway makes every operation, reads too, answer err without effect: a store
// that cannot be reached. nil brings it back.
func (j *Journal) SetAway(err error) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.away = err
}

// operation is a call of the port cut at its items.
type operation interface {
	// Step reads or conditionally writes one item, and says whether the
	// operation is over. After an error it is over too.
	Step(j *Journal) (done bool, err error)
}

// run takes all steps of one operation that writes, with its faults.
func (j *Journal) run(ctx context.Context, op string, lane journal.Lane, o operation) error {
	err := ctx.Err()
	if err == nil {
		err = j.inject(op, false)
	}
	for done := false; err == nil && !done; {
		done, err = o.Step(j)
	}
	if err == nil {
		err = j.inject(op, true)
	}
	return failed(op, lane, err)
}

// item is one conditional write: f checks the condition, writes, and says
// whether it wrote.
func (j *Journal) item(op string, what Item, f func(*store) (wrote bool, err error)) error {
	w := Write{Op: op, Item: what}
	points[w].Hit()
	if err := j.injectWrite(w); err != nil {
		return err
	}
	var wrote bool
	err := j.locked(func(s *store) (err error) {
		wrote, err = f(s)
		if wrote {
			s.writes++
		}
		return err
	})
	if err != nil || !wrote {
		return err
	}
	w.After = true
	points[w].Hit()
	return j.injectWrite(w)
}

// inject and injectWrite ask the faults, outside the lock.
func (j *Journal) inject(op string, after bool) error {
	j.s.mu.Lock()
	f := j.fault
	j.s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(op, after)
}

func (j *Journal) injectWrite(w Write) error {
	j.s.mu.Lock()
	f := j.items
	j.s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(w)
}

// locked runs f on the data of an open journal that can be reached.
func (j *Journal) locked(f func(*store) error) error {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	switch {
	case j.closed:
		return journal.ErrClosed
	case j.away != nil:
		return j.away
	}
	return f(j.s)
}

// read runs f, which writes nothing, for a caller whose context has not ended.
func (j *Journal) read(ctx context.Context, f func(*store) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.locked(f)
}

// Peek is what the store holds of a lane, without copies: look, do not touch.
func (j *Journal) Peek(lane journal.Lane) (journal.Head, []journal.Entry, []record.Sealed) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	l := j.s.lane(lane)
	return l.head, l.inbox, l.log
}

// PeekRow is a ledger row without copies, if there is one: look, do not touch.
func (j *Journal) PeekRow(tenant, id string) (journal.Submission, bool) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	row, found := j.s.subs[key{tenant, id}]
	return row, found
}

// DamageHead changes a head under no condition, as no operation of the port
// does: for tests that damage a store.
func (j *Journal) DamageHead(lane journal.Lane, change func(*journal.Head)) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	l := j.s.lane(lane)
	h := l.head
	change(&h)
	j.s.putHead(l, h)
	j.s.writes++
}
