package functions_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/functions"
)

// A body that is announced as too large is refused before it is read.
func TestAPIRefusesWhatIsAnnounced(t *testing.T) {
	w := newWorld(t)
	r := httptest.NewRequest("POST", "/v1/submissions", errReader{t})
	r.Host, r.ContentLength = "127.0.0.1", 1<<40
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	if rec.Code != 413 || !strings.Contains(rec.Body.String(), `"kind":"too-large"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

type errReader struct{ t *testing.T }

func (r errReader) Read([]byte) (int, error) {
	r.t.Error("the body is read")
	return 0, io.EOF
}

func TestAPIRefuses(t *testing.T) {
	w := newWorld(t)
	s := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/parked/submissions", `{"agent":"payer","key":"k","input":{"cents":7}}`)
	w.work("parked")
	approval := answer[wire.Approvals](w, 200, "GET", "/v1/approvals", "").Approvals[0].ID
	done := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/done/submissions", `{"agent":"echo","input":"hi"}`)
	w.work("done")

	const submit, conversation = "/v1/conversations/c1/submissions", "/v1/conversations/parked"
	long := strings.Repeat("x", functions.MaxBody)
	for _, tt := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		kind, detail             string
	}{
		{"no route", "GET", "/v1/nothing", "", nil, 404, "not-found", "/v1/nothing"},
		{"path in no UTF-8", "POST", "/v1/conversations/a%ff/submissions", `{"agent":"echo","input":"a"}`, nil, 400, "invalid", "the path is not UTF-8"},
		{"tenant in no UTF-8", "GET", "/v1/agents", "", []string{"Layover-Tenant", "a\xff"}, 400, "invalid", "Layover-Tenant is not UTF-8"},
		{"principal in no UTF-8", "POST", submit, `{"agent":"echo","input":"a"}`, []string{"Layover-Principal", "\xe9"}, 400, "invalid", "Layover-Principal"},
		{"empty segment", "GET", "/v1/conversations//events", "", nil, 404, "not-found", "//events"},
		{"empty last segment", "GET", "/v1/conversations/parked/", "", nil, 404, "not-found", "parked/"},
		{"root", "GET", "/", "", nil, 404, "not-found", "/"},
		{"method", "DELETE", "/v1/agents", "", nil, 405, "invalid", "DELETE"},
		{"method of a conversation", "PUT", conversation, "", nil, 405, "invalid", "PUT"},

		{"empty body", "POST", submit, "", nil, 400, "invalid", "empty"},
		{"not JSON", "POST", submit, "{", nil, 400, "invalid", "malformed"},
		{"not an object", "POST", submit, "[1]", nil, 400, "invalid", "not a JSON object"},
		{"null", "POST", submit, "null", nil, 400, "invalid", "not a JSON object"},
		{"duplicate key", "POST", submit, `{"agent":"echo","agent":"payer","input":1}`, nil, 400, "invalid", "duplicate member"},
		{"trailing data", "POST", submit, `{"agent":"echo","input":"a"} {}`, nil, 400, "invalid", "data after the value"},
		{"bad UTF-8", "POST", submit, "{\"agent\":\"\xff\"}", nil, 400, "invalid", "UTF-8"},
		{"unknown field", "POST", submit, `{"agent":"echo","input":"a","extra":1}`, nil, 400, "invalid", `"extra"`},
		{"field in another case", "POST", submit, `{"Agent":"echo","input":"a"}`, nil, 400, "invalid", `"Agent"`},
		{"unknown nested field", "POST", submit, `{"agent":"echo","input":"a","allowance":{"money":1}}`, nil, 400, "invalid", `"money"`},
		{"wrong type", "POST", submit, `{"agent":7,"input":"a"}`, nil, 400, "invalid", "agent"},
		{"conversation in the body", "POST", "/v1/submissions", `{"agent":"echo","input":"a","conversation":"x"}`, nil, 400, "invalid", `"conversation"`},
		{"content type", "POST", submit, `{"agent":"echo","input":"a"}`, []string{"Content-Type", "text/plain"}, 400, "invalid", "text/plain"},
		{"body too large", "POST", submit, `{"agent":"echo","input":"` + long + long + `"}`, nil, 413, "too-large", "larger"},
		{"message too large", "POST", submit, `{"agent":"echo","input":"` + long + `"}`, nil, 413, "too-large", "limit"},

		{"unknown agent", "POST", submit, `{"agent":"nobody","input":"a"}`, nil, 400, "invalid", "nobody"},
		{"no agent", "POST", submit, `{"input":"a"}`, nil, 400, "invalid", "the agent is missing"},
		{"agent as long as a body", "POST", submit, `{"agent":"` + long[:1<<19] + `","input":"a"}`, nil, 400, "invalid", "xxx…"},
		{"an array as a text", "POST", submit, `{"agent":[],"input":"a"}`, nil, 400, "invalid", "an array does not fit"},
		{"no input", "POST", submit, `{"agent":"echo"}`, nil, 400, "invalid", "input"},
		{"input does not fit", "POST", submit, `{"agent":"payer","input":{"cents":"x"}}`, nil, 400, "invalid", "cents"},
		{"key with other content", "POST", conversation + "/submissions", `{"agent":"payer","key":"k","input":{"cents":8}}`, nil, 409, "conflict", "key"},
		{"tenant", "POST", submit, `{"agent":"echo","input":"a"}`, []string{"Layover-Tenant", "\u200b"}, 400, "invalid", "tenant"},
		{"long conversation", "POST", "/v1/conversations/" + strings.Repeat("c", 300) + "/submissions", `{"agent":"echo","input":"a"}`, nil, 400, "invalid", "conversation"},

		{"event is no object", "POST", "/v1/events", `[]`, nil, 400, "invalid", "SQS event"},
		{"event without records", "POST", "/v1/events", `{}`, nil, 400, "invalid", "Records"},

		{"unknown conversation", "GET", "/v1/conversations/none", "", nil, 404, "not-found", "none"},
		{"another tenant's conversation", "GET", conversation, "", []string{"Layover-Tenant", "other"}, 404, "not-found", "parked"},
		{"records of none", "GET", "/v1/conversations/none/records", "", nil, 404, "not-found", "none"},
		{"verify none", "GET", "/v1/conversations/none/verify", "", nil, 404, "not-found", "none"},
		{"unknown submission", "GET", conversation + "/submissions/none", "", nil, 404, "not-found", "none"},
		{"submission of another conversation", "GET", conversation + "/submissions/" + done.Submission, "", nil, 404, "not-found", done.Submission},
		{"wait", "GET", conversation + "/submissions/" + s.Submission + "?wait=20", "", nil, 400, "invalid", "20"},
		{"negative wait", "GET", conversation + "/submissions/" + s.Submission + "?wait=-1s", "", nil, 400, "invalid", "-1s"},
		{"until", "GET", conversation + "/submissions/" + s.Submission + "?until=happy", "", nil, 400, "invalid", "happy"},

		{"events of none", "GET", "/v1/conversations/none/events", "", nil, 404, "not-found", "none"},
		{"events after nonsense", "GET", conversation + "/events?after=x", "", nil, 400, "invalid", `"x"`},
		{"events after a negative", "GET", conversation + "/events", "", []string{"Last-Event-ID", "-1"}, 400, "invalid", "-1"},
		{"events in another format", "GET", conversation + "/events?format=xml", "", nil, 400, "invalid", "xml"},
		{"follow", "GET", conversation + "/events?follow=1", "", nil, 400, "invalid", "follow"},
		{"live", "GET", conversation + "/events?live=yes", "", nil, 400, "invalid", "live"},
		{"tail that ends", "GET", "/v1/events?follow=false", "", nil, 400, "invalid", "follow=false"},
		{"tail without a feed", "GET", "/v1/events", "", nil, 501, "unsupported", "all conversations"},
		{"limit", "GET", "/v1/conversations?limit=0", "", nil, 400, "invalid", "limit"},
		{"limit is no number", "GET", "/v1/conversations?limit=many", "", nil, 400, "invalid", "many"},
		{"cursor", "GET", "/v1/conversations?cursor=x", "", nil, 400, "invalid", `"x"`},
		{"active", "GET", "/v1/conversations?active=perhaps", "", nil, 400, "invalid", "perhaps"},

		{"unknown approval", "POST", "/v1/approvals/none", `{"decision":"approve"}`, nil, 404, "not-found", "none"},
		{"unknown decision", "POST", "/v1/approvals/" + approval, `{"decision":"maybe"}`, nil, 400, "invalid", "maybe"},
		{"no decision", "POST", "/v1/approvals/" + approval, `{}`, nil, 400, "invalid", "decision"},
		{"other arguments", "POST", "/v1/approvals/" + approval, `{"decision":"approve","argsDigest":"00"}`, nil, 409, "conflict", "other arguments"},
		{"another tenant's approval", "POST", "/v1/approvals/" + approval, `{"decision":"deny"}`, []string{"Layover-Tenant", "other"}, 404, "not-found", approval},

		{"abort none", "POST", "/v1/conversations/none/abort", `{}`, nil, 404, "not-found", "none"},
		{"abort a settled run", "POST", "/v1/conversations/done/abort", `{}`, nil, 409, "settled", "done"},
		{"abort field", "POST", conversation + "/abort", `{"force":true}`, nil, 400, "invalid", "force"},
		{"resolve what is known", "POST", conversation + "/resolve", `{"call":"x","resolution":"notHappened"}`, nil, 404, "not-found", "x"},
		{"resolution", "POST", conversation + "/resolve", `{"call":"x","resolution":"perhaps"}`, nil, 400, "invalid", "perhaps"},
		{"result is missing", "POST", conversation + "/resolve", `{"call":"x","resolution":"happened"}`, nil, 400, "invalid", "result"},
		{"steer with nothing", "POST", conversation + "/steer", `{}`, nil, 400, "invalid", "text is empty"},
		{"steer field", "POST", conversation + "/steer", `{"text":"a","when":"now"}`, nil, 400, "invalid", "when"},
		{"steer type", "POST", conversation + "/steer", `{"text":{}}`, nil, 400, "invalid", "text"},
		{"steer none", "POST", "/v1/conversations/none/steer", `{"text":"a"}`, nil, 404, "not-found", "none"},
		{"steer what has ended", "POST", "/v1/conversations/done/steer", `{"text":"a"}`, nil, 409, "settled", "done"},
		{"steer another's submission", "POST", conversation + "/steer", `{"text":"a","submission":"s_x"}`, nil, 409, "settled", "s_x"},
		{"steer at length", "POST", conversation + "/steer", `{"text":"` + long[:300<<10] + `"}`, nil, 413, "too-large", "limit"},
		{"follow up with nothing", "POST", conversation + "/followUp", `{}`, nil, 400, "invalid", "input"},
		{"follow up nothing", "POST", "/v1/conversations/none/followUp", `{"input":1}`, nil, 404, "not-found", "none"},
		{"follow-up field", "POST", conversation + "/followUp", `{"input":1,"text":"a"}`, nil, 400, "invalid", "text"},
		{"follow-up that does not fit", "POST", conversation + "/followUp", `{"input":1}`, nil, 400, "invalid", "does not fit"},
		{"follow-up by nobody", "POST", conversation + "/followUp", `{"input":1,"agent":"nobody"}`, nil, 400, "invalid", "nobody"},

		{"rebound name", "GET", "/v1/agents", "", []string{"Host", "evil.example:7077"}, 403, "forbidden", "evil.example"},
		{"other origin", "POST", submit, `{"agent":"echo","input":"a"}`, []string{"Origin", "https://evil.example"}, 403, "forbidden", "evil.example"},
		{"origin of another port", "GET", "/v1/agents", "", []string{"Origin", "http://127.0.0.1:1"}, 403, "forbidden", "127.0.0.1:1"},
		{"opaque origin", "POST", submit, `{"agent":"echo","input":"a"}`, []string{"Origin", "null"}, 403, "forbidden", "null"},
		{"cross-site", "GET", "/v1/agents", "", []string{"Sec-Fetch-Site", "cross-site"}, 403, "forbidden", "cross-site"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := *w
			w.t = t
			p := answer[wire.Problem](&w, tt.status, tt.method, tt.path, tt.body, tt.headers...)
			if p.Kind != tt.kind || !strings.Contains(p.Detail, tt.detail) || p.Status != tt.status || p.Type != "about:blank" || p.Title == "" || p.Op == "" || p.Hint == "" || len(p.Detail) > 2100 {
				t.Errorf("problem = %+v, want kind %s about %q", p, tt.kind, tt.detail)
			}
		})
	}
	if st := answer[wire.Status](w, 200, "GET", conversation, ""); st.State != "parked" || st.Queued != 0 {
		t.Errorf("a refusal left something behind: %+v", st)
	}
}

func TestAPISecondDecisionIsRefused(t *testing.T) {
	w := newWorld(t)
	answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"payer","input":{"cents":7}}`)
	w.work("c1")
	path := "/v1/approvals/" + answer[wire.Approvals](w, 200, "GET", "/v1/approvals", "").Approvals[0].ID
	answer[wire.Decision](w, 200, "POST", path, `{"decision":"deny"}`, "Layover-Principal", "ada")
	for _, decision := range []string{"deny", "approve"} {
		if p := answer[wire.Problem](w, 409, "POST", path, `{"decision":"`+decision+`"}`); p.Kind != "decided" {
			t.Errorf("second %s: %+v", decision, p)
		}
	}
	w.work("c1")
	if p := answer[wire.Problem](w, 409, "POST", path, `{"decision":"approve"}`); p.Kind != "decided" && p.Kind != "settled" {
		t.Errorf("after the end: %+v", p)
	}
}

