package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// mustKind wants an error of a kind.
func mustKind(t *testing.T, what string, err error, kind engine.ErrorKind) {
	t.Helper()
	var e *engine.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Errorf("%s: %v, want %s", what, err, kind)
	}
}

// timed awaits a submission for at most a minute and says how long that took.
func (r *rig) timed(id string, until engine.Until) (engine.Progress, time.Duration) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	began := time.Now()
	p, err := r.admitter.Await(ctx, "t", id, until)
	if err != nil {
		r.t.Error(err)
	}
	return p, time.Since(began)
}

func number(f float64) *float64 { return &f }

// What a caller sent is what the log says was queued.
func TestSubmissionReachesTheLogWhole(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("done"))
		admitted := time.Now()
		receipt, err := r.admitter.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Conversation: "c", Key: "k", Input: []byte(kim),
			ReplyTo: "sqs:answers", Allowance: engine.AllowanceRequest{Turns: number(3), ToolCalls: number(5), Seconds: number(90)}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.work()
		got := r.records(record.KindSubmissionQueued)[0].(record.SubmissionQueued)
		want := record.SubmissionQueued{Entry: 1, Submission: receipt.Submission, Agent: "a", Input: record.Value{Inline: []byte(kim)}, Principal: "kim",
			ReplyTo: "sqs:answers", Allowance: record.Allowance{Turns: 3, ToolCalls: 5, Duration: 90 * time.Second}, AdmittedAt: got.AdmittedAt}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) || !got.AdmittedAt.Equal(admitted) {
			t.Errorf("queued %+v\nwant %+v admitted at %s", got, want, admitted)
		}
	})
}

// failure: A18
//
// A key is used for one submission: repeating it exactly is answered with the
// first receipt, and every member that differs makes it a conflict. Who asks and
// where are part of the identity, each for itself.
func TestKeyBindsEveryMember(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}))
		facts := r.def.Bind(r.model).Engine().Facts
		other := facts
		other.Name = "b"
		a, err := engine.NewAdmitter(engine.Config{Journal: r.journal, Queue: memqueue.New()}, engine.Manifest{facts, other})
		if err != nil {
			t.Fatal(err)
		}
		request := func(change func(*engine.SubmitRequest)) engine.SubmitRequest {
			s := engine.SubmitRequest{Tenant: "t", Principal: "a", Agent: "a", Conversation: "bc", Key: "k", Input: []byte(kim), ReplyTo: "r",
				Allowance: engine.AllowanceRequest{Turns: number(3)}}
			change(&s)
			return s
		}
		first, err := a.Submit(bg, request(func(*engine.SubmitRequest) {}))
		if err != nil || first.Duplicate {
			t.Fatalf("%+v, %v", first, err)
		}
		time.Sleep(time.Minute)
		again, err := a.Submit(bg, request(func(s *engine.SubmitRequest) { s.Input = []byte(` { "name" : "Kim" } `) }))
		if err != nil || !again.Duplicate || again.Submission != first.Submission || !again.At.Equal(first.At) {
			t.Errorf("again: %+v, %v; first %+v", again, err, first)
		}
		for what, change := range map[string]func(*engine.SubmitRequest){
			"another agent":     func(s *engine.SubmitRequest) { s.Agent = "b" },
			"another input":     func(s *engine.SubmitRequest) { s.Input = []byte(`{"name":"Ada"}`) },
			"another reply":     func(s *engine.SubmitRequest) { s.ReplyTo = "" },
			"another allowance": func(s *engine.SubmitRequest) { s.Allowance.Turns = number(4) },
			"another duration":  func(s *engine.SubmitRequest) { s.Allowance.Seconds = number(4) },
		} {
			_, err := a.Submit(bg, request(change))
			mustKind(t, what, err, engine.KindConflict)
		}
		for what, change := range map[string]func(*engine.SubmitRequest){
			"the border between principal and conversation moved": func(s *engine.SubmitRequest) { s.Principal, s.Conversation = "ab", "c" },
			"the border between conversation and key moved":       func(s *engine.SubmitRequest) { s.Conversation, s.Key = "b", "ck" },
			"another key": func(s *engine.SubmitRequest) { s.Key = "l" },
		} {
			receipt, err := a.Submit(bg, request(change))
			if err != nil || receipt.Duplicate || receipt.Submission == first.Submission {
				t.Errorf("%s: %+v, %v", what, receipt, err)
			}
		}
	})
}

