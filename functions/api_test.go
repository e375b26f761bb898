package functions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/model/demo"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/tool"
	"github.com/layover-run/layover/functions"
)

// world is the whole engine with the API in front, worked by hand: nothing
// runs unless a test says so.
type world struct {
	t         *testing.T
	api       http.Handler
	admit     *functions.Admit
	log       *slog.Logger
	journal   *memjournal.Journal
	attempter *engine.Attempter
	settler   *engine.Settler
}

type payment struct {
	Cents int `json:"cents"`
}

func newWorld(t *testing.T) *world { return newWorldOn(t, memjournal.New(), nil) }

// newWorldOn puts wrap, if any, around the journal.
func newWorldOn(t *testing.T, mem *memjournal.Journal, wrap func(journal.Journal) journal.Journal) *world {
	t.Helper()
	pay := tool.New("pay", "Pays.", func(_ context.Context, in payment) (payment, error) { return in, nil }, tool.RequireApproval())
	payer := agent.MustDefine[payment, string]("payer", agent.Config[payment]{Description: "Pays.", Instructions: agent.Text[payment]("Pay."), Tools: []*tool.Tool{pay}})
	echo := agent.MustDefine[string, string]("echo", agent.Config[string]{Instructions: agent.Text[string]("Repeat.")})
	smash := tool.New("smash", "Breaks.", func(context.Context, payment) (payment, error) { panic("broken") })
	breaker := agent.MustDefine[payment, string]("breaker", agent.Config[payment]{Instructions: agent.Text[payment]("Smash it."), Tools: []*tool.Tool{smash}})
	registry, err := engine.NewRegistry(0, payer.Bind(demo.New()).Engine(), echo.Bind(demo.New()).Engine(), breaker.Bind(demo.New()).Engine())
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	w := &world{t: t, journal: mem, log: quiet}
	cfg := engine.Config{Journal: mem, Queue: memqueue.New(), Boot: mem.Boot(), Log: quiet}
	if wrap != nil {
		cfg.Journal = wrap(mem)
	}
	admitter, err := engine.NewAdmitter(cfg, registry.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	if w.attempter, err = engine.NewAttempter(cfg, registry); err != nil {
		t.Fatal(err)
	}
	if w.settler, err = engine.NewSettler(cfg); err != nil {
		t.Fatal(err)
	}
	w.admit = functions.NewAdmit(admitter, functions.AdmitOptions{Log: quiet})
	w.api = functions.NewAPI(w.admit, functions.APIOptions{LoopbackOnly: true, Log: quiet})
	return w
}

// work lets one attempt go as far as it comes.
func (w *world) work(conversation string) {
	w.t.Helper()
	lane := journal.Lane{Tenant: "local", Conversation: conversation}
	if _, err := w.attempter.Attempt(w.t.Context(), lane); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.settler.Settle(w.t.Context(), lane); err != nil {
		w.t.Fatal(err)
	}
}

// call makes one request; headers are name, value, name, value.
func (w *world) call(method, path, body string, headers ...string) *http.Response {
	w.t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:7077"+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	resp := rec.Result()
	if err := openAPI().answered(method, path, body, resp, rec.Body.Bytes()); err != nil {
		w.t.Errorf("%s %s differs from docs/openapi.json: %v", method, path, err)
	}
	return resp
}

// answer makes a request that has to be answered with a status.
func answer[T any](w *world, status int, method, path, body string, headers ...string) T {
	w.t.Helper()
	resp := w.call(method, path, body, headers...)
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != status {
		w.t.Fatalf("%s %s: %s, want %d: %s", method, path, resp.Status, status, raw)
	}
	var out T
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		w.t.Fatalf("%s %s: %v in %s", method, path, err, raw)
	}
	return out
}

