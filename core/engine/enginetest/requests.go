package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/record"
)

const tenant, conversation, person, name = "t", "c", "kim", "agent"

// request is what somebody outside wants: repeated unchanged, by whoever asks,
// until it is answered.
type request struct {
	name string
	do   func(ctx context.Context, a *engine.Admitter) error
	// done lists answers that are as good as a yes: an earlier try got through.
	done []engine.ErrorKind
}

// answered reports whether an answer ends the request.
func (r *request) answered(err error) bool {
	var e *engine.Error
	return err == nil || errors.As(err, &e) && slices.Contains(r.done, e.Kind)
}

// submit asks for the nth run.
func submit(c *cell, n int) *request {
	return &request{name: fmt.Sprint("submit ", n), do: func(ctx context.Context, a *engine.Admitter) error {
		receipt, err := a.Submit(ctx, engine.SubmitRequest{Tenant: tenant, Principal: person, Agent: name, Conversation: conversation,
			Key: fmt.Sprint("key ", n), Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))})
		if err == nil {
			c.accepted[n-1] = receipt.Submission
		}
		return err
	}}
}

// decide answers the approval that is pending, if one is.
func decide(yes bool) func(c *cell) *request {
	return func(c *cell) *request {
		pending, err := c.reader.Approvals(context.Background(), tenant)
		if err != nil || len(pending) == 0 || c.asked[pending[0].ID] {
			return nil
		}
		c.asked[pending[0].ID] = true
		return &request{name: "decide", done: []engine.ErrorKind{engine.KindDecided}, do: func(ctx context.Context, a *engine.Admitter) error {
			_, err := a.Decide(ctx, engine.DecisionRequest{Tenant: tenant, Principal: person, Approval: pending[0].ID, Approve: yes})
			return err
		}}
	}
}

// resolve tells the truth about the call whose outcome is unknown, if one is.
func resolve(c *cell) *request {
	st, err := c.reader.Status(context.Background(), c.lane())
	if err != nil || st.Active == nil || st.Active.Waits == nil || st.Active.Waits.Reason != core.WaitUnknown {
		return nil
	}
	lost := st.Active.Waits.Calls[0]
	r := engine.ResolveRequest{Tenant: tenant, Principal: person, Conversation: conversation, Call: lost.ID, Resolution: record.NotHappened}
	if c.world.happened(lost.Operation) {
		r.Resolution, r.Result = record.Happened, json.RawMessage(`"seen"`)
	}
	return &request{name: "resolve", done: []engine.ErrorKind{engine.KindNotFound}, do: func(ctx context.Context, a *engine.Admitter) error {
		return a.Resolve(ctx, r)
	}}
}

// abort ends the run that is open.
func abort(*cell) *request { return abortOf("") }

// abortOf ends a submission; without one, the run that is open.
func abortOf(submission string) *request {
	return &request{name: "abort", done: []engine.ErrorKind{engine.KindSettled}, do: func(ctx context.Context, a *engine.Admitter) error {
		_, err := a.RequestAbort(ctx, engine.AbortRequest{Tenant: tenant, Principal: person, Conversation: conversation, Submission: submission, Reason: "enough"})
		return err
	}}
}