// conformance: RUN-021a, RUN-021b, RUN-021d @embedded @serverless
//
// An allowance is a number or it is nothing: what is not finite leaves the
// policy as it is, and no number, however large, widens it.
func TestAllowanceOfAnyNumber(t *testing.T) {
	for f, want := range map[float64]struct {
		count int
		d     time.Duration
	}{
		math.Inf(1): {10, time.Hour}, math.Inf(-1): {10, time.Hour}, math.NaN(): {10, time.Hour},
		-1e300: {1, time.Second}, -3: {1, time.Second}, 0: {1, time.Second}, 0.5: {1, time.Second}, 1.5: {1, 1500 * time.Millisecond},
		2.9: {2, 2900 * time.Millisecond}, 1e12: {10, time.Hour}, 1e300: {10, time.Hour},
	} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, define(t, agent.Policy{MaxTurns: 10, MaxToolCalls: 10, MaxDuration: time.Hour}), modeltest.Text("done"))
			_, err := r.admitter.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Conversation: "c", Input: []byte(kim),
				Allowance: engine.AllowanceRequest{Turns: &f, ToolCalls: &f, Seconds: &f}})
			if err != nil {
				t.Fatal(err)
			}
			r.work()
			started := r.records(record.KindRunStarted)[0].(record.RunStarted)
			if started.Turns != want.count || started.ToolCalls != want.count || started.Duration != want.d {
				t.Errorf("%g: %d turns, %d calls, %s; want %+v", f, started.Turns, started.ToolCalls, started.Duration, want)
			}
			finite := !math.IsNaN(f) && !math.IsInf(f, 0)
			a := r.records(record.KindSubmissionQueued)[0].(record.SubmissionQueued).Allowance
			if (a.Turns > 0) != finite || (a.ToolCalls > 0) != finite || (a.Duration > 0) != finite || !finite && a != (record.Allowance{}) {
				t.Errorf("%g: recorded as %+v", f, a)
			}
		})
	}
}

// An abort names one submission of its own conversation, or means the one in
// front. A queued one ends at its turn, without ever having started.
func TestAbortFindsItsSubmission(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 0)), modeltest.Text("last"))
		abort := func(conversation, submission string) (string, error) {
			return r.admitter.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: conversation, Submission: submission})
		}
		_, err := abort("c", "")
		mustKind(t, "no such conversation", err, engine.KindNotFound)
		first := r.submit(kim)
		elsewhere, err := r.admitter.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Conversation: "d", Input: []byte(kim)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = abort("c", elsewhere.Submission)
		mustKind(t, "a submission of another conversation", err, engine.KindNotFound)
		_, err = abort("c", "s_nobody")
		mustKind(t, "no such submission", err, engine.KindNotFound)
		if got, err := abort("c", ""); got != first || err != nil { // still in the inbox
			t.Errorf("aborted %q, %v; want the first, %s", got, err, first)
		}
		if got, err := r.admitter.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: "ada", Conversation: "c"}); got != first || err != nil {
			t.Errorf("a second person's abort: %q, %v", got, err)
		}
		second, third, fourth := r.submit(kim), r.submit(kim), r.submit(kim)
		r.once(engine.HandedOver)
		if got, err := abort("c", ""); got != second || err != nil { // in the log, before its turn
			t.Errorf("aborted %q, %v; want the second, %s", got, err, second)
		}
		if got, err := abort("c", third); got != third || err != nil {
			t.Errorf("aborted %q, %v; want the third, %s", got, err, third)
		}
		r.settle()
		r.work()
		for _, id := range []string{first, second, third} {
			must(t, r.progress(id), "aborted", "Aborted")
		}
		if n := len(r.records(record.KindRunStarted)); n != 1 {
			t.Errorf("%d runs started", n)
		}
		if got, err := abort("c", ""); got != fourth || err != nil {
			t.Errorf("aborted %q, %v; want the active one, %s", got, err, fourth)
		}
		r.work()
		must(t, r.progress(fourth), "aborted", "Aborted")
		_, err = abort("c", "")
		mustKind(t, "nothing runs", err, engine.KindSettled)
		r.verify()
	})
}