// The life of a run that needs an approval, over the API only.
func TestAPILife(t *testing.T) {
	w := newWorld(t)
	agents := answer[wire.Agents](w, 200, "GET", "/v1/agents", "")
	if len(agents.Agents) != 3 || agents.Agents[0].Name != "payer" || !strings.Contains(string(agents.Agents[0].Input), `"examples"`) {
		t.Errorf("agents = %+v", agents)
	}
	const submit = `{"agent":"payer","key":"k1","input":{"cents":7}}`
	first := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", submit, "Layover-Principal", "ada")
	again := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", submit, "Layover-Principal", "ada")
	if first.V != 1 || first.Receipt != "accepted" || first.Conversation != "c1" || first.At.IsZero() {
		t.Errorf("receipt = %+v", first)
	}
	if again.Receipt != "duplicate" || again.Submission != first.Submission || !again.At.Equal(first.At) {
		t.Errorf("second receipt = %+v, first %+v", again, first)
	}
	progress := "/v1/conversations/c1/submissions/" + first.Submission
	if p := answer[wire.Progress](w, 200, "GET", progress, ""); p.Status != "queued" || p.Submission != first.Submission {
		t.Errorf("progress = %+v", p)
	}

	w.work("c1")
	p := answer[wire.Progress](w, 200, "GET", progress+"?wait=10s&until=parked", "")
	if p.Status != "parked" || p.Parked == nil || p.Parked.Reason != "approval" || len(p.Parked.On) != 1 {
		t.Fatalf("progress = %+v", p)
	}
	st := answer[wire.Status](w, 200, "GET", "/v1/conversations/c1", "")
	if st.State != "parked" || st.Epoch != 1 || st.Active == nil || st.Active.Parked == nil || st.Active.Submission != first.Submission || st.Latest != nil {
		t.Errorf("status = %+v", st)
	}
	pending := answer[wire.Approvals](w, 200, "GET", "/v1/approvals", "").Approvals
	if len(pending) != 1 || pending[0].ID != p.Parked.On[0] || string(pending[0].Args) != `{"cents":7}` || pending[0].ArgsDigest == "" {
		t.Fatalf("approvals = %+v", pending)
	}
	if others := answer[wire.Approvals](w, 200, "GET", "/v1/approvals", "", "Layover-Tenant", "other"); others.Approvals == nil || len(others.Approvals) != 0 {
		t.Errorf("approvals of another tenant = %+v", others)
	}
	d := answer[wire.Decision](w, 200, "POST", "/v1/approvals/"+pending[0].ID,
		`{"decision":"approve","reason":"fine","argsDigest":"`+pending[0].ArgsDigest+`"}`, "Layover-Principal", "bob")
	if d.ID != pending[0].ID || d.Decision != "approved" || d.By != "bob" || d.At.IsZero() {
		t.Errorf("decision = %+v", d)
	}

	w.work("c1")
	p = answer[wire.Progress](w, 200, "GET", progress+"?wait=1m", "")
	if p.Status != "completed" || len(p.Output) == 0 || p.Turns != 2 || p.Attempts != 2 || p.FinishReason != "model-stop" {
		t.Errorf("progress = %+v", p)
	}
	st = answer[wire.Status](w, 200, "GET", "/v1/conversations/c1", "")
	if st.State != "idle" || st.Active != nil || st.Latest == nil || st.Latest.Status != "completed" || st.Latest.Submission != first.Submission {
		t.Errorf("status = %+v", st)
	}
	v := answer[wire.Verification](w, 200, "GET", "/v1/conversations/c1/verify", "")
	if !v.OK || v.Batches == 0 || v.Head == "" || v.Violations == nil {
		t.Errorf("verification = %+v", v)
	}
	w.checkRecords(v.Batches)
}

func (w *world) checkRecords(batches int) {
	w.t.Helper()
	resp := w.call("GET", "/v1/conversations/c1/records", "")
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/x-ndjson" {
		w.t.Errorf("content type %q", got)
	}
	lines := bytes.Split(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n"))
	if len(lines) != batches {
		w.t.Errorf("%d lines, want %d", len(lines), batches)
	}
	for i, line := range lines {
		var b wire.Batch
		if err := json.Unmarshal(line, &b); err != nil || b.Slot != uint64(i+1) || b.Digest == "" || len(b.Records) == 0 {
			w.t.Errorf("line %d: %v in %s", i, err, line)
		}
	}
}

