package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// talker is a tool that answers with so many bytes.
func talker(size int, opts ...tool.Option) *tool.Tool {
	return tool.New("talk", "Says a lot.", func(context.Context, arg) (string, error) { return strings.Repeat("y", size), nil }, opts...)
}

// envelope is what a result over the bound becomes.
type envelope struct {
	Bytes     int    `json:"bytes"`
	Head      string `json:"head"`
	Tail      string `json:"tail"`
	Truncated bool   `json:"truncated"`
}

func mustBound(t *testing.T, what string, result json.RawMessage, original int) {
	t.Helper()
	var e envelope
	if err := json.Unmarshal(result, &e); err != nil || !e.Truncated || e.Bytes != original || len(result) > 51200 || len(result) < 50000 {
		t.Errorf("%s: %d bytes, %+.100v, %v", what, len(result), e, err)
	}
}

// resultOf is the result of a tool as a request shows it.
func resultOf(req *model.Request, name string) json.RawMessage {
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			if r, ok := p.(record.ToolResultPart); ok && r.Tool == name {
				return r.Result.Inline
			}
		}
	}
	return nil
}

// conformance: RUN-022a, RUN-022b @embedded @serverless
// failure: A11
//
// A result of any size is a result: up to the bound it reaches the model whole,
// above it its beginning and end do, and the record keeps the original size.
func TestResultsAreBounded(t *testing.T) {
	for size, bounded := range map[int]bool{51198: false, 51199: true, 300 << 10: true} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, define(t, agent.Policy{}, talker(size)), modeltest.Calls(call("talk", 0)), modeltest.Text("done"))
			must(t, r.run(kim), "completed", "")
			shown, settled := resultOf(r.model.Requests()[1], "talk"), r.records(record.KindCallSettled)[0].(record.CallSettled)
			if !bounded {
				if len(shown) != size+2 || settled.Truncated != 0 {
					t.Errorf("%d bytes came as %d, truncated %d", size, len(shown), settled.Truncated)
				}
				return
			}
			mustBound(t, "the model", shown, size+2)
			if settled.Truncated != size+2 || settled.Result.Digest() != record.Digest(shown) {
				t.Errorf("recorded %d bytes of %d", settled.Result.Size(), settled.Truncated)
			}
			r.verify()
		})
	}
}

// What a probe found, and what a handler brings when nobody waits for it any
// more, are bounded like any result.
func TestEvidenceIsBounded(t *testing.T) {
	const size = 100 << 10
	t.Run("of a probe", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			die := make(chan struct{})
			do := tool.New("talk", "Says a lot.", func(ctx context.Context, _ arg) (string, error) {
				close(die)
				<-ctx.Done()
				return "", ctx.Err()
			}, tool.Reconcile[arg, string](func(context.Context, arg) (string, record.Resolution, error) {
				return strings.Repeat("y", size), record.Happened, nil
			}))
			r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("talk", 0)))
			id := r.submit(kim)
			gone := r.attemptUntil(die)
			r.restart(nil, modeltest.Text("fine"))
			r.work()
			must(t, r.progress(id), "completed", "")
			mustBound(t, "the probe's result", resultOf(r.model.Requests()[0], "talk"), size+2)
			<-gone
		})
	})
	t.Run("of a handler that came late", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			stuck := make(chan struct{})
			do := tool.New("talk", "Says a lot.", func(context.Context, arg) (string, error) { <-stuck; return strings.Repeat("y", size), nil }, tool.Timeout(time.Minute))
			r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("talk", 0)), modeltest.Text("fine"))
			id := r.submit(kim)
			r.once(engine.ParkedLane)
			close(stuck)
			time.Sleep(time.Second)
			r.work()
			must(t, r.progress(id), "completed", "")
			mustBound(t, "the late result", resultOf(r.model.Requests()[1], "talk"), size+2)
		})
	})
}

