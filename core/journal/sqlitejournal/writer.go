package sqlitejournal

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/layover-run/layover/core/failpoint"
	"github.com/layover-run/layover/core/journal"
)

// groupLimit bounds the operations of one commit.
const groupLimit = 256

var (
	pointCommitBefore = failpoint.New("sqlite.commit.before")
	pointCommitAfter  = failpoint.New("sqlite.commit.after")
)

// op is one operation on its way through the writer. run may be called more
// than once, each time in a fresh transaction.
type op struct {
	run  func(*tx) error
	err  error
	done chan struct{} // buffered: the writer never waits for a caller
}

func newOp() any { return &op{done: make(chan struct{}, 1)} }

// do hands run to the writer and waits for its commit. What run refers to must
// outlive the call: when ctx ends first the operation may still be committed.
func (j *Journal) do(ctx context.Context, run func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := j.ops.Get().(*op)
	o.run = run
	if err := j.enqueue(ctx, o); err != nil {
		return err
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := o.err
	o.run, o.err = nil, nil
	j.ops.Put(o)
	return err
}

func (j *Journal) enqueue(ctx context.Context, o *op) error {
	j.closeMu.RLock()
	defer j.closeMu.RUnlock()
	if j.closed {
		return journal.ErrClosed
	}
	select {
	case j.w.queue <- o:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writer owns the only connection that writes.
type writer struct {
	j     *Journal
	c     *conn
	queue chan *op
	done  chan struct{}
	group []*op
	tx    tx
	next  int64 // rowid for the next new lane
	// broken is a failed sync. What the disk holds is unknown until the store
	// is opened again, so nothing more is written behind it.
	broken error
	writerStmts
}

func openWriter(j *Journal, path string) (*writer, error) {
	c, err := openConn(path, false, "busy_timeout=5000", "journal_mode=WAL", "synchronous=FULL",
		"cache_size=-8192", "wal_autocheckpoint=4000", "journal_size_limit=67108864")
	if err != nil {
		return nil, err
	}
	w := &writer{j: j, c: c, queue: make(chan *op, groupLimit), done: make(chan struct{})}
	w.tx = tx{w: w, lanes: make(map[journal.Lane]staged), subs: make(map[subKey]*subRow)}
	if err := w.prepare(); err != nil {
		_ = c.close()
		return nil, err
	}
	return w, nil
}

func (w *writer) prepare() error {
	if err := checkVersion(w.c); err != nil {
		return err
	}
	if err := migrate(w.c); err != nil {
		return err
	}
	last, err := w.c.number("SELECT max(id) FROM heads")
	if err != nil {
		return err
	}
	w.next = last + 1
	if err := w.writerStmts.prepare(w.c); err != nil {
		return err
	}
	return w.loadOrphans()
}

// run is the writer goroutine.
func (w *writer) run() {
	defer close(w.done)
	for first := range w.queue {
		w.gather(first)
		w.settle(w.group)
		clear(w.group)
	}
}

// gather takes everything that waits. It yields once: callers that the last
// commit has just answered get to hand in their next operation.
func (w *writer) gather(first *op) {
	w.group = append(w.group[:0], first)
	runtime.Gosched()
	for len(w.group) < groupLimit {
		select {
		case o, open := <-w.queue:
			if !open {
				return
			}
			w.group = append(w.group, o)
		default:
			return
		}
	}
}

// settle commits a group and answers it. When one operation breaks the
// transaction the others must not suffer: each then gets its own.
func (w *writer) settle(group []*op) {
	err := w.commit(group)
	if err != nil && errors.Is(err, errStatement) && len(group) > 1 {
		for i := range group {
			w.settle(group[i : i+1])
		}
		return
	}
	for _, o := range group {
		if err != nil {
			o.err = err
		}
		o.done <- struct{}{}
	}
}

// errStatement marks an error from a statement, before COMMIT was tried.
var errStatement = errors.New("statement failed")

// commit runs a group in one transaction. An error is every operation's error.
func (w *writer) commit(group []*op) error {
	if w.broken != nil {
		return fmt.Errorf("store must be opened again: %w", w.broken)
	}
	w.tx.reset()
	if _, err := w.begin.exec(); err != nil {
		return err
	}
	for _, o := range group {
		o.err = o.run(&w.tx)
		if w.tx.failed != nil {
			w.undo()
			return fmt.Errorf("%w: %w", errStatement, w.tx.failed)
		}
	}
	pointCommitBefore.Hit()
	if _, err := w.commitStmt.exec(); err != nil {
		if primary(err) == codeIOErr {
			w.broken = err
		}
		w.undo()
		return fmt.Errorf("commit: %w", err)
	}
	pointCommitAfter.Hit()
	w.j.cache.publish(&w.tx)
	return nil
}

// undo rolls back, which SQLite may have done already, and forgets memory.
func (w *writer) undo() {
	_, _ = w.rollback.exec()
	w.j.cache.drop()
}
