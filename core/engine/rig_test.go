package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// rig is the three services over the journal of an assembly, driven by hand: one
// lane, no workers, the clock of a synctest bubble.
type rig struct {
	t        *testing.T
	journal  Journal
	def      *agent.Definition
	model    *modeltest.Model
	admitter *engine.Admitter
	attempt  *engine.Attempter
	settler  *engine.Settler
	lane     journal.Lane
	mu       sync.Mutex
	heard    []engine.UserError
}

// inBubble runs a test under synctest, where time passes only when everybody
// waits.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func newRig(t *testing.T, def *agent.Definition, steps ...modeltest.Step) *rig {
	t.Helper()
	r := &rig{t: t, journal: newJournal(t), def: def, model: modeltest.Script(steps...), lane: journal.Lane{Tenant: "t", Conversation: "c"}}
	r.assemble()
	return r
}

func (r *rig) assemble() { r.assembleOver(r.journal) }

// restartModel gives the agent another script.
func (r *rig) restartModel(steps ...modeltest.Step) {
	r.model = modeltest.Script(steps...)
	r.assemble()
}

func (r *rig) assembleOver(j journal.Journal) {
	r.t.Helper()
	registry, err := engine.NewRegistry(0, r.def.Bind(r.model).Engine())
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := engine.Config{Journal: j, Queue: memqueue.New(), Boot: r.journal.Boot(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnUserError: func(e engine.UserError) { r.mu.Lock(); defer r.mu.Unlock(); r.heard = append(r.heard, e) }}
	if r.admitter, err = engine.NewAdmitter(cfg, registry.Manifest()); err != nil {
		r.t.Fatal(err)
	}
	if r.attempt, err = engine.NewAttempter(cfg, registry); err != nil {
		r.t.Fatal(err)
	}
	if r.settler, err = engine.NewSettler(cfg); err != nil {
		r.t.Fatal(err)
	}
}

// restart is a new process over the same data, perhaps with other code.
func (r *rig) restart(def *agent.Definition, steps ...modeltest.Step) {
	r.t.Helper()
	r.reopen()
	if def != nil {
		r.def = def
	}
	r.model = modeltest.Script(steps...)
	r.assemble()
}

// reopen is the death of the process and the journal of the next, at a time when
// the old one is certainly dead. A boot id says so at once; without one it is
// the clock that does, an allowance for its skew after the lease (F8).
func (r *rig) reopen() {
	r.t.Helper()
	r.journal = r.journal.restart(r.t)
	if h := r.head(); r.journal.Boot() == "" && h.State == journal.Running {
		time.Sleep(time.Until(h.Lease) + skew)
	}
}

// skew is what Config.Skew defaults to.
const skew = 30 * time.Second

// attemptUntil starts an attempt and returns when die is closed, with the attempt
// still at work: its journal is about to be closed under it. The channel it
// gives is closed when the attempt is over.
func (r *rig) attemptUntil(die <-chan struct{}) (gone <-chan struct{}) {
	over, dying := make(chan struct{}), r.attempt
	go func() { defer close(over); _, _ = dying.Attempt(bg, r.lane) }()
	<-die
	return over
}

func (r *rig) submit(input string) string {
	r.t.Helper()
	receipt, err := r.admitter.Submit(context.Background(), engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: r.def.Name(),
		Conversation: "c", Input: json.RawMessage(input)})
	if err != nil {
		r.t.Fatal(err)
	}
	return receipt.Submission
}

// work attempts and settles until the lane rests, and says how the last
// attempt ended.
func (r *rig) work() engine.Ended {
	r.t.Helper()
	last := engine.NotClaimed
	for range 20 {
		ended, err := r.attempt.Attempt(context.Background(), r.lane)
		if err != nil {
			r.t.Fatal(err)
		}
		if ended == engine.NotClaimed {
			return last
		}
		last = ended
		if _, err := r.settler.Settle(context.Background(), r.lane); err != nil {
			r.t.Fatal(err)
		}
	}
	r.t.Fatal("the lane does not come to rest")
	return ""
}

