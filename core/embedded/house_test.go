package embedded_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
	"github.com/layover-run/layover/functions"
	"github.com/layover-run/layover/functions/cloudtest"
)

// house is a data directory and the runtime that is open on it: SQLite, the
// queue in memory and the handlers, as any program that embeds them has them.
// In the run of TestServerless it is an account and the functions deployed in it.
type house struct {
	t       *testing.T
	dir     string
	account *cloudtest.Account
	def     *agent.Definition
	model   *modeltest.Model
	other   model.Model // answers in its place
	config  embedded.Config
	rt      building
}

// building is what a house needs of an assembly.
type building interface {
	Submit(context.Context, engine.SubmitRequest) (engine.Receipt, error)
	FollowUp(context.Context, engine.FollowUpRequest) (engine.Receipt, error)
	Steer(context.Context, engine.SteerRequest) (engine.SteerReceipt, error)
	Await(ctx context.Context, tenant, submission string, until engine.Until) (engine.Progress, error)
	Events(ctx context.Context, tenant, conversation string, o engine.EventsOptions) iter.Seq2[engine.Numbered, error]
	Approvals(ctx context.Context, tenant string) ([]engine.Approval, error)
	Decide(context.Context, engine.DecisionRequest) (engine.Decision, error)
	RequestAbort(context.Context, engine.AbortRequest) (string, error)
	Admit() *functions.Admit
	Quiet(context.Context) error
	Close(context.Context) error
}

// build opens a house whose tests wait for at most 15 s.
func build(t *testing.T, c embedded.Config, def *agent.Definition, steps ...modeltest.Step) *house {
	t.Helper()
	return buildOn(t, c, def, nil, steps...)
}

// buildOn is build with another model than a script.
func buildOn(t *testing.T, c embedded.Config, def *agent.Definition, other model.Model, steps ...modeltest.Step) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), def: def, config: c, other: other}
	if dynamoDB != nil {
		h.account = cloudtest.NewAccount(t, dynamoDB)
	}
	h.open(steps...)
	t.Cleanup(func() {
		if h.rt != nil {
			closing(t, h.rt)
		}
	})
	return h
}

func (h *house) open(steps ...modeltest.Step) {
	h.t.Helper()
	h.model = modeltest.Script(steps...)
	c := h.config
	c.Bindings = []*agent.Binding{h.def.Bind(h.model)}
	if h.other != nil {
		c.Bindings = []*agent.Binding{h.def.Bind(h.other)}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if h.account != nil {
		h.rt = deploy(h.t, h.account, c)
		return
	}
	rt, err := embedded.Open(h.dir, c)
	if err != nil {
		h.t.Fatal(err)
	}
	h.rt = rt
}

// crash takes the store away from under whatever runs, and opens the directory
// again as a new process would. What still lives of the old one is deaf.
func (h *house) crash(steps ...modeltest.Step) {
	h.t.Helper()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.rt.Close(gone); err != nil {
		h.t.Fatal(err)
	}
	if h.account != nil { // no boot id says that they are dead: a lease does, in the end
		h.account.Pass(16 * time.Minute)
	}
	h.open(steps...)
}

func (h *house) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	h.t.Cleanup(cancel)
	return ctx
}

const order = `{"order":"A-1001"}`

func (h *house) submit(key string) string {
	h.t.Helper()
	r, err := h.rt.Submit(h.ctx(), engine.SubmitRequest{Agent: h.def.Name(), Conversation: "c", Key: key, Principal: "kim", Input: []byte(order)})
	if err != nil {
		h.t.Fatal(err)
	}
	return r.Submission
}

