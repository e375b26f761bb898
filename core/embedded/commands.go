package embedded

import (
	"context"
	"iter"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
)

// An empty tenant is "local" and an empty principal "anonymous", in every call.
const (
	defaultTenant    = "local"
	defaultPrincipal = "anonymous"
)

func orElse(value *string, otherwise string) {
	if *value == "" {
		*value = otherwise
	}
}

// Submit accepts work as a queue message would bring it.
func (rt *Runtime) Submit(ctx context.Context, r engine.SubmitRequest) (engine.Receipt, error) {
	orElse(&r.Tenant, defaultTenant)
	orElse(&r.Principal, defaultPrincipal)
	return rt.admit.Admitter().Submit(ctx, r)
}

// FollowUp accepts work that joins the conversation's active run before it ends.
func (rt *Runtime) FollowUp(ctx context.Context, r engine.FollowUpRequest) (engine.Receipt, error) {
	orElse(&r.Tenant, defaultTenant)
	orElse(&r.Principal, defaultPrincipal)
	return rt.admit.Admitter().FollowUp(ctx, r)
}

// Steer puts a message in front of the next model request of a run.
func (rt *Runtime) Steer(ctx context.Context, r engine.SteerRequest) (engine.SteerReceipt, error) {
	orElse(&r.Tenant, defaultTenant)
	orElse(&r.Principal, defaultPrincipal)
	return rt.admit.Admitter().Steer(ctx, r)
}

// Await waits until a submission has come as far as asked, or ctx ends; it
// then says where the submission stands. Ending ctx only stops the waiting.
func (rt *Runtime) Await(ctx context.Context, tenant, submission string, until engine.Until) (engine.Progress, error) {
	orElse(&tenant, defaultTenant)
	return rt.admit.Admitter().Await(ctx, tenant, submission, until)
}

// Status says where a conversation stands.
func (rt *Runtime) Status(ctx context.Context, tenant, conversation string) (engine.Status, error) {
	orElse(&tenant, defaultTenant)
	return rt.admit.Admitter().Status(ctx, journal.Lane{Tenant: tenant, Conversation: conversation})
}

// Events yields a conversation's events; see engine.EventsOptions for
// resuming, following and live ones. Ending ctx only ends the reading.
func (rt *Runtime) Events(ctx context.Context, tenant, conversation string, o engine.EventsOptions) iter.Seq2[engine.Numbered, error] {
	orElse(&tenant, defaultTenant)
	return rt.admit.Admitter().Events(ctx, journal.Lane{Tenant: tenant, Conversation: conversation}, o)
}

// Approvals lists what waits for a person, oldest first.
func (rt *Runtime) Approvals(ctx context.Context, tenant string) ([]engine.Approval, error) {
	orElse(&tenant, defaultTenant)
	return rt.admit.Admitter().Approvals(ctx, tenant)
}

// Decide answers an approval; the first decision counts.
func (rt *Runtime) Decide(ctx context.Context, r engine.DecisionRequest) (engine.Decision, error) {
	orElse(&r.Tenant, defaultTenant)
	orElse(&r.Principal, defaultPrincipal)
	return rt.admit.Admitter().Decide(ctx, r)
}

// RequestAbort asks to end a submission and answers with its id. The wish is
// durable; how the run ends is its outcome.
func (rt *Runtime) RequestAbort(ctx context.Context, r engine.AbortRequest) (string, error) {
	orElse(&r.Tenant, defaultTenant)
	orElse(&r.Principal, defaultPrincipal)
	return rt.admit.Admitter().RequestAbort(ctx, r)
}

// Resolve says what became of a call whose outcome is unknown.
func (rt *Runtime) Resolve(ctx context.Context, r engine.ResolveRequest) error {
	orElse(&r.Tenant, defaultTenant)
	orElse(&r.Principal, defaultPrincipal)
	return rt.admit.Admitter().Resolve(ctx, r)
}