// A resumed run's request is the one it would have been: results and answers
// that went aside are shown whole, the output's schema is there in every
// request, and the history it is made from keeps its input as a reference.
func TestResumedRequestIsWhole(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		type out struct {
			Total int `json:"total"`
		}
		big := strings.Repeat("z", 40<<10)
		def, err := agent.Define[input, out]("a", agent.Config[input]{
			Instructions: agent.Text[input]("Help."),
			Tools: []*tool.Tool{talker(45<<10, tool.Readonly()), tool.New("pay", "Pays.",
				func(context.Context, struct {
					Note string `json:"note"`
				}) (string, error) {
					return "paid", nil
				}, tool.RequireApproval())},
		})
		if err != nil {
			t.Fatal(err)
		}
		start := model.Start{Provider: "p", Model: "m"}
		asks := modeltest.Emit(start, model.TextDelta{Index: 0, Text: "I say " + big},
			model.ToolCallStart{Index: 1, ID: "c1", Tool: "talk"}, model.ToolArgsDelta{Index: 1, JSON: `{"n":0}`}, model.ToolCallEnd{Index: 1},
			model.Finish{Reason: model.ToolCalls})
		pays := modeltest.Calls(modeltest.Call{Tool: "pay", Args: `{"note":"` + big + `"}`})
		r := newRig(t, def, asks, pays)
		id := r.submit(`{"name":"` + big + `"}`)
		r.once(engine.ParkedLane)
		before := r.model.Requests()[1]
		r.restart(nil, modeltest.Text(`{"total":7}`))
		all, err := r.admitter.Approvals(bg, "t")
		if err != nil || len(all) != 1 || !strings.Contains(string(all[0].Args), big) {
			t.Errorf("the person is shown %d approvals, not the whole arguments: %v", len(all), err)
		}
		r.approve(0, true)
		r.work()
		must(t, r.progress(id), "completed", "")
		after := r.model.Requests()[0]
		if len(resultOf(after, "talk")) != 45<<10+2 || strings.Count(said(after), big) != 3 {
			t.Errorf("of three large texts the resumed request shows %d, and %d bytes of the result", strings.Count(said(after), big), len(resultOf(after, "talk")))
		}
		if !strings.HasPrefix(said(after), said(before)) {
			t.Error("the resumed request does not begin as the one before it")
		}
		for i, req := range []*model.Request{before, after} {
			if !strings.Contains(string(req.Output), `"total"`) {
				t.Errorf("request %d asks for output %s", i, req.Output)
			}
		}
		r.verify()
	})
}

// Commands of any size arrive whole: what does not fit an inbox entry is stored
// aside before the entry refers to it.
func TestLargeCommands(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		id := r.submit(kim)
		r.work()
		all, err := r.admitter.Approvals(bg, "t")
		if err != nil {
			t.Fatal(err)
		}
		reason := strings.Repeat("because ", 512)
		req := engine.DecisionRequest{Tenant: "t", Principal: "kim", Approval: all[0].ID, Reason: reason + "."}
		var e *engine.Error
		if _, err := r.admitter.Decide(bg, req); !errors.As(err, &e) || e.Kind != engine.KindInvalid {
			t.Errorf("a reason of %d bytes: %v", len(req.Reason), err)
		}
		req.Reason = reason
		if _, err := r.admitter.Decide(bg, req); err != nil {
			t.Fatal(err)
		}
		_, entries, err := r.journal.Inbox(bg, r.lane, 1)
		if err != nil || len(entries) != 1 || len(entries[0].Body) > journal.EntryLimit || entries[0].Ref == "" {
			t.Errorf("the entries are %+v, %v", entries, err)
		}
		r.work()
		must(t, r.progress(id), "completed", "")
		resolved := r.records(record.KindApprovalResolved)[0].(record.ApprovalResolved)
		if resolved.Reason != reason || resolved.Decision != record.Denied || !strings.Contains(said(r.model.Requests()[1]), reason) {
			t.Errorf("recorded %s with a reason of %d bytes", resolved.Decision, len(resolved.Reason))
		}
	})
}

// An operator's large result reaches the model as it was given, once; what is
// about another run's call has no effect.
func TestLargeResolution(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		stuck := make(chan struct{})
		do := tool.New("do", "Does it.", func(context.Context, arg) (string, error) { <-stuck; return "", errors.New("no") }, tool.Timeout(time.Minute))
		r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("do", 0)), modeltest.Text("done"))
		id := r.submit(kim)
		r.once(engine.ParkedLane)
		forged := journal.Entry{Kind: journal.EntryResolve, Key: "forged", Digest: "d", By: "x", At: time.Now(),
			Body: []byte(`{"call":"call-1-1","resolution":"happened","result":"forged","run":"s_another"}`)}
		if _, err := r.journal.Signal(bg, r.lane, forged, 0, time.Now(), time.Second); err != nil {
			t.Fatal(err)
		}
		r.work()
		result := `{"items":["` + strings.Repeat("w", 6<<10) + `"]}`
		err := r.admitter.Resolve(bg, engine.ResolveRequest{Tenant: "t", Principal: "op", Conversation: "c", Call: "call-1-1", Resolution: record.Happened,
			Result: json.RawMessage(result), Reason: "looked it up"})
		if err != nil {
			t.Fatal(err)
		}
		_, entries, err := r.journal.Inbox(bg, r.lane, 2)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%d entries, %v", len(entries), err)
		}
		body, err := r.journal.Payload(bg, "t", entries[0].Ref)
		if err != nil || !strings.Contains(string(body), `"run":"`+id+`"`) {
			t.Errorf("the entry does not name its run: %.80s, %v", body, err)
		}
		r.work()
		must(t, r.progress(id), "completed", "")
		if got := string(resultOf(r.model.Requests()[1], "do")); got != result {
			t.Errorf("the model is shown %.60s", got)
		}
		resolved := r.records(record.KindCallResolved)
		if len(resolved) != 1 || resolved[0].(record.CallResolved).Reason != "looked it up" || resolved[0].(record.CallResolved).By != "op" {
			t.Errorf("recorded %+v", resolved)
		}
		close(stuck)
		time.Sleep(time.Second)
		r.verify()
	})
}
