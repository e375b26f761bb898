package provider_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/provider"
)

// failure: A29
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	for _, tc := range []struct {
		h    http.Header
		want time.Duration
	}{
		{header(), 0},
		{header("retry-after", "2"), 2 * time.Second},
		{header("retry-after", " 90 "), 90 * time.Second},
		{header("retry-after", "3600"), time.Hour},
		{header("retry-after", "1.5"), 1500 * time.Millisecond},
		{header("retry-after", "0"), 0},
		{header("retry-after", "Mon, 04 May 2026 10:00:30 GMT"), 30 * time.Second},
		{header("retry-after", "Monday, 04-May-26 10:01:00 GMT"), time.Minute},
		{header("retry-after", "Mon, 04 May 2026 09:00:00 GMT"), 0},
		{header("retry-after", "6m0s"), 6 * time.Minute},
		{header("retry-after", "1h2m3.5s"), time.Hour + 2*time.Minute + 3500*time.Millisecond},
		{header("retry-after", "250ms"), 250 * time.Millisecond},
		{header("retry-after-ms", "750"), 750 * time.Millisecond},
		{header("retry-after-ms", "750", "retry-after", "9"), 750 * time.Millisecond},
		{header("retry-after-ms", "soon", "retry-after", "9"), 9 * time.Second},
		{header("retry-after", "soon"), 0},
		{header("retry-after", "-5"), 0},
		{header("retry-after", "-6m"), 0},
		{header("retry-after", "NaN"), 0},
		{header("retry-after", "Inf"), 0},
		{header("retry-after", "1e300"), 0},
		{header("retry-after", "99999999"), 0},
		{header("retry-after", "9999h"), 0},
		{header("retry-after", "Mon, 04 May 2099 10:00:30 GMT"), 0},
	} {
		if got := provider.RetryAfter(tc.h, now); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.h, got, tc.want)
		}
	}
}

func TestByStatus(t *testing.T) {
	for status, want := range map[int]model.Class{
		200: model.Transient, 307: model.Refused, 400: model.Refused, 401: model.Refused, 403: model.Refused, 404: model.Refused,
		408: model.Transient, 409: model.Transient, 413: model.ContextOverflow, 422: model.Refused, 425: model.Transient,
		429: model.RateLimited, 500: model.Transient, 503: model.Transient, 529: model.Transient,
	} {
		if got := provider.ByStatus(status); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
}

// failure: A36
func TestRedactor(t *testing.T) {
	r := provider.NewRedactor("sk-secret-1", "", "abc")
	got := r.Text("key sk-secret-1 of abc\x00\u202e\xff")
	if got != "key [redacted] of abc  \ufffd" {
		t.Errorf("%q", got)
	}
	long := r.Text(strings.Repeat("é", 1000))
	if len(long) > 510 || !utf8.ValidString(long) {
		t.Errorf("%d bytes", len(long))
	}
	// A secret across the bound is gone before the text is cut.
	if cut := r.Text(strings.Repeat("x", 495) + "sk-secret-1"); strings.Contains(cut, "sk-s") {
		t.Error(cut)
	}
	if err := r.Detailf("no %s", "sk-secret-1"); err.Error() != "no [redacted]" {
		t.Error(err)
	}
}

func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Waiting for the headers counts.
		c := provider.Begin(t.Context(), 10*time.Second)
		began := time.Now()
		<-c.Context().Done()
		if !c.Idle() || time.Since(began) != 10*time.Second {
			t.Errorf("idle %v after %s", c.Idle(), time.Since(began))
		}
		c.End()

		// A slow reader does not; a silent source does.
		c = provider.Begin(t.Context(), 10*time.Second)
		in, out := io.Pipe()
		body := c.Body(in)
		go func() {
			for range 3 {
				time.Sleep(9 * time.Second)
				_, _ = out.Write([]byte("x"))
			}
			<-c.Context().Done()
			out.CloseWithError(c.Context().Err())
		}()
		for range 3 {
			if _, err := body.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		began = time.Now()
		if _, err := body.Read(make([]byte, 1)); err == nil || !c.Idle() || time.Since(began) != 10*time.Second {
			t.Errorf("%v, idle %v after %s", err, c.Idle(), time.Since(began))
		}
		c.End()

		// A request that is still being sent is not idle; one that is not is.
		c = provider.Begin(t.Context(), 10*time.Second)
		in, out = io.Pipe()
		upload := c.Sending(in)
		go func() {
			for range 3 {
				time.Sleep(9 * time.Second)
				_, _ = out.Write([]byte("x"))
			}
		}()
		for range 3 {
			if _, err := upload.Read(make([]byte, 1)); err != nil || c.Idle() {
				t.Fatal(err, c.Idle())
			}
		}
		began = time.Now()
		<-c.Context().Done()
		if !c.Idle() || time.Since(began) > 10*time.Second {
			t.Errorf("idle %v after %s", c.Idle(), time.Since(began))
		}
		c.End()

		// What is sent behind the answer's head does not start the wait again.
		c = provider.Begin(t.Context(), 10*time.Second)
		_ = c.Body(in)
		c.Progress()
		time.Sleep(time.Minute)
		if c.Context().Err() != nil {
			t.Error("given up while nobody waits")
		}
		c.End()

		// The end of the caller is not idleness, and End is the end of it all.
		ctx, cancel := context.WithCancel(t.Context())
		c = provider.Begin(ctx, time.Second)
		c.Progress()
		cancel()
		if <-c.Context().Done(); c.Idle() || !errors.Is(c.Context().Err(), context.Canceled) {
			t.Error("the caller's end looks like idleness")
		}
		c.End()
	})
}
