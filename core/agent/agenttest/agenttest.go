// Package agenttest runs agents in tests, on the durable path: what is admitted,
// attempted, parked, decided and settled here goes through the same services as
// in production, over a journal in memory and without a server, a worker or a
// network.
//
//	h := agenttest.New(t, refund.Agent(),
//		modeltest.Calls(modeltest.Call{Tool: "issue_refund", Args: `{"orderId":"A-1001","amountCents":4900}`}),
//		modeltest.Text(`{"refunded":true,"orderId":"A-1001","summary":"done"}`))
//	run := h.Run(refund.Request{OrderID: "A-1001", Reason: "broken"})
//	run.Parked("approval")
//	run.Approve("issue_refund")
//	run.Completed(nil)
//
// Nothing works in the background: a Host works when it is told to, until every
// conversation rests, on the caller's goroutine. Waits between attempts, for a
// person, a deadline or an operator, pass with Advance. Waits inside an attempt
// are real: a handler that sleeps, or the pause before a failed model is asked
// again. Inside a testing/synctest bubble those take no time either.
package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
)

// T is what this package needs of a testing.TB. Panics is one for examples.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Panics is a T for examples and programs: it panics.
type Panics struct{}

// Helper does nothing.
func (Panics) Helper() {}

// Fatalf panics with the message.
func (Panics) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

const tenant, principal = "test", "tester"

// Host is Layover in memory with some agents.
type Host struct {
	t        T
	journal  *memjournal.Journal
	bindings []*agent.Binding
	offset   atomic.Int64 // of the clock, in nanoseconds
	model    *modeltest.Model

	admitter  *engine.Admitter
	attempter *engine.Attempter
	settler   *engine.Settler
	lanes     []journal.Lane
	runs      int
	decided   map[string]bool // approvals that were answered here

	mu    sync.Mutex
	dead  bool
	heard []engine.UserError
}

// New makes a host with one agent on a scripted model; Model is that model.
func New(t T, d *agent.Definition, steps ...modeltest.Step) *Host {
	t.Helper()
	m := modeltest.Script(steps...)
	h := Bind(t, d.Bind(m))
	h.model = m
	return h
}

// Bind makes a host with agents on models of their own.
func Bind(t T, bindings ...*agent.Binding) *Host {
	t.Helper()
	h := &Host{t: t, journal: memjournal.New(), bindings: bindings, decided: map[string]bool{}}
	h.assemble()
	return h
}

func (h *Host) assemble() {
	h.t.Helper()
	var defs []engine.Definition
	for _, b := range h.bindings {
		defs = append(defs, b.Engine())
	}
	registry, err := engine.NewRegistry(0, defs...)
	h.must("agents", err)
	cfg := engine.Config{Journal: h.journal, Queue: memqueue.New(), Boot: h.journal.Boot(), Now: h.Now,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), OnUserError: h.hear}
	h.admitter, err = engine.NewAdmitter(cfg, registry.Manifest())
	h.must("admitter", err)
	h.attempter, err = engine.NewAttempter(cfg, registry)
	h.must("attempter", err)
	h.settler, err = engine.NewSettler(cfg)
	h.must("settler", err)
}

func (h *Host) must(what string, err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("agenttest: %s: %v", what, err)
	}
}

func (h *Host) hear(e engine.UserError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = append(h.heard, e)
}

// UserErrors are the errors of handlers, instructions and models so far, in
// full, as whoever runs the program hears them.
func (h *Host) UserErrors() []engine.UserError {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.heard)
}

// Model is the scripted model that New made.
func (h *Host) Model() *modeltest.Model {
	h.t.Helper()
	if h.model == nil {
		h.t.Fatalf("agenttest: a host that was made with Bind has no scripted model")
	}
	return h.model
}

// Now is the host's clock: that of the process, plus what Advance added.
func (h *Host) Now() time.Time { return time.Now().Add(time.Duration(h.offset.Load())) }

// Advance moves the clock on and works on what became due: an approval that
// expired, a run past its deadline, a model to be asked again.
func (h *Host) Advance(d time.Duration) {
	h.t.Helper()
	h.offset.Add(int64(d))
	h.Work()
}

