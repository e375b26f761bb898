package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/record"
)

// serve answers with handle and returns a client of it.
func serve(t *testing.T, handle http.HandlerFunc) *client.Client {
	t.Helper()
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL+"/", client.Options{Tenant: "acme", Principal: "ada@local"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Every method makes the request its route wants and reads its answer.
func TestRoutes(t *testing.T) {
	var got string
	reply := ""
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.RequestURI + " " + strings.TrimSpace(string(body))
		if r.Header.Get("Layover-Tenant") != "acme" || r.Header.Get("Layover-Principal") != "ada@local" {
			t.Errorf("headers of %s: %v", got, r.Header)
		}
		if (r.Method == "POST") != (r.Header.Get("Content-Type") == "application/json") {
			t.Errorf("content type of %s", got)
		}
		io.WriteString(w, reply)
	})
	ctx := t.Context()
	turns := 2.0
	for _, tt := range []struct {
		reply, want string
		call        func() (any, error)
	}{
		{`{"v":1,"submission":"s1","conversation":"c1","receipt":"accepted","at":"2026-01-02T03:04:05Z"}`,
			`POST /v1/conversations/a%2Fb/submissions {"agent":"echo","key":"k","input":{"x":"<&>"},"allowance":{"turns":2}}`,
			func() (any, error) {
				s, err := c.Submit(ctx, "a/b", wire.Submit{Agent: "echo", Key: "k", Input: json.RawMessage(`{"x":"<&>"}`), Allowance: wire.Allowance{Turns: &turns}})
				return s.Submission == "s1" && s.Receipt == wire.Accepted && s.At.Year() == 2026, err
			}},
		{`{"v":1}`, `POST /v1/submissions {"agent":"echo","input":1}`,
			func() (any, error) {
				s, err := c.Submit(ctx, "", wire.Submit{Agent: "echo", Input: json.RawMessage(`1`)})
				return s.V == 1, err
			}},
		{`{"batchItemFailures":[{"itemIdentifier":"m1"}]}`, `POST /v1/events {"Records":[]}`,
			func() (any, error) {
				r, err := c.Send(ctx, json.RawMessage(`{"Records":[]}`))
				return len(r.Failures) == 1 && r.Failures[0].Message == "m1", err
			}},
		{`{"conversation":"..","state":"idle"}`, `GET /v1/conversations/%2E%2E `,
			func() (any, error) { s, err := c.Status(ctx, ".."); return s.State == "idle", err }},
		{`{"ok":true}`, `GET /v1/conversations/c1/verify `,
			func() (any, error) { v, err := c.Verify(ctx, "c1"); return v.OK, err }},
		{`{"submission":"s1"}`, `POST /v1/conversations/c1/abort {"reason":"r"}`,
			func() (any, error) {
				a, err := c.Abort(ctx, "c1", wire.Abort{Reason: "r"})
				return a.Submission == "s1", err
			}},
		{`{"key":"k","receipt":"accepted"}`, `POST /v1/conversations/c1/steer {"text":"hurry","key":"k"}`,
			func() (any, error) {
				r, err := c.Steer(ctx, "c1", wire.Steer{Text: "hurry", Key: "k"})
				return r.Key == "k" && r.Receipt == wire.Accepted, err
			}},
		{`{"submission":"s2"}`, `POST /v1/conversations/c1/followUp {"input":"more","agent":"echo"}`,
			func() (any, error) {
				r, err := c.FollowUp(ctx, "c1", wire.FollowUp{Input: json.RawMessage(`"more"`), Agent: "echo"})
				return r.Submission == "s2", err
			}},
		{`{"conversations":[{"conversation":"c1"}],"next":"7"}`, `GET /v1/conversations?cursor=9&limit=2 `,
			func() (any, error) {
				p, err := c.Conversations(ctx, "9", 2)
				return len(p.Conversations) == 1 && p.Next == "7", err
			}},
		{`{"conversations":[{"conversation":"c1"}]}`, `GET /v1/conversations?active=true `,
			func() (any, error) { l, err := c.Active(ctx); return len(l) == 1, err }},
		{`{"call":"k1"}`, `POST /v1/conversations/c1/resolve {"call":"k1","resolution":"happened","result":1}`,
			func() (any, error) {
				r, err := c.Resolve(ctx, "c1", wire.Resolve{Call: "k1", Resolution: record.Happened, Result: json.RawMessage("1")})
				return r.Call == "k1", err
			}},
		{`{"approvals":[{"id":"a1"}]}`, `GET /v1/approvals `,
			func() (any, error) { l, err := c.Approvals(ctx); return len(l) == 1 && l[0].ID == "a1", err }},
		{`{"id":"a.1","decision":"approved"}`, `POST /v1/approvals/a.1 {"decision":"approve"}`,
			func() (any, error) {
				d, err := c.Decide(ctx, "a.1", wire.Decide{Decision: wire.Approve})
				return d.Decision == record.Approved, err
			}},
		{`{"agents":[{"name":"echo"}]}`, `GET /v1/agents `,
			func() (any, error) { l, err := c.Agents(ctx); return len(l) == 1 && l[0].Name == "echo", err }},
		{`{"status":"parked"}`, `GET /v1/conversations/c1/submissions/s1?until=parked&wait=1.5s `,
			func() (any, error) {
				p, err := c.Progress(ctx, "c1", "s1", client.UntilParked, 1500*time.Millisecond)
				return p.Status == "parked" && !p.Settled(), err
			}},
		{`{"status":"failed"}`, `GET /v1/submissions/s1?until=settled&wait=0s `,
			func() (any, error) {
				p, err := c.Progress(ctx, "", "s1", client.UntilSettled, 0)
				return p.Settled(), err
			}},
	} {
		reply = tt.reply
		ok, err := tt.call()
		if err != nil || ok != true || got != tt.want {
			t.Errorf("got  %s: %v, %v\nwant %s", got, ok, err, tt.want)
		}
	}
}

