// Package embedded is the whole of Layover in one process: the SQLite journal,
// a queue in memory, and the same admit, attempt and settle handlers that run
// on functions, fed with the same events.
//
// A program that links it needs no service, no key and no account:
//
//	rt, err := embedded.Open(".layover", embedded.Config{Agents: agents, Model: model})
//	receipt, err := rt.Submit(ctx, engine.SubmitRequest{Agent: "refund", Input: input})
//	progress, err := rt.Await(ctx, "", receipt.Submission, engine.UntilSettled)
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/console"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/sqlitejournal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/functions"
)

// Config configures an embedded runtime. At least one agent is required.
type Config struct {
	// Agents this process can run. They are bound to Model.
	Agents []*agent.Definition
	// Bindings are agents with a model of their own.
	Bindings []*agent.Binding
	// Definitions are agents as the engine runs them; one without a model is
	// bound to Model.
	Definitions []engine.Definition
	// Model answers for every agent that has no model of its own.
	Model model.Model
	// Concurrency bounds the attempts that run at once. Defaults to 128. A
	// parked run holds no place.
	Concurrency int
	// AttemptTimeout is how long one attempt lives before it yields to the
	// next. Defaults to 15 minutes; a tool's timeout has to fit into it with 15
	// seconds to spare.
	AttemptTimeout time.Duration
	// Sweep is how often due lanes are looked for. Defaults to 1 s.
	Sweep time.Duration
	// Authorize is asked about every call of a tool before it is executed.
	// Defaults to nothing: calls need no authorization.
	Authorize engine.Authorizer
	// ToolLimits bounds handlers across all runs. Defaults to none.
	ToolLimits engine.ToolLimits
	// Limits tighten the ceilings of model calls and events. Defaults to the
	// ceilings themselves.
	Limits engine.BufferLimits
	// Log defaults to slog.Default.
	Log *slog.Logger
	// OnUserError hears what handlers, instructions and model adapters returned
	// as errors, and what their panics say, in full. The runtime neither logs nor
	// stores these texts.
	OnUserError func(engine.UserError)
	// ConsolePrincipal is recorded as who decided in the web console. Defaults to
	// "console@local".
	ConsolePrincipal string
	// Tracing makes a span for each attempt, model call and tool call, as
	// engine.Config.Tracing. Defaults to none.
	Tracing trace.TracerProvider
	// OnBatch observes every batch appended here, after it is durable. It must
	// not block.
	OnBatch func(journal.Lane, record.Batch)
	// OnEvent hears of every event that is recorded here, each once and in the
	// order of its conversation, from one goroutine. It may be slow: runs do not
	// wait for it.
	OnEvent func(journal.Lane, event.Event)
}

// Runtime is an open data directory with everything that works on it.
type Runtime struct {
	store    *sqlitejournal.Journal
	wakes    *memqueue.Queue
	admit    *functions.Admit
	attempt  *functions.Attempt
	settle   *functions.Settle
	settler  *engine.Settler
	tail     *tail
	trace    *watch        // for Config.OnEvent, else nil
	traced   chan struct{} // closed when the trace has ended
	cfg      Config
	cancel   context.CancelFunc
	draining chan struct{} // closed when no new attempt may start
	workers  sync.WaitGroup
	work     sync.WaitGroup
	once     sync.Once
	closeErr error
}

// Open opens or creates a data directory and goes on with everything that
// waits in it. The directory belongs to one process at a time: a second one
// gets journal.ErrInUse, and a directory of a newer version journal.ErrNewer.
func Open(dir string, c Config) (*Runtime, error) {
	if c.Concurrency <= 0 {
		c.Concurrency = 128
	}
	if c.AttemptTimeout <= 0 {
		c.AttemptTimeout = 15 * time.Minute
	}
	if c.Sweep <= 0 {
		c.Sweep = time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	defs, err := definitions(c)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, errors.New("embedded: the data directory has no name")
	}
	registry, err := engine.NewRegistry(c.AttemptTimeout, defs...)
	if err != nil {
		return nil, err
	}
	store, err := sqlitejournal.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("embedded: open %s: %w", dir, err)
	}
	rt := &Runtime{store: store, wakes: memqueue.New(), cfg: c, draining: make(chan struct{})}
	if err := rt.assemble(registry); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	rt.run()
	rt.startTrace()
	return rt, nil
}

// definitions binds every agent of a configuration to its model.
func definitions(c Config) ([]engine.Definition, error) {
	defs := slices.Clone(c.Definitions)
	for i, a := range c.Agents {
		if a == nil {
			return nil, fmt.Errorf("embedded: Config.Agents[%d] is nil", i)
		}
		defs = append(defs, a.Engine())
	}
	for i, b := range c.Bindings {
		if b == nil {
			return nil, fmt.Errorf("embedded: Config.Bindings[%d] is nil", i)
		}
		defs = append(defs, b.Engine())
	}
	for i := range defs {
		if defs[i].Model == nil {
			defs[i].Model = c.Model
		}
		if defs[i].Model == nil {
			return nil, fmt.Errorf("embedded: agent %q has no model: set Config.Model, or bind the agent", defs[i].Facts.Name)
		}
	}
	if len(defs) == 0 {
		return nil, errors.New("embedded: no agents: set Config.Agents, Bindings or Definitions")
	}
	return defs, nil
}

