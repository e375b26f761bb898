package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
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
	steerBody struct {
		Submission string `json:"submission"`
		Key        string `json:"key"`
		Text       string `json:"text"`
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
	var read core.InboxRead
	err := untilDone(ctx, func() error {
		head, entries, err := j.a.cfg.Journal.Inbox(ctx, j.a.lane, e.After)
		if err != nil {
			return err
		}
		read = core.InboxRead{Version: head.Version}
		for _, entry := range entries {
			cmd, err := j.command(ctx, entry)
			if err != nil {
				return fmt.Errorf("inbox entry %d: %w", entry.Slot, err)
			}
			read.Entries = append(read.Entries, core.InboxEntry{Slot: entry.Slot, By: entry.By, At: entry.At, Command: cmd})
		}
		return nil
	})
	if err != nil {
		panic(storeAway{fmt.Errorf("engine: inbox of %s: %w", j.conversation, err)})
	}
	return read
}

// command decodes an entry. What is damaged or missing is consumed without
// effect and said loudly; an error means that the store did not answer.
func (j job) command(ctx context.Context, e journal.Entry) (core.Command, error) {
	unreadable := func(err error) core.Command {
		j.logger("").Error("an inbox entry cannot be read and is passed over", "slot", e.Slot, "kind", string(e.Kind), "error", err)
		return core.Unreadable{What: string(e.Kind), Reason: "unreadable: " + err.Error()}
	}
	body := e.Body
	if e.Kind != journal.EntrySubmit && e.Ref != "" {
		var err error
		if body, err = j.a.cfg.Journal.Payload(ctx, j.a.lane.Tenant, e.Ref); gone(err) {
			return unreadable(err), nil
		} else if err != nil {
			return nil, err
		}
	}
	switch e.Kind {
	case journal.EntrySubmit:
		s, err := j.a.cfg.Journal.Submission(ctx, j.a.lane.Tenant, e.Ref)
		if gone(err) {
			return unreadable(err), nil
		}
		if err != nil {
			return nil, err
		}
		return core.Submit{Submission: core.Submission{
			ID: s.ID, Agent: s.Agent, Principal: s.Principal, ReplyTo: s.ReplyTo, Input: record.Value{Inline: s.Input},
			Allowance: withoutJoin(s.Allowance), FollowUp: s.Allowance.Join, Parent: s.Parent, AdmittedAt: s.AdmittedAt,
		}}, nil
	case journal.EntrySteer:
		var b steerBody
		if err := json.Unmarshal(body, &b); err != nil {
			return unreadable(err), nil
		}
		return core.Steer{Submission: b.Submission, Key: b.Key, Text: record.TextValue(b.Text)}, nil
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
		// An operator's word is a tool result like any other.
		result := record.Value{Inline: b.Result}
		if b.Result != nil {
			result, _ = j.bounded(tool.Result{Value: b.Result})
		}
		return core.Resolve{Run: b.Run, Call: b.Call, Resolution: b.Resolution, Result: result, Reason: b.Reason}, nil
	case journal.EntryLateOutcome:
		var b lateBody
		if err := json.Unmarshal(body, &b); err != nil {
			return unreadable(err), nil
		}
		return core.Late{Run: b.Run, Call: b.Call, Operation: b.Operation, Outcome: b.Outcome, Result: b.Result, Tag: b.Tag}, nil
	}
	return core.Unreadable{What: string(e.Kind), Reason: "this build does not know such entries"}, nil
}

// withoutJoin is what an allowance tightens.
func withoutJoin(a record.Allowance) record.Allowance {
	a.Join = false
	return a
}

// gone reports that a stored thing is damaged or missing for good.
func gone(err error) bool {
	return errors.Is(err, record.ErrCorrupt) || errors.Is(err, journal.ErrNotFound)
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
	// Who says it is part of what is said: two people who decide alike are two.
	e := journal.Entry{Kind: kind, Key: key, Digest: record.Digest(fmt.Appendf(nil, "%s\n%s", by, raw)), Body: raw, By: by, At: record.Time(cfg.Now())}
	if len(raw) > journal.EntryLimit {
		e.Body, e.Ref = nil, record.Digest(raw)
		_, err := untilClear(ctx, func() error { return cfg.Journal.PutPayload(ctx, lane.Tenant, e.Ref, raw) })
		return e, err
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
