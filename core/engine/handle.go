package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/journal"
)

// RunHandle is a run under way in this process, and afterwards its outcome. It
// is safe for concurrent use.
type RunHandle struct {
	req       RunRequest
	lane      journal.Lane
	id        string
	principal string
	admitter  *Admitter
	attempter *Attempter
	sink      *localSink
	store     *eventStore // of Start
	stop      context.CancelFunc
	unbind    func() bool
	ended     chan struct{} // the run has ended, with everything of it
	told      chan struct{} // and its observers know

	mu        sync.Mutex
	life      Lifecycle
	folding   folding
	followUps []Undelivered
	broken    *DefectError
	settled   bool
	result    RunResult
	err       error
	canceled  bool
}

// ID is the run's id.
func (h *RunHandle) ID() string { return h.id }

// Conversation is the id of the run's conversation.
func (h *RunHandle) Conversation() string { return h.lane.Conversation }

// State is where the run stands.
func (h *RunHandle) State() RunState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.State()
}

// Path is every state the run has been in.
func (h *RunHandle) Path() []RunState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.Path()
}

// Events replays the run's canonical events from the first one and follows them
// to the end, with what is on its way in between; a reader that is slow gets
// deltas joined, and those of a turn that has its record not at all. Reading
// never slows the run. The last pair holds the error the run ended in, if any;
// the end of ctx ends the reading only, with its error.
func (h *RunHandle) Events(ctx context.Context) EventStream { return h.store.stream(ctx) }

// Observe calls see for each of Events and returns when the run has ended.
// Its error is ctx's: how the run ended is the business of Await.
func (h *RunHandle) Observe(ctx context.Context, see func(event.Event)) error {
	for e, err := range h.Events(ctx) {
		if err != nil {
			return context.Cause(ctx)
		}
		see(e)
	}
	return nil
}

// Await waits for the end of the run and says how it ended; any number of
// callers get the same. The end of ctx ends the waiting only, with its error.
func (h *RunHandle) Await(ctx context.Context) (RunResult, error) {
	select { // an outcome that is there wins over a context that is over (INT-06)
	case <-h.told:
		return h.outcome()
	default:
	}
	select {
	case <-h.told:
		return h.outcome()
	case <-ctx.Done():
		return RunResult{}, context.Cause(ctx)
	}
}

// Cancel interrupts the run: nothing new starts, the model's stream and the
// handlers are told to end, and what has happened stays as it is. It does not
// wait; Await does. A run that has ended is ErrRunEnded.
func (h *RunHandle) Cancel() error { return h.cancel("cancelled") }

func (h *RunHandle) cancel(reason string) error {
	h.mu.Lock()
	settled, again := h.settled, h.canceled
	h.canceled = true
	h.mu.Unlock()
	switch {
	case settled:
		return ErrRunEnded
	case again:
		return nil
	}
	// The loop ends what runs once it has read the intent: an interruption that
	// came before it would leave an uncertain call without an outcome.
	_, err := h.admitter.RequestAbort(context.Background(), AbortRequest{Tenant: h.lane.Tenant, Conversation: h.lane.Conversation,
		Submission: h.id, Principal: h.principal, Reason: clipped(reason)})
	if err != nil {
		h.stop()
		return h.ending(err)
	}
	h.attempter.local.wake()
	return nil
}

// ending gives an answer of the Admitter about a run that has ended its name.
func (h *RunHandle) ending(err error) error {
	var refused *Error
	if errors.As(err, &refused) && refused.Kind == KindSettled {
		return fmt.Errorf("%w: %s", ErrRunEnded, refused.Message)
	}
	return err
}

// Approvals lists what the run asks a person now.
func (h *RunHandle) Approvals(ctx context.Context) ([]Approval, error) {
	pending, err := h.admitter.pending(ctx, h.lane)
	if err != nil {
		return nil, AsError("approvals", err)
	}
	return pending, nil
}

// Approve decides about an approval; the first decision counts. The run must
// still wait for it (RunRequest.ApprovalWait): one that has ended is
// ErrRunEnded.
func (h *RunHandle) Approve(ctx context.Context, approval, by, reason string) error {
	return h.decide(ctx, DecisionRequest{Approval: approval, Principal: by, Reason: reason, Approve: true})
}

// Deny is Approve with the other answer.
func (h *RunHandle) Deny(ctx context.Context, approval, by, reason string) error {
	return h.decide(ctx, DecisionRequest{Approval: approval, Principal: by, Reason: reason})
}

func (h *RunHandle) decide(ctx context.Context, r DecisionRequest) error {
	if h.over() {
		return ErrRunEnded
	}
	r.Tenant = h.lane.Tenant
	if r.Principal == "" {
		r.Principal = h.principal
	}
	if _, err := h.admitter.Decide(ctx, r); err != nil {
		return h.ending(err)
	}
	return nil
}

// heard follows the run's own events.
func (h *RunHandle) heard(e event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life.Add(e)
	if !e.Provisional {
		h.folding.add(e)
	}
}

// defective remembers the first defect.
func (h *RunHandle) defective(d *DefectError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil {
		h.broken = d
	}
}

func (h *RunHandle) defect() *DefectError {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// settle decides the outcome, once.
func (h *RunHandle) settle(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settled {
		panic("engine: a run settled twice")
	}
	h.settled, h.result, h.err = true, h.folding.result, h.folding.err
	switch {
	case h.life.State().Ended():
	case h.broken != nil:
		h.err = h.broken
	case err != nil:
		h.err = err
	default:
		h.err = fmt.Errorf("engine: run %s ended without an outcome", h.id)
	}
	if h.life.To(StateFailed) {
		h.result.State = StateFailed
	}
	if u := h.undelivered(); len(u) > 0 {
		h.result.Undelivered = u
	}
	if h.unbind != nil {
		h.unbind()
	}
	h.stop()
	close(h.ended)
}

// outcome is what a run that has ended came to.
func (h *RunHandle) outcome() (RunResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.result, h.err
}
