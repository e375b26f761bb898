package sqlitejournal

import (
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// tx is the transaction of a group, used by the writer goroutine. Operations
// see what earlier ones of their group staged. An operation checks all its
// conditions before it writes, so one that is refused leaves nothing behind.
type tx struct {
	w     *writer
	lanes map[journal.Lane]staged
	subs  map[subKey]*subRow
	// failed is the first error of a statement: the whole group is undone.
	failed error
}

// staged is a lane as the group leaves it, and the head it had before.
type staged struct {
	now *lane
	was journal.Head
}

func (t *tx) reset() {
	clear(t.lanes)
	clear(t.subs)
	t.failed = nil
}

func (t *tx) fail(err error) error {
	if err != nil && t.failed == nil {
		t.failed = err
	}
	return err
}

// write runs a statement that writes a row and returns the rows it changed.
func (t *tx) write(s *stmt) (int64, error) {
	t.w.j.writes.Add(1)
	n, err := s.exec()
	return n, t.fail(err)
}

// lane finds a lane: staged, in memory, or in the store. It must not be changed.
func (t *tx) lane(key journal.Lane) (*lane, error) {
	if s, ok := t.lanes[key]; ok {
		return s.now, nil
	}
	if l, ok := t.w.j.cache.lane(key); ok {
		return l, nil
	}
	l, err := t.w.loadLane(key)
	return l, t.fail(err)
}

// stage records a changed lane; was is the lane it was changed from.
func (t *tx) stage(key journal.Lane, was *lane, now lane) {
	s, ok := t.lanes[key]
	if !ok {
		s.was = was.head
	}
	s.now = &now
	t.lanes[key] = s
}

// sub finds a submission row, nil if there is none.
func (t *tx) sub(key subKey) (*subRow, error) {
	if row := t.knownSub(key); row != nil {
		return row, nil
	}
	row, err := loadSub(t.w.subGet, key)
	return row, t.fail(err)
}

// knownSub is sub without asking the store.
func (t *tx) knownSub(key subKey) *subRow {
	if row, ok := t.subs[key]; ok {
		return row
	}
	row, _ := t.w.j.cache.sub(key)
	return row
}

// putHead writes the head of next, which was l before.
func (t *tx) putHead(l *lane, next *lane) error {
	if l.id == 0 && next.id == 0 {
		next.id = t.w.newID()
	}
	h := &next.head
	if l.id == 0 {
		_, err := t.write(bindHead(t.w.headInsert.int(next.id).text(h.Lane.Tenant).text(h.Lane.Conversation), h))
		return err
	}
	n, err := t.write(bindHead(t.w.headUpdate, h).int(l.id).uint(l.head.Epoch).uint(l.head.Version))
	if err == nil && n != 1 {
		return t.fail(errStrayWriter)
	}
	return err
}

// putEntry writes e into the lane's next inbox slot.
func (t *tx) putEntry(next *lane, e journal.Entry) error {
	if next.id == 0 {
		next.id = t.w.newID()
	}
	e.Slot = next.tail + 1
	s := t.w.entryInsert.int(next.id).uint(e.Slot).text(string(e.Kind)).text(e.Key).text(e.Digest)
	if _, err := t.write(s.text(e.Ref).blob(e.Body).text(e.By).optInt(millis(e.At))); err != nil {
		return err
	}
	*next = next.withEntry(e)
	return nil
}

// putBatch writes b into the lane's next log slot.
func (t *tx) putBatch(next *lane, b record.Sealed) error {
	s := t.w.logInsert.int(next.id).uint(b.Slot).text(b.ID).uint(b.Epoch).text(b.Digest).blob(b.Body)
	if _, err := t.write(s); err != nil {
		return err
	}
	*next = next.withBatch(b)
	return nil
}

func (w *writer) newID() int64 {
	id := w.next
	w.next++
	return id
}
