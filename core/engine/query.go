package engine

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Status is a conversation as outsiders see it.
type Status struct {
	Conversation string
	State        journal.State
	Epoch        uint64
	Active       *ActiveRun
	Queued       int
	Latest       *record.RunSettled
	// Damaged says, in a list, that the conversation's log does not read.
	Damaged bool

	cursor uint64
	next   string // the first queued submission
}

// ActiveRun is the run that has the lane.
type ActiveRun struct {
	Submission string
	Agent      string
	Turn       int
	Attempts   int
	StartedAt  time.Time
	Deadline   time.Time
	Usage      record.Usage
	// Aborting says that an abort is recorded and not yet carried out.
	Aborting bool
	// Joined are the follow-ups that settle with this run.
	Joined []string
	Waits  *core.Wait
}

// Status reads a conversation: its head, and its log for the rest.
func (a *Admitter) Status(ctx context.Context, lane journal.Lane) (Status, error) {
	head, entries, err := a.cfg.Journal.Inbox(ctx, lane, 0)
	if err != nil {
		return Status{}, AsError("status", err)
	}
	if head.Epoch == 0 && head.Version == 0 {
		return Status{}, refuse(KindNotFound, "status", "`layover submit` starts a conversation", "no conversation %q", lane.Conversation)
	}
	state, err := fold(ctx, a.cfg.Journal, lane)
	if err != nil {
		return Status{}, AsError("status", err)
	}
	st := Status{Conversation: lane.Conversation, State: head.State, Epoch: head.Epoch, Latest: state.Latest,
		Queued: len(state.Queue), cursor: state.Cursor}
	if len(state.Queue) > 0 {
		st.next = state.Queue[0].ID
	}
	for _, e := range entries {
		if e.Slot > state.Cursor && e.Kind == journal.EntrySubmit {
			if st.Queued++; st.next == "" {
				st.next = e.Ref
			}
		}
	}
	if r := state.Run; r != nil {
		st.Active = &ActiveRun{Submission: r.ID, Agent: r.Agent, Turn: r.Turn, Attempts: r.Attempts, StartedAt: r.StartedAt,
			Deadline: r.Deadline, Usage: r.Usage, Aborting: r.Abort != nil, Joined: slices.Clone(r.Joined)}
		if head.State == journal.Parked {
			st.Active.Waits = state.Waits()
		}
	}
	return st, nil
}

// Approval is one pending question.
type Approval struct {
	ID, Conversation, Submission string
	Call, Tool, ToolVersion      string
	ArgsDigest                   string
	Args                         json.RawMessage
	RequestedAt, ExpiresAt       time.Time
}

// Approvals lists what waits for a person in a tenant, oldest first.
func (a *Admitter) Approvals(ctx context.Context, tenant string) ([]Approval, error) {
	const everything = 1 << 20
	lanes, err := a.cfg.Journal.Due(ctx, time.Unix(1<<40, 0), everything)
	if err != nil {
		return nil, AsError("approvals", err)
	}
	var all []Approval
	for _, head := range lanes {
		if head.Lane.Tenant != tenant {
			continue
		}
		pending, err := a.pending(ctx, head.Lane)
		if damaged(err) { // its neighbours can still be answered
			a.cfg.Log.Error("a conversation is damaged; its approvals are not listed", "conversation", head.Lane.Conversation, "error", err)
			continue
		}
		if err != nil {
			return nil, AsError("approvals", err)
		}
		all = append(all, pending...)
	}
	slices.SortFunc(all, func(x, y Approval) int { return x.RequestedAt.Compare(y.RequestedAt) })
	return all, nil
}

