package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/layover-run/layover/core/client/wire"
)

// Problem is what the server refused, and why.
type Problem struct {
	Status int    // of the HTTP answer
	Kind   string // what the caller can do about it; see engine.ErrorKind
	Op     string // what was asked
	Detail string
	Hint   string
}

func (p *Problem) Error() string { return p.Op + ": " + p.Detail }

// Unreachable says that no answer came: whether the request arrived is not
// known. Requests of this API are safe to repeat.
type Unreachable struct {
	URL string
	Err error
}

func (u *Unreachable) Error() string { return fmt.Sprintf("no answer from %s: %v", u.URL, u.Err) }

// Unwrap is the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

// failed tells a caller who stopped asking from a server that does not answer.
func (c *Client) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var u *url.Error // repeats the address
	if errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("it took too long")
	}
	return &Unreachable{URL: c.base, Err: err}
}

// refusal reads a problem document, or makes one of any other answer: a proxy
// may speak for the server.
func refusal(resp *http.Response, raw []byte) error {
	var p wire.Problem
	if err := json.Unmarshal(raw, &p); err != nil || p.Kind == "" {
		return &Problem{Status: resp.StatusCode, Kind: "internal", Op: "request",
			Detail: "the server answered " + resp.Status, Hint: "check that the address is that of a Layover server"}
	}
	return problemOf(p)
}

func problemOf(p wire.Problem) *Problem {
	return &Problem{Status: p.Status, Kind: p.Kind, Op: p.Op, Detail: p.Detail, Hint: p.Hint}
}
