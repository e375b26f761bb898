package agent

import (
	"log/slog"
	"time"

	"github.com/layover-run/layover/core/engine"
)

// Option changes one thing about a run in this process.
type Option func(*options)

type options struct {
	runner  engine.RunnerConfig
	request engine.RunRequest
}

// Detached lets the run go on when the consumer of its Stream leaves or the
// context it was given ends.
func Detached() Option { return func(o *options) { o.request.Detached = true } }

// ApprovalWait is how long the run waits in this process for an answer to an
// approval; then it ends suspended. Without it, at once.
func ApprovalWait(d time.Duration) Option { return func(o *options) { o.request.ApprovalWait = d } }

// MaxDuration tightens how long the run may take. A run whose agent sets none
// has 5 minutes. Like every option it can only tighten.
func MaxDuration(d time.Duration) Option {
	return func(o *options) { allowed(&o.request.Allowance.Duration, d) }
}

// MaxTurns tightens the number of model responses.
func MaxTurns(n int) Option { return func(o *options) { allowed(&o.request.Allowance.Turns, n) } }

// MaxToolCalls tightens the number of started tool handlers.
func MaxToolCalls(n int) Option {
	return func(o *options) { allowed(&o.request.Allowance.ToolCalls, n) }
}

// Limits tighten the ceilings of events and model calls.
func Limits(l BufferLimits) Option { return func(o *options) { o.runner.Limits = l } }

// Buffer is how many events may wait for the consumer of a Stream before the
// run waits too. Defaults to 64.
func Buffer(events int) Option { return func(o *options) { o.runner.Buffer = events } }

// As names the principal the run is for. Defaults to "anonymous".
func As(principal string) Option { return func(o *options) { o.request.Principal = principal } }

// InConversation names the run's conversation. Defaults to a new id.
func InConversation(id string) Option { return func(o *options) { o.request.Conversation = id } }

// CleanupTimeout is how long a cancelled handler may take to return before it
// is given up. Defaults to 30 s.
func CleanupTimeout(d time.Duration) Option { return func(o *options) { o.runner.CleanupTimeout = d } }

// Authorize asks the host about every call before it is executed. Without it,
// calls need no authorization.
func Authorize(f engine.Authorizer) Option { return func(o *options) { o.runner.Authorize = f } }

// Log receives what an operator should see. Defaults to slog.Default.
func Log(l *slog.Logger) Option { return func(o *options) { o.runner.Log = l } }

// OnUserError hears what handlers, instructions and model adapters returned as
// errors, in full.
func OnUserError(f func(engine.UserError)) Option {
	return func(o *options) { o.runner.OnUserError = f }
}

// Clock is where the run reads the time. Defaults to time.Now.
func Clock(now func() time.Time) Option { return func(o *options) { o.runner.Now = now } }

// IDs mints the ids of the run. Defaults to UUIDv7.
func IDs(next func() string) Option { return func(o *options) { o.runner.NewID = next } }
