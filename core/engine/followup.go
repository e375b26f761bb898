package engine

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
)

// FollowUpRequest is work for a conversation whose run may still be going on.
type FollowUpRequest struct {
	Tenant, Principal string
	Conversation      string
	Agent             string // empty means that of the conversation's newest run
	Key               string // idempotency key; minted when empty
	Input             json.RawMessage
	ReplyTo           string
}

// FollowUp admits a submission that joins the active run where that run would
// otherwise end, and settles with it. A run that fails, runs out of its budget,
// belongs to another principal or has ended does not take it in: it then gets a
// run of its own, as any submission. Its input fits the agent's input type.
func (a *Admitter) FollowUp(ctx context.Context, r FollowUpRequest) (Receipt, error) {
	const op = "followUp"
	if err := checkID(op, "conversation", r.Conversation); err != nil {
		return Receipt{}, err
	}
	lane := journal.Lane{Tenant: r.Tenant, Conversation: r.Conversation}
	if r.Agent == "" {
		name, err := a.newestAgent(ctx, lane)
		if err != nil {
			return Receipt{}, AsError(op, err)
		}
		r.Agent = name
	}
	return a.submit(ctx, op, SubmitRequest{Tenant: r.Tenant, Principal: r.Principal, Agent: r.Agent, Key: r.Key,
		Conversation: r.Conversation, Input: r.Input, ReplyTo: r.ReplyTo, join: true})
}

// newestAgent is the agent of the newest submission of a conversation.
func (a *Admitter) newestAgent(ctx context.Context, lane journal.Lane) (string, error) {
	head, entries, err := a.cfg.Journal.Inbox(ctx, lane, 0)
	if err != nil {
		return "", err
	}
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].Kind != journal.EntrySubmit {
			continue
		}
		row, err := a.cfg.Journal.Submission(ctx, lane.Tenant, entries[i].Ref)
		return row.Agent, err
	}
	if head.Version == 0 {
		return "", refuse(KindNotFound, "followUp", "`layover submit` starts a conversation", "no conversation %q", lane.Conversation)
	}
	return "", refuse(KindInvalid, "followUp", "the agents here are: "+a.names(), "conversation %q has no submission yet: name the agent", lane.Conversation)
}

// room refuses a submission for a conversation where core.MaxWaiting wait
// already. The bound is soft: many can be admitted at once. A submission that is
// known finds itself whatever waits.
func (a *Admitter) room(ctx context.Context, op string, s journal.Submission) error {
	head, err := a.cfg.Journal.Head(ctx, s.Lane)
	if err != nil || head.State == journal.Idle || head.Version < core.MaxWaiting {
		return err // nothing waits, or so many never came: each moves the version
	}
	_, entries, err := a.cfg.Journal.Inbox(ctx, s.Lane, head.Drained)
	if err != nil {
		return err
	}
	state, err := fold(ctx, a.cfg.Journal, s.Lane)
	if err != nil {
		return err
	}
	waiting := len(state.Queue)
	for _, e := range entries {
		if e.Slot > state.Cursor && e.Kind == journal.EntrySubmit {
			waiting++
		}
	}
	if waiting < core.MaxWaiting {
		return nil
	}
	if _, err := a.cfg.Journal.Submission(ctx, s.Lane.Tenant, s.ID); !errors.Is(err, journal.ErrNotFound) {
		return err
	}
	return refuse(KindFull, op, "submit again when some of them have run, or use another conversation",
		"%d submissions wait in conversation %q already", waiting, s.Lane.Conversation)
}
