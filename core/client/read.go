package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/layover-run/layover/core/client/wire"
)

// Until says how far a submission is waited for.
type Until string

// What can be waited for.
const (
	UntilSettled Until = "settled"
	UntilParked  Until = "parked" // parked or settled
)

// longPoll is how long one request of Await waits at the server.
const longPoll = 20 * time.Second

// Progress reads where a submission stands, after waiting at most so long for
// it to come as far as asked. The conversation is a check: empty stands for any.
func (c *Client) Progress(ctx context.Context, conversation, submission string, until Until, wait time.Duration) (wire.Progress, error) {
	query := url.Values{"until": {string(until)}, "wait": {wait.Round(time.Millisecond).String()}}
	path := "/v1"
	if conversation != "" {
		path = conversationPath(conversation)
	}
	return call[wire.Progress](ctx, c, http.MethodGet, path+"/submissions/"+segment(submission)+"?"+query.Encode(), nil, wait)
}

// Await waits until a submission has come as far as asked, or timeout is over;
// it then says where the submission stands, without an error. A timeout of
// zero waits as long as ctx lives.
func (c *Client) Await(ctx context.Context, conversation, submission string, until Until, timeout time.Duration) (wire.Progress, error) {
	end := time.Now().Add(timeout)
	for {
		wait, last := longPoll, false
		if timeout > 0 {
			if left := time.Until(end); left <= wait {
				wait, last = max(left, 0), true
			}
		}
		p, err := c.Progress(ctx, conversation, submission, until, wait)
		if err != nil || last || p.Settled() || until == UntilParked && p.Status == wire.StatusParked {
			return p, err
		}
	}
}

// Records yields the batches of a conversation in order, each as its line of
// JSON; wire.Batch decodes it.
func (c *Client) Records(ctx context.Context, conversation string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		resp, err := c.do(ctx, http.MethodGet, conversationPath(conversation)+"/records", nil)
		if err != nil {
			yield(nil, c.failed(ctx, err))
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
			yield(nil, refusal(resp, raw))
			return
		}
		lines := bufio.NewReader(resp.Body)
		for {
			line, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) && len(line) == 0 {
				return
			}
			if err != nil {
				yield(nil, c.failed(ctx, err))
				return
			}
			line = bytes.TrimSuffix(line, []byte("\n"))
			if p, broken := brokenOff(line); broken {
				yield(nil, p)
				return
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}

// brokenOff reads the last line of a listing that could not go on.
func brokenOff(line []byte) (*Problem, bool) {
	var p struct {
		Slot uint64 `json:"slot"`
		wire.Problem
	}
	if err := json.Unmarshal(line, &p); err != nil || p.Slot != 0 || p.Kind == "" {
		return nil, false
	}
	return problemOf(p.Problem), true
}