func damaged(err error) bool {
	for _, kind := range []error{record.ErrCorrupt, record.ErrForeign, record.ErrUnknownKind, record.ErrUnknownVersion} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func (a *Admitter) pending(ctx context.Context, lane journal.Lane) ([]Approval, error) {
	state, err := fold(ctx, a.cfg.Journal, lane)
	if err != nil {
		return nil, err
	}
	var out []Approval
	for _, c := range state.Pending() {
		args := c.Args.Inline
		if c.Args.Aside != nil {
			if args, err = a.cfg.Journal.Payload(ctx, lane.Tenant, c.Args.Aside.SHA256); err != nil {
				return nil, err
			}
		}
		out = append(out, Approval{ID: c.Approval, Conversation: lane.Conversation, Submission: state.Run.ID, Call: c.ID, Tool: c.Tool,
			ToolVersion: c.Version, ArgsDigest: c.ArgsDigest, Args: args, RequestedAt: c.RequestedAt, ExpiresAt: c.ExpiresAt})
	}
	return out, nil
}

// Records yields a conversation's batches, verified and decoded.
func (a *Admitter) Records(ctx context.Context, lane journal.Lane) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		for sealed, err := range a.cfg.Journal.Read(ctx, lane, 1) {
			var b record.Batch
			if err == nil {
				b, err = record.Open(sealed, lane.Tenant, lane.Conversation)
			}
			if err != nil {
				yield(record.Batch{}, AsError("records", err))
				return
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// Exists reports whether a conversation was ever used.
func (a *Admitter) Exists(ctx context.Context, lane journal.Lane) error {
	head, err := a.cfg.Journal.Head(ctx, lane)
	if err != nil {
		return AsError("read", err)
	}
	if head.Version == 0 {
		return refuse(KindNotFound, "read", "`layover submit` starts a conversation", "no conversation %q", lane.Conversation)
	}
	return nil
}

// Progress is where a submission stands.
type Progress struct {
	Submission   string
	Conversation string
	// Status is completed, failed, aborted, parked, running or queued.
	Status   string
	Outcome  *record.RunSettled
	Output   json.RawMessage // of a completed run, brought back if aside
	Attempts int
	Turns    int
	Usage    record.Usage
	Waits    *core.Wait
	// Host is the run a follow-up has joined: it stands where that run stands,
	// and settles with it. Empty for a run of its own.
	Host string
}

// Until says what Await waits for.
type Until string

// What Await can wait for.
const (
	UntilSettled Until = "settled"
	UntilParked  Until = "parked" // parked or settled
)

// Await reads where a submission stands, and waits until it has come as far as
// asked or ctx ends; then it answers with where it stands, without an error.
func (a *Admitter) Await(ctx context.Context, tenant, submission string, until Until) (Progress, error) {
	if until != UntilSettled && until != UntilParked {
		return Progress{}, refuse(KindInvalid, "await", "use settled or parked", "cannot wait until %q", until)
	}
	reading := context.WithoutCancel(ctx)
	row, err := a.cfg.Journal.Submission(reading, tenant, submission)
	if errors.Is(err, journal.ErrNotFound) {
		return Progress{}, refuse(KindNotFound, "await", "", "no submission %q", submission)
	}
	if err != nil {
		return Progress{}, AsError("await", err)
	}
	seen := journal.Head{}
	for {
		head, err := a.cfg.Journal.Head(reading, row.Lane)
		if err != nil {
			return Progress{}, AsError("await", err)
		}
		// A row is settled before the head says so: read it when that moves.
		if head.Settled != seen.Settled || row.Outcome != nil {
			if row, err = a.cfg.Journal.Submission(reading, tenant, submission); err != nil {
				return Progress{}, AsError("await", err)
			}
			if row.Outcome != nil {
				return a.settled(reading, row)
			}
		}
		if until == UntilParked && head.State == journal.Parked || ctx.Err() != nil {
			p, err := a.progress(reading, row, head)
			if err != nil || ctx.Err() != nil || p.Status == "parked" {
				return p, err
			}
		}
		seen = head
		if _, err := a.cfg.Journal.Watch(ctx, row.Lane, head); err != nil && ctx.Err() == nil {
			return Progress{}, AsError("await", err)
		}
	}
}

func (a *Admitter) settled(ctx context.Context, row journal.Submission) (Progress, error) {
	o := row.Outcome
	p := Progress{Submission: row.ID, Conversation: row.Lane.Conversation, Status: string(o.Status), Outcome: o, Host: o.Host,
		Output: o.Output.Inline, Attempts: o.Attempts, Turns: o.Turns, Usage: o.Usage}
	if o.Output.Aside != nil {
		body, err := a.cfg.Journal.Payload(ctx, row.Lane.Tenant, o.Output.Aside.SHA256)
		if err != nil {
			return p, AsError("await", err)
		}
		p.Output = body
	}
	return p, nil
}

func (a *Admitter) progress(ctx context.Context, row journal.Submission, head journal.Head) (Progress, error) {
	state, err := fold(ctx, a.cfg.Journal, row.Lane)
	if err != nil {
		return Progress{}, AsError("await", err)
	}
	p := Progress{Submission: row.ID, Conversation: row.Lane.Conversation, Status: "queued"}
	if r := state.Run; r != nil && (r.ID == row.ID || slices.Contains(r.Joined, row.ID)) {
		if r.ID != row.ID {
			p.Host = r.ID
		}
		p.Status, p.Attempts, p.Turns, p.Usage = "running", r.Attempts, r.Turn, r.Usage
		if head.State == journal.Parked {
			p.Status, p.Waits = "parked", state.Waits()
		}
	}
	return p, nil
}
