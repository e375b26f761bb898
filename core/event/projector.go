package event

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/layover-run/layover/core/record"
)

// Projector folds the log of one conversation and yields its canonical events.
// It has no clock and does no I/O. The zero Projector stands before slot 1.
type Projector struct {
	slot    uint64
	queue   []record.SubmissionQueued
	run     *run
	attempt record.AttemptStarted
	// steering is the text of queued commands, by the inbox slot.
	steering map[uint64]record.Value
}

// run is what the events of the active run need to know.
type run struct {
	id, agent string
	sequence  uint64
	turn      int
	calls     []*call // the open batch
	backoff   *record.BackoffScheduled
	held      *record.RunHeld
	ending    bool   // aborted, or failed by one of its calls
	suspended string // the wait that was last reported
}

type call struct {
	id, tool   string
	args       record.Value
	approval   string
	expiresAt  time.Time
	asked      bool
	unknown    bool
	settled    bool
	executions int
}

// Slot is the last slot that was folded.
func (p *Projector) Slot() uint64 { return p.slot }

// Idle reports whether no submission is running or queued: what the projector
// knows is then of no use to a later batch.
func (p *Projector) Idle() bool { return p.run == nil && len(p.queue) == 0 }

// Attempt is the newest attempt of the log: it retracts the live events of
// every attempt before it.
func (p *Projector) Attempt() record.AttemptStarted { return p.attempt }

// Position is where the active run stands in its trace.
type Position struct {
	Run, Agent string
	Sequence   uint64 // of its last canonical event
	Turn       int    // of its last response
}

// Active is the run that has begun and not ended, if there is one: what a live
// event needs to know to take its place.
func (p *Projector) Active() (Position, bool) {
	if p.run == nil {
		return Position{}, false
	}
	return Position{Run: p.run.id, Agent: p.run.agent, Sequence: p.run.sequence, Turn: p.run.turn}, true
}

// Superseded reports that the log has overtaken a provisional event: a newer
// attempt began, its turn has its response, its call or its run has ended.
func (p *Projector) Superseded(e Event, epoch uint64) bool {
	r := p.run
	if r == nil || r.id != e.Run || e.Epoch < epoch {
		return true
	}
	if e.Call == "" {
		return e.Turn <= r.turn
	}
	return !slices.ContainsFunc(r.calls, func(c *call) bool { return c.id == e.Call && !c.settled })
}

// Clone is a projector at the same place: what one of them folds the other does
// not see.
func (p *Projector) Clone() *Projector {
	c := *p
	c.queue = slices.Clone(p.queue)
	if p.run != nil {
		r := *p.run
		r.calls = slices.Clone(r.calls)
		for i, old := range r.calls {
			kept := *old
			r.calls[i] = &kept
		}
		c.run = &r
	}
	return &c
}

// Project folds the next batch and returns the events it holds. The batch must
// be the one behind Slot.
func (p *Projector) Project(b record.Batch) ([]Event, error) {
	if b.Slot != p.slot+1 {
		return nil, fmt.Errorf("event: slot %d after slot %d", b.Slot, p.slot)
	}
	p.slot = b.Slot
	out := batch{b: b}
	for _, r := range b.Records {
		p.record(&out, r)
	}
	if p.run != nil {
		p.run.suspend(&out)
	}
	return out.events, nil
}

// batch collects the events of one batch.
type batch struct {
	b      record.Batch
	events []Event
}

func (o *batch) emit(r *run, turn int, call string, d Data) {
	r.sequence++
	o.events = append(o.events, Event{Run: r.id, Conversation: o.b.Conversation, Agent: r.agent, Sequence: r.sequence,
		Epoch: o.b.Epoch, At: o.b.At, Turn: turn, Call: call, Data: d})
}

func (p *Projector) record(o *batch, r record.Record) {
	switch r := r.(type) {
	case record.AttemptStarted:
		p.attempt = r
	case record.SubmissionQueued:
		p.queue = append(p.queue, r)
	case record.RunStarted:
		q := p.dequeue(r.Run)
		p.run = &run{id: r.Run, agent: r.Agent}
		o.emit(p.run, 0, "", RunStarted{Principal: q.Principal, Definition: r.Definition, Deadline: o.b.At.Add(r.Duration),
			MaxTurns: r.Turns, MaxCalls: r.ToolCalls})
	case record.RunSettled:
		p.settled(o, r)
	case record.AbortRequested:
		if p.run != nil && p.run.id == r.Submission {
			p.run.ending = true
		}
	case record.SteeringQueued:
		if p.steering == nil {
			p.steering = map[uint64]record.Value{}
		}
		p.steering[r.Entry] = r.Text
	case record.SteeringDropped:
		delete(p.steering, r.Queued)
	case record.SteeringApplied:
		if text, ok := p.steering[r.Queued]; ok {
			r.Text = text
			delete(p.steering, r.Queued)
		}
		if p.run != nil {
			o.emit(p.run, 0, "", SteeringApplied{By: r.By, Text: r.Text.Inline, TextAside: r.Text.Aside})
		}
	case record.FollowUpApplied:
		p.dequeue(r.Submission)
		if p.run != nil {
			o.emit(p.run, 0, "", FollowUpApplied{Submission: r.Submission, Text: r.Text.Inline, TextAside: r.Text.Aside})
		}
	default:
		if p.run != nil {
			p.run.record(o, r)
		}
	}
}

