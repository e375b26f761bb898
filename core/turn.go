package core

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/layover-run/layover/core/record"
)

// turn works at the seam between turns: steering, stop policy, and then the
// next model request up to its response.
func (p *planner) turn() {
	switch {
	case p.d.response != nil:
		p.respond()
	case p.d.failure != nil:
		p.modelFailed()
	default:
		p.seam()
	}
}

func (p *planner) seam() {
	if p.d.seam < p.s.Run.Turn {
		p.step("16 steering")
		p.look()
	}
	if p.d.looking {
		return
	}
	p.steer()
	r := p.s.Run
	p.step("17 stop-policy")
	if p.stopPolicy() {
		return
	}
	if r.Backoff != nil && p.c.Now.Before(r.Backoff.Until) {
		p.park(WaitBackoff, earliest(r.Backoff.Until, r.Deadline))
		return
	}
	if p.d.cancelled || !p.fits(0) {
		p.yield()
		return
	}
	if p.d.pending["delay"] {
		return
	}
	if !r.Prefixed && !p.evaluate() {
		return
	}
	if r.Turn > 0 {
		p.step("19 next")
	}
	p.step("3 turn-plan")
	p.step("4 budgets")
	if p.d.prepared == nil {
		p.step("5 materialize")
		p.single("prepare", PrepareContext{Request: p.request()})
		return
	}
	if err := p.d.prepared.Err; err != nil {
		p.fail(err)
		return
	}
	p.step("6 stream")
	p.single("model", CallModel{Turn: r.Turn + 1})
}

// evaluate decodes the input and evaluates the instructions, once for a run's
// first response. False means they are not there yet, or the run has failed.
func (p *planner) evaluate() bool {
	in := p.s.Run.Input
	if p.d.decoded == nil {
		p.step("1 decode")
		p.single("decode", DecodeInput{Input: in})
		return false
	}
	if p.d.decoded.Problem != "" {
		p.fail(&record.Error{Kind: InputError, Message: "the input does not fit the agent's input type: " + p.d.decoded.Problem,
			Hint: "`layover agents` shows the input schema with an example"})
		return false
	}
	if p.d.instructions == nil {
		p.step("2 instruct")
		p.single("instruct", Instruct{Input: in})
		return false
	}
	if err := p.d.instructions.Err; err != nil {
		p.fail(err)
		return false
	}
	return true
}

// stopPolicy decides the limits before the next model request (POL-01). True
// means the run has failed.
func (p *planner) stopPolicy() bool {
	r, pol := p.s.Run, p.spec.Policy
	switch {
	case pol.RepeatedFailureLimit > 0 && r.Peak >= pol.RepeatedFailureLimit:
		p.failPolicy(DimFailures, fmt.Sprintf("%d tool calls in a row failed", r.Peak))
	case r.Turn < r.MaxTurns:
		return false
	case pol.OnExhaustion == FailOnExhaustion:
		p.failPolicy(DimTurns, fmt.Sprintf("the run used all of its %d turns", r.MaxTurns))
	default:
		return false
	}
	return true
}

// grace reports whether the next response is the one past the turn limit, and
// constrained whether it must not call tools (RUN-018d, RUN-019a).
func (r *Run) grace() bool       { return r.Turn >= r.MaxTurns }
func (r *Run) constrained() bool { return r.grace() || r.Exhausted != "" }

// used is what counts against the limit of tool calls.
func (r *Run) used() int { return r.ToolCalls + r.Foreign }

