package sqlitejournal

import (
	"sync"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// lane is what memory knows of a lane. A published lane never changes: the
// writer stages a changed copy and publishes it once it is committed.
type lane struct {
	id      int64 // rowid of its head; 0 while it has none
	head    journal.Head
	tail    uint64          // last inbox slot
	entries []journal.Entry // the last entries, through tail
	log     uint64          // last log slot
	batches []record.Sealed // the last batches, through log
}

// Bounds of what one lane keeps in memory beyond its head.
const (
	keepEntries = 256
	keepBatches = 64
	keepBytes   = 256 << 10
)

// cost estimates the memory of a lane in bytes.
func (l *lane) cost() int {
	n := 512 + 200*len(l.entries)
	for i := range l.entries {
		n += len(l.entries[i].Body)
	}
	return n + batchBytes(l.batches)
}

func batchBytes(batches []record.Sealed) int {
	n := 200 * len(batches)
	for i := range batches {
		n += len(batches[i].Body)
	}
	return n
}

// entriesAbove returns the entries above a slot, and whether memory has them all.
func (l *lane) entriesAbove(slot uint64) ([]journal.Entry, bool) {
	if slot >= l.tail {
		return nil, true
	}
	missing := l.tail - slot
	if missing > uint64(len(l.entries)) {
		return nil, false
	}
	return l.entries[uint64(len(l.entries))-missing:], true
}

// batchesFrom is entriesAbove for the log, the slot included.
func (l *lane) batchesFrom(slot uint64) ([]record.Sealed, bool) {
	if slot > l.log {
		return nil, true
	}
	missing := l.log - slot + 1
	if missing > uint64(len(l.batches)) {
		return nil, false
	}
	return l.batches[uint64(len(l.batches))-missing:], true
}

// withEntry is the lane with one more entry. Appending to a shared array is
// safe: readers never look beyond the length they were given.
func (l lane) withEntry(e journal.Entry) lane {
	if len(l.entries) >= keepEntries {
		l.entries = append([]journal.Entry(nil), l.entries[keepEntries/2:]...)
	}
	l.entries, l.tail = append(l.entries, e), e.Slot
	return l
}

// withBatch is the lane with one more batch.
func (l lane) withBatch(b record.Sealed) lane {
	if len(l.batches) >= keepBatches || batchBytes(l.batches) > keepBytes {
		l.batches = append([]record.Sealed(nil), l.batches[(len(l.batches)+1)/2:]...)
	}
	l.batches, l.log = append(l.batches, b), b.Slot
	return l
}

// moved tells whether a watcher has to hear of the change.
func moved(a, b journal.Head) bool {
	return a.Epoch != b.Epoch || a.State != b.State || a.Version != b.Version || a.Settled != b.Settled
}

// subKey finds a submission row.
type subKey struct{ tenant, id string }

// subRow is a submission as stored: Outcome stays encoded, so that every
// reader gets its own.
type subRow struct {
	sub     journal.Submission
	outcome []byte
}

func (r *subRow) cost() int { return 512 + len(r.sub.Input) + len(r.outcome) }

// cache is the published memory of the store.
type cache struct {
	mu      sync.Mutex
	lanes   *lru[journal.Lane, *lane]
	subs    *lru[subKey, *subRow]
	orphans map[journal.Lane]journal.Head // running under a boot that is gone
	watched map[journal.Lane]*watched
}

// watched is a lane someone waits for; changed is closed at its next change.
type watched struct {
	changed  chan struct{}
	watchers int
}

func newCache(bytes int) *cache {
	return &cache{
		lanes:   newLRU[journal.Lane, *lane](bytes / 4 * 3),
		subs:    newLRU[subKey, *subRow](bytes / 4),
		orphans: make(map[journal.Lane]journal.Head),
		watched: make(map[journal.Lane]*watched),
	}
}

func (c *cache) lane(key journal.Lane) (*lane, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lanes.get(key)
}

func (c *cache) sub(key subKey) (*subRow, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subs.get(key)
}

// drop forgets what a failed commit may have made untrue.
func (c *cache) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lanes.clear()
	c.subs.clear()
}

// publish makes a committed transaction visible and wakes its watchers.
func (c *cache) publish(t *tx) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, row := range t.subs {
		c.subs.put(key, row, row.cost())
	}
	for key, s := range t.lanes {
		c.lanes.put(key, s.now, s.now.cost())
		if !moved(s.was, s.now.head) {
			continue
		}
		if t.w.j.lostBoot(s.now.head) {
			c.orphans[key] = s.now.head
		} else {
			delete(c.orphans, key)
		}
		if w := c.watched[key]; w != nil {
			close(w.changed)
			w.changed = make(chan struct{})
		}
	}
}

// watch registers interest in a lane until the returned function is called.
func (c *cache) watch(key journal.Lane) (w *watched, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w = c.watched[key]
	if w == nil {
		w = &watched{changed: make(chan struct{})}
		c.watched[key] = w
	}
	w.watchers++
	return w, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if w.watchers--; w.watchers == 0 {
			delete(c.watched, key)
		}
	}
}

// next is the channel that the lane's next change closes.
func (c *cache) next(w *watched) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.changed
}