// run submits one input and works until the lane rests.
func (r *rig) run(input string) engine.Progress {
	r.t.Helper()
	id := r.submit(input)
	r.work()
	return r.progress(id)
}

func (r *rig) progress(id string) engine.Progress {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p, err := r.admitter.Await(ctx, "t", id, engine.UntilSettled)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// must holds a run's end to a status, and for failures to an error kind.
func must(t *testing.T, p engine.Progress, status, kind string) {
	t.Helper()
	got := ""
	if p.Outcome != nil && p.Outcome.Error != nil {
		got = p.Outcome.Error.Kind
	}
	if p.Status != status || got != kind {
		t.Fatalf("the run is %s %q, want %s %q; outcome %+v", p.Status, got, status, kind, p.Outcome)
	}
}

// records lists what the log holds, of one kind or all.
func (r *rig) records(kinds ...record.Kind) []record.Record {
	r.t.Helper()
	var all []record.Record
	for b, err := range r.admitter.Records(context.Background(), r.lane) {
		if err != nil {
			r.t.Fatal(err)
		}
		for _, rec := range b.Records {
			if len(kinds) == 0 || slices.Contains(kinds, rec.Kind()) {
				all = append(all, rec)
			}
		}
	}
	return all
}

func (r *rig) approve(index int, yes bool) {
	r.t.Helper()
	all, err := r.admitter.Approvals(context.Background(), "t")
	if err != nil || len(all) <= index {
		r.t.Fatalf("%d approvals pending, %v", len(all), err)
	}
	if _, err := r.admitter.Decide(context.Background(), engine.DecisionRequest{Tenant: "t", Principal: "kim", Approval: all[index].ID, Approve: yes, Reason: "seen"}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) verify() {
	r.t.Helper()
	v, err := r.admitter.Verify(context.Background(), r.lane)
	if err != nil || !v.OK {
		r.t.Fatalf("verify: %+v, %v", v, err)
	}
}

// counter counts what handlers did, by name.
type counter struct {
	mu    sync.Mutex
	calls map[string]int
	order []string
	now   int
	peak  int
}

func (c *counter) enter(name string) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[name]++
	c.order = append(c.order, name)
	c.now++
	c.peak = max(c.peak, c.now)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}
}

func (c *counter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[name]
}

type arg struct {
	N int `json:"n"`
}

// handler is a tool that counts itself and takes a while.
func handler(c *counter, name string, opts ...tool.Option) *tool.Tool {
	return tool.New(name, "Does "+name+".", func(ctx context.Context, in arg) (string, error) {
		defer c.enter(name)()
		select {
		case <-time.After(time.Duration(in.N) * time.Second):
		case <-ctx.Done():
			return "", ctx.Err()
		}
		return fmt.Sprint(name, " ", in.N), nil
	}, opts...)
}

type input struct {
	Name string `json:"name"`
}

// define makes an agent over input with free text as its answer.
func define(t *testing.T, policy agent.Policy, tools ...*tool.Tool) *agent.Definition {
	t.Helper()
	d, err := agent.Define[input, string]("a", agent.Config[input]{
		Instructions: func(_ context.Context, in input) (string, error) { return "Help " + in.Name + ".", nil },
		Tools:        tools, Policy: policy,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const kim = `{"name":"Kim"}`

// said renders a request's messages for comparison.
func said(req *model.Request) string {
	var out strings.Builder
	for _, m := range req.Messages {
		fmt.Fprintf(&out, "%s:", m.Role)
		for _, p := range m.Parts {
			switch p := p.(type) {
			case record.TextPart:
				fmt.Fprintf(&out, " %s", p.Text.Text())
			case record.ToolCallPart:
				fmt.Fprintf(&out, " call %s %s", p.Tool, p.Args.Inline)
			case record.ToolResultPart:
				fmt.Fprintf(&out, " result %s %s", p.Tool, p.Result.Inline)
			default:
				fmt.Fprintf(&out, " %T", p)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}