func TestAPILeniences(t *testing.T) {
	w := newWorld(t)
	for _, headers := range [][]string{
		{"Content-Type", "application/json; charset=utf-8"}, {"Content-Type", "application/cloudevents+json"},
		{"Content-Type", "application/x-www-form-urlencoded"}, {"Content-Type", ""},
		{"Origin", "http://127.0.0.1:7077"}, {"Sec-Fetch-Site", "same-origin"},
		{"Host", "localhost:7077"}, {"Host", "[::1]:7077"}, {"Host", "LOCALHOST"}, {"Host", "127.0.0.2"},
	} {
		answer[wire.Submitted](w, 202, "POST", "/v1/submissions", `{"agent":"echo","input":"a"}`, headers...)
	}
}

// A store that does not answer is a problem the caller can repeat.
func TestAPIStoreFails(t *testing.T) {
	w := newWorld(t)
	w.journal.SetFault(func(string, bool) error { return errors.New("disk on fire") })
	p := answer[wire.Problem](w, 503, "POST", "/v1/submissions", `{"agent":"echo","input":"a"}`)
	if p.Kind != "unavailable" || p.Hint == "" {
		t.Errorf("problem = %+v", p)
	}
}

// damaged loses a byte of every batch from a slot on.
type damaged struct {
	journal.Journal
	from *uint64
}

