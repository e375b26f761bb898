package functions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/tool"
	"github.com/layover-run/layover/functions"
)

// canary is what must not be seen.
const canary = "sk-ant-api03-CANARY-7f3d"

// nowhere is everything an operator, a collector or a caller of the API gets
// to see of one agent's run, the payloads that were asked for left out.
type nowhere struct {
	*world
	log     lockedBuffer
	spans   *tracetest.InMemoryExporter
	errors  []string
	attempt *functions.Attempt
	mu      sync.Mutex
	heard   []string
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func newNowhere(t *testing.T, b *agent.Binding) *nowhere {
	t.Helper()
	n := &nowhere{world: &world{t: t, journal: memjournal.New()}, spans: tracetest.NewInMemoryExporter()}
	log := slog.New(slog.NewJSONHandler(&n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	registry, err := engine.NewRegistry(0, b.Engine())
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{Journal: n.journal, Queue: memqueue.New(), Boot: n.journal.Boot(), Log: log,
		Tracing: sdk.NewTracerProvider(sdk.WithSyncer(n.spans)),
		OnUserError: func(e engine.UserError) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.heard = append(n.heard, e.Err.Error())
		}}
	admitter, err1 := engine.NewAdmitter(cfg, registry.Manifest())
	attempter, err2 := engine.NewAttempter(cfg, registry)
	settler, err3 := engine.NewSettler(cfg)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	n.attempter, n.settler, n.attempt = attempter, settler, functions.NewAttempt(attempter, log)
	n.admit = functions.NewAdmit(admitter, functions.AdmitOptions{Log: log})
	n.api = functions.NewAPI(n.admit, functions.APIOptions{LoopbackOnly: true, Log: log})
	return n
}

// ask notes the answer of the API.
func (n *nowhere) ask(method, path, body string) []byte {
	n.t.Helper()
	resp := n.call(method, path, body)
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	n.errors = append(n.errors, fmt.Sprintf("%s %s answers %d %v %s", method, path, resp.StatusCode, resp.Header, raw))
	return raw
}

// clean holds that the canary is in nothing that was seen.
func (n *nowhere) clean() {
	n.t.Helper()
	for what, text := range map[string]string{"the log": n.log.String(), "the spans": n.exported(), "the API or an error": strings.Join(n.errors, "\n")} {
		for line := range strings.Lines(text) {
			if strings.Contains(line, canary) {
				n.t.Errorf("%s shows it: %s", what, line)
			}
		}
	}
	if len(n.spans.GetSpans()) == 0 {
		n.t.Error("nothing was traced")
	}
}

func (n *nowhere) exported() string {
	var out strings.Builder
	for _, s := range n.spans.GetSpans() {
		fmt.Fprintf(&out, "%s %s %v %v\n", s.Name, s.Status.Description, s.Events, s.Resource)
		for _, a := range s.Attributes {
			fmt.Fprintf(&out, "%s: %s=%s\n", s.Name, a.Key, a.Value.String())
		}
	}
	return out.String()
}

// work runs attempts until the lane rests and asks for everything there is to
// say about it.
func (n *nowhere) work(input string) wire.Progress {
	n.t.Helper()
	var s wire.Submitted
	if err := json.Unmarshal(n.ask("POST", "/v1/conversations/c/submissions", `{"agent":"a","input":`+input+`}`), &s); err != nil {
		n.t.Fatal(err)
	}
	lane := journal.Lane{Tenant: "local", Conversation: "c"}
	for range 3 {
		_, err := n.attempter.Attempt(n.t.Context(), lane)
		n.errors = append(n.errors, fmt.Sprint("attempt: ", err))
		_, err = n.settler.Settle(n.t.Context(), lane)
		n.errors = append(n.errors, fmt.Sprint("settle: ", err))
	}
	n.ask("GET", "/v1/conversations/c", "")
	n.ask("GET", "/v1/conversations/c/verify", "")
	n.ask("GET", "/v1/conversations", "")
	var p wire.Progress
	if err := json.Unmarshal(n.ask("GET", "/v1/submissions/"+s.Submission, ""), &p); err != nil {
		n.t.Fatal(err)
	}
	return p
}

type hidden struct {
	Value string `json:"value"`
}

func secretTool(f func(hidden) (string, error), opts ...tool.Option) *tool.Tool {
	return tool.New("use", "Uses it.", func(_ context.Context, in hidden) (string, error) { return f(in) }, opts...)
}

func plain(tools ...*tool.Tool) agent.Config[hidden] {
	return agent.Config[hidden]{Instructions: agent.Text[hidden]("Use it."), Tools: tools}
}

// panicking is an adapter with a defect.
type panicking struct{}

func (panicking) Stream(context.Context, *model.Request, func(model.Part) error) error {
	panic("Authorization: Bearer " + canary)
}

// A secret in the provider's key, tool arguments, tool output, error texts,
// panics, inputs and answers is in no log line, span, error or problem that
// anybody gets. Only the author's own hook hears the texts of errors and panics.
//
// failure: A36
func TestCanary(t *testing.T) {
	leak := errors.New("POST https://api/?key=" + canary + ": refused")
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":"authentication_error","message":"invalid key %s in %v"}}`, r.Header.Get("X-Api-Key"), r.Header)
	}))
	defer echo.Close()
	claude, err := anthropic.New(anthropic.Config{APIKey: canary, Model: "claude-x", BaseURL: echo.URL})
	if err != nil {
		t.Fatal(err)
	}
	use := func(value string) modeltest.Step {
		return modeltest.Calls(modeltest.Call{ID: "c1", Tool: "use", Args: hidden{value}})
	}
	script := modeltest.Script
	returning := func(err error) *tool.Tool {
		return secretTool(func(hidden) (string, error) { return "", err })
	}
	for name, tt := range map[string]struct {
		config agent.Config[hidden]
		model  model.Model
		input  string
		status string
		heard  bool // by the author's hook
	}{
		"tool arguments and output": {config: plain(secretTool(func(in hidden) (string, error) { return "got " + in.Value, nil })),
			model: script(use(canary), modeltest.Text("done")), status: "completed"},
		"instructions and input": {config: agent.Config[hidden]{Instructions: agent.Text[hidden]("The key is " + canary)},
			model: script(modeltest.Text("done")), input: `{"value":"` + canary + `"}`, status: "completed"},
		"tool error":            {config: plain(returning(leak)), model: script(use("x"), modeltest.Text("done")), status: "completed", heard: true},
		"tool error, told":      {config: plain(returning(tool.Failf("refused", "no: %w", leak))), model: script(use("x"), modeltest.Text("done")), status: "completed", heard: true},
		"tool abort":            {config: plain(returning(tool.Abort(leak))), model: script(use("x"), modeltest.Text("done")), status: "failed", heard: true},
		"tool panic":            {config: plain(secretTool(func(hidden) (string, error) { panic(leak) })), model: script(use("x")), status: "parked", heard: true},
		"tool panic, no effect": {config: plain(secretTool(func(hidden) (string, error) { panic(canary) }, tool.Readonly())), model: script(use("x")), status: "failed", heard: true},
		"probe error": {config: plain(tool.New("use", "Uses it.", func(ctx context.Context, _ hidden) (string, error) { <-ctx.Done(); return "", leak }, tool.Timeout(20*time.Millisecond),
			tool.Reconcile(func(context.Context, hidden) (string, tool.Resolution, error) { return "", "", leak }))), model: script(use("x")), status: "parked", heard: true},
		"instructions error":      {config: agent.Config[hidden]{Instructions: func(context.Context, hidden) (string, error) { return "", leak }}, model: script(), status: "failed", heard: true},
		"instructions panic":      {config: agent.Config[hidden]{Instructions: func(context.Context, hidden) (string, error) { panic(leak) }}, model: script(), status: "failed", heard: true},
		"adapter error":           {config: plain(), model: script(modeltest.Fail(leak), modeltest.Fail(leak), modeltest.Fail(leak)), status: "parked", heard: true},
		"adapter panic":           {config: plain(), model: panicking{}, status: "failed", heard: true},
		"cause of a refusal":      {config: plain(), model: script(modeltest.Fail(&model.Error{Class: model.Refused, Message: "the provider refuses", Err: leak})), status: "failed"},
		"provider echoes the key": {config: plain(), model: claude, status: "failed"},
		"unknown tool":            {config: plain(returning(nil)), model: script(modeltest.Calls(modeltest.Call{ID: "c1", Tool: canary, Args: hidden{}}), modeltest.Text("done")), status: "completed"},
		"bad arguments":           {config: plain(returning(nil)), model: script(modeltest.Calls(modeltest.Call{ID: "c1", Tool: "use", Args: []string{canary}}), modeltest.Text("done")), status: "completed"},
		"stop reason": {config: plain(), model: script(modeltest.Emit(model.Start{Provider: "p", Model: "m"}, model.TextDelta{Text: "x"},
			model.Finish{Reason: model.Stop, Raw: canary})), status: "completed"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNowhere(t, agent.MustDefine[hidden, string]("a", tt.config).Bind(tt.model))
			if tt.input == "" {
				tt.input = `{"value":"x"}`
			}
			if p := n.work(tt.input); p.Status != tt.status {
				t.Errorf("the run is %s %+v, want %s", p.Status, p.Error, tt.status)
			}
			n.clean()
			if heard := strings.Contains(strings.Join(n.heard, "\n"), canary); tt.heard && !heard {
				t.Errorf("the author heard %q", n.heard)
			}
		})
	}
}

