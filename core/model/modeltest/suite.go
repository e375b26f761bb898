package modeltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// Adapter is what TestAdapter needs to know of a provider's adapter: how to make
// it, and what the provider's answers look like on the wire.
type Adapter struct {
	// New makes a model that sends its requests to baseURL through client, with
	// this key, and gives a silent provider up after idle.
	New func(baseURL, key string, client *http.Client, idle time.Duration) (model.Model, error)
	// Answers are whole streams with what they say: at least one that ends with
	// text, one with a call, one with parallel calls, and one with a call whose
	// tool has no parameters.
	Answers map[string]Answer
	// Text is a whole stream that says just this text, in one event.
	Text func(text string) string
	// Call is the beginning of a stream: a complete call, and nothing behind it.
	Call string
	// Refusals are answers with an error status.
	Refusals map[string]Refusal
	// Behind are events that report an error inside a stream.
	Behind map[string]Refusal
	// Limited is the body of a refusal for too many requests, status 429.
	Limited string
	// Says is the body of an error with this message, such as one that quotes the
	// request.
	Says func(message string) string
}

// Answer is a stream and what it says.
type Answer struct {
	Body string
	Stop model.StopReason
	Text string
	// Calls are the calls of the application, with their arguments in canonical
	// JSON text; their ids do not count.
	Calls []Call
}

// Refusal is an error of the provider's and its class.
type Refusal struct {
	Status int
	Body   string
	Class  model.Class
}

// suiteKey is a canary: it must be in no error.
const suiteKey = "canary-key-0815-4711"

var suiteRequest = &model.Request{Messages: []record.Message{record.TextMessage(record.User, "Hello.")},
	Tools: []model.Tool{{Name: "look", Description: "Looks.", Schema: []byte(`{"type":"object"}`)}}}

// TestAdapter certifies a provider's adapter: answers in any pieces, cut
// anywhere, errors before, in and behind a stream, waits, silence, cancellation,
// long lines, and a key that is in no error.
func TestAdapter(t *testing.T, a Adapter) {
	s := suite{a}
	t.Run("answers", s.answers)
	t.Run("pieces", s.pieces)
	t.Run("cut anywhere", s.cut)
	t.Run("refusals", s.refusals)
	t.Run("retry after", s.retryAfter)
	t.Run("errors behind a 200", s.behind)
	t.Run("silence", s.silence)
	t.Run("broken connection", s.broken)
	t.Run("cancellation", s.cancellation)
	t.Run("long lines", s.longLines)
	t.Run("the caller's error", s.callersError)
	t.Run("secrets", s.secrets)
	t.Run("redirect", s.redirect)
	t.Run("no stream", s.noStream)
	t.Run("concurrent use", s.concurrent)
}

type suite struct{ Adapter }

