package modeltest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/model"
)

func (s suite) refusals(t *testing.T) {
	for name, r := range s.Refusals {
		t.Run(name, func(t *testing.T) {
			_, err := s.ask(t, Exchange{Status: r.Status, ContentType: "application/json", Response: r.Body})
			s.class(t, err, r.Class)
		})
	}
	// What a proxy answers in the provider's place goes by its status.
	for status, want := range map[int]model.Class{401: model.Refused, 404: model.Refused, 413: model.ContextOverflow, 429: model.RateLimited,
		500: model.Transient, 502: model.Transient, 503: model.Transient, 504: model.Transient, 529: model.Transient} {
		t.Run(fmt.Sprint("page ", status), func(t *testing.T) {
			_, err := s.ask(t, Exchange{Status: status, ContentType: "text/html", Response: "<html>" + strings.Repeat("x", 1<<20)})
			s.class(t, err, want)
		})
	}
}

func (s suite) retryAfter(t *testing.T) {
	ask := func(t *testing.T, h Header) time.Duration {
		_, err := s.ask(t, Exchange{Status: http.StatusTooManyRequests, ContentType: "application/json", Response: s.Limited, Header: h})
		return s.class(t, err, model.RateLimited).RetryAfter
	}
	for value, want := range map[string]time.Duration{"": 0, "2": 2 * time.Second, "90": 90 * time.Second, "3600": time.Hour,
		"6m0s": 6 * time.Minute, "soon": 0, "-1": 0} {
		if got := ask(t, Header{"Retry-After": value}); got != want {
			t.Errorf("retry-after %q: %s, want %s", value, got, want)
		}
	}
	if got := ask(t, Header{"Retry-After-Ms": "1500"}); got != 1500*time.Millisecond {
		t.Errorf("milliseconds: %s", got)
	}
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	if got := ask(t, Header{"Retry-After": date}); got < 59*time.Minute || got > 61*time.Minute {
		t.Errorf("the date of in an hour: %s", got)
	}
}

func (s suite) behind(t *testing.T) {
	for name, r := range s.Behind {
		text := s.Text("It is")
		for where, before := range map[string]string{"at once": "", "after a call": s.Call, "after half an answer": text[:len(text)/2]} {
			t.Run(name+" "+where, func(t *testing.T) {
				if at := strings.LastIndex(before, "\n\n"); at >= 0 {
					before = before[:at+2]
				}
				got, err := s.ask(t, Stream(before+r.Body))
				s.class(t, err, r.Class)
				if len(got.Message.Parts) > 0 {
					t.Errorf("left %+v", got)
				}
			})
		}
	}
}

// secrets: a provider, or what stands before it, quotes what it was sent.
func (s suite) secrets(t *testing.T) {
	quote := "you sent \r\n\x1b[31m " + suiteKey + " " + strings.Repeat("and more ", 1000)
	for _, e := range []Exchange{
		{Status: 401, ContentType: "application/json", Response: s.Says(quote), Header: Header{"Request-Id": suiteKey}},
		{Status: 400, ContentType: "text/plain", Response: quote},
		{Status: 200, ContentType: "text/plain; " + suiteKey, Response: quote},
		{Status: 200, ContentType: "application/json", Response: s.Says(quote)},
		Stream("event: error\ndata: " + s.Says(quote) + "\n\n"),
		Stream("data: " + suiteKey + "\n\n"),
	} {
		if _, err := s.ask(t, e); err == nil {
			t.Errorf("%d %s: no error", e.Status, e.ContentType)
		} else if strings.ContainsAny(err.Error(), "\x1b\r\n") {
			t.Errorf("control characters in %q", err)
		}
	}
	for r := range strings.FieldsSeq(suiteKey) {
		replay := NewReplay(Stream(s.Text("x")))
		if _, err := Ask(t.Context(), s.model(t, replay.Client()), suiteRequest); err != nil {
			t.Fatal(err)
		}
		if body := string(replay.Requests()[0]); strings.Contains(body, r) {
			t.Error("the key is in the body of the request")
		}
	}
}

func (s suite) noStream(t *testing.T) {
	for _, e := range []Exchange{{Status: 200, ContentType: "text/html", Response: "<html>sign in</html>"}, {Status: 200, Response: s.Text("x")},
		{Status: 200, ContentType: "application/json", Response: `{"type":"message","content":[]}`}} {
		_, err := s.ask(t, e)
		s.class(t, err, model.Protocol)
	}
}