func (p *Projector) dequeue(id string) record.SubmissionQueued {
	i := slices.IndexFunc(p.queue, func(q record.SubmissionQueued) bool { return q.Submission == id })
	if i < 0 {
		return record.SubmissionQueued{}
	}
	q := p.queue[i]
	p.queue = slices.Delete(p.queue, i, i+1)
	return q
}

func (p *Projector) settled(o *batch, s record.RunSettled) {
	r := p.run
	if r == nil || r.id != s.Run { // aborted before it began
		r = &run{id: s.Run, agent: p.dequeue(s.Run).Agent}
	} else {
		p.run = nil
	}
	switch s.Status {
	case record.StatusCompleted:
		o.emit(r, 0, "", RunCompleted{FinishReason: s.FinishReason, Exhausted: s.Exhausted, Output: s.Output.Inline, OutputAside: s.Output.Aside,
			Disposition: s.Disposition.Inline, Usage: counts(s.Usage), Attempts: s.Attempts, Turns: s.Turns})
	case record.StatusAborted:
		o.emit(r, 0, "", RunInterrupted{Error: s.Error, Usage: counts(s.Usage), Attempts: s.Attempts, Turns: s.Turns})
	default:
		failed := RunFailed{Exhausted: s.Exhausted, PolicyLimit: s.PolicyLimit, Usage: counts(s.Usage), Attempts: s.Attempts, Turns: s.Turns}
		if s.Error != nil {
			failed.Error = *s.Error
		}
		o.emit(r, 0, "", failed)
	}
}

func (r *run) record(o *batch, rec record.Record) {
	switch rec := rec.(type) {
	case record.ResponseRecorded:
		r.response(o, rec)
	case record.BackoffScheduled:
		r.backoff = &rec
	case record.RunHeld:
		r.held = &rec
	case record.RunReleased:
		r.held = nil
	case record.CompactionCreated:
		o.emit(r, 0, "", ContextCompacted{Compaction: rec.Compaction, CoversThrough: rec.CoversThrough, Usage: counts(rec.Usage)})
	case record.BudgetWarned:
		o.emit(r, 0, "", BudgetWarning{Dimension: rec.Dimension, Used: rec.Used, Limit: rec.Limit})
	default:
		r.callRecord(o, rec)
	}
}

// counts is a usage without the provider's own report: nothing of a provider's
// wire is in an event (EV-10).
func counts(u record.Usage) record.Usage {
	u.Raw = nil
	return u
}

func (r *run) response(o *batch, rec record.ResponseRecorded) {
	r.turn, r.backoff, r.calls = rec.Turn, nil, nil
	o.emit(r, r.turn, "", TurnStarted{})
	done := ResponseCompleted{Stop: rec.Stop, Provider: rec.Provider, Model: rec.Model, Usage: counts(rec.Usage),
		Constrained: rec.Constrained, Grace: rec.Grace, Exhausted: rec.Exhausted}
	var text strings.Builder
	for _, part := range rec.Message.Parts {
		if t, ok := part.(record.TextPart); ok {
			if t.Text.Aside != nil {
				done.TextAside = append(done.TextAside, *t.Text.Aside)
			} else {
				text.WriteString(t.Text.Text())
			}
		}
	}
	done.Text = text.String()
	o.emit(r, r.turn, "", done)
	problems := map[string]string{}
	for _, d := range rec.Calls {
		problems[d.ID] = d.Problem
	}
	for _, part := range rec.Message.Parts {
		switch part := part.(type) {
		case record.ToolCallPart:
			o.emit(r, r.turn, part.ID, ToolCallDeclared{Tool: part.Tool, Args: part.Args.Inline, ArgsAside: part.Args.Aside,
				ProviderExecuted: part.ProviderExecuted, Problem: problems[part.ID]})
			if !part.ProviderExecuted {
				r.calls = append(r.calls, &call{id: part.ID, tool: part.Tool, args: part.Args})
			}
		case record.ToolResultPart: // of a call the provider ran itself
			if part.Failed {
				o.emit(r, r.turn, part.Call, ToolCallFailed{Tool: part.Tool, Outcome: record.Failed, Result: part.Result.Inline,
					ResultAside: part.Result.Aside, ExecutionStarted: true, ProviderExecuted: true})
				continue
			}
			o.emit(r, r.turn, part.Call, ToolCallSucceeded{Tool: part.Tool, Result: part.Result.Inline, ResultAside: part.Result.Aside, ProviderExecuted: true})
		}
	}
}