// Restart is the death of the process and the start of the next one over the
// same data: with the bindings given, as after a deploy, or with the same ones.
func (h *Host) Restart(bindings ...*agent.Binding) {
	h.t.Helper()
	h.journal = h.journal.Restart()
	if len(bindings) > 0 {
		h.bindings = bindings
	}
	h.mu.Lock()
	h.dead = false
	h.mu.Unlock()
	h.assemble()
}

// Kill makes the process die at the nth durable write from now, counted from 1:
// in front of it, or right behind it if after is true. Nothing of what it does
// from then on counts. Submit and Work return when that happens; Restart goes on.
func (h *Host) Kill(n int, after bool) {
	dying := memjournal.FailNth(n, after, journal.ErrClosed)
	h.journal.SetWriteFault(func(w memjournal.Write) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.dead {
			return journal.ErrClosed
		}
		err := dying(w)
		h.dead = err != nil
		return err
	})
}

// Killed reports whether the process has died and was not started again.
func (h *Host) Killed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead
}

// Option changes a submission.
type Option func(*engine.SubmitRequest)

// In names the conversation. Defaults to a new one for each submission.
func In(conversation string) Option {
	return func(r *engine.SubmitRequest) { r.Conversation = conversation }
}

// To names the agent. Defaults to the only one of the host.
func To(name string) Option { return func(r *engine.SubmitRequest) { r.Agent = name } }

// Key is the idempotency key. Defaults to a new one for each submission.
func Key(key string) Option { return func(r *engine.SubmitRequest) { r.Key = key } }

// Submit admits an input and works on nothing yet. The input is any value that
// encodes as the agent's input, or its JSON as a json.RawMessage. It returns nil
// if the process died of Kill.
func (h *Host) Submit(input any, options ...Option) *Run {
	h.t.Helper()
	raw, err := json.Marshal(input)
	h.must("input", err)
	h.runs++
	r := engine.SubmitRequest{Tenant: tenant, Principal: principal, Input: raw,
		Conversation: fmt.Sprint("c", h.runs), Key: fmt.Sprint("k", h.runs)}
	if len(h.bindings) == 1 {
		r.Agent = h.bindings[0].Definition().Name()
	}
	for _, o := range options {
		o(&r)
	}
	if lane := (journal.Lane{Tenant: tenant, Conversation: r.Conversation}); !slices.Contains(h.lanes, lane) {
		h.lanes = append(h.lanes, lane)
	}
	receipt, err := h.admitter.Submit(context.Background(), r)
	if err != nil && h.Killed() {
		return nil
	}
	h.must("submit", err)
	return &Run{h: h, lane: journal.Lane{Tenant: tenant, Conversation: receipt.Conversation}, id: receipt.Submission}
}

// Run submits an input and works until every conversation rests.
func (h *Host) Run(input any, options ...Option) *Run {
	h.t.Helper()
	r := h.Submit(input, options...)
	if r != nil {
		h.Work()
	}
	return r
}

// mostAttempts bounds what Work does: a run that needs more does not come to
// rest.
const mostAttempts = 1000

// Work attempts and settles until every conversation rests: settled, or parked
// for somebody or for later. It returns early if the process died of Kill.
func (h *Host) Work() {
	h.t.Helper()
	for range mostAttempts {
		busy := false
		for _, lane := range h.lanes {
			ended, err := h.attempter.Attempt(context.Background(), lane)
			if err == nil {
				_, err = h.settler.Settle(context.Background(), lane)
			}
			if h.Killed() {
				return
			}
			if !errors.Is(err, journal.ErrNotFound) {
				h.must("work on "+lane.Conversation, err)
			}
			busy = busy || ended != engine.NotClaimed && err == nil
		}
		if !busy {
			return
		}
	}
	h.t.Fatalf("agenttest: the conversations do not come to rest within %d attempts", mostAttempts)
}

// Verify checks every conversation's log, as `layover verify` does.
func (h *Host) Verify() {
	h.t.Helper()
	for _, lane := range h.lanes {
		v, err := h.admitter.Verify(context.Background(), lane)
		if errors.Is(err, journal.ErrNotFound) {
			continue
		}
		h.must("verify "+lane.Conversation, err)
		if !v.OK {
			h.t.Fatalf("agenttest: conversation %s does not verify: %+v", lane.Conversation, v)
		}
	}
}
