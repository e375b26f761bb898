package functions

import (
	"net/http"

	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/record"
)

func (a *api) steer(w http.ResponseWriter, r *http.Request) error {
	var in wire.Steer
	if err := readInto(w, r, "steer", &in); err != nil {
		return err
	}
	ctx, cancel := command(r)
	defer cancel()
	tenant, principal := a.caller(r)
	got, err := a.admit.Admitter().Steer(ctx, engine.SteerRequest{Tenant: tenant, Principal: principal,
		Conversation: r.PathValue("conversation"), Submission: in.Submission, Key: in.Key, Text: in.Text})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, wire.Steering{Conversation: got.Conversation, Submission: got.Submission, Key: got.Key,
		Receipt: receipt(got.Duplicate), By: principal, At: record.Time(got.At)})
	return nil
}

func (a *api) followUp(w http.ResponseWriter, r *http.Request) error {
	var in wire.FollowUp
	if err := readInto(w, r, "followUp", &in); err != nil {
		return err
	}
	ctx, cancel := command(r)
	defer cancel()
	tenant, principal := a.caller(r)
	got, err := a.admit.Admitter().FollowUp(ctx, engine.FollowUpRequest{Tenant: tenant, Principal: principal,
		Conversation: r.PathValue("conversation"), Agent: in.Agent, Key: in.Key, Input: in.Input, ReplyTo: in.ReplyTo})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, submitted(got))
	return nil
}

func submitted(r engine.Receipt) wire.Submitted {
	return wire.Submitted{V: wire.Version, Submission: r.Submission, Conversation: r.Conversation, Receipt: receipt(r.Duplicate), At: record.Time(r.At)}
}

func receipt(duplicate bool) string {
	if duplicate {
		return wire.Duplicate
	}
	return wire.Accepted
}
