package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

func (r *rig) steer(text string) engine.SteerReceipt {
	r.t.Helper()
	receipt, err := r.admitter.Steer(bg, engine.SteerRequest{Tenant: "t", Principal: "kim", Conversation: "c", Key: "key of " + text, Text: text})
	if err != nil {
		r.t.Fatal(err)
	}
	return receipt
}

func (r *rig) followUp(key, input string) string {
	r.t.Helper()
	receipt, err := r.admitter.FollowUp(bg, engine.FollowUpRequest{Tenant: "t", Principal: "kim", Conversation: "c", Key: key, Input: []byte(input)})
	if err != nil {
		r.t.Fatal(err)
	}
	return receipt.Submission
}

func (r *rig) steered(text string) engine.SteerOutcome {
	r.t.Helper()
	o, err := r.admitter.Steering(bg, r.lane, "kim", "key of "+text)
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

// during is a step that does something while the model is asked.
func during(do func(), step modeltest.Step) []modeltest.Step {
	return []modeltest.Step{modeltest.Check(func(*model.Request) error { do(); return nil }), step}
}

// asked keeps what every request said.
func asked(requests *[]string) modeltest.Step {
	return modeltest.Check(func(req *model.Request) error { *requests = append(*requests, said(req)); return nil })
}

// Steering before the start and in turn 1: requests 1 and 2 each hold their one,
// behind the results, and the batch it came into is left alone.
//
// conformance: STR-01, STR-02, STR-03, RUN-014, TURN-16 @embedded @serverless
func TestSteeringEntersAtTheSeams(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		var requests []string
		var r *rig
		calls := modeltest.Calls(modeltest.Call{Tool: "look", Args: arg{1}}, modeltest.Call{Tool: "look", Args: arg{2}}, modeltest.Call{Tool: "steering"})
		steps := slices.Concat([]modeltest.Step{asked(&requests)}, during(func() { r.steer("mid-stream") }, calls),
			[]modeltest.Step{asked(&requests), modeltest.Text("half"), asked(&requests), modeltest.Text("done")})
		mid := tool.New("steering", "Steers.", func(context.Context, struct{}) (string, error) { r.steer("mid-batch"); return "sent", nil }, tool.Readonly())
		r = newRig(t, define(t, agent.Policy{}, handler(c, "look", tool.Readonly()), mid), steps...)
		id := r.submit(kim)
		r.steer("before")
		if got := r.steered("before"); got.Status != engine.SteerQueued {
			t.Errorf("before the run: %+v", got)
		}
		r.work()
		must(t, r.progress(id), "completed", "")
		const prefix = "system: Help Kim.\nuser: {\"name\":\"Kim\"}\nuser: before\n"
		const batch = "assistant: call look {\"n\":1} call look {\"n\":2} call steering {}\ntool: result look \"look 1\" result look \"look 2\" result steering \"sent\"\n"
		want := []string{prefix, prefix + batch + "user: mid-stream\n",
			prefix + batch + "user: mid-stream\nassistant: half\nuser: mid-batch\n"}
		if !slices.Equal(requests, want) {
			t.Errorf("requests:\n%s", strings.Join(requests, "--\n"))
		}
		if c.of("look") != 2 {
			t.Errorf("%d of 2 handlers of the steered batch ran", c.of("look"))
		}
		for text, turn := range map[string]int{"before": 1, "mid-stream": 2, "mid-batch": 3} {
			if got := r.steered(text); got != (engine.SteerOutcome{Status: engine.SteerApplied, Turn: turn}) {
				t.Errorf("%s: %+v", text, got)
			}
		}
		if n := len(r.records(record.KindSteeringApplied)); n != 3 {
			t.Errorf("%d commands were taken in, sent were 3", n)
		}
		r.verify()
	})
}

// conformance: STR-05 @embedded @serverless
func TestDrainPolicy(t *testing.T) {
	for policy, want := range map[core.Drain][]int{"": {1, 2, 3}, agent.DrainOne: {1, 2, 3}, agent.DrainAll: {3}} {
		t.Run(string(policy), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var requests []string
				steps := []modeltest.Step{}
				for range want {
					steps = append(steps, asked(&requests), modeltest.Text("ok"))
				}
				r := newRig(t, define(t, agent.Policy{DrainPolicy: policy}), steps...)
				id := r.submit(kim)
				for i := range 3 {
					r.steer(fmt.Sprint("item", i+1))
				}
				r.work()
				must(t, r.progress(id), "completed", "")
				var got []int
				for _, req := range requests {
					got = append(got, strings.Count(req, "user: item"))
				}
				if !slices.Equal(got, want) {
					t.Errorf("items per request %v, want %v", got, want)
				}
				if last := requests[len(requests)-1]; strings.Index(last, "item1") > strings.Index(last, "item2") || strings.Index(last, "item2") > strings.Index(last, "item3") {
					t.Errorf("not first in, first out:\n%s", last)
				}
			})
		})
	}
}