func (s suite) model(t *testing.T, client *http.Client) model.Model {
	t.Helper()
	m, err := s.New("http://provider.invalid", suiteKey, client, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// ask sends one request that is answered by e, and holds what must be so however
// it ends: one request, its answer's body closed, an error that keeps the key.
func (s suite) ask(t *testing.T, e Exchange) (model.Response, error) {
	t.Helper()
	replay := NewReplay(e)
	resp, err := Ask(t.Context(), s.model(t, replay.Client()), suiteRequest)
	if n := len(replay.Requests()); n != 1 || replay.Open() != 0 {
		t.Errorf("%d requests and %d open bodies, want 1 and none", n, replay.Open())
	}
	if err != nil {
		s.typed(t, err)
	}
	return resp, err
}

// typed holds an error to what any of them is: typed, bounded, without the key.
func (s suite) typed(t *testing.T, err error) *model.Error {
	t.Helper()
	var typed *model.Error
	if !errors.As(err, &typed) {
		t.Fatalf("%T is no *model.Error: %v", err, err)
	}
	for _, text := range []string{err.Error(), typed.Message, fmt.Sprintf("%+v", err), fmt.Sprintf("%+v", typed.Err)} {
		if strings.Contains(text, suiteKey) {
			t.Errorf("the key is in the error: %s", text)
		}
	}
	if len(typed.Message) > 500 || len(err.Error()) > 2000 || typed.Message == "" {
		t.Errorf("an error text of %d and %d bytes", len(typed.Message), len(err.Error()))
	}
	return typed
}

func (s suite) class(t *testing.T, err error, want model.Class) *model.Error {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one of class %s", want)
	}
	typed := s.typed(t, err)
	if typed.Class != want {
		t.Errorf("class %s, want %s: %v", typed.Class, want, err)
	}
	return typed
}

func (s suite) answers(t *testing.T) {
	kinds := map[string]bool{}
	for name, a := range s.Answers {
		got, err := s.ask(t, Stream(a.Body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var calls []Call
		for _, c := range got.Message.Calls() {
			if !c.ProviderExecuted {
				calls = append(calls, Call{Tool: c.Tool, Args: string(c.Args.Inline)})
			}
			kinds["no arguments"] = kinds["no arguments"] || string(c.Args.Inline) == "{}"
		}
		if text := FinalText([]record.Message{got.Message}); text != a.Text || got.Stop != a.Stop || !cmp.Equal(calls, a.Calls) {
			t.Errorf("%s: %s, %q, %v; want %s, %q, %v", name, got.Stop, text, calls, a.Stop, a.Text, a.Calls)
		}
		if got.Provider == "" || got.Model == "" {
			t.Errorf("%s: the response does not say whose it is: %q %q", name, got.Provider, got.Model)
		}
		kinds["text"] = kinds["text"] || len(calls) == 0
		kinds["call"] = kinds["call"] || len(calls) == 1
		kinds["parallel calls"] = kinds["parallel calls"] || len(calls) > 1
	}
	for _, kind := range []string{"text", "call", "parallel calls", "no arguments"} {
		if !kinds[kind] {
			t.Errorf("the suite has no answer with %s", kind)
		}
	}
}

func (s suite) pieces(t *testing.T) {
	for name, a := range s.Answers {
		whole, err := s.ask(t, Stream(a.Body))
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(30) {
			if got, err := s.ask(t, Stream(a.Body).Rechunk(seed)); err != nil || !cmp.Equal(got, whole) {
				t.Errorf("%s in pieces of seed %d: %+v, %v", name, seed, got, err)
			}
		}
	}
}

func (s suite) cut(t *testing.T) {
	for name, a := range s.Answers {
		whole, err := s.ask(t, Stream(a.Body))
		if err != nil {
			t.Fatal(err)
		}
		shortest := len(strings.TrimRight(a.Body, "\r\n"))
		for n := range len(a.Body) {
			got, err := s.ask(t, Stream(a.Body).Cut(n))
			switch {
			case err == nil && n < shortest:
				t.Fatalf("%s cut at %d of %d bytes became %+v", name, n, len(a.Body), got)
			case err == nil && !cmp.Equal(got, whole):
				t.Fatalf("%s cut behind its end, at %d, became %+v", name, n, got)
			case err != nil && (model.ClassOf(err) != model.Transient || len(got.Message.Parts) > 0):
				t.Fatalf("%s cut at %d: %+v, %v", name, n, got, err)
			}
		}
	}
}

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

func (s suite) longLines(t *testing.T) {
	for _, size := range []int{65 << 10, 1_100_000, 5 << 20} {
		long := strings.Repeat("é", size/2)
		got, err := s.ask(t, Stream(s.Text(long)))
		if err != nil || FinalText([]record.Message{got.Message}) != long {
			t.Errorf("a line of %d bytes: %v", size, err)
		}
	}
	_, err := s.ask(t, Stream(s.Text(strings.Repeat("x", 17<<20))))
	s.class(t, err, model.Protocol)
}

func (s suite) callersError(t *testing.T) {
	enough := errors.New("enough")
	replay := NewReplay(Stream(s.Text("Hello.")))
	n := 0
	err := s.model(t, replay.Client()).Stream(t.Context(), suiteRequest, func(model.Part) error {
		if n++; n == 2 {
			return enough
		}
		return nil
	})
	if err != enough || n != 2 || replay.Open() != 0 {
		t.Errorf("%v after %d parts, %d open bodies", err, n, replay.Open())
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

func (s suite) noStream(t *testing.T) {
	for _, e := range []Exchange{{Status: 200, ContentType: "text/html", Response: "<html>sign in</html>"}, {Status: 200, Response: s.Text("x")},
		{Status: 200, ContentType: "application/json", Response: `{"type":"message","content":[]}`}} {
		_, err := s.ask(t, e)
		s.class(t, err, model.Protocol)
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
