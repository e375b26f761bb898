package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/layover-run/layover/core/record"
)

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
// answer, or a provider that asks for another turn, behind calls of its own or
// because it paused. That is a turn as any other, and the one past the limit
// has no other behind it. Calls it executed count, although they have run
// already (D-31).
func (p *planner) respondWithoutCalls(executed int) {
	r := p.s.Run
	over := executed > 0 && r.used()+executed > r.MaxCalls
	switch {
	case over && p.spec.Policy.OnExhaustion == FailOnExhaustion:
		p.record(DimToolCalls)
		p.failPolicy(DimToolCalls, fmt.Sprintf("the run may make %d tool calls and has made %d", r.MaxCalls, r.used()+executed))
	case p.d.response.Stop != "tool-calls", r.grace():
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
		p.fail(stopped(resp))
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

// stopped is the failure of a run whose model ended with something else than an
// answer.
func stopped(resp *Response) *record.Error {
	err := &record.Error{Kind: ModelStopped, Message: "the model stopped without an answer: " + resp.Stop,
		Hint: "reason as the provider gave it: " + resp.RawStop}
	if resp.Stop == "tool-calls" {
		err.Message = "the model paused where its answer was due, past the run's last turn"
	}
	if resp.RawStop == "" {
		err.Hint = "the provider gave no reason"
	}
	return err
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
