package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Exchange is one HTTP request with its answer, as a file keeps it.
type Exchange struct {
	Method      string `json:"method"`
	Path        string `json:"path"`
	Request     string `json:"request"` // the body
	Status      int    `json:"status"`
	ContentType string `json:"content_type"`
	Header      Header `json:"header,omitempty"` // other headers of the answer
	Response    string `json:"response"`         // the raw body

	// Pieces gives the size of each piece the body arrives in; nil sends it at
	// once. It is not kept in a file.
	Pieces func(left int) int `json:"-"`
	// Break is what the connection ends with behind the body; nil is its proper
	// end. It is not kept in a file.
	Break error `json:"-"`
}

// Header is response headers of one value each.
type Header map[string]string

// Stream is an exchange that answers with an event stream.
func Stream(body string) Exchange {
	return Exchange{Status: http.StatusOK, ContentType: "text/event-stream", Response: body}
}

// Cut is the exchange with only the first n bytes of its answer.
func (e Exchange) Cut(n int) Exchange {
	e.Response = e.Response[:n]
	return e
}

// Rechunk is the exchange with its answer in pieces of random sizes, which
// depend on the seed only.
func (e Exchange) Rechunk(seed uint64) Exchange {
	random := rand.New(rand.NewPCG(seed, 0))
	e.Pieces = func(left int) int { return 1 + random.IntN(min(left, 200)) }
	return e
}

// Recording is one recorded conversation.
type Recording struct {
	// Name is the file's name without its ending.
	Name string `json:"-"`
	// From says where it was recorded.
	From      string     `json:"recorded_from,omitempty"`
	Exchanges []Exchange `json:"exchanges"`
}

// LoadRecording reads one recorded conversation.
func LoadRecording(path string) (Recording, error) {
	name := filepath.Base(path)
	r := Recording{Name: name[:len(name)-len(filepath.Ext(name))]}
	body, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("modeltest: recording %s: %w", path, err)
	}
	if len(r.Exchanges) == 0 {
		return r, fmt.Errorf("modeltest: recording %s has no exchanges", path)
	}
	return r, nil
}

// LoadRecordings reads every recording of a folder, by name. Its error is
// fs.ErrNotExist where the folder is absent.
func LoadRecordings(dir string) ([]Recording, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var all []Recording
	for _, f := range files {
		r, err := LoadRecording(f)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// Replay answers requests with exchanges in their order, whatever is asked: as
// an http.Handler for a real server, or without a network as the transport of
// Client. It is safe for concurrent use.
type Replay struct {
	mu        sync.Mutex
	exchanges []Exchange
	requests  []*http.Request
	bodies    [][]byte
	next      int
	closed    int
}

// NewReplay serves these exchanges, each once.
func NewReplay(exchanges ...Exchange) *Replay { return &Replay{exchanges: exchanges} }

// Client sends its requests to the replay, without a network.
func (r *Replay) Client() *http.Client {
	return &http.Client{Transport: r, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Left is how many exchanges have not been asked for.
func (r *Replay) Left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.exchanges) - r.next
}

// Requests are the bodies of the requests so far.
func (r *Replay) Requests() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.bodies)
}

// Headers are the headers of the requests so far.
func (r *Replay) Headers() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []http.Header
	for _, req := range r.requests {
		all = append(all, req.Header)
	}
	return all
}

// Open is how many answers of RoundTrip have not been closed.
func (r *Replay) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next - r.closed
}

var errNoExchange = errors.New("modeltest: the replay has no exchange left")

func (r *Replay) take(req *http.Request) (Exchange, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return Exchange{}, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.bodies = append(r.requests, req), append(r.bodies, body)
	if r.next == len(r.exchanges) {
		return Exchange{}, errNoExchange
	}
	r.next++
	return r.exchanges[r.next-1], nil
}

// RoundTrip answers without a network.
func (r *Replay) RoundTrip(req *http.Request) (*http.Response, error) {
	e, err := r.take(req)
	if err != nil {
		return nil, err
	}
	resp := &http.Response{
		Status: http.StatusText(e.Status), StatusCode: e.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, ContentLength: -1, Request: req,
		Body: &replayed{pieces: e.Pieces, end: e.Break, left: []byte(e.Response), req: req, replay: r},
	}
	e.headers(resp.Header)
	return resp, nil
}

func (e Exchange) headers(h http.Header) {
	if e.ContentType != "" {
		h.Set("Content-Type", e.ContentType)
	}
	for name, value := range e.Header {
		h.Set(name, value)
	}
}

// replayed is the body of an answer.
type replayed struct {
	pieces func(int) int
	end    error
	left   []byte
	req    *http.Request
	replay *Replay
	once   sync.Once
}

func (b *replayed) Read(p []byte) (int, error) {
	if err := b.req.Context().Err(); err != nil {
		return 0, err
	}
	if len(b.left) == 0 {
		switch {
		case errors.Is(b.end, errSilence):
			<-b.req.Context().Done()
			return 0, b.req.Context().Err()
		case b.end != nil:
			return 0, b.end
		}
		return 0, io.EOF
	}
	n := min(len(p), len(b.left))
	if b.pieces != nil {
		n = min(n, max(1, b.pieces(len(b.left))))
	}
	n = copy(p, b.left[:n])
	b.left = b.left[n:]
	return n, nil
}

func (b *replayed) Close() error {
	b.once.Do(func() {
		b.replay.mu.Lock()
		defer b.replay.mu.Unlock()
		b.replay.closed++
	})
	return nil
}

var errSilence = errors.New("modeltest: nothing more comes")

// Silent is the exchange whose connection stays open and silent behind its
// answer, until the request is given up.
func (e Exchange) Silent() Exchange {
	e.Break = errSilence
	return e
}

// ServeHTTP answers over a network.
func (r *Replay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	e, err := r.take(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
		return
	}
	e.headers(w.Header())
	w.WriteHeader(e.Status)
	for body := []byte(e.Response); len(body) > 0; {
		n := len(body)
		if e.Pieces != nil {
			n = min(n, max(1, e.Pieces(n)))
		}
		if _, err := w.Write(body[:n]); err != nil {
			return
		}
		if body = body[n:]; e.Pieces != nil {
			_ = http.NewResponseController(w).Flush()
		}
	}
	switch {
	case errors.Is(e.Break, errSilence):
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	case e.Break != nil:
		panic(http.ErrAbortHandler)
	}
}