func (rt *Runtime) assemble(registry *engine.Registry) error {
	cfg := engine.Config{
		Journal: rt.store, Queue: rt.wakes, Boot: rt.store.Boot(), AttemptTimeout: rt.cfg.AttemptTimeout,
		Log: rt.cfg.Log, OnUserError: rt.cfg.OnUserError, Tracing: rt.cfg.Tracing, OnBatch: rt.onBatch,
		Feed:      engine.NewFeed(),
		Authorize: rt.cfg.Authorize, ToolLimits: rt.cfg.ToolLimits, Limits: rt.cfg.Limits,
	}
	admitter, err := engine.NewAdmitter(cfg, registry.Manifest())
	if err != nil {
		return err
	}
	attempter, err := engine.NewAttempter(cfg, registry)
	if err != nil {
		return err
	}
	if rt.settler, err = engine.NewSettler(cfg); err != nil {
		return err
	}
	rt.tail = newTail(admitter, rt.cfg.Log, rt.store.Boot())
	if rt.cfg.OnEvent != nil {
		rt.trace, rt.traced = newWatch(), make(chan struct{})
	}
	rt.admit = functions.NewAdmit(admitter, functions.AdmitOptions{Log: rt.cfg.Log})
	rt.attempt = functions.NewAttempt(attempter, rt.cfg.Log)
	rt.settle = functions.NewSettle(rt.settler, rt.cfg.Log)
	return nil
}

// Admit is the admit function.
func (rt *Runtime) Admit() *functions.Admit { return rt.admit }

// Handler serves the console at the root and the HTTP API under /v1, for
// loopback use. Serve is for any other.
func (rt *Runtime) Handler() http.Handler { return rt.handler("") }

// handler lets in who shows the token; without one, this machine only.
func (rt *Runtime) handler(token string) http.Handler {
	api := functions.NewAPI(rt.admit, functions.APIOptions{LoopbackOnly: token == "", Token: token, Boot: rt.store.Boot(),
		Tail: rt.tail, Log: rt.cfg.Log})
	pages := console.New(console.Options{API: api, Token: token, LoopbackOnly: token == "", Principal: rt.cfg.ConsolePrincipal, Log: rt.cfg.Log})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := r.URL.Path; path == "/" || strings.HasPrefix(path, "/ui/") {
			pages.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// Boot identifies this opening of the data directory.
func (rt *Runtime) Boot() string { return rt.store.Boot() }

// Writes counts the rows written since Open.
func (rt *Runtime) Writes() int64 { return rt.store.Writes() }

// onBatch tells everyone who listens.
func (rt *Runtime) onBatch(lane journal.Lane, b record.Batch) {
	if rt.cfg.OnBatch != nil {
		rt.cfg.OnBatch(lane, b)
	}
	if rt.trace != nil {
		rt.trace.onBatch(lane, b)
	}
	rt.tail.onBatch(lane, b)
}

func (rt *Runtime) startTrace() {
	if rt.trace == nil {
		return
	}
	go func() {
		defer close(rt.traced)
		rt.trace.run(rt.admit.Admitter(), rt.cfg.OnEvent, rt.cfg.Log)
	}()
}

// stopTrace lets the trace end, unless nobody takes what it tells.
func (rt *Runtime) stopTrace() {
	if rt.trace == nil {
		return
	}
	rt.trace.stop()
	select {
	case <-rt.traced:
	case <-time.After(time.Second):
	}
}

// Quiet waits until nothing is due or under way: every lane is idle or parked
// for later. It is for tests and orderly shutdowns.
func (rt *Runtime) Quiet(ctx context.Context) error {
	for {
		due, err := rt.store.Due(ctx, time.Now().Add(rt.cfg.AttemptTimeout), 1)
		if err != nil || len(due) == 0 {
			return err
		}
		if _, err := rt.store.Watch(ctx, due[0].Lane, due[0]); err != nil {
			return err
		}
	}
}

// Close lets running attempts come to a safe boundary, as long as ctx allows,
// and closes the store. What did not end goes on at the next Open.
func (rt *Runtime) Close(ctx context.Context) error {
	rt.once.Do(func() {
		close(rt.draining)
		rt.cancel()
		rt.workers.Wait()
		idle := make(chan struct{})
		go func() { rt.work.Wait(); close(idle) }()
		select {
		case <-idle:
		case <-ctx.Done():
		}
		rt.tail.stop()
		rt.stopTrace()
		rt.closeErr = rt.store.Close()
	})
	return rt.closeErr
}
