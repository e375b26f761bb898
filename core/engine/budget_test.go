package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// conformance: POL-02, POL-03, RUN-018a, RUN-018b, RUN-018c, RUN-018d, RUN-018e, RUN-011a, RUN-011b @embedded @serverless
func TestToolCallsRunOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{MaxToolCalls: 2}, handler(c, "look", tool.Readonly())),
			modeltest.Calls(call("look", 0)), modeltest.Calls(call("look", 1), call("look", 2)), modeltest.Text("enough"))
		p := r.run(kim)
		must(t, p, "completed", "")
		if c.of("look") != 1 {
			t.Errorf("%d handlers: a batch that does not fit must not run even in part", c.of("look"))
		}
		if p.Outcome.FinishReason != record.BudgetExhausted || p.Outcome.Exhausted != core.DimToolCalls {
			t.Errorf("settled %q %q", p.Outcome.FinishReason, p.Outcome.Exhausted)
		}
		last := r.model.Requests()[2]
		if last.Choice != model.None || strings.Count(said(last), "budget-exhausted") != 2 {
			t.Errorf("choice %s, request\n%s", last.Choice, said(last))
		}
		if r.model.Requests()[1].Choice != model.Auto {
			t.Error("tools were forbidden before the budget was used up")
		}
		r.verify()
	})
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{MaxToolCalls: 1, OnExhaustion: agent.FailOnExhaustion}, handler(c, "look", tool.Readonly())),
			modeltest.Calls(call("look", 0), call("look", 1)))
		p := r.run(kim)
		must(t, p, "failed", record.PolicyError)
		if p.Outcome.PolicyLimit != core.DimToolCalls || c.of("look") != 0 {
			t.Errorf("limit %q, %d handlers", p.Outcome.PolicyLimit, c.of("look"))
		}
	})
}

// conformance: POL-01, POL-04, RUN-019a, RUN-019b, RUN-019c, RUN-019d, RUN-020 @embedded @serverless
func TestTurnsRunOut(t *testing.T) {
	look := func(n int) modeltest.Step { return modeltest.Calls(call("look", n)) }
	for name, row := range map[string]struct {
		policy                 agent.Policy
		steps                  []modeltest.Step
		status, kind           string
		requests, handlers     int
		exhausted, policyLimit string
	}{
		"the grace turn answers": {agent.Policy{MaxTurns: 2}, []modeltest.Step{look(0), look(1), modeltest.Text("ok")}, "completed", "", 3, 2, core.DimTurns, ""},
		"the grace turn calls":   {agent.Policy{MaxTurns: 2}, []modeltest.Step{look(0), look(1), look(2)}, "failed", core.ModelProtocolError, 3, 2, "", ""},
		"in fail mode":           {agent.Policy{MaxTurns: 2, OnExhaustion: agent.FailOnExhaustion}, []modeltest.Step{look(0), look(1)}, "failed", record.PolicyError, 2, 2, "", core.DimTurns},
		"the last turn answers":  {agent.Policy{MaxTurns: 2}, []modeltest.Step{look(0), modeltest.Text("ok")}, "completed", "", 2, 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				r := newRig(t, define(t, row.policy, handler(c, "look", tool.Readonly())), row.steps...)
				p := r.run(kim)
				must(t, p, row.status, row.kind)
				requests := r.model.Requests()
				if len(requests) != row.requests || c.of("look") != row.handlers {
					t.Errorf("%d requests and %d handlers, want %d and %d", len(requests), c.of("look"), row.requests, row.handlers)
				}
				if p.Outcome.Exhausted != row.exhausted || p.Outcome.PolicyLimit != row.policyLimit {
					t.Errorf("exhausted %q, limit %q", p.Outcome.Exhausted, p.Outcome.PolicyLimit)
				}
				if last := requests[len(requests)-1]; (last.Choice == model.None) != (row.requests == 3) {
					t.Errorf("choice of the last request: %s", last.Choice)
				}
				r.verify()
			})
		})
	}
}

