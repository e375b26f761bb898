package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
)

// DecisionRequest answers an approval.
type DecisionRequest struct {
	Tenant, Principal string
	Approval          string
	Approve           bool
	Reason            string
	// ArgsDigest, when given, must be the digest of the arguments the approval
	// was asked for: a decision binds to exactly what was seen.
	ArgsDigest string
}

// Decision is a recorded answer.
type Decision struct {
	Approval string
	Decision record.Decision
	By       string
	At       time.Time
}

// Decide records the first decision about an approval and wakes its lane. The
// inbox slot decides who was first; a later decision is KindDecided.
func (a *Admitter) Decide(ctx context.Context, r DecisionRequest) (Decision, error) {
	op := "deny"
	if r.Approve {
		op = "approve"
	}
	if err := checkID(op, "principal", r.Principal); err != nil {
		return Decision{}, err
	}
	if err := checkReason(op, r.Reason); err != nil {
		return Decision{}, err
	}
	lane, state, call, err := a.findApproval(ctx, op, r.Tenant, r.Approval)
	if err != nil {
		return Decision{}, err
	}
	now := a.cfg.Now()
	switch {
	case r.ArgsDigest != "" && r.ArgsDigest != call.ArgsDigest:
		return Decision{}, refuse(KindConflict, op, "`layover approvals` shows what is asked", "approval %s is about other arguments", r.Approval)
	case call.Phase != core.Asked:
		return Decision{}, refuse(KindDecided, op, "", "approval %s is already decided%s", r.Approval, by(call.DecidedBy))
	case !call.ExpiresAt.IsZero() && now.After(call.ExpiresAt):
		return Decision{}, refuse(KindExpired, op, "submit again", "approval %s expired at %s", r.Approval, call.ExpiresAt.Format(time.RFC3339))
	}
	e, err := entry(ctx, a.cfg, lane, journal.EntryDecision, r.Approval, r.Principal,
		decisionBody{Approval: r.Approval, ArgsDigest: call.ArgsDigest, Approve: r.Approve, Reason: r.Reason})
	if err != nil {
		return Decision{}, AsError(op, err)
	}
	first, err := a.signal(ctx, lane, e, state.Cursor)
	var conflict *journal.ConflictError
	switch {
	case errors.As(err, &conflict):
		return Decision{}, refuse(KindDecided, op, "", "approval %s is already decided%s", r.Approval, by(conflict.First.By))
	case err != nil:
		return Decision{}, AsError(op, err)
	case first.Duplicate:
		return Decision{}, refuse(KindDecided, op, "", "approval %s is already decided, in the same way", r.Approval)
	}
	d := Decision{Approval: r.Approval, Decision: record.Denied, By: r.Principal, At: e.At}
	if r.Approve {
		d.Decision = record.Approved
	}
	return d, nil
}

// checkReason bounds free text that a record will hold inline.
func checkReason(op, reason string) error {
	const limit = 4096
	if len(reason) > limit {
		return refuse(KindInvalid, op, "say it shorter", "the reason is longer than %d bytes", limit)
	}
	if !utf8.ValidString(reason) {
		return refuse(KindInvalid, op, "", "the reason is not valid UTF-8")
	}
	return nil
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + who
}

// findApproval locates an approval by its id: the submission's id leads it.
func (a *Admitter) findApproval(ctx context.Context, op, tenant, id string) (journal.Lane, *core.State, core.Call, error) {
	unknown := refuse(KindNotFound, op, "`layover approvals` lists what is pending", "no approval %q", id)
	fail := func(err error) (journal.Lane, *core.State, core.Call, error) {
		return journal.Lane{}, nil, core.Call{}, err
	}
	submission, _, ok := strings.Cut(id, ".")
	if !ok {
		return fail(unknown)
	}
	row, err := a.cfg.Journal.Submission(ctx, tenant, submission)
	if errors.Is(err, journal.ErrNotFound) {
		return fail(unknown)
	}
	if err != nil {
		return fail(AsError(op, err))
	}
	state, decided, err := a.approvalHistory(ctx, row.Lane, id)
	if err != nil {
		return fail(AsError(op, err))
	}
	if state.Run != nil && state.Run.ID == submission {
		for _, c := range state.Run.Calls {
			if c.Approval == id {
				return row.Lane, state, c, nil
			}
		}
	}
	switch {
	case decided != nil:
		return fail(refuse(KindDecided, op, "", "approval %s is already %s%s", id, decided.Decision, by(decided.By)))
	case row.Outcome != nil || state.Latest != nil && state.Latest.Run == submission:
		return fail(refuse(KindSettled, op, "`layover status "+row.Lane.Conversation+"` shows how it ended", "the run of approval %s has ended", id))
	}
	return fail(unknown)
}

// approvalHistory folds a log and remembers the decision about one approval.
func (a *Admitter) approvalHistory(ctx context.Context, lane journal.Lane, id string) (*core.State, *record.ApprovalResolved, error) {
	state := &core.State{}
	var decided *record.ApprovalResolved
	for sealed, err := range a.cfg.Journal.Read(ctx, lane, 1) {
		if err != nil {
			return nil, nil, err
		}
		b, err := record.Open(sealed, lane.Tenant, lane.Conversation)
		if err != nil {
			return nil, nil, err
		}
		if err := core.Fold(state, b); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", record.ErrCorrupt, err)
		}
		for _, r := range b.Records {
			if d, ok := r.(record.ApprovalResolved); ok && d.Approval == id {
				decided = &d
			}
		}
	}
	return state, decided, nil
}

