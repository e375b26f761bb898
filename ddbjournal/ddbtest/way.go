package ddbtest

import (
	"bytes"
	"io"
	"net/http"
)

// Way carries HTTP exchanges out of synctest bubbles. A bubble's clock must
// stand still while a request is on its way, and nothing of an HTTP transport
// may live in it: connections outlast a test, and their goroutines would keep
// the bubble from ending. So an exchange happens on a goroutine that was
// started outside, over channels made there, which a bubble may wait at without
// its time going on.
//
// A request is never given up on its way. Who cancelled meanwhile hears the
// store's answer; that an answer can be lost is what faults are for.
type Way struct{ exchanges chan exchange }

type exchange struct {
	ask    chan *http.Request
	answer chan answer
}

type answer struct {
	response *http.Response
	err      error
}

// NewWay opens a way over next. It must be called outside of every bubble, and
// stays open for as long as the process lives.
func NewWay(next http.RoundTripper) *Way {
	w := &Way{exchanges: make(chan exchange)}
	go func() {
		for {
			e := exchange{ask: make(chan *http.Request), answer: make(chan answer)}
			go func() { e.answer <- exchanged(next, <-e.ask) }()
			w.exchanges <- e
		}
	}()
	return w
}

// Do implements the HTTP client of the SDK.
func (w *Way) Do(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	// The context belongs to the bubble and stays in it.
	out, err := http.NewRequest(req.Method, req.URL.String(), nil)
	if err != nil {
		return nil, err
	}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return nil, err
		}
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	out.Host, out.Header = req.Host, req.Header.Clone()
	e := <-w.exchanges
	e.ask <- out
	a := <-e.answer
	if a.response != nil {
		a.response.Request = req
	}
	return a.response, a.err
}

// exchanged is the whole answer, read to its end.
func exchanged(next http.RoundTripper, req *http.Request) answer {
	response, err := next.RoundTrip(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{err: err}
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return answer{response: response}
}
