package modeltest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/model"
)

func (s suite) silence(t *testing.T) {
	text := s.Text("Hello.")
	for name, client := range map[string]func() (*http.Client, func() int){
		"before the head": func() (*http.Client, func() int) {
			return &http.Client{Transport: deaf{}}, func() int { return 0 }
		},
		"behind the head": func() (*http.Client, func() int) {
			r := NewReplay(Stream("").Silent())
			return r.Client(), r.Open
		},
		"in the middle": func() (*http.Client, func() int) {
			r := NewReplay(Stream(text[:len(text)/2]).Silent())
			return r.Client(), r.Open
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, open := client()
				began := time.Now()
				_, err := Ask(t.Context(), s.model(t, c), suiteRequest)
				s.class(t, err, model.Transient)
				if waited := time.Since(began); waited != 30*time.Second || open() != 0 {
					t.Errorf("given up after %s with %d open bodies", waited, open())
				}
			})
		})
	}
}

// deaf never answers.
type deaf struct{}

func (deaf) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func (s suite) broken(t *testing.T) {
	e := Stream(s.Text("Hello."))
	e.Response, e.Break = e.Response[:len(e.Response)/2], errors.New("connection reset by "+suiteKey)
	_, err := s.ask(t, e)
	s.class(t, err, model.Transient)

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	m, err := s.New(gone.URL, suiteKey, &http.Client{}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Ask(t.Context(), m, suiteRequest)
	s.class(t, err, model.Transient)
}

// cancellation is over a real connection: the provider sees that it is gone.
func (s suite) cancellation(t *testing.T) {
	text := s.Text("Hello.")
	for name, body := range map[string]string{"before the head": "", "in the middle": text[:len(text)-10]} {
		t.Run(name, func(t *testing.T) {
			arrived, freed := make(chan struct{}), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(freed)
				_, _ = io.Copy(io.Discard, r.Body) // else the server does not watch the connection
				if body != "" {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = w.Write([]byte(body))
					_ = http.NewResponseController(w).Flush()
				}
				close(arrived)
				<-r.Context().Done()
			}))
			defer server.Close()
			m, err := s.New(server.URL, suiteKey, &http.Client{}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := Ask(ctx, m, suiteRequest)
				ended <- err
			}()
			<-arrived
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want the context's own error", err)
			}
			<-freed
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	replay := NewReplay(Stream(text))
	if _, err := Ask(ctx, s.model(t, replay.Client()), suiteRequest); !errors.Is(err, context.Canceled) || replay.Open() != 0 {
		t.Errorf("cancelled before it began: %v", err)
	}
}

// redirect: the key goes to no other host.
func (s suite) redirect(t *testing.T) {
	var mu sync.Mutex
	visits := 0
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		visits++
	}))
	defer thief.Close()
	server := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	m, err := s.New(server.URL, suiteKey, nil, time.Minute) // the adapter's own client
	if err != nil {
		t.Fatal(err)
	}
	_, err = Ask(t.Context(), m, suiteRequest)
	s.class(t, err, model.Refused)
	mu.Lock()
	defer mu.Unlock()
	if visits > 0 {
		t.Error("the redirect was followed")
	}
}

func (s suite) concurrent(t *testing.T) {
	var exchanges []Exchange
	for range 20 {
		exchanges = append(exchanges, Stream(s.Text("Hello.")))
	}
	m := s.model(t, NewReplay(exchanges...).Client())
	var wg sync.WaitGroup
	for range exchanges {
		wg.Go(func() {
			if _, err := Ask(t.Context(), m, suiteRequest); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
