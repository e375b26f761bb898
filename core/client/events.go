package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/layover-run/layover/core/client/wire"
)

// EventsOptions says which events are wanted.
type EventsOptions struct {
	// After is the ID of the last event that is known. Empty begins with the
	// first of a conversation, or with what happens next in all of them.
	After string
	// Follow goes on with what happens next, until ctx ends: a connection that
	// is lost is made again, behind the last event.
	Follow bool
	// Live adds provisional events, which have no ID.
	Live bool
	// OnLost, when set, hears of a connection that was lost while following,
	// before it is made again.
	OnLost func(error)
}

// Event is one event of a stream.
type Event struct {
	// ID is where a later stream can go on. Provisional events have none.
	ID string
	// Gap says that events before this place are not in the stream: read their
	// conversations. It has no JSON.
	Gap bool
	// JSON is the envelope, as package event decodes it.
	JSON json.RawMessage
}

const (
	// silence is when a stream that should show it lives is taken for dead.
	silence = 50 * time.Second
	// The pause before a lost stream is asked for again doubles up to the last.
	firstPause, lastPause = 200 * time.Millisecond, 5 * time.Second
)

// Events yields the events of a conversation in their order.
func (c *Client) Events(ctx context.Context, conversation string, o EventsOptions) iter.Seq2[Event, error] {
	return c.follow(ctx, conversationPath(conversation)+"/events", o)
}

// Tail yields what happens in all conversations from now on, or behind After,
// until ctx ends.
func (c *Client) Tail(ctx context.Context, o EventsOptions) iter.Seq2[Event, error] {
	o.Follow, o.Live = true, false
	return c.follow(ctx, "/v1/events", o)
}

// follow reads one stream, and the next one where it broke off.
func (c *Client) follow(ctx context.Context, path string, o EventsOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		pause, begun := firstPause, false
		for {
			got, err, stop := c.stream(ctx, path, &o, yield)
			if stop || !o.Follow && err == nil {
				return
			}
			begun = begun || got
			if ctx.Err() != nil {
				yield(Event{}, ctx.Err())
				return
			}
			var lost *Unreachable
			if err != nil && (!errors.As(err, &lost) || !o.Follow || !begun) {
				yield(Event{}, err)
				return
			}
			if got {
				pause = firstPause
			}
			if o.OnLost != nil {
				o.OnLost(cmp.Or(err, error(&Unreachable{URL: c.base, Err: io.EOF})))
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, lastPause)
		}
	}
}

// stream reads until one connection ends. It moves o.After along, and tells
// whether the server answered and whether the caller has enough.
func (c *Client) stream(ctx context.Context, path string, o *EventsOptions, yield func(Event, error) bool) (answered bool, err error, stop bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dead := time.AfterFunc(max(silence, c.opts.Timeout), cancel)
	defer dead.Stop()
	query := url.Values{"format": {"lines"}, "follow": {strconv.FormatBool(o.Follow)}, "live": {strconv.FormatBool(o.Live)}}
	if o.After != "" {
		query.Set("after", o.After)
	}
	resp, err := c.do(ctx, http.MethodGet, path+"?"+query.Encode(), nil)
	if err != nil {
		return false, c.lost(err), false
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return true, refusal(resp, raw), false
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return true, nil, false // a line that is cut off comes again
		}
		if err != nil {
			return true, c.lost(err), false
		}
		dead.Reset(silence)
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		e, err := decodeEvent(line)
		if err != nil {
			return true, err, false
		}
		o.After = cmp.Or(e.ID, o.After)
		if !yield(e, nil) {
			return true, nil, true
		}
	}
}

// lost is a connection that failed, whoever ended it.
func (c *Client) lost(err error) error { return c.failed(context.Background(), err) }

// decodeEvent reads one line: an event, a gap, or why the stream ends.
func decodeEvent(line []byte) (Event, error) {
	var head struct {
		V   int    `json:"v"`
		ID  string `json:"id"`
		Gap bool   `json:"gap"`
		wire.Problem
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return Event{}, &Problem{Status: http.StatusOK, Kind: "internal", Op: "events", Detail: "an event does not decode",
			Hint: "check that the address is that of a Layover server"}
	}
	switch {
	case head.Gap:
		return Event{ID: head.ID, Gap: true}, nil
	case head.V == 0:
		return Event{}, problemOf(head.Problem)
	}
	return Event{ID: head.ID, JSON: bytes.Clone(line)}, nil
}

// Conversations lists a page of conversations, the one opened last first; an
// empty cursor begins.
func (c *Client) Conversations(ctx context.Context, cursor string, limit int) (wire.Conversations, error) {
	query := url.Values{}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return get[wire.Conversations](ctx, c, "/v1/conversations?"+query.Encode())
}

// Active lists the conversations that are not idle.
func (c *Client) Active(ctx context.Context) ([]wire.Status, error) {
	list, err := get[wire.Conversations](ctx, c, "/v1/conversations?active=true")
	return list.Conversations, err
}
