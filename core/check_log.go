package core

import (
	"slices"
	"time"

	"github.com/layover-run/layover/core/record"
)

// seenRun is what the records say about one submission.
type seenRun struct {
	started, ended      bool
	attempts, turns     int
	joined              []string
	calls               int // prepared at least once
	maxTurns, maxCalls  int
	overTurns, overWork uint64 // slots that went past a limit
	usage               record.Usage
}

// seenCall is what the records say about one call of the last response.
type seenCall struct {
	class     record.Class
	starts    int
	settled   bool
	allowed   bool   // a resolution lets it start once more
	notIn     bool   // because its handler was never entered
	unknownAs string // why its outcome was unknown
	// Of the last preparation.
	attempt, boot string
	until         time.Time
}

// terminal is a terminal record and where it stands.
type terminal struct {
	slot   uint64
	record record.RunSettled
}

// drained is what became of one inbox entry.
type drained struct {
	slot   uint64 // of the batch
	entry  uint64
	record record.Record
}

// envelope checks a batch's place. False ends the check: behind a gap, a broken
// chain or a fence that was passed nothing can be judged.
func (c *Checker) envelope(b record.Batch) bool {
	switch start, starts := b.Records[0].(record.AttemptStarted); {
	case b.Slot != c.batches+1:
		c.report(RuleSlot, b.Slot, "slot %d after slot %d", b.Slot, c.batches)
		return false
	case b.Prev != c.digest:
		c.report(RuleChain, b.Slot, "slot %d does not continue the digest chain", b.Slot)
		return false
	case !starts && (b.Epoch != c.epoch || b.Attempt != c.attempt):
		c.report(RuleEpoch, b.Slot, "slot %d is of epoch %d, attempt %s, in the log of epoch %d, attempt %s", b.Slot, b.Epoch, b.Attempt, c.epoch, c.attempt)
		return false
	case starts && b.Epoch <= c.epoch:
		c.report(RuleEpoch, b.Slot, "slot %d starts epoch %d behind epoch %d", b.Slot, b.Epoch, c.epoch)
		return false
	case starts:
		if c.attempts[b.Attempt] {
			c.report(RuleIdentity, b.Slot, "attempt id %s is used twice", b.Attempt)
		}
		c.attempts[b.Attempt] = true
		c.epoch, c.attempt, c.boot, c.until = b.Epoch, b.Attempt, start.Boot, start.Until
	}
	if c.batchIDs[b.ID] {
		c.report(RuleIdentity, b.Slot, "batch id %s is used twice", b.ID)
	}
	c.batchIDs[b.ID] = true
	return true
}

// record checks one record against those before it.
func (c *Checker) record(env Envelope, index int, r record.Record) {
	if entry := record.Drained(r); entry != 0 {
		if entry != c.cursor+1 {
			c.report(RuleInbox, env.Slot, "slot %d consumes inbox entry %d after entry %d", env.Slot, entry, c.cursor)
		}
		c.cursor = entry
		c.drained = append(c.drained, drained{env.Slot, entry, r})
	}
	switch r := r.(type) {
	case record.AttemptStarted:
		if index > 0 {
			c.report(RuleEpoch, env.Slot, "slot %d starts an attempt in the middle of a batch", env.Slot)
		}
		if run := c.runs[c.open]; run != nil {
			run.attempts++
		}
	case record.SubmissionQueued:
		if c.runs[r.Submission] != nil {
			c.report(RuleStart, env.Slot, "submission %s enters the log twice", r.Submission)
			return
		}
		c.runs[r.Submission] = &seenRun{}
		c.entered, c.waiting = append(c.entered, r.Submission), append(c.waiting, r.Submission)
	case record.FollowUpApplied:
		c.joined(env, r)
	case record.RunStarted:
		c.started(env, r)
	case record.RunSettled:
		c.settled(env, r)
	case record.ResponseRecorded:
		c.response(env, r)
	default:
		c.call(env, r)
	}
}

func (c *Checker) started(env Envelope, r record.RunStarted) {
	run := c.runs[r.Run]
	switch {
	case c.open != "":
		c.report(RuleLane, env.Slot, "run %s starts while run %s is open", r.Run, c.open)
		return
	case run != nil && run.started:
		c.report(RuleStart, env.Slot, "run %s starts twice", r.Run)
		return
	case run != nil && run.ended:
		c.report(RuleTerminal, env.Slot, "run %s starts after it has ended", r.Run)
		return
	case len(c.waiting) == 0 || c.waiting[0] != r.Run:
		c.report(RuleOrder, env.Slot, "run %s starts, and %v wait in this order", r.Run, c.waiting)
		return
	}
	c.open, c.waiting = r.Run, c.waiting[1:]
	run.started, run.attempts, run.maxTurns, run.maxCalls = true, 1, r.Turns, r.ToolCalls
}

// joined takes a submission out of those that wait: it ends with the open run.
func (c *Checker) joined(env Envelope, r record.FollowUpApplied) {
	run, i := c.runs[c.open], slices.Index(c.waiting, r.Submission)
	if run == nil || i < 0 {
		c.report(RuleOrder, env.Slot, "submission %s joins a run, and %v wait", r.Submission, c.waiting)
		return
	}
	c.waiting = slices.Delete(slices.Clone(c.waiting), i, i+1)
	run.joined = append(run.joined, r.Submission)
}