func TestAPIMintsConversations(t *testing.T) {
	w := newWorld(t)
	const body = `{"agent":"echo","key":"k1","input":"hi"}`
	first := answer[wire.Submitted](w, 202, "POST", "/v1/submissions", body)
	if again := answer[wire.Submitted](w, 202, "POST", "/v1/submissions", body); again.Conversation != first.Conversation || again.Receipt != "duplicate" {
		t.Errorf("a repeated key opened another conversation: %+v, %+v", first, again)
	}
	const fresh = `{"agent":"echo","input":"hi"}`
	one, two := answer[wire.Submitted](w, 202, "POST", "/v1/submissions", fresh), answer[wire.Submitted](w, 202, "POST", "/v1/submissions", fresh)
	if one.Conversation == two.Conversation || one.Receipt != "accepted" || two.Receipt != "accepted" {
		t.Errorf("submissions without a key: %+v, %+v", one, two)
	}
	w.work(first.Conversation)
	if p := answer[wire.Progress](w, 200, "GET", "/v1/submissions/"+first.Submission, ""); p.Status != "completed" || p.Conversation != first.Conversation {
		t.Errorf("progress by submission = %+v", p)
	}
}

// Names are any printable text, so they may look like paths.
func TestAPITakesAnyName(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"a%2Fb", "%2E%2E", "caf%C3%A9%20%3F"} {
		got := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/"+path+"/submissions", `{"agent":"echo","input":"hi"}`)
		st := answer[wire.Status](w, 200, "GET", "/v1/conversations/"+path, "")
		if st.Conversation != got.Conversation || st.Queued != 1 {
			t.Errorf("%s: %+v, %+v", path, got, st)
		}
	}
}

func TestAPIEvents(t *testing.T) {
	w := newWorld(t)
	const event = `{"Records":[
		{"messageId":"m1","body":"{\"v\":1,\"type\":\"submit\",\"agent\":\"echo\",\"conversation\":\"c1\",\"input\":\"hi\"}","attributes":{"ApproximateReceiveCount":"1"},"awsRegion":"x"},
		{"messageId":"m2","body":"{\"v\":1,\"type\":\"submit\",\"agent\":\"nobody\",\"input\":1}"},
		{"messageId":"m3","body":"no"}]}`
	for range 2 { // a second delivery changes nothing
		resp := answer[wire.BatchResponse](w, 200, "POST", "/v1/events", event, "Layover-Principal", "ada")
		if len(resp.Failures) != 2 || resp.Failures[0].Message != "m2" || resp.Failures[1].Message != "m3" {
			t.Errorf("response = %+v", resp)
		}
	}
	if st := answer[wire.Status](w, 200, "GET", "/v1/conversations/c1", ""); st.Queued != 1 {
		t.Errorf("status = %+v", st)
	}
	ok := answer[map[string]any](w, 200, "POST", "/v1/events",
		`{"Records":[{"messageId":"m4","body":"{\"v\":1,\"type\":\"submit\",\"agent\":\"echo\",\"conversation\":\"c1\",\"input\":\"hi\"}"}]}`,
		"Layover-Tenant", "acme")
	if list, isList := ok["batchItemFailures"].([]any); !isList || len(list) != 0 {
		t.Errorf("response without failures = %v", ok)
	}
	if st := answer[wire.Status](w, 200, "GET", "/v1/conversations/c1", "", "Layover-Tenant", "acme"); st.Queued != 1 {
		t.Errorf("status of the other tenant = %+v", st)
	}
}

func TestAPIAbort(t *testing.T) {
	w := newWorld(t)
	s := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"payer","input":{"cents":7}}`)
	w.work("c1")
	got := answer[wire.Aborting](w, 202, "POST", "/v1/conversations/c1/abort", "", "Layover-Principal", "ada")
	if got.Submission != s.Submission || got.By != "ada" {
		t.Errorf("aborting = %+v", got)
	}
	w.work("c1")
	p := answer[wire.Progress](w, 200, "GET", "/v1/conversations/c1/submissions/"+s.Submission+"?wait=1m", "")
	if p.Status != "aborted" || p.Error == nil {
		t.Errorf("progress = %+v", p)
	}
}

// A caller that waits is answered when its patience or the server's ends.
func TestAPIWaitEnds(t *testing.T) {
	w := newWorld(t)
	s := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"echo","input":"hi"}`)
	path := "/v1/conversations/c1/submissions/" + s.Submission
	if p := answer[wire.Progress](w, 200, "GET", path+"?wait=1ms", ""); p.Status != "queued" {
		t.Errorf("progress = %+v", p)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost"+path+"?wait=24h", nil)
	rec := httptest.NewRecorder()
	begin := time.Now()
	w.api.ServeHTTP(rec, r)
	if rec.Code != 200 || time.Since(begin) > 30*time.Second {
		t.Errorf("%d after %s: %s", rec.Code, time.Since(begin), rec.Body)
	}
}