func TestProblems(t *testing.T) {
	status, body := 409, `{"type":"about:blank","title":"Conflict","status":409,"detail":"too late","kind":"decided","op":"approve","hint":"look"}`
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	_, err := c.Status(t.Context(), "c1")
	var p *client.Problem
	if !errors.As(err, &p) || *p != (client.Problem{Status: 409, Kind: "decided", Op: "approve", Detail: "too late", Hint: "look"}) || p.Error() != "approve: too late" {
		t.Errorf("problem = %+v", err)
	}
	for line, err := range c.Records(t.Context(), "c1") {
		if line != nil || !errors.As(err, &p) || p.Kind != "decided" {
			t.Errorf("records: %s, %v", line, err)
		}
	}
	for _, other := range []string{"<html>gateway</html>", "{}", ""} {
		status, body = 502, other
		if _, err := c.Status(t.Context(), "c1"); !errors.As(err, &p) || p.Status != 502 || p.Kind != "internal" || !strings.Contains(p.Detail, "502") {
			t.Errorf("%q: %+v", other, err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	srv := httptest.NewServer(nil)
	srv.Close()
	c, err := client.New(srv.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var u *client.Unreachable
	if _, err := c.Agents(t.Context()); !errors.As(err, &u) || u.URL != srv.URL || errors.Unwrap(u) == nil || strings.Count(err.Error(), srv.URL) != 1 {
		t.Errorf("%v", err)
	}
	for _, err := range c.Records(t.Context(), "c1") {
		if !errors.As(err, &u) {
			t.Errorf("records: %v", err)
		}
	}
	// An answer that is not of this API.
	c = serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>hello</html>") })
	if _, err := c.Agents(t.Context()); !errors.As(err, &u) {
		t.Errorf("%v", err)
	}
}

// A caller who stops asking hears its own reason, not that the server is gone.
func TestCancel(t *testing.T) {
	asked := make(chan struct{})
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := c.Await(ctx, "c1", "s1", client.UntilSettled, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A server that hangs is unreachable once the time of one request is over.
func TestTimeout(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, client.Options{Timeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var u *client.Unreachable
	if _, err := c.Agents(t.Context()); !errors.As(err, &u) || !strings.Contains(err.Error(), "took too long") {
		t.Errorf("%v", err)
	}
}

func TestAwaitAsksAgain(t *testing.T) {
	answers := []string{"queued", "running", "parked", "completed"}
	var waits []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		waits = append(waits, r.URL.Query().Get("wait"))
		fmt.Fprintf(w, `{"status":%q}`, answers[len(waits)-1])
	})
	for until, want := range map[client.Until]string{client.UntilParked: "parked", client.UntilSettled: "completed"} {
		waits = nil
		p, err := c.Await(t.Context(), "c1", "s1", until, 0)
		if err != nil || p.Status != want || waits[0] != "20s" {
			t.Errorf("until %s: %+v, %v after waits of %v", until, p, err, waits)
		}
	}
	// The last request waits for what is left, and its answer counts.
	waits = nil
	p, err := c.Await(t.Context(), "c1", "s1", client.UntilSettled, 5*time.Second)
	if err != nil || p.Status != "queued" || len(waits) != 1 {
		t.Errorf("%+v, %v after waits of %v", p, err, waits)
	}
}

func TestRecords(t *testing.T) {
	good := `{"slot":1,"records":[{"kind":"runStarted"}]}` + "\n"
	for body, want := range map[string]string{
		"":          "0 <nil>",
		good:        "1 <nil>",
		good + good: "2 <nil>",
		good + `{"type":"about:blank","kind":"corrupt","op":"records","detail":"bad digest"}` + "\n": "1 records: bad digest",
		good + `{"slot":2,"rec`: "1 broken off",
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
		lines, failed := 0, error(nil)
		for line, err := range c.Records(t.Context(), "c1") {
			if err != nil {
				failed = err
				continue
			}
			lines++
			if string(line)+"\n" != good {
				t.Errorf("line %q", line)
			}
		}
		got := fmt.Sprint(lines, " ", failed)
		var u *client.Unreachable
		if errors.As(failed, &u) {
			got = fmt.Sprint(lines, " broken off")
		}
		if got != want {
			t.Errorf("%q: %s, want %s", body, got, want)
		}
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, good+good) })
	for range c.Records(t.Context(), "c1") {
		break // a reader may stop
	}
}

func TestNewRefuses(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:7077", "ftp://host", "http://", "://", "localhost"} {
		if _, err := client.New(address, client.Options{}); err == nil {
			t.Errorf("%q was taken", address)
		}
	}
}