// request is the projection the next model call is made from (CTX-05): prior
// history without other runs' prefixes, then this run's own messages.
func (p *planner) request() Request {
	r := p.s.Run
	req := Request{Input: r.Input, Tools: len(p.spec.Tools) > 0, NoCalls: r.constrained(), Contract: p.spec.Contract}
	show := func(entries []Entry) {
		for _, e := range entries {
			if !e.Prefix || e.Run == r.ID {
				req.Messages = append(req.Messages, e.Message)
			}
		}
	}
	show(p.s.History[:r.Start])
	if !r.Prefixed {
		req.Messages = append(req.Messages, p.prefix()...)
	}
	show(p.s.History[r.Start:])
	if req.Contract != "" {
		at := 0
		for i, m := range req.Messages {
			if m.Role == record.System {
				at = i + 1
			}
		}
		req.Messages = slices.Insert(req.Messages, at, record.TextMessage(record.System, req.Contract))
	}
	return req
}

// prefix is what this run's instructions and input contribute.
func (p *planner) prefix() []record.Message {
	var prefix []record.Message
	if text := p.d.instructions.Text; text != "" {
		prefix = append(prefix, record.TextMessage(record.System, text))
	}
	return append(prefix, record.Message{Role: record.User, Parts: record.Parts{record.InputPart{}}})
}

// modelFailed picks retry, backoff park or failure for a call that ended
// without a response: nothing was recorded, so asking again is safe (RET-01).
func (p *planner) modelFailed() {
	f := *p.d.failure
	p.d.failure = nil
	switch f.Class {
	case FailTransient, FailRateLimited:
	case FailCancelled:
		p.seam()
		return
	case FailRefused:
		p.fail(&record.Error{Kind: ModelRefused, Message: f.Message, Hint: "check the provider's key, model name and limits"})
		return
	case FailOverflow:
		p.fail(&record.Error{Kind: ContextOverflow, Message: f.Message, Hint: "the conversation is longer than the model's context"})
		return
	default:
		p.fail(&record.Error{Kind: ModelProtocolError, Message: f.Message})
		return
	}
	wait := max(f.RetryAfter, p.jitter(250*time.Millisecond, 4*time.Second, p.d.retries))
	if p.d.retries < p.spec.Policy.ModelRetries && wait <= 10*time.Second && p.fits(wait) {
		p.d.retries++
		p.single("delay", Delay{For: wait})
		return
	}
	backoffs := 0
	if p.s.Run.Backoff != nil {
		backoffs = p.s.Run.Backoff.Retries
	}
	if backoffs >= MaxBackoffs {
		p.fail(&record.Error{Kind: ModelUnavailable, Message: "the model stayed unavailable: " + f.Message, Hint: "submit again later"})
		return
	}
	until := p.c.Now.Add(max(f.RetryAfter, p.jitter(15*time.Second, 15*time.Minute, backoffs)))
	p.emit(record.BackoffScheduled{Until: record.Time(until), Retries: backoffs + 1, Class: f.Class, Message: clip(f.Message)})
}

