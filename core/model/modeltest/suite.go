package modeltest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

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
	// Usage is what the stream reports, without its raw form. At least one answer
	// has some.
	Usage record.Usage
	// Back are texts of the stream that the provider needs back byte for byte in
	// the next request, such as the signature of its reasoning.
	Back []string
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

// TestAdapter certifies a provider's adapter: what it asks and sends back, answers
// in any pieces, cut anywhere, errors before, in and behind a stream, waits, silence, cancellation,
// long lines, and a key that is in no error.
func TestAdapter(t *testing.T, a Adapter) {
	s := suite{a}
	t.Run("answers", s.answers)
	t.Run("requests", s.requests)
	t.Run("what goes back", s.back)
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

func (s suite) callersError(t *testing.T) {
	enough := errors.New("enough")
	replay := NewReplay(Stream(s.Text("Hello.")))
	parts := 0
	if err := s.model(t, replay.Client()).Stream(t.Context(), suiteRequest, func(model.Part) error { parts++; return nil }); err != nil {
		t.Fatal(err)
	}
	for stop := 1; stop <= parts; stop++ {
		replay, n := NewReplay(Stream(s.Text("Hello."))), 0
		err := s.model(t, replay.Client()).Stream(t.Context(), suiteRequest, func(model.Part) error {
			if n++; n == stop {
				return enough
			}
			return nil
		})
		if err != enough || n != stop || replay.Open() != 0 {
			t.Errorf("stopped at part %d: %v after %d parts, %d open bodies", stop, err, n, replay.Open())
		}
	}
}
