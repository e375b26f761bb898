// Package jsonl keeps events in a file, one line of JSON for each, to be
// replayed later: the baseline store where a run itself keeps nothing.
package jsonl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"sync"

	"github.com/layover-run/layover/core/event"
)

// The ways in which a store refuses. Match them with errors.Is, and the line
// with errors.As and *LineError.
var (
	// ErrDamaged is a line that is no event, anywhere but at a torn end.
	ErrDamaged = errors.New("damaged event line")
	// ErrOrder is an event whose sequence does not rise within its run.
	ErrOrder = errors.New("event out of order")
	// ErrClosed answers everything after Close.
	ErrClosed = errors.New("event store is closed")
)

// LineError says which line of a file is refused. Its cause is ErrDamaged,
// ErrOrder, event.ErrUnknownVersion or event.ErrUnknownKind.
type LineError struct {
	Path   string
	Line   int   // from 1
	Offset int64 // of the line's first byte
	Err    error
}

func (e *LineError) Error() string {
	return fmt.Sprintf("%s, line %d (byte %d): %v", e.Path, e.Line, e.Offset, e.Err)
}

// Unwrap is what is wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }

// Store is one file of events. Lines are only ever added. It is safe for
// concurrent use by one process; a second one must not open the same file.
type Store struct {
	path string

	mu     sync.Mutex
	file   disk
	end    int64 // behind the last whole line
	torn   bool  // there is half a line behind it
	last   map[string]uint64
	lines  int
	broken error // a write that may have left anything behind
}

// disk is what a store needs of its file.
type disk interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Stat() (os.FileInfo, error)
}

// Open opens or creates a file and reads all of it. A last line without its end
// is what a crash leaves: it is passed over, and cut off by the next Append. Any
// other line that cannot be read is a *LineError, and so is one of a version
// this build does not know: nothing is written behind it.
func Open(path string) (*Store, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("jsonl: %w", err)
	}
	s := &Store{path: path, file: f, last: map[string]uint64{}}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func (s *Store) load() error {
	for e, err := range s.read(io.NewSectionReader(s.file, 0, 1<<62)) {
		if err != nil {
			return err
		}
		if e.Sequence <= s.last[e.Run] {
			return &LineError{Path: s.path, Line: s.lines, Offset: s.end, Err: ErrOrder}
		}
		s.last[e.Run] = e.Sequence
	}
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("jsonl: %w", err)
	}
	s.torn = info.Size() > s.end
	if info.Size() == 0 { // maybe new: its name has to last as well
		return syncDir(filepath.Dir(s.path))
	}
	return nil
}

// read yields the events of whole lines, and counts them into s.
func (s *Store) read(r io.Reader) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return // what is left has no end: it is torn
			}
			if err != nil {
				yield(event.Event{}, fmt.Errorf("jsonl: %w", err))
				return
			}
			s.lines++
			e, err := decode(line)
			if err != nil {
				yield(e, &LineError{Path: s.path, Line: s.lines, Offset: s.end, Err: err})
				return
			}
			if !yield(e, nil) {
				return
			}
			s.end += int64(len(line))
		}
	}
}

func decode(line []byte) (event.Event, error) {
	var e event.Event
	err := json.Unmarshal(bytes.TrimSuffix(line, []byte("\n")), &e)
	switch {
	case errors.Is(err, event.ErrUnknownVersion), errors.Is(err, event.ErrUnknownKind):
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	case e.Run == "" || e.Sequence == 0 || e.Provisional:
		err = fmt.Errorf("%w: no canonical event of a run", ErrDamaged)
	}
	return e, err
}

// Append writes a canonical event behind the last one; a provisional event is
// not kept. The sequence has to rise within the event's run. An event that ends
// a trace is durable when Append returns, with all before it; the others are
// durable with the next of those, or at Close. After an error of the disk the
// store takes nothing more: open it again to see what is there.
func (s *Store) Append(e event.Event) error {
	if e.Provisional {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.file == nil:
		return ErrClosed
	case s.broken != nil:
		return s.broken
	case e.Sequence <= s.last[e.Run]:
		return fmt.Errorf("jsonl: %w: %d after %d in run %s", ErrOrder, e.Sequence, s.last[e.Run], e.Run)
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("jsonl: %w", err)
	}
	if err := s.write(append(line, '\n')); err != nil {
		return s.fails(err)
	}
	s.last[e.Run] = e.Sequence
	if ends(e) {
		if err := s.file.Sync(); err != nil {
			return s.fails(err)
		}
	}
	return nil
}

func (s *Store) fails(err error) error {
	s.broken = fmt.Errorf("jsonl: %s takes no more events: %w", s.path, err)
	return s.broken
}

func (s *Store) write(line []byte) error {
	if s.torn {
		if err := s.file.Truncate(s.end); err != nil {
			return err
		}
		s.torn = false
	}
	if _, err := s.file.WriteAt(line, s.end); err != nil {
		return err
	}
	s.end += int64(len(line))
	s.lines++
	return nil
}

func ends(e event.Event) bool {
	switch e.Data.(type) {
	case event.RunCompleted, event.RunFailed, event.RunInterrupted, event.RunSuspended:
		return true
	}
	return false
}

// Events replays what was stored when the replay began, in the order it was
// stored.
func (s *Store) Events() iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		s.mu.Lock()
		file, end := s.file, s.end
		s.mu.Unlock()
		if file == nil {
			yield(event.Event{}, ErrClosed)
			return
		}
		again := &Store{path: s.path}
		again.read(io.NewSectionReader(file, 0, end))(yield)
	}
}

// Record stores the events of a stream on their way through; an event that
// cannot be stored ends the stream with that error.
func (s *Store) Record(events iter.Seq2[event.Event, error]) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for e, err := range events {
			if err == nil {
				if err := s.Append(e); err != nil {
					yield(event.Event{}, err)
					return
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Close makes everything durable and closes the file.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.file.Sync(), s.file.Close())
	s.file = nil
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("jsonl: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
