package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
)

// RunnerConfig is what ephemeral runs share. Open is required.
type RunnerConfig struct {
	// Open makes the journal of one run, with the boot id of its process. It is
	// given up with the run.
	Open func() (j journal.Journal, boot string)
	// Limits tighten the ceilings of every run.
	Limits BufferLimits
	// Buffer is how many events may wait for the reader of Events. Defaults
	// to 64.
	Buffer int
	// CleanupTimeout, Now, NewID, Log and OnUserError are as in Config.
	CleanupTimeout time.Duration
	Now            func() time.Time
	NewID          func() string
	Log            *slog.Logger
	OnUserError    func(UserError)
	// Authorize and ToolLimits are as in Config; the limits hold across all runs
	// of the runner.
	Authorize  Authorizer
	ToolLimits ToolLimits
}

// Runner is the ephemeral assembly: it runs definitions in this process and
// keeps nothing. It is the same interpreter on a journal in memory: an attempt
// has no end, the sink of Events makes the run wait for its reader, and
// cancelling settles the run as interrupted.
type Runner struct {
	cfg     RunnerConfig
	permits *permits
}

// NewRunner checks the configuration.
func NewRunner(cfg RunnerConfig) (*Runner, error) {
	if cfg.Open == nil {
		return nil, errors.New("engine: RunnerConfig.Open is required")
	}
	if cfg.Buffer <= 0 {
		cfg.Buffer = 64
	}
	if err := cfg.ToolLimits.check(); err != nil {
		return nil, err
	}
	return &Runner{cfg: cfg, permits: newPermits(cfg.ToolLimits)}, nil
}

// RunRequest asks for one ephemeral run.
type RunRequest struct {
	Definition Definition
	Input      json.RawMessage
	// Principal defaults to "anonymous", Conversation to a new one.
	Principal, Conversation string
	Allowance               record.Allowance
	// ApprovalWait is how long the run waits in this process for an approval
	// before it ends suspended. Defaults to 0: at once.
	ApprovalWait time.Duration
	// Detached lets the run go on when the reader of its events leaves, or the
	// context it was started with ends.
	Detached bool
}

// Events runs a request and yields its events as they happen, provisional ones
// included. Ranging over it starts the run, each time a new one. A reader that
// is slow slows the run. One that leaves ends it, and returns once everything
// of it has ended, unless the request is Detached.
func (r *Runner) Events(ctx context.Context, req RunRequest) EventStream {
	return func(yield func(event.Event, error) bool) {
		buf := newBuffer(r.cfg.Buffer)
		h, err := r.begin(ctx, req, buf)
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		go func() { <-h.ended; buf.end() }()
		if !h.feed(buf, yield) {
			return
		}
		if _, err := h.outcome(); err != nil {
			yield(event.Event{}, err)
		}
	}
}

// feed hands the events of a buffer to their consumer, and reports whether it
// took them all. One that leaves, even by a panic, ends the run.
func (h *RunHandle) feed(buf *buffer, yield func(event.Event, error) bool) (all bool) {
	defer func() {
		if all {
			return
		}
		buf.leave()
		if !h.req.Detached {
			_ = h.cancel("the consumer stopped reading") // its only error is that the run has ended
			<-h.ended
		}
	}()
	for {
		e, more := buf.next()
		if !more {
			return true
		}
		if !yield(e, nil) {
			return false
		}
	}
}

// Start begins a run and hands out its handle. Nobody has to read its events,
// and reading them slows nothing. The end of ctx cancels the run, unless the
// request is Detached.
func (r *Runner) Start(ctx context.Context, req RunRequest) (*RunHandle, error) {
	store := newEventStore(r.cfg.Limits.Resolve().RunEvents)
	h, err := r.begin(ctx, req, store)
	if err != nil {
		return nil, err
	}
	h.store = store
	go func() {
		<-h.ended
		_, err := h.outcome()
		store.end(err)
		close(h.told)
	}()
	return h, nil
}

// nowhere is the queue of a run whose worker needs no wakes.
type nowhere struct{}

func (nowhere) Send(context.Context, queue.Wake, time.Duration) error { return nil }

const (
	localTenant = "local"
	// localLease only has to be longer than any run: nobody else claims.
	localLease = 2 * 366 * 24 * time.Hour
)