// jitter doubles base up to limit and takes between half and all of it. It
// varies with the run, not with a random source: equal inputs, equal plans.
func (p *planner) jitter(base, limit time.Duration, tries int) time.Duration {
	d := limit
	if tries < 20 {
		d = min(base<<tries, limit)
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s.%d.%d", p.s.Run.ID, p.s.Run.Turn, tries)
	return d/2 + time.Duration(int64(d/2)*int64(h.Sum32()%1000)/1000)
}

// respond decides a staged response. It is written in one batch together with
// what it leads to: its settlement, its synthetic results, or its calls.
func (p *planner) respond() {
	p.step("7 reduce")
	p.step("8 reject")
	r, resp := p.s.Run, p.d.response
	if !r.Usage.Add(resp.Usage).Valid() { // RUN-035g: a total that no record can hold
		resp.Usage = record.Usage{}
		p.fail(&record.Error{Kind: ModelProtocolError, Message: "the run's token counts no longer add up to an exact integer"})
		return
	}
	calls := applicationCalls(resp.Message)
	executed := len(resp.Message.Calls()) - len(calls)
	if problem := p.forbidden(); problem != "" {
		p.fail(&record.Error{Kind: ModelProtocolError, Message: problem})
		return
	}
	if len(calls) == 0 {
		p.respondWithoutCalls(executed)
		return
	}
	p.step("10 validate")
	if !p.d.checked {
		p.single("check", CheckCalls{Calls: calls})
		return
	}
	invalid := slices.ContainsFunc(p.d.checks, func(c Check) bool { return c.Problem != "" })
	switch {
	case invalid && p.spec.Policy.OnInvalidCall == FailInvalid:
		p.fail(&record.Error{Kind: InvalidToolCall, Message: p.problems()})
	case invalid:
		p.refuseBatch(record.InvalidBatch, "")
	case r.used()+executed+len(calls) > r.MaxCalls && p.spec.Policy.OnExhaustion == FailOnExhaustion:
		p.failPolicy(DimToolCalls, fmt.Sprintf("the run may start %d tool calls and has started %d; the model asked for %d more", r.MaxCalls, r.used(), len(calls)))
	case r.used()+executed+len(calls) > r.MaxCalls:
		p.refuseBatch(record.OverBudget, DimToolCalls)
	default:
		p.declare()
	}
}

// forbidden says what a response must not do in this run, or nothing.
func (p *planner) forbidden() string {
	calls := p.d.response.Message.Calls()
	ours := 0
	for _, c := range calls {
		if !c.ProviderExecuted {
			ours++
		}
	}
	if ours > MaxBatchCalls {
		return fmt.Sprintf("the model declared %d calls in one response; at most %d are possible", ours, MaxBatchCalls)
	}
	if len(calls) > 0 && p.s.Run.constrained() {
		return "the model called a tool where tool use was forbidden"
	}
	for _, c := range calls {
		if c.ProviderExecuted && !slices.Contains(p.spec.ProviderTools, c.Tool) {
			return fmt.Sprintf("the provider executed %.64q, which the agent did not enable", c.Tool)
		}
	}
	return ""
}

// respondWithoutCalls takes a response that leaves nothing for us to execute: an
// answer, or a provider that asks for another turn behind its own calls.
// Those it executed count, although they have run already (D-31).
func (p *planner) respondWithoutCalls(executed int) {
	r := p.s.Run
	over := executed > 0 && r.used()+executed > r.MaxCalls
	switch {
	case over && p.spec.Policy.OnExhaustion == FailOnExhaustion:
		p.record(DimToolCalls)
		p.failPolicy(DimToolCalls, fmt.Sprintf("the run may make %d tool calls and has made %d", r.MaxCalls, r.used()+executed))
	case executed == 0 || p.d.response.Stop != "tool-calls":
		p.respondFinal(over)
	case over:
		p.record(DimToolCalls)
		p.turn()
	default:
		p.record("")
		p.turn()
	}
}

func applicationCalls(m record.Message) []record.ToolCallPart {
	return slices.DeleteFunc(m.Calls(), func(c record.ToolCallPart) bool { return c.ProviderExecuted })
}

// respondFinal takes an answer. over says that the provider's own calls passed
// the limit of tool calls: the answer counts, as that of an exhausted run.
func (p *planner) respondFinal(over bool) {
	r, resp := p.s.Run, p.d.response
	p.step("9 final")
	if resp.Stop != "stop" {
		p.record("")
		p.fail(&record.Error{Kind: ModelStopped, Message: "the model stopped without an answer: " + resp.Stop,
			Hint: "reason as the provider gave it: " + resp.RawStop})
		return
	}
	if p.d.concluded == nil {
		p.single("conclude", Conclude{Message: resp.Message})
		return
	}
	p.step("18 follow-ups")
	if !p.d.final {
		p.d.final = true
		p.look()
	}
	if p.d.looking {
		return
	}
	exhausted := r.Exhausted
	switch {
	case exhausted != "":
	case over:
		exhausted = DimToolCalls
	case r.grace():
		exhausted = DimTurns
	}
	concluded := *p.d.concluded
	if exhausted == "" && concluded.Err == nil && p.goesOn() {
		p.turn()
		return
	}
	p.record(exhausted)
	settled := record.RunSettled{Status: record.StatusCompleted, FinishReason: record.ModelStop, Output: concluded.Output}
	if exhausted != "" {
		settled.FinishReason, settled.Exhausted = record.BudgetExhausted, exhausted
	}
	if concluded.Err != nil {
		settled = record.RunSettled{Status: record.StatusFailed, Error: concluded.Err}
	}
	p.settle(settled)
}

// record emits the staged response and clears it off the desk.
func (p *planner) record(exhausted string) {
	r, resp := p.s.Run, p.d.response
	rec := record.ResponseRecorded{
		Turn: r.Turn + 1, Message: resp.Message, Stop: resp.Stop, RawStop: clip(resp.RawStop),
		Provider: clip(resp.Provider), Model: clip(resp.Model), ResponseID: clip(resp.ResponseID), Usage: resp.Usage,
		Constrained: r.constrained(), Grace: r.grace(), Exhausted: exhausted, Repairs: resp.Repairs,
	}
	if p.d.prepared != nil {
		rec.Request = p.d.prepared.Digest
	}
	if !r.Prefixed {
		rec.Prefix = p.prefix()
	}
	for i, c := range applicationCalls(resp.Message) {
		d := record.DeclaredCall{ID: c.ID, Tool: c.Tool}
		if t, ok := p.spec.Tool(c.Tool); ok {
			d.Version, d.Class = t.Version, t.Class
		}
		if i < len(p.d.checks) {
			d.ArgsDigest, d.Problem = p.d.checks[i].ArgsDigest, clip(p.d.checks[i].Problem)
		}
		rec.Calls = append(rec.Calls, d)
	}
	p.emit(rec)
	p.d.newTurn()
}

// refuseBatch records a response together with a result for each of its calls:
// it is never pending and no handler runs (RUN-018, D-52, D-53).
func (p *planner) refuseBatch(reason, exhausted string) {
	checks := p.d.checks
	p.record(exhausted)
	for _, c := range checks {
		var result record.Value
		switch {
		case reason == record.OverBudget:
			result = failure("budget-exhausted", fmt.Sprintf("not executed: the run may start %d tool calls in all; answer with what you have", p.s.Run.MaxCalls))
		case c.Problem != "":
			result = failure("invalid-call", clip(c.Problem))
		default:
			result = failure("not-executed", "not executed: another call of this batch was invalid")
		}
		p.emit(record.CallSettled{Call: c.Call, Outcome: record.Failed, Tag: reason, Synthetic: reason, Result: result})
	}
	p.afterBatch()
}

func (p *planner) problems() string {
	for _, c := range p.d.checks {
		if c.Problem != "" {
			return c.Problem
		}
	}
	return ""
}

// declare records a response whose calls may run, asks for the approvals they
// need, and starts what can start at once (D-57).
func (p *planner) declare() {
	p.record("")
	for i, c := range slices.Clone(p.s.Run.Calls) {
		if t, ok := p.spec.Tool(c.Tool); !ok || !t.Approval {
			continue
		}
		p.step("11 approval")
		p.emit(record.ApprovalRequested{
			Approval: fmt.Sprintf("%s.%d.%d", p.s.Run.ID, p.s.Run.Turn, i), Call: c.ID, Tool: c.Tool, Version: c.Version,
			ArgsDigest: c.ArgsDigest, ExpiresAt: record.Time(p.expiry()),
		})
	}
	p.batch()
}

// expiry is when an approval asked for now lapses: as the policy says, and
// early enough that a decision can still be carried out (D-28).
func (p *planner) expiry() time.Time {
	r := p.s.Run
	last := r.Deadline.Add(-min(5*time.Minute, r.Deadline.Sub(r.StartedAt)/10))
	if e := p.spec.Policy.ApprovalExpiry; e > 0 {
		return earliest(p.c.Now.Add(e), last)
	}
	return last
}