// Resolve answers a call whose outcome is unknown, and nothing else.
func TestResolveFindsItsCall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		stuck := make(chan struct{})
		deaf := tool.New("deaf", "Does it.", func(context.Context, arg) (string, error) { <-stuck; return "", errors.New("no") }, tool.Timeout(time.Minute))
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval()), deaf), modeltest.Calls(call("pay", 0)), modeltest.Calls(call("deaf", 0)))
		resolve := func(conversation, call string) error {
			return r.admitter.Resolve(bg, engine.ResolveRequest{Tenant: "t", Principal: "op", Conversation: conversation, Call: call,
				Resolution: record.SafeToRetry, Result: []byte(`"unwanted"`)})
		}
		mustKind(t, "no such conversation", resolve("nowhere", "call-1-1"), engine.KindNotFound)
		r.submit(kim)
		r.once(engine.ParkedLane)
		mustKind(t, "a call that waits for a person", resolve("c", "call-1-1"), engine.KindNotFound)
		r.approve(0, true)
		r.once(engine.ParkedLane)
		mustKind(t, "a call of an earlier turn", resolve("c", "call-1-1"), engine.KindNotFound)
		if err := resolve("c", "call-2-1"); err != nil {
			t.Error(err)
		}
		_, entries, err := r.journal.Inbox(bg, r.lane, 2)
		if err != nil || len(entries) != 1 || strings.Contains(string(entries[0].Body), "unwanted") {
			t.Errorf("entries %+v, %v", entries, err)
		}
		close(stuck)
		time.Sleep(time.Second)
	})
}

// Status counts what waits in the log and in the inbox, and says what a run
// waits for only while it does.
func TestStatus(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 0)), modeltest.Text("1"), modeltest.Text("2"), modeltest.Text("3"))
		_, err := r.admitter.Status(bg, r.lane)
		mustKind(t, "a conversation nobody used", err, engine.KindNotFound)
		look := func(what string, queued int, waits string) {
			t.Helper()
			s, err := r.admitter.Status(bg, r.lane)
			got := ""
			if err == nil && s.Active != nil && s.Active.Waits != nil {
				got = s.Active.Waits.Reason
			}
			if err != nil || s.Queued != queued || got != waits {
				t.Errorf("%s: %d queued, waits for %q, %v; want %d and %q", what, s.Queued, got, err, queued, waits)
			}
		}
		first := r.submit(kim)
		look("in the inbox", 1, "")
		second := r.submit(kim)
		r.once(engine.ParkedLane)
		look("one in the log", 1, core.WaitApproval)
		r.submit(kim)
		r.approve(0, true)
		look("one in the log and one in the inbox", 2, "")
		// A run behind one that waits is queued, and not what waits.
		if p := r.progress(first); p.Status != "running" || p.Waits != nil {
			t.Errorf("the first run is %s, waits %+v", p.Status, p.Waits)
		}
		if p := r.progress(second); p.Status != "queued" {
			t.Errorf("the second run is %s", p.Status)
		}
		r.work()
		look("all settled", 0, "")
	})
}

// Await until parked ends when the submission's own run parks, not when the one
// in front of it does; until settled it does not end for a park at all.
func TestAwaitIsAboutItsOwnRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 0)), modeltest.Text("1"), modeltest.Text("2"))
		first, second := r.submit(kim), r.submit(kim)
		r.once(engine.ParkedLane)
		for _, row := range []struct {
			id     string
			until  engine.Until
			status string
			took   time.Duration
		}{
			{first, engine.UntilParked, "parked", 0},
			{first, engine.UntilSettled, "parked", time.Minute},
			{second, engine.UntilParked, "queued", time.Minute},
		} {
			if p, took := r.timed(row.id, row.until); p.Status != row.status || took != row.took {
				t.Errorf("until %s: %s after %s, want %s after %s", row.until, p.Status, took, row.status, row.took)
			}
		}
		time.AfterFunc(30*time.Second, func() { r.approve(0, true); r.work() })
		if p, took := r.timed(second, engine.UntilParked); p.Status != "completed" || took < 30*time.Second || took > 30*time.Second+hearing() {
			t.Errorf("the second run is %s after %s", p.Status, took)
		}
	})
}

// Approvals are one tenant's, oldest first.
func TestApprovalsOfOneTenant(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())))
		for _, lane := range []journal.Lane{{Tenant: "t", Conversation: "z"}, {Tenant: "u", Conversation: "m"}, {Tenant: "t", Conversation: "a"}} {
			r.restartModel(modeltest.Calls(call("pay", 0)))
			_, err := r.admitter.Submit(bg, engine.SubmitRequest{Tenant: lane.Tenant, Principal: "kim", Agent: "a", Conversation: lane.Conversation, Input: []byte(kim)})
			if err == nil {
				_, err = r.attempt.Attempt(bg, lane)
			}
			if err != nil {
				t.Fatal(err)
			}
			// What is asked first is due last: the order is not that of the lanes.
			time.Sleep(time.Minute)
		}
		for tenant, want := range map[string]string{"t": "[z a]", "u": "[m]", "v": "[]"} {
			all, err := r.admitter.Approvals(bg, tenant)
			got := []string{}
			for _, a := range all {
				got = append(got, a.Conversation)
			}
			if err != nil || fmt.Sprint(got) != want {
				t.Errorf("tenant %s: %v, %v; want %s", tenant, got, err, want)
			}
		}
	})
}
