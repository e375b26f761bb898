package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Recorder sends requests on and keeps what was said, for a file that a test
// replays later. Of headers it keeps the content type and how long to wait of
// answers only; secrets it is told of are in nothing it keeps.
type Recorder struct {
	next    http.RoundTripper
	secrets []string

	mu        sync.Mutex
	from      string
	exchanges []*taken
}

// taken is an exchange whose answer is still being read.
type taken struct {
	Exchange
	body bytes.Buffer
}

// Record sends requests on through next, which defaults to
// http.DefaultTransport.
func Record(next http.RoundTripper, secrets ...string) *Recorder {
	if next == nil {
		next = http.DefaultTransport
	}
	r := &Recorder{next: next}
	for _, s := range secrets {
		if s != "" {
			r.secrets = append(r.secrets, s)
		}
	}
	return r
}

// RoundTrip sends a request on. A request that gets no answer is not kept.
func (r *Recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	var asked []byte
	if req.Body != nil {
		var err error
		if asked, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(asked))
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	t := &taken{Exchange: Exchange{Method: req.Method, Path: req.URL.Path, Request: string(asked), Status: resp.StatusCode,
		ContentType: resp.Header.Get("Content-Type")}}
	for _, name := range []string{"Retry-After", "Retry-After-Ms"} {
		if v := resp.Header.Get(name); v != "" {
			if t.Header == nil {
				t.Header = Header{}
			}
			t.Header[name] = v
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = req.URL.Host
	r.exchanges = append(r.exchanges, t)
	resp.Body = &tee{resp.Body, r, t}
	return resp, nil
}

type tee struct {
	io.ReadCloser
	r *Recorder
	t *taken
}

func (b *tee) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	b.t.body.Write(p[:n])
	return n, err
}

// Recording is what was said so far, without the secrets.
func (r *Recorder) Recording() Recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Recording{From: r.clean(r.from)}
	for _, t := range r.exchanges {
		e := t.Exchange
		e.Path, e.ContentType = r.clean(e.Path), r.clean(e.ContentType)
		e.Request, e.Response = r.clean(e.Request), r.clean(t.body.String())
		e.Header = maps.Clone(e.Header)
		for name, value := range e.Header {
			e.Header[name] = r.clean(value)
		}
		out.Exchanges = append(out.Exchanges, e)
	}
	return out
}

func (r *Recorder) clean(s string) string {
	for _, secret := range r.secrets {
		s = strings.ReplaceAll(s, secret, "[redacted]")
	}
	return s
}

// Save writes the recording to a file that LoadRecording reads.
func (r *Recorder) Save(path string) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(r.Recording()); err != nil {
		return fmt.Errorf("modeltest: recording %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