// begin admits the run and starts its worker.
func (r *Runner) begin(ctx context.Context, req RunRequest, out consumer) (*RunHandle, error) {
	input, err := record.Canonical(req.Input)
	if err != nil {
		return nil, &RunError{Kind: core.InputError, Message: "the input is no JSON value: " + err.Error()}
	}
	req.Input = input
	j, boot := r.cfg.Open()
	h := &RunHandle{req: req, ended: make(chan struct{}), told: make(chan struct{})}
	cfg, err := Config{Journal: j, Queue: nowhere{}, Boot: boot, AttemptTimeout: localLease, CleanupTimeout: r.cfg.CleanupTimeout,
		Now: r.cfg.Now, NewID: r.cfg.NewID, Log: r.cfg.Log, OnUserError: r.cfg.OnUserError, Limits: r.cfg.Limits,
		Authorize: r.cfg.Authorize, ToolLimits: r.cfg.ToolLimits,
		Skew: max(r.cfg.CleanupTimeout, 30*time.Second), onDefect: h.defective}.withDefaults()
	if err != nil {
		return nil, err
	}
	registry, err := NewRegistry(0, req.Definition)
	if err != nil {
		return nil, err
	}
	if err := h.admit(ctx, cfg); err != nil {
		return nil, err
	}
	h.admitter = &Admitter{cfg: cfg, manifest: registry.Manifest()}
	var scope context.Context
	scope, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.sink = &localSink{ctx: scope, out: out, ceiling: cfg.Limits.Resolve().RunEvents, onEvent: h.heard, onDefect: h.defective}
	h.attempter = &Attempter{cfg: cfg, registry: registry, leaks: &leaks{}, permits: r.permits, sink: h.sink, local: &local{scope: scope}}
	if !req.Detached {
		end := func() { _ = h.cancel("its context ended: " + context.Cause(ctx).Error()) }
		if ctx.Err() != nil {
			end() // before anything of it begins
		} else {
			h.unbind = context.AfterFunc(ctx, end)
		}
	}
	go h.work(context.WithoutCancel(ctx))
	return h, nil
}

// admit puts the submission in front of the attempts, as an Admitter would. The
// input is decoded at step 1, by the agent's own type.
func (h *RunHandle) admit(ctx context.Context, cfg Config) error {
	principal, conversation, key := h.req.Principal, h.req.Conversation, cfg.NewID()
	if principal == "" {
		principal = "anonymous"
	}
	if conversation == "" {
		conversation = mintConversation(localTenant, principal, key)
	}
	for _, id := range []struct{ what, value string }{{"principal", principal}, {"conversation", conversation}} {
		if err := checkID("run", id.what, id.value); err != nil {
			return err
		}
	}
	now := cfg.Now()
	h.principal = principal
	h.lane = journal.Lane{Tenant: localTenant, Conversation: conversation}
	s := journal.Submission{Lane: h.lane, ID: submissionID(localTenant, principal, conversation, key), Key: key,
		Agent: h.req.Definition.Facts.Name, Principal: principal, Input: h.req.Input, Allowance: h.req.Allowance, AdmittedAt: record.Time(now)}
	s.Digest = contentDigest(s)
	h.id = s.ID
	if _, err := cfg.Journal.Admit(context.WithoutCancel(ctx), s, now, cfg.Grace); err != nil {
		return fmt.Errorf("engine: begin a run: %w", err)
	}
	return nil
}

// local is what ephemeral attempts know beside their configuration: the context
// of the run, under which all of its effects work.
type local struct {
	scope context.Context

	mu   sync.Mutex
	now  *attempt
	left chan struct{} // closed when that attempt is over
}

// enter is called by an attempt that begins, and what it returns when it ends.
func (l *local) enter(a *attempt) func() {
	if l == nil {
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	left := make(chan struct{})
	l.now, l.left = a, left
	return func() { close(left) }
}

// wake tells the attempt to look at the inbox before it starts anything more.
func (l *local) wake() {
	l.mu.Lock()
	a, left := l.now, l.left
	l.mu.Unlock()
	if a == nil {
		return
	}
	select {
	case a.posted <- posted{fact: core.Woken{}}:
	case <-left:
	}
}

// work attempts the run until it has ended, and sits waits out in between.
func (h *RunHandle) work(ctx context.Context) {
	err := h.attempts(ctx)
	h.settle(err)
}

func (h *RunHandle) attempts(ctx context.Context) error {
	for {
		ended, err := h.attempter.Attempt(ctx, h.lane)
		if err != nil {
			return err
		}
		switch ended {
		case HandedOver:
			return nil
		case ParkedLane:
			if on, err := h.wait(ctx); err != nil {
				return err
			} else if !on {
				if h.defect() == nil {
					h.sink.suspended()
				}
				return nil
			}
		case Yielded:
		default:
			return fmt.Errorf("engine: a run in memory ended %s", ended)
		}
	}
}

// wait sits out what a parked run waits for, and reports whether it can go on.
func (h *RunHandle) wait(ctx context.Context) (bool, error) {
	state, err := fold(ctx, h.admitter.cfg.Journal, h.lane)
	if err != nil {
		return false, err
	}
	waits := state.Waits()
	if waits == nil || h.defect() != nil {
		return false, nil
	}
	var patience time.Duration
	switch waits.Reason {
	case core.WaitApproval:
		patience = h.req.ApprovalWait
	case core.WaitBackoff:
		patience = localLease
	}
	// A decision or a cancel may have come meanwhile: that is seen at once.
	now := h.admitter.cfg.Now()
	for end := now.Add(patience); ; {
		head, err := h.admitter.cfg.Journal.Head(ctx, h.lane)
		if err != nil {
			return false, err
		}
		now = h.admitter.cfg.Now()
		if head.State == journal.Ready || !head.Due.After(now) {
			return true, nil
		}
		if !now.Before(end) {
			return false, nil
		}
		until := end
		if head.Due.Before(until) {
			until = head.Due
		}
		watching, cancel := context.WithTimeout(ctx, until.Sub(now))
		_, err = h.admitter.cfg.Journal.Watch(watching, h.lane, head)
		over := watching.Err() != nil
		cancel()
		if err != nil && !over {
			return false, err
		}
	}
}