func (c *Checker) settled(env Envelope, r record.RunSettled) {
	run := c.runs[r.Run]
	switch {
	case run != nil && run.ended:
		c.report(RuleTerminal, env.Slot, "run %s has a second terminal record", r.Run)
		return
	case c.open != "" && c.open != r.Run:
		c.report(RuleLane, env.Slot, "run %s ends while run %s is open", r.Run, c.open)
		return
	case c.open == "" && (len(c.waiting) == 0 || c.waiting[0] != r.Run):
		c.report(RuleOrder, env.Slot, "run %s ends unstarted, and %v wait in this order", r.Run, c.waiting)
		return
	case c.open == "":
		c.waiting = c.waiting[1:]
	}
	c.counters(env.Slot, r.Run)
	if r.Attempts != run.attempts || r.Turns != run.turns {
		c.report(RuleCounters, env.Slot, "run %s ends after %d attempts and %d turns; its log has %d and %d", r.Run, r.Attempts, r.Turns, run.attempts, run.turns)
	}
	if below(r.Usage.InputTokens, run.usage.InputTokens) || below(r.Usage.OutputTokens, run.usage.OutputTokens) {
		c.report(RuleCounters, env.Slot, "run %s ends with less usage than its responses had", r.Run)
	}
	if !slices.Equal(r.Queued, c.waiting) {
		c.report(RuleTerminal, env.Slot, "the terminal record of %s names %v as waiting; the log has %v", r.Run, r.Queued, c.waiting)
	}
	if !slices.Equal(r.Joined, run.joined) {
		c.report(RuleTerminal, env.Slot, "the terminal record of %s names %v as joined; the log has %v", r.Run, r.Joined, run.joined)
	}
	run.ended, c.open, c.calls = true, "", nil
	outcomes := Outcomes(r)
	c.terminals = append(c.terminals, terminal{env.Slot, outcomes[0]})
	for _, o := range outcomes[1:] {
		c.hosted = append(c.hosted, terminal{env.Slot, o})
	}
}

// below compares two counts, absent ones being nothing. What was paid for and
// never recorded may come on top.
func below(total, part *int64) bool {
	return part != nil && (total == nil || *total < *part)
}

// counters holds what a run was counted with against its limits, and against
// the fold.
func (c *Checker) counters(slot uint64, id string) {
	run := c.runs[id]
	if run.overWork > 0 {
		c.report(RuleCounters, run.overWork, "run %s started %d tool calls, limit %d", id, run.calls, run.maxCalls)
	}
	if run.overTurns > 0 {
		c.report(RuleCounters, run.overTurns, "run %s took %d turns, limit %d and one grace turn", id, run.turns, run.maxTurns)
	}
	f := c.state.Run
	if f != nil && f.ID == id && (f.Attempts != run.attempts || f.Turn != run.turns || f.ToolCalls != run.calls) {
		c.report(RuleCounters, slot, "the fold counts %d attempts, %d turns and %d tool calls of run %s; its records are %d, %d and %d",
			f.Attempts, f.Turn, f.ToolCalls, id, run.attempts, run.turns, run.calls)
	}
}

func (c *Checker) response(env Envelope, r record.ResponseRecorded) {
	run := c.runs[c.open]
	if run == nil {
		return // no legal sequence
	}
	if run.turns++; run.turns > run.maxTurns+1 && run.overTurns == 0 {
		run.overTurns = env.Slot
	}
	run.usage = run.usage.Add(r.Usage)
	c.calls = map[string]*seenCall{}
	for _, d := range r.Calls {
		c.calls[d.ID] = &seenCall{class: d.Class}
	}
}

// call follows one call: what may start its handler, and when.
func (c *Checker) call(env Envelope, r record.Record) {
	switch r := r.(type) {
	case record.CallPrepared:
		c.prepared(env, r)
	case record.CallUnknown:
		if call := c.calls[r.Call]; call != nil {
			call.unknownAs = r.Reason
		}
	case record.CallResolved:
		if call := c.calls[r.Call]; call != nil && r.Resolution != record.Happened {
			call.allowed, call.notIn = true, r.Source == NotEntered
		}
	case record.CallSettled:
		if call := c.calls[r.Call]; call != nil {
			call.settled = true
		}
	}
}

func (c *Checker) prepared(env Envelope, r record.CallPrepared) {
	run, call := c.runs[c.open], c.calls[r.Call]
	if run == nil || call == nil {
		return // no legal sequence
	}
	owner := c.open + " " + r.Call
	if first := c.operations[r.Operation]; first != "" && first != owner || first == "" && call.starts > 0 {
		c.report(RuleIdentity, env.Slot, "call %s of run %s has the operation id %s, which is not its own", r.Call, c.open, r.Operation)
	}
	c.operations[r.Operation] = owner
	if call.class == record.Uncertain && call.starts > 0 {
		switch {
		case !call.allowed || call.settled:
			c.report(RuleUncertain, env.Slot, "uncertain call %s of run %s is prepared again without a resolution that allows it", r.Call, c.open)
		case c.early(env, call):
			c.report(RuleEarly, env.Slot, "uncertain call %s of run %s is prepared again before attempt %s has certainly ended", r.Call, c.open, call.attempt)
		}
	}
	if call.starts++; call.starts == 1 {
		if run.calls++; run.calls > run.maxCalls && run.overWork == 0 {
			run.overWork = env.Slot
		}
	}
	call.allowed, call.notIn, call.unknownAs = false, false, ""
	call.attempt, call.boot, call.until = env.Attempt, c.boot, c.until
}

// early reports that the invocation which prepared a call may still live: the
// one place where clocks carry safety. A handler that was not entered, or came
// back when its time was over, is done; so is all of another boot of a process
// that holds the store alone.
func (c *Checker) early(env Envelope, call *seenCall) bool {
	switch {
	case call.notIn:
		return false
	case call.attempt == env.Attempt:
		return call.unknownAs != record.TimeoutOutcome
	case call.boot != "" && c.boot != "" && call.boot != c.boot:
		return false
	}
	return env.At.Before(call.until)
}