// AbortRequest asks to end a submission.
type AbortRequest struct {
	Tenant, Principal string
	Conversation      string
	Submission        string // empty means the active or latest one
	Reason            string
}

// RequestAbort records the wish to end a submission and wakes its lane. The
// outcome is the run's terminal record; a run that has ended is KindSettled.
func (a *Admitter) RequestAbort(ctx context.Context, r AbortRequest) (string, error) {
	const op = "abort"
	if err := checkID(op, "principal", r.Principal); err != nil {
		return "", err
	}
	if err := checkReason(op, r.Reason); err != nil {
		return "", err
	}
	lane := journal.Lane{Tenant: r.Tenant, Conversation: r.Conversation}
	st, err := a.Status(ctx, lane)
	if err != nil {
		return "", err
	}
	target := r.Submission
	if target == "" && st.Active != nil {
		target = st.Active.Submission
	} else if target == "" {
		target = st.next
	}
	switch {
	case target == "":
		return "", refuse(KindSettled, op, "", "nothing runs in conversation %q", r.Conversation)
	case st.Active != nil && slices.Contains(st.Active.Joined, target):
		return "", refuse(KindConflict, op, "abort that run instead", "submission %s has joined run %s and ends with it", target, st.Active.Submission)
	case st.Active == nil || st.Active.Submission != target:
		row, err := a.cfg.Journal.Submission(ctx, r.Tenant, target)
		if err != nil && !errors.Is(err, journal.ErrNotFound) {
			return "", AsError(op, err)
		}
		if err != nil || row.Lane != lane {
			return "", refuse(KindNotFound, op, "", "no submission %q in conversation %q", target, r.Conversation)
		}
		if row.Outcome != nil {
			return "", refuse(KindSettled, op, "", "submission %s has already ended: %s", target, row.Outcome.Status)
		}
	}
	e, err := entry(ctx, a.cfg, lane, journal.EntryAbort, "abort "+target, r.Principal, abortBody{Submission: target, Reason: r.Reason})
	if err != nil {
		return "", AsError(op, err)
	}
	if _, err = a.signal(ctx, lane, e, st.cursor); err != nil && !errors.Is(err, journal.ErrConflict) {
		return "", AsError(op, err)
	}
	return target, nil
}

// ResolveRequest answers what became of a call whose outcome is unknown.
type ResolveRequest struct {
	Tenant, Principal string
	Conversation      string
	Call              string
	Resolution        record.Resolution
	Result            json.RawMessage // of a call that happened
	Reason            string
}

// Resolve records an operator's answer and wakes the lane.
func (a *Admitter) Resolve(ctx context.Context, r ResolveRequest) error {
	const op = "resolve"
	if err := checkID(op, "principal", r.Principal); err != nil {
		return err
	}
	if err := checkReason(op, r.Reason); err != nil {
		return err
	}
	switch r.Resolution {
	case record.Happened:
		result, err := record.Canonical(r.Result)
		if err != nil {
			return refuse(KindInvalid, op, "give the tool's result as JSON", "a call that happened needs its result: %v", err)
		}
		if _, err := record.Canonical(fmt.Appendf(nil, "[[[[%s]]]]", result)); err != nil {
			return refuse(KindInvalid, op, "give a flatter result", "the result is nested too deeply")
		}
		r.Result = result
	case record.NotHappened, record.SafeToRetry:
		r.Result = nil
	default:
		return refuse(KindInvalid, op, "use happened, notHappened or safeToRetry", "unknown resolution %q", r.Resolution)
	}
	lane := journal.Lane{Tenant: r.Tenant, Conversation: r.Conversation}
	state, err := fold(ctx, a.cfg.Journal, lane)
	if err != nil {
		return AsError(op, err)
	}
	if state.Run != nil {
		for _, c := range state.Run.Calls {
			if c.ID != r.Call || c.Phase != core.Unknown {
				continue
			}
			e, err := entry(ctx, a.cfg, lane, journal.EntryResolve, "resolve "+c.Operation+" "+a.cfg.NewID(), r.Principal,
				resolveBody{Run: state.Run.ID, Call: c.ID, Resolution: r.Resolution, Result: r.Result, Reason: r.Reason})
			if err != nil {
				return AsError(op, err)
			}
			if _, err = a.signal(ctx, lane, e, state.Cursor); err != nil {
				return AsError(op, err)
			}
			return nil
		}
	}
	return refuse(KindNotFound, op, "`layover status` shows what a run waits for", "no call %q with an unknown outcome in conversation %q", r.Call, r.Conversation)
}

func (a *Admitter) signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64) (journal.Signalled, error) {
	fpSignalBefore.Hit()
	var s journal.Signalled
	tries, err := untilClear(ctx, func() (err error) {
		s, err = a.cfg.Journal.Signal(ctx, lane, e, after, a.cfg.Now(), a.cfg.Grace)
		return err
	})
	if err != nil {
		return s, err
	}
	s.Duplicate = s.Duplicate && tries == 1 // a second try finds its own first one
	fpSignalAfter.Hit()
	send(ctx, a.cfg, queue.Attempt, lane, 0)
	return s, nil
}
