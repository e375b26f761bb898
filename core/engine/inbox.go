package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// The bodies of inbox entries, canonical JSON. Fields are only ever added.
type (
	decisionBody struct {
		Approval   string `json:"approval"`
		ArgsDigest string `json:"argsDigest,omitempty"`
		Approve    bool   `json:"approve"`
		Reason     string `json:"reason,omitempty"`
	}
	abortBody struct {
		Submission string `json:"submission"`
		Reason     string `json:"reason,omitempty"`
	}
	resolveBody struct {
		Run        string            `json:"run"`
		Call       string            `json:"call"`
		Resolution record.Resolution `json:"resolution"`
		Result     json.RawMessage   `json:"result,omitempty"`
		Reason     string            `json:"reason,omitempty"`
	}
	lateBody struct {
		Run       string         `json:"run"`
		Call      string         `json:"call"`
		Operation string         `json:"operation"`
		Outcome   record.Outcome `json:"outcome"`
		Result    record.Value   `json:"result"`
		Tag       string         `json:"tag,omitempty"`
	}
)

// readInbox looks at the inbox above the cursor. It is not bound to the
// effects' context: the look before a park must succeed for the lane to rest.
func (j job) readInbox(e core.ReadInbox) core.Fact {
	ctx, cancel := context.WithTimeout(context.Background(), j.a.cfg.CleanupTimeout)
	defer cancel()
	head, entries, err := j.a.cfg.Journal.Inbox(ctx, j.a.lane, e.After)
	if err != nil {
		j.a.cfg.Log.Warn("inbox not read; looking again", "conversation", j.conversation, "error", err)
		return core.InboxRead{Version: 0} // an old version: a park on it is refused
	}
	read := core.InboxRead{Version: head.Version}
	for _, entry := range entries {
		cmd, err := j.command(ctx, entry)
		if err != nil {
			j.a.cfg.Log.Warn("inbox entry not read; looking again", "conversation", j.conversation, "slot", entry.Slot, "error", err)
			read.Version = 0
			break
		}
		read.Entries = append(read.Entries, core.InboxEntry{Slot: entry.Slot, By: entry.By, At: entry.At, Command: cmd})
	}
	return read
}

// command decodes an entry. What does not decode is consumed without effect;
// an error means that the store did not answer.
func (j job) command(ctx context.Context, e journal.Entry) (core.Command, error) {
	body := e.Body
	if e.Kind != journal.EntrySubmit && e.Ref != "" {
		var err error
		if body, err = j.a.cfg.Journal.Payload(ctx, j.a.lane.Tenant, e.Ref); err != nil {
			return nil, err
		}
	}
	unreadable := func(err error) core.Command {
		return core.Unreadable{What: string(e.Kind), Reason: "unreadable: " + err.Error()}
	}
	switch e.Kind {
	case journal.EntrySubmit:
		s, err := j.a.cfg.Journal.Submission(ctx, j.a.lane.Tenant, e.Ref)
		if err != nil {
			return nil, fmt.Errorf("submission %s: %w", e.Ref, err)
		}
		return core.Submit{Submission: core.Submission{
			ID: s.ID, Agent: s.Agent, Principal: s.Principal, ReplyTo: s.ReplyTo, Input: record.Value{Inline: s.Input},
			Allowance: s.Allowance, Parent: s.Parent, AdmittedAt: s.AdmittedAt,
		}}, nil
	case journal.EntryDecision:
		var b decisionBody
		if err := json.Unmarshal(body, &b); err != nil {
			return unreadable(err), nil
		}
		return core.Decide(b), nil
	case journal.EntryAbort:
		var b abortBody
		if err := json.Unmarshal(body, &b); err != nil {
			return unreadable(err), nil
		}
		return core.AbortRun(b), nil
	case journal.EntryResolve:
		var b resolveBody
		if err := json.Unmarshal(body, &b); err != nil {
			return unreadable(err), nil
		}
		return core.Resolve{Run: b.Run, Call: b.Call, Resolution: b.Resolution, Result: record.Value{Inline: b.Result}, Reason: b.Reason}, nil
	case journal.EntryLateOutcome:
		var b lateBody
		if err := json.Unmarshal(body, &b); err != nil {
			return unreadable(err), nil
		}
		return core.Late{Run: b.Run, Call: b.Call, Operation: b.Operation, Outcome: b.Outcome, Result: b.Result, Tag: b.Tag}, nil
	}
	return core.Unreadable{What: string(e.Kind), Reason: "this build does not know such entries"}, nil
}

// entry seals a body for the inbox, aside when it is large.
func entry(ctx context.Context, cfg Config, lane journal.Lane, kind journal.EntryKind, key, by string, body any) (journal.Entry, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return journal.Entry{}, fmt.Errorf("engine: %s entry: %w", kind, err)
	}
	if raw, err = record.Canonical(raw); err != nil {
		return journal.Entry{}, fmt.Errorf("engine: %s entry: %w", kind, err)
	}
	e := journal.Entry{Kind: kind, Key: key, Digest: record.Digest(raw), Body: raw, By: by, At: record.Time(cfg.Now())}
	if len(raw) > journal.EntryLimit {
		e.Body, e.Ref = nil, e.Digest
		return e, cfg.Journal.PutPayload(ctx, lane.Tenant, e.Digest, raw)
	}
	return e, nil
}

func signalLate(ctx context.Context, cfg Config, lane journal.Lane, after uint64, late core.Late, attempt string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.CleanupTimeout)
	defer cancel()
	e, err := entry(ctx, cfg, lane, journal.EntryLateOutcome, "late "+late.Operation+" "+attempt, attempt,
		lateBody{Run: late.Run, Call: late.Call, Operation: late.Operation, Outcome: late.Outcome, Result: late.Result, Tag: late.Tag})
	if err != nil {
		return err
	}
	_, err = cfg.Journal.Signal(ctx, lane, e, after, cfg.Now(), cfg.Grace)
	return err
}
