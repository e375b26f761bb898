package functions_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/functions"
)

// frames takes a stream of server-sent events apart: id, event and data.
func frames(t *testing.T, body string) (list [][3]string) {
	t.Helper()
	for block := range strings.SplitSeq(body, "\n\n") {
		var f [3]string
		for line := range strings.Lines(block) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			value = strings.TrimPrefix(value, " ")
			switch name {
			case "id":
				f[0] = value
			case "event":
				f[1] = value
			case "data":
				f[2] += value
			case "", "retry":
			default:
				t.Errorf("unknown field in %q", block)
			}
		}
		if f[2] != "" {
			list = append(list, f)
		}
	}
	return list
}

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The events of a conversation are numbered through, and a reader goes on
// behind the last one it has.
func TestAPIEventStream(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"echo","input":"hi"}`)
		w.work("c1")
	}
	resp := w.call("GET", "/v1/conversations/c1/events?follow=false", "")
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != "text/event-stream" {
		t.Fatalf("%s, %s", resp.Status, got)
	}
	all := frames(t, bodyOf(t, resp))
	kinds := ""
	for i, f := range all {
		var e event.Event
		if err := json.Unmarshal([]byte(f[2]), &e); err != nil {
			t.Fatal(err)
		}
		if f[0] != fmt.Sprint(i+1) || f[1] != "" || e.Conversation != "c1" || e.Provisional {
			t.Errorf("frame %d = %v", i, f)
		}
		kinds += " " + string(e.Data.Kind())
	}
	if want := strings.Repeat(" RunStarted TurnStarted ResponseCompleted RunCompleted", 2); kinds != want {
		t.Errorf("kinds%s\nwant %s", kinds, want)
	}
	for _, resume := range [][]string{{"", "Last-Event-ID", "3"}, {"&after=3"}, {"&after=1", "Last-Event-ID", "3"}} {
		resp := w.call("GET", "/v1/conversations/c1/events?follow=false"+resume[0], "", resume[1:]...)
		if rest := frames(t, bodyOf(t, resp)); len(rest) != len(all)-3 || rest[0] != all[3] {
			t.Errorf("resumed by %v: %v", resume, rest)
		}
	}

	resp = w.call("GET", "/v1/conversations/c1/events", "", "Accept", "application/x-ndjson")
	if got := resp.Header.Get("Content-Type"); got != "application/x-ndjson" {
		t.Errorf("content type %q", got)
	}
	n := 0
	for line := range strings.Lines(bodyOf(t, resp)) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil || v["id"] != all[n][0] || v["kind"] == nil || v["v"] != 1.0 {
			t.Errorf("line %q: %v", line, err)
		}
		n++
	}
	if n != len(all) {
		t.Errorf("%d lines, want %d", n, len(all))
	}
}

// A request for the headers of a stream ends.
func TestAPIEventsHead(t *testing.T) {
	w := newWorld(t)
	answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"echo","input":"hi"}`)
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, httptest.NewRequest("HEAD", "http://localhost/v1/conversations/c1/events", nil))
	if got := rec.Header().Get("Content-Type"); rec.Code != 200 || got != "text/event-stream" {
		t.Errorf("%d, %s", rec.Code, got)
	}
}

// Who follows sees what happens next; it ends with its reader.
func TestAPIEventsFollow(t *testing.T) {
	w := newWorld(t)
	srv := httptest.NewServer(w.api)
	defer srv.Close()
	answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"payer","input":{"cents":7}}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", srv.URL+"/v1/conversations/c1/events?format=lines&follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w.work("c1") // after the stream began
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), `"kind":"RunSuspended"`) {
			return
		}
	}
	t.Error("the stream ended without the event")
}

// source yields what a test wants, and then waits for its reader to leave.
type source struct {
	items []engine.Numbered
	err   error
	left  chan struct{}
}

func (s source) Events(ctx context.Context, _ journal.Lane, _ engine.EventsOptions) iter.Seq2[engine.Numbered, error] {
	return func(yield func(engine.Numbered, error) bool) {
		defer close(s.left)
		for _, n := range s.items {
			if !yield(n, nil) {
				return
			}
		}
		if s.err != nil {
			yield(engine.Numbered{}, s.err)
			return
		}
		<-ctx.Done()
	}
}

// withEvents is the API of a world with other events.
func (w *world) withEvents(s functions.EventSource, heartbeat time.Duration) http.Handler {
	return functions.NewAPI(w.admit, functions.APIOptions{LoopbackOnly: true, Log: w.log, Events: s, Heartbeat: heartbeat})
}