func (r *run) callRecord(o *batch, rec record.Record) {
	switch rec := rec.(type) {
	case record.ApprovalRequested:
		c := r.call(rec.Call)
		c.asked, c.approval, c.expiresAt = true, rec.Approval, rec.ExpiresAt
		o.emit(r, r.turn, rec.Call, ApprovalRequested{Approval: rec.Approval, Tool: rec.Tool, ToolVersion: rec.Version,
			Args: c.args.Inline, ArgsAside: c.args.Aside, ArgsDigest: rec.ArgsDigest, ExpiresAt: rec.ExpiresAt})
	case record.ApprovalResolved:
		c := r.call(rec.Call)
		c.asked = false
		r.ending = r.ending || rec.Decision == record.Expired
		o.emit(r, r.turn, rec.Call, ApprovalResolved{Approval: rec.Approval, Tool: c.tool, Decision: rec.Decision, By: rec.By, Reason: rec.Reason})
	case record.CallPrepared:
		c := r.call(rec.Call)
		c.executions++
		o.emit(r, r.turn, rec.Call, ToolCallStarted{Tool: c.tool, Operation: rec.Operation, Execution: c.executions})
	case record.CallUnknown:
		r.call(rec.Call).unknown = true
	case record.CallResolved:
		r.call(rec.Call).unknown = false
	case record.CallSettled:
		r.callSettled(o, rec)
	}
}

func (r *run) callSettled(o *batch, rec record.CallSettled) {
	c := r.call(rec.Call)
	c.settled, c.asked, c.unknown = true, false, false
	r.ending = r.ending || rec.Outcome == record.Aborted || rec.Outcome == record.Infrastructure
	var took *int64
	if rec.Synthetic == "" && rec.Source == "" {
		ms := rec.Duration.Milliseconds()
		took = &ms
	}
	if rec.Outcome == record.Succeeded {
		o.emit(r, r.turn, rec.Call, ToolCallSucceeded{Tool: c.tool, Result: rec.Result.Inline, ResultAside: rec.Result.Aside,
			Truncated: rec.Truncated, Source: rec.Source, DurationMs: took})
		return
	}
	o.emit(r, r.turn, rec.Call, ToolCallFailed{Tool: c.tool, Outcome: rec.Outcome, Tag: rec.Tag, Result: rec.Result.Inline,
		ResultAside: rec.Result.Aside, Source: rec.Source, ExecutionStarted: rec.Synthetic == "", DurationMs: took})
}

// call finds an open call. A log that core.Fold accepts has no record of
// another; for one that it does not, the events say what there is.
func (r *run) call(id string) *call {
	for _, c := range r.calls {
		if c.id == id {
			return c
		}
	}
	c := &call{id: id}
	r.calls = append(r.calls, c)
	return c
}

// suspend reports a wait once, when the batch that begins or changes it ends.
func (r *run) suspend(o *batch) {
	wait, waiting := r.waits()
	if !waiting {
		r.suspended = ""
		return
	}
	key, err := json.Marshal(wait)
	if err != nil {
		key = []byte(wait.Reason)
	}
	if r.suspended != string(key) {
		r.suspended = string(key)
		o.emit(r, 0, "", wait)
	}
}

func said(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

// waits says what a run waits for when nothing of it can go on.
func (r *run) waits() (RunSuspended, bool) {
	if r.held != nil {
		return RunSuspended{Reason: "held", On: []string{r.held.Detail}, Until: r.held.Until}, true
	}
	approval, unknown, busy := RunSuspended{Reason: "approval"}, RunSuspended{Reason: "unknown"}, false
	for _, c := range r.calls {
		switch {
		case c.asked:
			approval.On, approval.Tools = append(approval.On, c.approval), append(approval.Tools, c.tool)
			if !c.expiresAt.IsZero() && (approval.Until.IsZero() || c.expiresAt.Before(approval.Until)) {
				approval.Until = c.expiresAt
			}
		case c.unknown:
			unknown.On, unknown.Tools = append(unknown.On, c.id), append(unknown.Tools, c.tool)
		case !c.settled && (c.executions > 0 || !r.ending): // a run that ends starts nothing
			busy = true
		}
	}
	switch {
	case len(approval.On) > 0: // no handler starts before every decision is known
		return approval, !r.ending
	case len(unknown.On) > 0:
		return unknown, !busy
	case r.backoff != nil && !r.ending:
		return RunSuspended{Reason: "backoff", On: said(r.backoff.Class, r.backoff.Message), Until: r.backoff.Until}, true
	}
	return RunSuspended{}, false
}
