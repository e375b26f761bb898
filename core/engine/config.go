package engine

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
)

// Config is what the three services share. Journal and Queue are required.
type Config struct {
	Journal journal.Journal
	Queue   queue.Queue
	// Boot identifies this process where it holds the store exclusively: an
	// attempt of another boot is then certainly dead. Defaults to none.
	Boot string
	// AttemptTimeout is how long one attempt may live, and its lease.
	// Defaults to 15 minutes.
	AttemptTimeout time.Duration
	// Skew is added where a clock decides that an invocation is certainly
	// over. Defaults to 30 s.
	Skew time.Duration
	// Grace is how long a lost wake may go unnoticed. Defaults to 2 s.
	Grace time.Duration
	// CleanupTimeout is how long a cancelled handler may take to return.
	// Defaults to 30 s.
	CleanupTimeout time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// NewID mints attempt and batch ids. Defaults to UUIDv7.
	NewID func() string
	// Log receives what an operator should see; no payloads, no secrets.
	// Defaults to slog.Default.
	Log *slog.Logger
	// OnUserError hears of errors whose text nobody else may see: what a
	// handler, instructions or a model adapter returned, and what their panics
	// say. The engine neither logs nor stores them, because only their author knows what is in them.
	// It is called on the effect's goroutine. Defaults to nothing.
	OnUserError func(UserError)
	// Authorize is asked about every call before it is executed. It costs one
	// write more for each response with calls. Defaults to nothing: calls need no
	// authorization.
	Authorize Authorizer
	// ToolLimits bounds handlers across all runs of this process. Defaults to
	// none.
	ToolLimits ToolLimits
	// Tracing makes the engine's spans: one for each attempt, model call, tool
	// call and probe, all those of a run in the trace RunTrace names. Spans hold
	// identifiers, kinds and counts, never payloads or the text of errors.
	// Defaults to none.
	//
	// A sampler that asks the parent keeps every run, because the run itself
	// counts as sampled; one that decides by trace id keeps or drops a run as a
	// whole.
	Tracing trace.TracerProvider
	// OnBatch observes every batch this process appended, after it is durable,
	// on the attempt's goroutine. It must not block.
	OnBatch func(lane journal.Lane, b record.Batch)
	// Feed takes live events to this process's readers. Defaults to none:
	// readers then see canonical events only, and poll for them.
	Feed *Feed
	// Limits tighten the ceilings of model calls and events. Defaults to the
	// ceilings themselves.
	Limits BufferLimits

	// onDefect hears of every panic of user code, with its value.
	onDefect func(*DefectError)
}

func (c Config) withDefaults() (Config, error) {
	if c.Journal == nil || c.Queue == nil {
		return c, fmt.Errorf("engine: Config.Journal and Config.Queue are required")
	}
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&c.AttemptTimeout, 15*time.Minute)
	set(&c.Skew, 30*time.Second)
	set(&c.Grace, 2*time.Second)
	set(&c.CleanupTimeout, 30*time.Second)
	if c.AttemptTimeout < core.YieldMargin+startSlack {
		return c, fmt.Errorf("engine: an attempt of %s is too short: at least %s are needed", c.AttemptTimeout, core.YieldMargin+startSlack)
	}
	if c.Skew < c.CleanupTimeout {
		return c, fmt.Errorf("engine: Config.Skew (%s) is below CleanupTimeout (%s): a handler could outlive what is taken for its death", c.Skew, c.CleanupTimeout)
	}
	if err := c.ToolLimits.check(); err != nil {
		return c, err
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = newID
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.onDefect == nil {
		c.onDefect = func(*DefectError) {}
	}
	if c.OnUserError == nil {
		c.OnUserError = func(UserError) {}
	}
	return c, nil
}

// UserError is an error of user code with where it came from.
type UserError struct {
	Conversation, Run, Call string
	Where                   string // such as "tool look_up" or "the model adapter"
	Err                     error
}

// startSlack is what an attempt may use up before it starts its first handler.
const startSlack = 5 * time.Second

// longest bounds how long any invocation of this assembly can live (F8).
func (c Config) longest() time.Duration { return c.AttemptTimeout + c.Skew }

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// Registry is the definitions one build can run, by agent name. It is built
// once and then only read.
type Registry struct {
	byName map[string]*Definition
	facts  []Facts
}

// NewRegistry refuses two definitions of one name, a definition without a
// model, and tools whose timeout does not fit an attempt of the given length
// with 15 seconds to spare.
func NewRegistry(attempt time.Duration, defs ...Definition) (*Registry, error) {
	r := &Registry{byName: map[string]*Definition{}}
	for _, d := range defs {
		name := d.Facts.Name
		switch {
		case r.byName[name] != nil:
			return nil, fmt.Errorf("engine: two agents are named %q", name)
		case d.Model == nil:
			return nil, fmt.Errorf("engine: agent %q has no model", name)
		}
		for _, t := range d.Spec.Tools {
			if attempt > 0 && t.Timeout+core.YieldMargin+startSlack > attempt {
				return nil, fmt.Errorf("engine: agent %q: tool %q may take %s, and an attempt of %s leaves %s for it; shorten its timeout or lengthen the attempt",
					name, t.Name, t.Timeout, attempt, attempt-core.YieldMargin-startSlack)
			}
		}
		r.byName[name] = &d
		r.facts = append(r.facts, d.Facts)
	}
	return r, nil
}

// Manifest lists the facts of every definition, in registration order.
func (r *Registry) Manifest() Manifest { return Manifest(r.facts) }

func (r *Registry) definition(agent string) *Definition { return r.byName[agent] }

// Manifest is what functions without the agents' code know about them (D-61).
type Manifest []Facts

// Agent finds an agent's facts.
func (m Manifest) Agent(name string) (Facts, bool) {
	for _, f := range m {
		if f.Name == name {
			return f, true
		}
	}
	return Facts{}, false
}
