// Package sse reads server-sent events, the way every provider of this project
// streams its answers.
//
// The reader follows the event stream format of the HTML standard: lines end in
// LF, CR or CRLF, a line that begins with a colon is a comment, several data
// lines make one event with line feeds between them, and an event counts only
// once the empty line behind it has arrived.
package sse

import (
	"bytes"
	"fmt"
	"io"
)

// MaxEvent is the longest line, and the most data one event can have, in bytes.
const MaxEvent = 16 << 20

// TooLongError says that a line or an event is over the limit. What follows it
// cannot be read.
type TooLongError struct{ Limit int }

func (e *TooLongError) Error() string {
	return fmt.Sprintf("sse: an event of more than %d bytes", e.Limit)
}

// Event is one event of a stream.
type Event struct {
	Name string // of its event field; empty where there is none
	Data []byte // valid until the next call of Next
}

// Reader reads events off a stream. It reads no further than it must, so that
// an event is out as soon as its last byte is in.
type Reader struct {
	source     io.Reader
	limit      int
	chunk      []byte // read and not yet looked at
	buffer     []byte
	line, data []byte
	skipLF     bool // the last line ended in CR
	begun      bool // the first line, which may have a byte order mark, is over
	err        error
}

// NewReader reads from r, with MaxEvent as the limit.
func NewReader(r io.Reader) *Reader { return NewReaderLimit(r, MaxEvent) }

// NewReaderLimit reads from r with a limit of its own, in bytes.
func NewReaderLimit(r io.Reader, limit int) *Reader {
	return &Reader{source: r, limit: limit, buffer: make([]byte, 8<<10)}
}

// Next waits for the next event. At the end of the stream its error is io.EOF,
// or io.ErrUnexpectedEOF when the stream ends inside an event; over the limit it
// is a *TooLongError; any other error is the source's own. After an error every
// call answers the same.
func (r *Reader) Next() (Event, error) {
	if r.err != nil {
		return Event{}, r.err
	}
	e, err := r.next()
	r.err = err
	return e, err
}

func (r *Reader) next() (Event, error) {
	var name string
	pending, hasData := false, false
	r.data = r.data[:0]
	for {
		line, err := r.readLine()
		if err == io.EOF && (pending || len(line) > 0) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if hasData {
				return Event{Name: name, Data: r.data}, nil
			}
			name, pending = "", false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "": // a comment
			continue
		case "event":
			name = string(value)
		case "data":
			if hasData {
				r.data = append(r.data, '\n')
			}
			if hasData = true; len(r.data)+len(value) > r.limit {
				return Event{}, &TooLongError{r.limit}
			}
			r.data = append(r.data, value...)
		}
		pending = true
	}
}

// readLine is the next line without its end. At io.EOF it is what has no end.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		if len(r.chunk) == 0 {
			if err := r.fill(); err != nil {
				return r.line, err
			}
		}
		if r.skipLF {
			r.skipLF = false
			if r.chunk[0] == '\n' {
				r.chunk = r.chunk[1:]
				continue
			}
		}
		end := bytes.IndexAny(r.chunk, "\r\n")
		part := r.chunk
		if end >= 0 {
			part = r.chunk[:end]
		}
		if len(r.line)+len(part) > r.limit {
			return nil, &TooLongError{r.limit}
		}
		r.line = append(r.line, part...)
		if end < 0 {
			r.chunk = nil
			continue
		}
		r.skipLF = r.chunk[end] == '\r'
		r.chunk = r.chunk[end+1:]
		if !r.begun {
			r.begun = true
			return bytes.TrimPrefix(r.line, []byte("\xef\xbb\xbf")), nil
		}
		return r.line, nil
	}
}

// fill reads once and gets something.
func (r *Reader) fill() error {
	for range 100 {
		n, err := r.source.Read(r.buffer)
		if r.chunk = r.buffer[:n]; n > 0 {
			return nil // an error comes again at the next read
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}
