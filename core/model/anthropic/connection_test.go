package anthropic_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/model/provider"
	"github.com/layover-run/layover/core/record"
)

// What a connection can do to an answer: whole it is the answer, broken it is a
// transient error, compressed or not.
//
// failure: A10
func TestConnections(t *testing.T) {
	flushed := func(w http.ResponseWriter, body string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(body))
		_ = http.NewResponseController(w).Flush()
	}
	zipped := func(w http.ResponseWriter, body string, whole bool) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/event-stream")
		z := gzip.NewWriter(w)
		_, _ = z.Write([]byte(body))
		if _ = z.Flush(); whole {
			_ = z.Close()
		}
	}
	reset := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, not an end
		}
		_ = conn.Close()
	}
	half := warm[:len(warm)/2]
	for name, tc := range map[string]struct {
		http2 bool
		serve http.HandlerFunc
		fails bool
	}{
		"whole":         {false, func(w http.ResponseWriter, _ *http.Request) { flushed(w, warm) }, false},
		"whole, HTTP/2": {true, func(w http.ResponseWriter, _ *http.Request) { flushed(w, warm) }, false},
		"gzip":          {false, func(w http.ResponseWriter, _ *http.Request) { zipped(w, warm, true) }, false},
		"gzip, HTTP/2":  {true, func(w http.ResponseWriter, _ *http.Request) { zipped(w, warm, true) }, false},
		"gzip, cut":     {false, func(w http.ResponseWriter, _ *http.Request) { zipped(w, half, false) }, true},
		"gzip that isn't": {false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			flushed(w, warm)
		}, true},
		"reset at once": {false, func(w http.ResponseWriter, _ *http.Request) { reset(w) }, true},
		"reset behind half": {false, func(w http.ResponseWriter, r *http.Request) {
			flushed(w, half)
			reset(w)
		}, true},
		"cut behind half": {false, func(w http.ResponseWriter, _ *http.Request) { flushed(w, half); panic(http.ErrAbortHandler) }, true},
		"stream reset":    {true, func(w http.ResponseWriter, _ *http.Request) { flushed(w, half); panic(http.ErrAbortHandler) }, true},
		"too few bytes": {false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9999")
			flushed(w, half)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(tc.serve)
			server.Config.ErrorLog = nil
			server.EnableHTTP2 = tc.http2
			if tc.http2 {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			m := newModel(t, anthropic.Config{BaseURL: server.URL, HTTPClient: server.Client()})
			got, err := modeltest.Ask(t.Context(), m, hello)
			switch {
			case !tc.fails && (err != nil || modeltest.FinalText([]record.Message{got.Message}) != "Warm."):
				t.Errorf("%+v, %v", got, err)
			case tc.fails && (err == nil || model.ClassOf(err) != model.Transient || len(got.Message.Parts) > 0):
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// A server that goes away while it streams, as one that is replaced does, lets
// the stream under way end; the next one finds another connection.
func TestServerThatGoesAway(t *testing.T) {
	var asked atomic.Int32
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Connection", "close") // GOAWAY, on HTTP/2
		_, _ = w.Write([]byte(warm))
	})
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	m := newModel(t, anthropic.Config{BaseURL: server.URL, HTTPClient: server.Client()})
	for n := range 3 {
		if _, err := modeltest.Ask(t.Context(), m, hello); err != nil {
			t.Errorf("request %d: %v", n+1, err)
		}
	}
	if asked.Load() != 3 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// Streams that were given up, by the caller, by a part that was refused, or for
// silence, are freed: the provider sees the end of each at once.
func TestNothingIsLeftBehind(t *testing.T) {
	var streams sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams.Add(1)
		defer streams.Done()
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not watch the connection
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(stream(start, opened(0, `{"type":"text","text":"W"}`))))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	enough := errors.New("enough")
	for n := range 30 {
		c := anthropic.Config{BaseURL: server.URL, HTTPClient: server.Client()}
		ctx, cancel := context.WithCancel(t.Context())
		want := enough
		switch n % 3 {
		case 0:
			want = context.Canceled
		case 1:
			c.IdleTimeout, want = 50*time.Millisecond, provider.ErrIdle
		}
		err := newModel(t, c).Stream(ctx, hello, func(p model.Part) error {
			_, text := p.(model.TextDelta)
			switch {
			case text && n%3 == 0:
				cancel()
			case text && n%3 == 2:
				return enough
			}
			return nil
		})
		cancel()
		if !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", n, err, want)
		}
	}
	streams.Wait()
}

// The adapter's own client goes through the proxy that the environment names. A
// program reads that once, so it is one of its own.
func TestProxyOfTheEnvironment(t *testing.T) {
	if os.Getenv("LAYOVER_TEST_PROXY") != "" {
		m := newModel(t, anthropic.Config{BaseURL: "http://provider.example", APIKey: canaryKey})
		if _, err := modeltest.Ask(t.Context(), m, hello); err != nil {
			t.Fatal(err)
		}
		return
	}
	var hosts []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.URL.String())
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(warm))
	}))
	defer proxy.Close()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxyOfTheEnvironment$")
	child.Env = append(os.Environ(), "LAYOVER_TEST_PROXY=1", "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Join(hosts, " ") != "http://provider.example/v1/messages" {
		t.Errorf("the proxy was asked for %q", hosts)
	}
}
