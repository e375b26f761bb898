package sqlitejournal

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// reader is one connection that reads, with its statements.
type reader struct {
	c *conn

	head, entries, batches, sub, payload, due, lanes *stmt
}

func openReader(path string) (*reader, error) {
	c, err := openConn(path, false, "busy_timeout=5000", "query_only=1", "cache_size=-2048")
	if err != nil {
		return nil, err
	}
	r := &reader{c: c}
	err = c.prepareAll(map[**stmt]string{
		&r.head: sqlHeadGet, &r.entries: sqlEntries, &r.batches: sqlBatches,
		&r.sub: sqlSubGet, &r.payload: sqlPayload, &r.due: sqlDue, &r.lanes: sqlLanes,
	})
	if err != nil {
		_ = c.close()
		return nil, err
	}
	return r, nil
}

func (r *reader) close() { _ = r.c.close() }

// read runs f with a read connection.
func (j *Journal) read(ctx context.Context, f func(*reader) error) error {
	r, err := j.borrow(ctx)
	if err != nil {
		return err
	}
	defer func() { j.readers <- r }()
	return f(r)
}

// live fails once the journal is closed or ctx has ended.
func (j *Journal) live(ctx context.Context) error {
	select {
	case <-j.closing:
		return journal.ErrClosed
	default:
		return ctx.Err()
	}
}

// known finds a lane in memory.
func (j *Journal) known(ctx context.Context, key journal.Lane) (*lane, bool, error) {
	if err := j.live(ctx); err != nil {
		return nil, false, err
	}
	l, ok := j.cache.lane(key)
	return l, ok, nil
}

// Head implements journal.Journal.
func (j *Journal) Head(ctx context.Context, lane journal.Lane) (journal.Head, error) {
	l, ok, err := j.known(ctx, lane)
	if ok {
		return l.head, nil
	}
	var h journal.Head
	if err == nil {
		err = j.read(ctx, func(r *reader) (err error) {
			h, _, err = loadHead(r.head, lane)
			return err
		})
	}
	return h, failed("head", lane, err)
}

// Inbox implements journal.Journal.
func (j *Journal) Inbox(ctx context.Context, lane journal.Lane, after uint64) (journal.Head, []journal.Entry, error) {
	l, ok, err := j.known(ctx, lane)
	if err != nil {
		return journal.Head{}, nil, failed("inbox", lane, err)
	}
	if ok {
		if entries, all := l.entriesAbove(after); all {
			return l.head, cloneEntries(entries), nil
		}
	}
	var h journal.Head
	var entries []journal.Entry
	err = j.read(ctx, func(r *reader) error {
		var id int64
		var err error
		// Two statements, two snapshots: the entries are the newer one.
		if h, id, err = loadHead(r.head, lane); err != nil {
			return err
		}
		entries, err = loadEntries(r.entries, id, after)
		return err
	})
	if err != nil {
		return journal.Head{}, nil, failed("inbox", lane, err)
	}
	return h, entries, nil
}

func cloneEntries(entries []journal.Entry) []journal.Entry {
	out := slices.Clone(entries)
	for i := range out {
		out[i].Body = bytes.Clone(out[i].Body)
	}
	return out
}

// pageBatches is how many batches are read before a read connection is given
// back: whoever ranges over Read may use the journal meanwhile.
const pageBatches = 64

// Read implements journal.Journal.
func (j *Journal) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		for next := max(from, 1); ; {
			page, more, err := j.page(ctx, lane, next)
			if err != nil {
				yield(record.Sealed{}, failed("read", lane, err))
				return
			}
			for _, b := range page {
				if !yield(b, nil) {
					return
				}
			}
			if !more {
				return
			}
			next += uint64(len(page))
		}
	}
}

// page reads batches from a slot on and tells whether there may be more.
func (j *Journal) page(ctx context.Context, key journal.Lane, from uint64) (page []record.Sealed, more bool, err error) {
	l, ok, err := j.known(ctx, key)
	if err != nil {
		return nil, false, err
	}
	if ok {
		if batches, all := l.batchesFrom(from); all {
			page = slices.Clone(batches)
			for i := range page {
				page[i].Body = bytes.Clone(page[i].Body)
			}
			return page, false, nil
		}
	}
	err = j.read(ctx, func(r *reader) error {
		_, id, err := loadHead(r.head, key)
		if err != nil || id == 0 {
			return err
		}
		page, err = loadBatches(r.batches, id, from, pageBatches)
		return err
	})
	return page, len(page) > 0, err
}

