package engine

import (
	"context"
	"encoding/json"
	"slices"
)

// Undelivered is a follow-up that a run did not take in before it ended: the
// caller may run it next.
type Undelivered struct {
	Submission string
	Input      json.RawMessage
}

// Steer puts a message in front of the run's next model request, behind the
// results of what runs now. It never ends anything. A run that has ended is
// ErrRunEnded.
func (h *RunHandle) Steer(ctx context.Context, text string) (SteerReceipt, error) {
	if h.over() {
		return SteerReceipt{}, ErrRunEnded
	}
	receipt, err := h.admitter.Steer(ctx, SteerRequest{Tenant: h.lane.Tenant, Principal: h.principal, Conversation: h.lane.Conversation,
		Submission: h.id, Text: text})
	if err != nil {
		return SteerReceipt{}, h.ending(err)
	}
	return receipt, nil
}

// FollowUp queues another input, which joins the run where it would otherwise
// complete. One that the run no longer takes in is in its result, Undelivered. A
// run that has ended is ErrRunEnded.
func (h *RunHandle) FollowUp(ctx context.Context, input json.RawMessage) (Receipt, error) {
	if h.over() {
		return Receipt{}, ErrRunEnded
	}
	admitter, err := NewAdmitter(h.admitter.cfg, h.admitter.manifest)
	if err != nil {
		return Receipt{}, err
	}
	receipt, err := admitter.FollowUp(ctx, FollowUpRequest{Tenant: h.lane.Tenant, Principal: h.principal, Conversation: h.lane.Conversation,
		Agent: h.req.Definition.Facts.Name, Input: input})
	if err != nil {
		return Receipt{}, h.ending(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settled { // it came too late for the result
		return Receipt{}, ErrRunEnded
	}
	h.followUps = append(h.followUps, Undelivered{Submission: receipt.Submission, Input: slices.Clone(input)})
	return receipt, nil
}

func (h *RunHandle) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settled
}

// undelivered is what the run did not take in; h.mu is held.
func (h *RunHandle) undelivered() []Undelivered {
	return slices.DeleteFunc(slices.Clone(h.followUps), func(u Undelivered) bool { return slices.Contains(h.folding.joined, u.Submission) })
}
