package console

import (
	"bytes"
	"io"
	"net/http"
)

// inProcess makes requests to a handler of this process.
type inProcess struct{ handler http.Handler }

// RoundTrip answers once the handler has said everything: the console asks for
// nothing that has no end.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	answer := &answer{header: http.Header{}, status: http.StatusOK}
	r.RequestURI = r.URL.RequestURI()
	r.Host = r.URL.Host
	p.handler.ServeHTTP(answer, r)
	return &http.Response{StatusCode: answer.status, Status: http.StatusText(answer.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: answer.header, Body: io.NopCloser(&answer.body), ContentLength: int64(answer.body.Len()), Request: r}, nil
}

type answer struct {
	header http.Header
	status int
	begun  bool
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if !a.begun {
		a.begun, a.status = true, status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}