// Messages that cannot be read are refused and logged without the values in
// them; the name of an unknown field, type or agent is said.
func TestCanaryInMessages(t *testing.T) {
	n := newNowhere(t, agent.MustDefine[hidden, string]("a", plain()).Bind(modeltest.Script(modeltest.Text("done"))))
	for _, body := range []string{canary, `"` + canary + `"`, `{"v":1,"kind":"attempt","tenant":["` + canary + `"]}`} {
		resp, err := n.attempt.Handle(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: body}}})
		if err != nil || len(resp.BatchItemFailures) != 1 {
			t.Errorf("%q: %+v, %v", body, resp, err)
		}
	}
	for _, body := range []string{canary, `{"v":1,"type":"submit","agent":"a","input":{"value":["` + canary + `"]}}`,
		`{"v":1,"type":"submit","agent":"a","input":{},"allowance":"` + canary + `"}`} {
		resp, err := n.admit.Handle(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: body}}})
		n.errors = append(n.errors, fmt.Sprint(resp, err))
	}
	n.ask("POST", "/v1/conversations/c/submissions", `{"agent":"a","input":`+canary)
	n.ask("POST", "/v1/conversations/c/submissions", `{"agent":["`+canary+`"]}`)
	n.work(`{"value":"x"}`)
	n.clean()
}