func (h *house) await(id string, until engine.Until) engine.Progress {
	h.t.Helper()
	p, err := h.rt.Await(h.ctx(), "", id, until)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// ends awaits a run and holds its end to a status and an error kind.
func (h *house) ends(id, status, kind string) engine.Progress {
	h.t.Helper()
	p := h.await(id, engine.UntilSettled)
	got := ""
	if p.Outcome != nil && p.Outcome.Error != nil {
		got = p.Outcome.Error.Kind
	}
	if p.Status != status || got != kind {
		h.t.Fatalf("the run is %s %q, want %s %q; outcome %+v", p.Status, got, status, kind, p.Outcome)
	}
	return p
}

// batches is the log, and verifies it.
func (h *house) batches() []record.Batch {
	h.t.Helper()
	lane := journal.Lane{Tenant: "local", Conversation: "c"}
	admitter := h.rt.Admit().Admitter()
	if v, err := admitter.Verify(h.ctx(), lane); err != nil || !v.OK {
		h.t.Fatalf("verify: %+v, %v", v, err)
	}
	var all []record.Batch
	for b, err := range admitter.Records(h.ctx(), lane) {
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

func (h *house) records(kinds ...record.Kind) []record.Record {
	h.t.Helper()
	var all []record.Record
	for _, b := range h.batches() {
		for _, r := range b.Records {
			if len(kinds) == 0 || slices.Contains(kinds, r.Kind()) {
				all = append(all, r)
			}
		}
	}
	return all
}

// trace is what the events of the conversation say, of one call or of all:
// "KIND call", a line each.
func (h *house) trace(kinds ...event.Kind) []string {
	h.t.Helper()
	var out []string
	for _, e := range h.events() {
		if slices.Contains(kinds, e.Data.Kind()) {
			line := string(e.Data.Kind())
			if e.Call != "" {
				line += " " + e.Call
			}
			out = append(out, line)
		}
	}
	return out
}

func (h *house) events() []event.Event {
	h.t.Helper()
	var p event.Projector
	var all []event.Event
	for _, b := range h.batches() {
		events, err := p.Project(b)
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, events...)
	}
	return all
}

// oneProcess skips what only one process can promise: each environment of a
// function is one, and they have nothing in common but the store.
func oneProcess(t *testing.T, what string) {
	t.Helper()
	if dynamoDB != nil {
		t.Skip("not on the serverless assembly: " + what)
	}
}

// agentOf is an agent with tools, over the input of every test here.
func agentOf(t *testing.T, policy agent.Policy, tools ...*tool.Tool) *agent.Definition {
	t.Helper()
	d, err := agent.Define[lookIn, string]("a", agent.Config[lookIn]{Instructions: agent.Text[lookIn]("Help."), Tools: tools, Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// log remembers what happened, in order.
type log struct {
	mu      sync.Mutex
	entries []string
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, fmt.Sprintf(format, args...))
}

func (l *log) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

func (l *log) count(entry string) int {
	n := 0
	for _, e := range l.all() {
		if e == entry {
			n++
		}
	}
	return n
}

type nothing struct{}

// noting is a tool that says when it starts.
func noting(l *log, name string, opts ...tool.Option) *tool.Tool {
	return tool.New(name, "Does "+name+".", func(context.Context, nothing) (string, error) { l.add("start %s", name); return name + " done", nil }, opts...)
}

func callOf(names ...string) modeltest.Step {
	var calls []modeltest.Call
	for _, n := range names {
		calls = append(calls, modeltest.Call{Tool: n})
	}
	return modeltest.Calls(calls...)
}

// transcript renders the messages of a request.
func transcript(req *model.Request) string {
	raw, err := json.Marshal(req.Messages)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// mustEnvelope holds a truncated result to its source: valid pieces of its
// beginning and end, its exact size, and a whole within the bound.
func mustEnvelope(t *testing.T, raw json.RawMessage, text string, limit int) {
	t.Helper()
	var e struct {
		Bytes      int
		Head, Tail string
		Truncated  bool
	}
	source, err := json.Marshal(text)
	if err != nil || json.Unmarshal(raw, &e) != nil {
		t.Fatalf("%s is no envelope", raw)
	}
	if !e.Truncated || e.Bytes != len(source) || len(raw) > limit || len(raw) < limit*9/10-20 || !utf8.ValidString(e.Head+e.Tail) ||
		!strings.HasPrefix(string(source), e.Head) || !strings.HasSuffix(string(source), e.Tail) {
		t.Errorf("an envelope of %d bytes for %d: %+v", len(raw), len(source), e)
	}
}