// A follow-up queued in turn 1 of a run of three turns is first seen in request
// 4, behind the steering that waits with it, and settles with its host.
//
// conformance: RUN-015, STR-04, STR-06, TURN-18 @embedded @serverless
func TestFollowUpJoinsWhereTheRunWouldEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		var r *rig
		var requests []string
		var joined string
		states := func() string { p := r.progress(joined); return p.Status + " " + p.Host }
		var seen []string
		look := func() modeltest.Step { return modeltest.Calls(modeltest.Call{Tool: "look"}) }
		steps := slices.Concat(
			[]modeltest.Step{asked(&requests)}, during(func() { joined = r.followUp("f1", `{"name":"and Ada"}`) }, look()),
			[]modeltest.Step{asked(&requests)}, during(func() { seen = append(seen, states()) }, look()),
			[]modeltest.Step{asked(&requests)}, during(func() { seen = append(seen, states()); r.steer("briefly") }, modeltest.Text("first")),
			[]modeltest.Step{asked(&requests), modeltest.Text("second")},
			[]modeltest.Step{asked(&requests)}, during(func() { seen = append(seen, states()) }, modeltest.Text("third")))
		r = newRig(t, define(t, agent.Policy{}, handler(c, "look", tool.Readonly())), steps...)
		host := r.submit(kim)
		r.work()
		first := slices.IndexFunc(requests, func(s string) bool { return strings.Contains(s, "and Ada") })
		steering := slices.IndexFunc(requests, func(s string) bool { return strings.Contains(s, "briefly") })
		if first != 4 || steering != 3 || len(requests) != 5 {
			t.Fatalf("the follow-up is first in request %d, the steering in %d of %d:\n%s", first+1, steering+1, len(requests), strings.Join(requests, "--\n"))
		}
		if !strings.HasSuffix(requests[4], "assistant: second\nuser: {\"name\":\"and Ada\"}\n") {
			t.Errorf("the follow-up is not the last word:\n%s", requests[4])
		}
		if want := []string{"queued ", "queued ", "running " + host}; !slices.Equal(seen, want) {
			t.Errorf("the follow-up was %q, want %q", seen, want)
		}
		hosted, own := r.progress(joined), r.progress(host)
		must(t, hosted, "completed", "")
		must(t, own, "completed", "")
		if hosted.Host != host || string(hosted.Output) != `"third"` || string(own.Output) != `"third"` {
			t.Errorf("host %q, outputs %s and %s", hosted.Host, hosted.Output, own.Output)
		}
		if !hosted.Usage.IsZero() || own.Usage.IsZero() || !slices.Equal(own.Outcome.Joined, []string{joined}) {
			t.Errorf("numbers belong to the host alone: %+v and %+v", hosted.Outcome, own.Outcome)
		}
		if n := len(r.records(record.KindRunStarted)); n != 1 {
			t.Errorf("%d runs were started", n)
		}
		r.verify()
	})
}

// What does not join runs by itself: after a failure, without a turn left, and
// of another principal.
func TestFollowUpRunsByItselfWhereItCannotJoin(t *testing.T) {
	for name, tc := range map[string]struct {
		policy agent.Policy
		by     string
		first  modeltest.Step
	}{
		"the run fails":   {agent.Policy{}, "kim", modeltest.Fail(&model.Error{Class: model.Refused, Message: "no"})},
		"no turn is left": {agent.Policy{MaxTurns: 1}, "kim", modeltest.Text("one")},
		"of another":      {agent.Policy{}, "ada", modeltest.Text("one")},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, define(t, tc.policy), tc.first, modeltest.Text("two"))
				host := r.submit(kim)
				receipt, err := r.admitter.FollowUp(bg, engine.FollowUpRequest{Tenant: "t", Principal: tc.by, Conversation: "c", Key: "f", Input: []byte(kim)})
				if err != nil {
					t.Fatal(err)
				}
				r.work()
				p := r.progress(receipt.Submission)
				must(t, p, "completed", "")
				if p.Host != "" || string(p.Output) != `"two"` || len(r.progress(host).Outcome.Joined) != 0 {
					t.Errorf("host %q, output %s", p.Host, p.Output)
				}
				r.verify()
			})
		})
	}
}

// The drain of a run at its limit is recorded before the limit is decided.
//
// conformance: TURN-17 @embedded @serverless
func TestSteeringIsDrainedBeforeTheStopPolicy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		var r *rig
		r = newRig(t, define(t, agent.Policy{MaxTurns: 1, OnExhaustion: agent.FailOnExhaustion}, handler(c, "look", tool.Readonly())),
			during(func() { r.steer("one more thing") }, modeltest.Calls(modeltest.Call{Tool: "look"}))...)
		id := r.submit(kim)
		r.work()
		must(t, r.progress(id), "failed", record.PolicyError)
		var order []record.Kind
		for _, rec := range r.records(record.KindCallSettled, record.KindSteeringApplied, record.KindRunSettled) {
			order = append(order, rec.Kind())
		}
		if want := []record.Kind{record.KindCallSettled, record.KindSteeringApplied, record.KindRunSettled}; !slices.Equal(order, want) {
			t.Errorf("recorded %v, want %v", order, want)
		}
	})
}