// conformance: POL-12, REC-03 @embedded @serverless
//
// Kills and resumes give nobody a second budget: handlers started before a kill
// count after it.
func TestBudgetSurvivesRestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		def := define(t, agent.Policy{MaxToolCalls: 2}, handler(c, "look", tool.Readonly()), handler(c, "pay", tool.RequireApproval()))
		r := newRig(t, def, modeltest.Calls(call("look", 0)), modeltest.Calls(call("pay", 0)))
		id := r.submit(kim)
		r.work()
		r.restart(nil, modeltest.Calls(call("look", 1)), modeltest.Text("enough"))
		r.approve(0, true)
		r.work()
		p := r.progress(id)
		must(t, p, "completed", "")
		if p.Outcome.Exhausted != core.DimToolCalls || c.of("look") != 1 || c.of("pay") != 1 {
			t.Errorf("exhausted %q after %v", p.Outcome.Exhausted, c.calls)
		}
		if p.Attempts != 2 {
			t.Errorf("%d attempts", p.Attempts)
		}
		r.verify()
	})
}

// conformance: POL-05, RUN-030b, RUN-030d, RUN-030e, RUN-030f, RUN-030h, RUN-030i, RUN-030l @embedded @serverless
func TestDurationIsTheRuns(t *testing.T) {
	t.Run("waiting does not pause it", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			c := &counter{}
			r := newRig(t, define(t, agent.Policy{MaxDuration: 10 * time.Minute}, handler(c, "pay", tool.RequireApproval())),
				modeltest.Calls(call("pay", 0)))
			id := r.submit(kim)
			r.work()
			time.Sleep(11 * time.Minute)
			r.restart(nil, modeltest.Text("too late"))
			r.work()
			p := r.progress(id)
			must(t, p, "failed", record.PolicyError)
			if p.Outcome.PolicyLimit != core.DimDuration || c.of("pay") != 0 || len(r.model.Requests()) != 0 {
				t.Errorf("limit %q, %d handlers, %d requests", p.Outcome.PolicyLimit, c.of("pay"), len(r.model.Requests()))
			}
			r.verify()
		})
	})
	t.Run("it interrupts a tool", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			c := &counter{}
			r := newRig(t, define(t, agent.Policy{MaxDuration: 5 * time.Minute}, handler(c, "slow", tool.Readonly(), tool.Timeout(5*time.Minute))),
				modeltest.Calls(call("slow", 100)), modeltest.Calls(call("slow", 280)))
			began := time.Now()
			p := r.run(kim)
			must(t, p, "failed", record.PolicyError)
			if took := time.Since(began); took != 5*time.Minute || p.Outcome.PolicyLimit != core.DimDuration {
				t.Errorf("ended after %s by %q", took, p.Outcome.PolicyLimit)
			}
			settled := r.records(record.KindCallSettled)
			if got := settled[len(settled)-1].(record.CallSettled).Outcome; got != record.Interrupted {
				t.Errorf("the running call settled as %s", got)
			}
			r.verify()
		})
	})
	t.Run("queueing is not in it", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, define(t, agent.Policy{MaxDuration: 10 * time.Minute}), modeltest.Text("done"))
			id := r.submit(kim)
			time.Sleep(time.Hour)
			r.work()
			must(t, r.progress(id), "completed", "")
		})
	})
}

// conformance: RUN-021a, RUN-021b, RUN-021c, RUN-021d @embedded @serverless
func TestAllowanceOnlyTightens(t *testing.T) {
	for given, want := range map[string]int{"0": 1, "-3": 1, "0.5": 1, "2.9": 2, "1e9": 10, "10": 10, "7": 7} {
		t.Run(given, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, define(t, agent.Policy{MaxTurns: 10, MaxToolCalls: 10}), modeltest.Text("done"))
				var allowance engine.AllowanceRequest
				if err := json.Unmarshal(fmt.Appendf(nil, `{"turns":%s,"toolCalls":%s}`, given, given), &allowance); err != nil {
					t.Fatal(err)
				}
				_, err := r.admitter.Submit(context.Background(), engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Conversation: "c",
					Input: []byte(kim), Allowance: allowance})
				if err != nil {
					t.Fatal(err)
				}
				r.work()
				started := r.records(record.KindRunStarted)[0].(record.RunStarted)
				if started.Turns != want || started.ToolCalls != want {
					t.Errorf("effective limits %d and %d, want %d", started.Turns, started.ToolCalls, want)
				}
			})
		})
	}
}
