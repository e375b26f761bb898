package functions

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
)

const (
	// heartbeat is how often a stream that has nothing to say says so: a proxy
	// closes what is silent, and a reader notices a server that is gone.
	heartbeat = 15 * time.Second
	// stallAfter is how long one write to a reader may take. A reader that
	// stopped reading is let go and comes back with the last id it has.
	stallAfter = 20 * time.Second
	// maxStreams bounds the streams open at once.
	maxStreams = 1024
	// streamRetry is what a browser waits before it connects again.
	streamRetry = time.Second
)

// sent is one event on its way to a reader.
type sent struct {
	id    string // empty for provisional events
	event event.Event
	gap   bool
}

// item is what a source yields.
type item struct {
	sent
	err error
}

// stream answers with everything a source yields. An error before the first
// byte is an ordinary refusal; later it is the last thing the stream says.
func (a *api) stream(w http.ResponseWriter, r *http.Request, q eventQuery, source func(context.Context) iter.Seq2[sent, error]) error {
	if a.streams.Add(1) > maxStreams {
		a.streams.Add(-1)
		return refuse(engine.KindUnavailable, "events", "close some, or try again later", "%d streams are open", maxStreams)
	}
	defer a.streams.Add(-1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := &streamWriter{w: w, rc: http.NewResponseController(w), lines: q.lines, stall: a.opts.Stall}
	if r.Method == http.MethodHead { // there is no body that could end
		out.begin()
		return nil
	}
	if q.Follow {
		_ = out.rc.SetReadDeadline(time.Time{}) // the request has been read; the answer has no end
	}
	items := pull(ctx, source(ctx))
	beat := time.NewTicker(a.opts.Heartbeat)
	defer beat.Stop()
	// What is known at once decides between a refusal and a stream.
	if !q.Follow {
		first, ok := <-items
		if ok && first.err != nil {
			return first.err
		}
		out.begin()
		if ok && out.item(first) != nil {
			return nil
		}
	} else {
		out.begin()
	}
	for {
		var err error
		select {
		case i, ok := <-items:
			if !ok {
				return nil
			}
			if err = out.item(i); err == nil && i.err != nil {
				return nil
			}
		case <-beat.C:
			err = out.beat()
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return nil // the reader is gone
		}
	}
}

// pull runs a source, so that its reader can do something else meanwhile.
func pull(ctx context.Context, source iter.Seq2[sent, error]) <-chan item {
	items := make(chan item, 64)
	go func() {
		defer close(items)
		for s, err := range source {
			if ctx.Err() != nil {
				return
			}
			select {
			case items <- item{s, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return items
}

// streamWriter writes one stream in one of its two forms.
type streamWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	lines bool
	stall time.Duration
	buf   bytes.Buffer
}

func (s *streamWriter) begin() {
	h := s.w.Header()
	h.Set("Content-Type", wire.TypeEvents)
	if s.lines {
		h.Set("Content-Type", wire.TypeLines)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // or a proxy collects what is meant to be live
	s.w.WriteHeader(http.StatusOK)
	if !s.lines {
		s.buf.WriteString("retry: " + strconv.FormatInt(streamRetry.Milliseconds(), 10) + "\n\n")
	}
	_ = s.flush()
}

func (s *streamWriter) item(i item) error {
	switch {
	case i.err != nil:
		return s.value("", wire.EventProblem, problem("events", i.err))
	case i.gap:
		return s.value(i.id, wire.EventGap, wire.Gap{Gap: true})
	}
	return s.value(i.id, "", i.event)
}

// value writes one value. As a line it gets its id as a member.
func (s *streamWriter) value(id, kind string, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	if s.lines {
		s.buf.Write(body[:len(body)-1])
		if id != "" {
			s.buf.WriteString(`,"id":` + strconv.Quote(id))
		}
		s.buf.WriteString("}\n")
		return s.flush()
	}
	if id != "" {
		s.buf.WriteString("id: " + id + "\n")
	}
	if kind != "" {
		s.buf.WriteString("event: " + kind + "\n")
	}
	s.buf.WriteString("data: ")
	s.buf.Write(body) // JSON has no line ends of its own
	s.buf.WriteString("\n\n")
	return s.flush()
}

func (s *streamWriter) beat() error {
	if s.lines {
		s.buf.WriteString("\n")
	} else {
		s.buf.WriteString(": \n\n")
	}
	return s.flush()
}

// flush hands over what is written so far, within bounds: a connection without
// deadlines is one of a test.
func (s *streamWriter) flush() error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.stall))
	_, err := s.w.Write(s.buf.Bytes())
	s.buf.Reset()
	if err != nil {
		return err
	}
	if err := s.rc.Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
