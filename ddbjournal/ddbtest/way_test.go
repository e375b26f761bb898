package ddbtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/ddbjournal/ddbtest"
)

// A bubble's clock stands still while its requests are on their way, goes on
// between them, and the bubble ends although the connections stay.
func TestWay(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		time.Sleep(20 * time.Millisecond) // outside: real time
		w.Header().Set("X-Saw", r.Header.Get("X-Say"))
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(strings.ToUpper(string(body))))
	}))
	defer server.Close()
	way := ddbtest.NewWay(http.DefaultTransport)
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ask := func(ctx context.Context) (string, error) {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("body"))
				if err != nil {
					return "", err
				}
				req.Header.Set("X-Say", "head")
				resp, err := way.Do(req)
				if err != nil {
					return "", err
				}
				body, err := io.ReadAll(resp.Body)
				return resp.Status + " " + resp.Header.Get("X-Saw") + " " + string(body), err
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			defer cancel()
			var several sync.WaitGroup
			for range 4 {
				several.Go(func() {
					if got, err := ask(ctx); got != "418 I'm a teapot head BODY" || err != nil {
						t.Errorf("%q, %v", got, err)
					}
				})
			}
			several.Wait()
			if took := time.Since(began); took != 0 {
				t.Errorf("the exchange took %s of the bubble's time", took)
			}
			time.Sleep(time.Hour)
			if _, err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("asked after the deadline: %v", err)
			}
		})
	}
	server.CloseClientConnections()
	server.Close()
	synctest.Test(t, func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := way.Do(req); err == nil {
			t.Error("a server that is gone answers")
		}
	})
}
