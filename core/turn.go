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
