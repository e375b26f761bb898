package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// AuthorizeRequest is one call as the host is asked about it. All of it comes
// from the log, so it is the same for the same call in every attempt, whoever
// works on the run (RUN-031c).
type AuthorizeRequest struct {
	Tenant       string `json:"tenant"`
	Conversation string `json:"conversation"`
	Principal    string `json:"principal"` // who submitted the run
	Agent        string `json:"agent"`
	Run          string `json:"run"`
	// TurnID identifies the turn across runs; Turn counts from 1 within its run.
	TurnID string `json:"turnId"`
	Turn   int    `json:"turn"`
	// Input is the run's input exactly as it was admitted, canonical JSON.
	Input json.RawMessage `json:"input"`
	Call  string          `json:"call"`
	Tool  string          `json:"tool"`
	// Args are the call's arguments as they were validated, canonical JSON.
	Args  json.RawMessage `json:"args"`
	Class record.Class    `json:"class"`
}

// Authorization is a host's answer. The zero Authorization is a denial.
type Authorization struct {
	Allow bool
	// Reason of a denial. It is recorded and shown with the run's failure.
	Reason string
}

// Authorizer decides whether a call of a tool may be executed now. It is asked
// after the batch is validated and every approval is in, for each call that may
// still be executed, one after another in declaration order, and before anything
// of the batch starts; a new attempt asks again. A denial fails the run without
// starting anything more, and so does an error or a panic. It may be called for
// several runs at once, and should return soon after its context ends.
type Authorizer func(context.Context, AuthorizeRequest) (Authorization, error)

// authorize asks the host about one call.
func (j job) authorize(ctx context.Context, e core.Authorize) core.Fact {
	answer := core.Authorized{Call: e.Call}
	input, err := j.resolve(ctx, e.Input)
	if err != nil {
		answer.Err = payloadError(err)
		return answer
	}
	args, err := j.resolve(ctx, e.Args)
	if err != nil {
		answer.Err = payloadError(err)
		return answer
	}
	said, err := j.a.cfg.Authorize(ctx, AuthorizeRequest{
		Tenant: j.a.lane.Tenant, Conversation: j.conversation, Principal: j.principal, Agent: j.def.Facts.Name, Run: e.Run,
		TurnID: fmt.Sprintf("%s.%d", e.Run, e.Turn), Turn: e.Turn, Input: input.Inline, Call: e.Call, Tool: e.Tool, Args: args.Inline, Class: e.Class,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		answer.Interrupted = true
	case err != nil:
		j.a.cfg.OnUserError(UserError{Conversation: j.conversation, Run: j.run, Call: e.Call, Where: "Config.Authorize", Err: err})
		answer.Err = &record.Error{Kind: core.AuthorizationFailed, Message: "the host could not say whether the call of " + e.Tool + " is authorized",
			Hint: "the server tells its cause to whoever runs it"}
	default:
		answer.Allowed, answer.Reason = said.Allow, said.Reason
	}
	return answer
}