func (d damaged) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		for s, err := range d.Journal.Read(ctx, lane, from) {
			if err == nil && s.Slot >= *d.from {
				s.Body = s.Body[1:]
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// What is good is shown, and a listing that breaks off says so.
func TestAPIDamagedLog(t *testing.T) {
	from := uint64(100)
	w := newWorldOn(t, memjournal.New(), func(j journal.Journal) journal.Journal { return damaged{j, &from} })
	answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"echo","input":"hi"}`)
	w.work("c1")
	from = 2
	raw, err := io.ReadAll(w.call("GET", "/v1/conversations/c1/records", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"slot":1`) || !strings.Contains(lines[1], `"kind":"corrupt"`) {
		t.Errorf("records = %q", lines)
	}
	if v := answer[wire.Verification](w, 200, "GET", "/v1/conversations/c1/verify", ""); v.OK || v.FirstBad != 2 || v.Batches != 1 || len(v.Violations) == 0 {
		t.Errorf("verification = %+v", v)
	}
	from = 1
	for _, path := range []string{"", "/records"} {
		if p := answer[wire.Problem](w, 500, "GET", "/v1/conversations/c1"+path, ""); p.Kind != "corrupt" || p.Hint == "" {
			t.Errorf("%q: %+v", path, p)
		}
	}
}

func TestAPIAllowsMethods(t *testing.T) {
	w := newWorld(t)
	resp := w.call("POST", "/v1/agents", "{}")
	if allow := resp.Header.Get("Allow"); !strings.Contains(allow, "GET") {
		t.Errorf("Allow = %q", allow)
	}
}

// An upload that breaks off is the caller's problem, not a defect.
func TestAPIBodyBreaksOff(t *testing.T) {
	w := newWorld(t)
	r := httptest.NewRequest("POST", "http://127.0.0.1/v1/submissions", io.MultiReader(strings.NewReader(`{"agent":`), broken{}))
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	if rec.Code != 400 || !strings.Contains(rec.Body.String(), "broke off") {
		t.Errorf("%d: %s", rec.Code, rec.Body)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
