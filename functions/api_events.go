package functions

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
)

// Events of a conversation and of all conversations, as server-sent events or
// as lines of JSON. A reader that is slower than the runs reads the log later:
// nothing here makes a run wait.

// EventSource is where the API reads the events of one conversation.
type EventSource interface {
	Events(ctx context.Context, lane journal.Lane, o engine.EventsOptions) iter.Seq2[engine.Numbered, error]
}

// Tailed is one event of a Tail. A gap says that events before it are not in it
// any more: they are read from their conversations.
type Tailed struct {
	ID    string
	Event event.Event
	Gap   bool
}

// Tail is where the API reads what happens in all conversations of a tenant.
// It begins behind the event of an id, or with what happens next.
type Tail interface {
	Follow(ctx context.Context, tenant, after string) iter.Seq2[Tailed, error]
}

// eventQuery is what a request for events asks for.
type eventQuery struct {
	engine.EventsOptions
	lines bool
	last  string // the id of the last event that is known
}

func (a *api) events(w http.ResponseWriter, r *http.Request) error {
	const op = "events"
	q, err := parseEventQuery(op, r)
	if err != nil {
		return err
	}
	if q.last != "" {
		if q.After, err = strconv.ParseUint(q.last, 10, 64); err != nil {
			return refuse(engine.KindInvalid, op, "give the id of an event of this conversation", "%q is not the id of an event", q.last)
		}
	}
	lane := a.lane(r)
	if err := a.admit.Admitter().Exists(r.Context(), lane); err != nil {
		return err
	}
	return a.stream(w, r, q, func(ctx context.Context) iter.Seq2[sent, error] {
		return func(yield func(sent, error) bool) {
			for n, err := range a.opts.Events.Events(ctx, lane, q.EventsOptions) {
				s := sent{event: n.Event}
				if n.Ordinal > 0 {
					s.id = strconv.FormatUint(n.Ordinal, 10)
				}
				if !yield(s, err) {
					return
				}
			}
		}
	})
}

func (a *api) tail(w http.ResponseWriter, r *http.Request) error {
	const op = "tail"
	q, err := parseEventQuery(op, r)
	if err != nil {
		return err
	}
	if a.opts.Tail == nil {
		return refuse(engine.KindUnsupported, op, "follow the events of one conversation", "this server does not follow all conversations at once")
	}
	tenant, _ := a.caller(r)
	return a.stream(w, r, q, func(ctx context.Context) iter.Seq2[sent, error] {
		return func(yield func(sent, error) bool) {
			for f, err := range a.opts.Tail.Follow(ctx, tenant, q.last) {
				if !yield(sent{id: f.ID, event: f.Event, gap: f.Gap}, err) {
					return
				}
			}
		}
	})
}

// parseEventQuery reads the parameters of both routes. A reconnecting
// EventSource repeats its address: the id it sends is newer than ?after.
func parseEventQuery(op string, r *http.Request) (q eventQuery, err error) {
	query := r.URL.Query()
	switch format := query.Get("format"); format {
	case "":
		q.lines = acceptsLines(r.Header.Get("Accept"))
	case "sse", "lines":
		q.lines = format == "lines"
	default:
		return q, refuse(engine.KindInvalid, op, "use format=sse or format=lines", "unknown format %q", format)
	}
	q.Follow, err = flag(op, query.Get("follow"), "follow", !q.lines || op == "tail")
	if err != nil {
		return q, err
	}
	if q.Live, err = flag(op, query.Get("live"), "live", q.Follow); err != nil {
		return q, err
	}
	if op == "tail" && !q.Follow {
		return q, refuse(engine.KindInvalid, op, "read the events of one conversation", "this stream has no end: follow=false is not possible")
	}
	q.last = cmp.Or(r.Header.Get("Last-Event-ID"), query.Get("after"))
	return q, nil
}

func flag(op, given, name string, otherwise bool) (bool, error) {
	switch given {
	case "":
		return otherwise, nil
	case "true", "false":
		return given == "true", nil
	}
	return false, refuse(engine.KindInvalid, op, "use "+name+"=true or "+name+"=false", "%s %q is neither true nor false", name, given)
}

func acceptsLines(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		mediaType, _, _ := strings.Cut(part, ";")
		switch strings.TrimSpace(mediaType) {
		case wire.TypeLines, wire.TypeJSON:
			return true
		case wire.TypeEvents:
			return false
		}
	}
	return false
}