// Watch implements journal.Journal. It does not poll: the writer wakes it.
func (j *Journal) Watch(ctx context.Context, lane journal.Lane, seen journal.Head) (journal.Head, error) {
	w, done := j.cache.watch(lane)
	defer done()
	for {
		// The channel first: a change after it is taken closes it.
		changed := j.cache.next(w)
		h, err := j.Head(ctx, lane)
		if err != nil || moved(seen, h) {
			return h, err
		}
		select {
		case <-changed:
		case <-j.closing:
			return journal.Head{}, failed("watch", lane, journal.ErrClosed)
		case <-ctx.Done():
			return journal.Head{}, ctx.Err()
		}
	}
}

// Due implements journal.Journal. Lanes whose process is gone are due at once.
func (j *Journal) Due(ctx context.Context, until time.Time, limit int) ([]journal.Head, error) {
	if limit <= 0 {
		return nil, nil
	}
	until = record.Time(until)
	var heads []journal.Head
	err := j.read(ctx, func(r *reader) (err error) {
		heads, err = loadHeads(r.due.int(until.UnixMilli()).int(int64(limit)))
		return err
	})
	if err != nil {
		return nil, failed("due", journal.Lane{}, err)
	}
	for _, h := range j.cache.orphaned() {
		if h.Due.After(until) {
			heads = append(heads, h)
		}
	}
	slices.SortStableFunc(heads, func(a, b journal.Head) int { return cmp.Compare(millis(a.Due), millis(b.Due)) })
	return heads[:min(len(heads), limit)], nil
}

func (c *cache) orphaned() []journal.Head {
	c.mu.Lock()
	defer c.mu.Unlock()
	heads := make([]journal.Head, 0, len(c.orphans))
	for _, h := range c.orphans {
		heads = append(heads, h)
	}
	return heads
}

// loadOrphans finds the lanes that a process left running.
func (w *writer) loadOrphans() error {
	heads, err := loadHeads(w.lost.text(w.j.boot))
	for _, h := range heads {
		w.j.cache.orphans[h.Lane] = h
	}
	return err
}

// loadLane reads what the writer has to know of a lane.
func (w *writer) loadLane(key journal.Lane) (*lane, error) {
	l := &lane{}
	var err error
	if l.head, l.id, err = loadHead(w.headGet, key); err != nil || l.id == 0 {
		return l, err
	}
	if _, err := w.inboxTail.int(l.id).one(func(r row) { l.tail = r.uint(0) }); err != nil {
		return nil, err
	}
	_, err = w.logTail.int(l.id).one(func(r row) { l.log = r.uint(0) })
	return l, err
}

// Submission implements journal.Journal.
func (j *Journal) Submission(ctx context.Context, tenant, id string) (journal.Submission, error) {
	key := subKey{tenant, id}
	row, ok := j.cache.sub(key)
	err := j.live(ctx)
	if err == nil && !ok {
		err = j.read(ctx, func(r *reader) (err error) {
			row, err = loadSub(r.sub, key)
			return err
		})
	}
	if err == nil && row == nil {
		err = journal.ErrNotFound
	}
	if err != nil {
		return journal.Submission{}, failedKey("submission", tenant, id, err)
	}
	s, err := row.submission()
	return s, failedKey("submission", tenant, id, err)
}

// Payload implements journal.Journal.
func (j *Journal) Payload(ctx context.Context, tenant, digest string) ([]byte, error) {
	var body []byte
	found := false
	err := j.read(ctx, func(r *reader) (err error) {
		found, err = r.payload.text(digest).text(tenant).one(func(r row) { body = r.blob(0) })
		return err
	})
	switch {
	case err != nil:
	case !found:
		err = journal.ErrNotFound
	case record.Digest(body) != digest:
		err = record.ErrCorrupt
	}
	if err != nil {
		return nil, failedKey("payload", tenant, digest, err)
	}
	return body, nil
}
