package core

import (
	"encoding/json"

	"github.com/layover-run/layover/core/record"
)

// reduceCall folds what happens to one call of the open batch.
func (r *Run) reduceCall(s *State, env Envelope, rec record.Record) error {
	switch rec := rec.(type) {
	case record.ApprovalRequested:
		return r.approvalRequested(env, rec)
	case record.ApprovalResolved:
		return r.approvalResolved(rec)
	case record.CallPrepared:
		return r.callPrepared(s, env, rec)
	case record.StepRecorded:
		return r.stepRecorded(rec)
	case record.CallUnknown:
		return r.callUnknown(env, rec)
	case record.CallResolved:
		return r.callResolved(rec)
	case record.CallSettled:
		return r.callSettled(rec)
	}
	return illegal("%s does nothing to a run", rec.Kind())
}

func (r *Run) approvalRequested(env Envelope, rec record.ApprovalRequested) error {
	c := r.call(rec.Call)
	if c == nil || c.Phase != Declared || c.Approval != "" {
		return illegal("approval %s for call %s", rec.Approval, rec.Call)
	}
	if rec.ArgsDigest != c.ArgsDigest || rec.Version != c.Version || rec.Tool != c.Tool {
		return illegal("approval %s is bound to another call", rec.Approval)
	}
	c.Phase, c.Approval, c.RequestedAt, c.ExpiresAt = Asked, rec.Approval, env.At, rec.ExpiresAt
	return nil
}

func (r *Run) approvalResolved(rec record.ApprovalResolved) error {
	c := r.call(rec.Call)
	if c == nil || c.Phase != Asked || c.Approval != rec.Approval {
		return illegal("decision about %s, which is not pending", rec.Approval)
	}
	c.DecidedBy, c.Reason = rec.By, rec.Reason
	switch rec.Decision {
	case record.Approved:
		c.Phase = Declared
	case record.Denied:
		c.Phase = Denied
	case record.Expired:
		c.Phase = Lapsed
		r.Failing = &record.Error{Kind: ApprovalExpired, Message: "the approval of " + c.Tool + " expired before anyone decided",
			Hint: "submit again; a longer approval expiry is part of the agent's policy"}
	default:
		return illegal("decision %q", rec.Decision)
	}
	return nil
}

func (r *Run) callPrepared(s *State, env Envelope, rec record.CallPrepared) error {
	c := r.call(rec.Call)
	again := c != nil && c.Phase == Prepared && c.Class != record.Uncertain
	switch {
	case c == nil || c.Phase != Declared && !again:
		return illegal("call %s cannot be prepared", rec.Call)
	case c.Starts > 0 && rec.Operation != c.Operation:
		return illegal("call %s changes its operation id", rec.Call)
	case again && c.Prepared.Epoch == env.Epoch:
		return illegal("call %s prepared twice by one attempt", rec.Call)
	}
	for _, other := range r.Calls {
		if other.Phase == Asked {
			return illegal("call %s prepared before every approval is decided", rec.Call)
		}
	}
	if c.Starts == 0 {
		r.ToolCalls++
	}
	c.Phase, c.Operation, c.Starts = Prepared, rec.Operation, c.Starts+1
	c.UnknownAs, c.Unentered = "", false
	c.Prepared = Preparation{Attempt: env.Attempt, Boot: s.Boot, Epoch: env.Epoch, At: env.At}
	return nil
}

func (r *Run) stepRecorded(rec record.StepRecorded) error {
	c := r.call(rec.Call)
	if c == nil || c.Phase != Prepared {
		return illegal("step %s of call %s, which does not run", rec.Step, rec.Call)
	}
	for _, s := range c.Steps {
		if s.Name == rec.Step {
			return illegal("step %s recorded twice", rec.Step)
		}
	}
	c.Steps = append(c.Steps, Step{Name: rec.Step, Result: rec.Result})
	return nil
}

func (r *Run) callUnknown(env Envelope, rec record.CallUnknown) error {
	c := r.call(rec.Call)
	if c == nil || c.Phase != Prepared {
		return illegal("call %s is not prepared", rec.Call)
	}
	c.Phase, c.UnknownAs, c.UnknownAt = Unknown, rec.Reason, env.At
	return nil
}

func (r *Run) callResolved(rec record.CallResolved) error {
	c := r.call(rec.Call)
	if c == nil || c.Phase != Prepared && c.Phase != Unknown {
		return illegal("resolution of call %s, which is not open", rec.Call)
	}
	switch rec.Resolution {
	case record.Happened: // its CallSettled follows in the same batch
	case record.NotHappened, record.SafeToRetry:
		c.Phase, c.Unentered = Declared, rec.Source == NotEntered
	default:
		return illegal("resolution %q", rec.Resolution)
	}
	return nil
}

func (r *Run) callSettled(rec record.CallSettled) error {
	c := r.call(rec.Call)
	if c == nil || c.Phase == Settled {
		return illegal("call %s settles but is not open", rec.Call)
	}
	if started := c.Starts > 0; started == (rec.Synthetic != "") {
		return illegal("call %s: synthetic result of a started call, or result of one never started", rec.Call)
	}
	c.Phase, c.Outcome, c.Result, c.Tag, c.Synthetic = Settled, rec.Outcome, rec.Result, rec.Tag, rec.Synthetic
	switch {
	case rec.Outcome == record.DeniedCall && rec.Tag == record.NotAuthorized && r.Failing == nil:
		r.Failing = &record.Error{Kind: AuthorizationDenied, Message: "the host did not authorize " + c.Tool + ": " + told(rec),
			Hint: "the host of the agents decides about every call; ask whoever runs it"}
	case rec.Outcome == record.Aborted && r.Failing == nil:
		r.Failing = &record.Error{Kind: ToolAborted, Message: "tool " + c.Tool + " ended the run: " + told(rec)}
	case rec.Outcome == record.Infrastructure && rec.Tag == Defect && r.Failing == nil:
		r.Failing = &record.Error{Kind: Defect, Message: "the handler of " + c.Tool + " panicked",
			Hint: "the stack is in the server's log; fix the handler and submit again"}
	}
	return nil
}

// told is what a failure chose to say of itself: its message, else its tag.
func told(rec record.CallSettled) string {
	var result struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(rec.Result.Inline, &result) == nil && result.Error.Message != "" {
		return clip(result.Error.Message)
	}
	return rec.Tag
}
