// Package sqlitejournal is the journal port on SQLite, for one process that
// holds its data directory exclusively.
//
// All writes go through one goroutine, which commits whatever waits in one
// transaction and answers only then (group commit). Since no other process
// can write, what that goroutine has committed is also the truth about lane
// heads and recent rows: they are kept in memory, bounded, and most reads need
// no SQL.
package sqlitejournal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/layover-run/layover/core/journal"
)

// Journal is a journal.Journal in one directory. Open makes one.
type Journal struct {
	boot    string
	lock    *os.File
	cache   *cache
	w       *writer
	readers chan *reader
	writes  atomic.Int64
	ops     sync.Pool // of *op; of the store's own, since a channel may belong to a synctest bubble

	closing   chan struct{} // closed when Close begins
	closeOnce sync.Once
	closeErr  error
	closeMu   sync.RWMutex // held shared while an operation is handed to the writer
	closed    bool
}

var _ journal.Journal = (*Journal)(nil)

// Option changes how a store is opened.
type Option func(*options)

type options struct {
	cacheBytes int
	readers    int
}

// WithCache bounds the memory for lane heads and recent rows, in bytes.
// Defaults to 8 MiB; zero keeps nothing.
func WithCache(bytes int) Option { return func(o *options) { o.cacheBytes = bytes } }

// WithReaders sets the number of connections that read. Defaults to 4.
func WithReaders(n int) Option { return func(o *options) { o.readers = n } }

// Open opens the store in dir, creating both as needed, and holds dir until
// Close or the end of the process. journal.ErrInUse: someone else holds it.
// journal.ErrNewer: a newer build wrote it; nothing was changed.
// record.ErrCorrupt: its file is damaged.
func Open(dir string, opts ...Option) (*Journal, error) {
	o := options{cacheBytes: 8 << 20, readers: 4}
	for _, opt := range opts {
		opt(&o)
	}
	j, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("sqlitejournal: open %s: %w", dir, classify(err))
	}
	return j, nil
}

func open(dir string, o options) (_ *Journal, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	boot, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	j := &Journal{
		boot: boot.String(), lock: lock, closing: make(chan struct{}),
		cache: newCache(o.cacheBytes), readers: make(chan *reader, max(o.readers, 1)), ops: sync.Pool{New: newOp},
	}
	defer func() {
		if err != nil {
			j.release()
		}
	}()
	path := filepath.Join(dir, "layover.db")
	if err := probe(path); err != nil {
		return nil, err
	}
	if j.w, err = openWriter(j, path); err != nil {
		return nil, err
	}
	for range cap(j.readers) {
		r, err := openReader(path)
		if err != nil {
			return nil, err
		}
		j.readers <- r
	}
	go j.w.run()
	return j, nil
}

// Close waits for the operations handed in so far, then releases the
// directory. Later operations answer journal.ErrClosed.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() { j.closeErr = j.close() })
	return j.closeErr
}

func (j *Journal) close() error {
	close(j.closing)
	j.closeMu.Lock()
	j.closed = true
	close(j.w.queue)
	j.closeMu.Unlock()
	<-j.w.done
	for range cap(j.readers) {
		(<-j.readers).close()
	}
	return j.release()
}

// release closes what open opened, readers aside, the lock last.
func (j *Journal) release() error {
	var err error
	for len(j.readers) > 0 {
		(<-j.readers).close()
	}
	if j.w != nil {
		err = j.w.c.close()
	}
	return errors.Join(err, unlock(j.lock))
}

// Boot is the id of this opening of the store. A running lane claimed under
// another boot has lost its process.
func (j *Journal) Boot() string { return j.boot }

// Writes counts the statements that have written a row since Open.
func (j *Journal) Writes() int64 { return j.writes.Load() }

// lostBoot tells that a claim's process is gone: it held this directory, and
// now we do.
func (j *Journal) lostBoot(h journal.Head) bool {
	return h.State == journal.Running && h.Boot != "" && h.Boot != j.boot
}

// borrow takes a read connection; give it back to j.readers.
func (j *Journal) borrow(ctx context.Context) (*reader, error) {
	if err := j.live(ctx); err != nil {
		return nil, err
	}
	select {
	case r := <-j.readers:
		return r, nil
	case <-j.closing:
		return nil, journal.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