// A provisional event has no id, so nobody resumes behind it; a stream that
// breaks off says why; a silent one shows that it lives.
func TestAPIEventForms(t *testing.T) {
	w := newWorld(t)
	answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"echo","input":"hi"}`)
	s := source{left: make(chan struct{}), err: errors.New("the disk is away"), items: []engine.Numbered{
		{Ordinal: 7, Event: event.Event{Run: "r", Conversation: "c1", Agent: "echo", Sequence: 7, Epoch: 1, Data: event.TurnStarted{}}},
		{Event: event.Event{Run: "r", Conversation: "c1", Agent: "echo", Sequence: 7, Sub: 1, Epoch: 1, Provisional: true, Data: event.TextDelta{Text: "a\n\nb\r"}}},
	}}
	rec := httptest.NewRecorder()
	w.withEvents(s, time.Hour).ServeHTTP(rec, httptest.NewRequest("GET", "http://localhost/v1/conversations/c1/events", nil))
	got := frames(t, rec.Body.String())
	if len(got) != 3 || got[0][0] != "7" || got[1][0] != "" || got[2][1] != "problem" || !strings.Contains(got[2][2], "the disk is away") {
		t.Fatalf("frames = %q", got)
	}
	var e event.Event
	if err := json.Unmarshal([]byte(got[1][2]), &e); err != nil || e.Data.(event.TextDelta).Text != "a\n\nb\r" {
		t.Errorf("the delta is %q, %v", got[1][2], err)
	}
	<-s.left
}

func TestAPIEventHeartbeat(t *testing.T) {
	for format, want := range map[string]string{"sse": "retry: 1000\n\n: \n\n: \n\n", "lines": "\n\n"} {
		w := newWorld(t)
		answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"echo","input":"hi"}`)
		synctest.Test(t, func(t *testing.T) {
			s := source{left: make(chan struct{})}
			ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
			defer cancel()
			rec := httptest.NewRecorder()
			req := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/v1/conversations/c1/events?follow=true&format="+format, nil)
			w.withEvents(s, 15*time.Second).ServeHTTP(rec, req)
			if got := rec.Body.String(); got != want {
				t.Errorf("%s: %q, want %q", format, got, want)
			}
			<-s.left
		})
	}
}

// A reader that stops reading is let go: it holds neither the source nor the
// server, and comes back with the last id it has.
func TestAPIEventsReaderStalls(t *testing.T) {
	w := newWorld(t)
	answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"echo","input":"hi"}`)
	s := source{left: make(chan struct{})}
	big := strings.Repeat("x", 1<<20)
	for i := range 64 {
		s.items = append(s.items, engine.Numbered{Ordinal: uint64(i + 1), Event: event.Event{Run: "r", Data: event.TextDelta{Text: big}}})
	}
	api := functions.NewAPI(w.admit, functions.APIOptions{LoopbackOnly: true, Log: w.log, Events: s, Stall: 50 * time.Millisecond})
	srv := httptest.NewServer(api)
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/conversations/c1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select { // nobody ever reads
	case <-s.left:
	case <-time.After(20 * time.Second):
		t.Error("the stream holds on to a reader that does not read")
		conn.Close()
	}
}

func TestAPIConversations(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		answer[wire.Submitted](w, 202, "POST", fmt.Sprintf("/v1/conversations/c%d/submissions", i), `{"agent":"echo","input":"hi"}`)
	}
	w.work("c3")
	var got []string
	for path := "/v1/conversations?limit=2"; ; {
		page := answer[wire.Conversations](w, 200, "GET", path, "")
		for _, st := range page.Conversations {
			got = append(got, st.Conversation+":"+st.State)
			if st.Latest != nil && (st.Latest.Status != "completed" || st.Latest.Output != nil) {
				t.Errorf("latest = %+v", st.Latest)
			}
		}
		if page.Next == "" {
			break
		}
		path = "/v1/conversations?limit=2&cursor=" + page.Next
	}
	if want := "c4:ready c3:idle c2:ready c1:ready c0:ready"; strings.Join(got, " ") != want {
		t.Errorf("listed %v, want %s", got, want)
	}
	if active := answer[wire.Conversations](w, 200, "GET", "/v1/conversations?active=true", "").Conversations; len(active) != 4 {
		t.Errorf("active = %+v", active)
	}
	if other := answer[wire.Conversations](w, 200, "GET", "/v1/conversations", "", "Layover-Tenant", "other").Conversations; len(other) != 0 {
		t.Errorf("of another tenant = %+v", other)
	}
}

// The token is wanted before anything else is said.
func TestAPIToken(t *testing.T) {
	w := newWorld(t)
	api := functions.NewAPI(w.admit, functions.APIOptions{Token: "s3cret-token", Log: w.log})
	for _, tt := range []struct {
		name, value string
		status      int
	}{
		{"", "", 401}, {"Authorization", "Bearer s3cret-toke", 401}, {"Authorization", "s3cret-token", 401}, {"Authorization", "Basic s3cret-token", 401},
		{"Cookie", functions.TokenCookie + "=s3cret-token", 401},
		{"Authorization", "Bearer s3cret-token", 200}, {"Authorization", "bearer  s3cret-token", 200},
		{"Cookie", functions.TokenCookie + "=" + functions.SessionOf("s3cret-token"), 200},
	} {
		r := httptest.NewRequest("GET", "http://layover.example/v1/agents", nil)
		if tt.name != "" {
			r.Header.Set(tt.name, tt.value)
		}
		rec := httptest.NewRecorder()
		api.ServeHTTP(rec, r)
		if rec.Code != tt.status || strings.Contains(rec.Body.String(), "s3cret") {
			t.Errorf("%s: %s: %d, %s", tt.name, tt.value, rec.Code, rec.Body)
		}
		if tt.status == 401 && rec.Header().Get("WWW-Authenticate") == "" {
			t.Error("401 without WWW-Authenticate")
		}
	}
}