// A crash between two commands of one seam takes neither in twice, and the seam
// of the next attempt takes in no second one.
func TestSteeringSurvivesARestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		die := make(chan struct{})
		r := newRig(t, define(t, agent.Policy{}), during(func() { close(die) }, modeltest.Hang())...)
		id := r.submit(kim)
		r.steer("one")
		r.steer("two")
		gone := r.attemptUntil(die)
		var requests []string
		r.restart(nil, asked(&requests), modeltest.Text("a"), asked(&requests), modeltest.Text("b"))
		<-gone
		r.work()
		must(t, r.progress(id), "completed", "")
		if len(requests) != 2 || strings.Contains(requests[0], "two") || strings.Count(requests[1], "user: one") != 1 {
			t.Errorf("requests:\n%s", strings.Join(requests, "--\n"))
		}
		r.verify()
	})
}

// conformance: STR-01 @embedded @serverless
func TestSteeringIsACommandOfItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{MaxTurns: 1}), modeltest.Text("done"), modeltest.Text("again"))
		req := engine.SteerRequest{Tenant: "t", Principal: "kim", Conversation: "c", Key: "k", Text: "x"}
		_, err := r.admitter.Steer(bg, req)
		mustKind(t, "no conversation", err, engine.KindNotFound)
		id := r.submit(kim)
		first, err := r.admitter.Steer(bg, req)
		if err != nil || first.Duplicate || first.Submission != id {
			t.Fatalf("%+v, %v", first, err)
		}
		again := func(when string) {
			if got, err := r.admitter.Steer(bg, req); err != nil || !got.Duplicate || got.Submission != id {
				t.Errorf("%s: %+v, %v", when, got, err)
			}
			other := req
			other.Text = "y"
			_, err := r.admitter.Steer(bg, other)
			mustKind(t, when+", another text", err, engine.KindConflict)
		}
		again("waiting")
		hers := req
		hers.Principal, hers.Text = "ana", "z"
		if got, err := r.admitter.Steer(bg, hers); err != nil || got.Duplicate {
			t.Errorf("the same key of somebody else: %+v, %v", got, err)
		}
		late := req
		late.Key, late.Text = "k2", strings.Repeat("é", engine.MaxSteering/2)
		if _, err := r.admitter.Steer(bg, late); err != nil {
			t.Fatal(err)
		}
		r.work()
		again("settled")
		if o, err := r.admitter.Steering(bg, r.lane, "kim", "k2"); err != nil || o.Status != engine.SteerNotDelivered || o.Reason == "" {
			t.Errorf("the second command: %+v, %v", o, err)
		}
		for what, change := range map[string]func(*engine.SteerRequest){
			"closed":   func(r *engine.SteerRequest) { r.Key = "k3" },
			"big":      func(r *engine.SteerRequest) { r.Key, r.Text = "k3", strings.Repeat("x", engine.MaxSteering+1) },
			"empty":    func(r *engine.SteerRequest) { r.Key, r.Text = "k3", "" },
			"no UTF-8": func(r *engine.SteerRequest) { r.Key, r.Text = "k3", "\xff" },
		} {
			bad := req
			change(&bad)
			_, err := r.admitter.Steer(bg, bad)
			mustKind(t, what, err, map[string]engine.ErrorKind{"closed": engine.KindSettled, "big": engine.KindTooLarge,
				"empty": engine.KindInvalid, "no UTF-8": engine.KindInvalid}[what])
		}
		_, err = r.admitter.Steering(bg, r.lane, "kim", "k3")
		mustKind(t, "never sent", err, engine.KindNotFound)
		if n := len(r.records(record.KindRunStarted)); n != 1 {
			t.Errorf("%d runs: steering is never one", n)
		}
		r.verify()
	})
}

// Sixty-four commands of a sort may wait (D-24); what is known finds itself.
func TestWaitingIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}))
		submit := func(n int) error {
			_, err := r.admitter.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Conversation: "c", Key: fmt.Sprint(n), Input: []byte(kim)})
			return err
		}
		steer := func(n int) error {
			_, err := r.admitter.Steer(bg, engine.SteerRequest{Tenant: "t", Principal: "kim", Conversation: "c", Key: fmt.Sprint(n), Text: "x"})
			return err
		}
		fill := func(what string, do func(int) error) {
			for n := range core.MaxWaiting {
				if err := do(n); err != nil {
					t.Fatalf("%s %d: %v", what, n, err)
				}
			}
			mustKind(t, what, do(core.MaxWaiting), engine.KindFull)
			if err := do(7); err != nil {
				t.Errorf("%s, again: %v", what, err)
			}
		}
		fill("submissions", submit)
		fill("commands", steer)
	})
}
