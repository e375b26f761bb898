package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/engine/enginetest"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

func opened(t *testing.T, dir string, c embedded.Config) *embedded.Runtime {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	rt, err := embedded.Open(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// canonical reads a conversation's recorded events to the end of its log.
func canonical(t *testing.T, rt building, conversation string) (out []string) {
	t.Helper()
	for n, err := range rt.Events(t.Context(), "", conversation, engine.EventsOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprint(n.Ordinal, " ", n.Event.Sequence, " ", n.Event.Data.Kind()))
	}
	return out
}

// conformance: RUN-010, RUN-002c, BP-03, BP-12 @embedded @serverless
//
// A reader that stalls, one that is cancelled and one that comes late: none of
// them has a say in the run, and whoever reads on sees all of it with its end.
func TestReadersAreApart(t *testing.T) {
	h := buildOn(t, embedded.Config{}, enginetest.ReferenceAgent(), enginetest.Instant{})
	rt, id := h.rt, h.submit("k")
	release, stalled := make(chan struct{}), make(chan []string)
	go func() {
		var seen []string
		for n, err := range rt.Events(context.Background(), "", "c", engine.EventsOptions{Follow: true, Live: true}) {
			<-release
			if err != nil {
				t.Error(err)
			}
			if n.Event.Provisional {
				continue
			}
			seen = append(seen, fmt.Sprint(n.Ordinal, " ", n.Event.Sequence, " ", n.Event.Data.Kind()))
			if n.Event.Data.Kind() == event.KindRunCompleted {
				break
			}
		}
		stalled <- seen
	}()
	cancelled, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, err := range rt.Events(cancelled, "", "c", engine.EventsOptions{Follow: true}) {
		cancel() // that is all this one sees
		if err != nil {
			t.Error(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	if p, err := rt.Await(ctx, "", id, engine.UntilSettled); err != nil || p.Status != "completed" {
		t.Fatalf("%+v, %v", p, err)
	}
	late := canonical(t, rt, "c")
	close(release)
	if seen := <-stalled; !slices.Equal(seen, late) || len(late) != 14 {
		t.Errorf("the stalled one saw %v, the late one %v", seen, late)
	}
}

// conformance: LIFE-04, EV-03 @embedded @serverless
//
// A run that waits across a restart keeps the definition it began with, and its
// events go on counting where they were.
func TestPinnedDefinition(t *testing.T) {
	version := func(v string) *agent.Definition {
		pay := tool.New("pay", "Pays.", func(context.Context, lookIn) (lookOut, error) { return lookOut{4900}, nil }, tool.RequireApproval())
		return agent.MustDefine[lookIn, string]("payer", agent.Config[lookIn]{Version: v, Instructions: agent.Text[lookIn]("Pay. " + v), Tools: []*tool.Tool{pay}})
	}
	first := version("1")
	h := build(t, embedded.Config{}, first, modeltest.Calls(modeltest.Call{Tool: "pay", Args: lookIn{"A-1"}}))
	id := h.submit("k")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if p, err := h.rt.Await(ctx, "", id, engine.UntilParked); err != nil || p.Status != "parked" {
		t.Fatalf("%+v, %v", p, err)
	}
	closing(t, h.rt)

	h.def = version("2")
	h.open(modeltest.Text("paid"))
	rt := h.rt
	asked, err := rt.Approvals(ctx, "")
	if err != nil || len(asked) != 1 {
		t.Fatalf("%+v, %v", asked, err)
	}
	if _, err := rt.Decide(ctx, engine.DecisionRequest{Principal: "ada", Approval: asked[0].ID, Approve: true}); err != nil {
		t.Fatal(err)
	}
	if p, err := rt.Await(ctx, "", id, engine.UntilSettled); err != nil || p.Status != "completed" {
		t.Fatalf("%+v, %v", p, err)
	}
	result, err := engine.Fold(func(yield func(event.Event, error) bool) {
		var last uint64
		for n, err := range rt.Events(ctx, "", "c", engine.EventsOptions{}) {
			if last++; n.Event.Sequence != last {
				t.Errorf("%s has number %d, want %d", n.Event.Data.Kind(), n.Event.Sequence, last)
			}
			if !yield(n.Event, err) {
				return
			}
		}
	})
	if err != nil || result.Definition != first.Engine().Facts.Digest || result.Attempts != 2 {
		t.Errorf("%+v, %v", result, err)
	}
}

// conformance: RUN-002a, RUN-002b, LIFE-03, INT-05 @embedded @serverless
//
// Aborts, deadlines and answers that come together, in many conversations at
// once: each run settles once, what one suffers no other feels, and none that
// was aborted in time completes.
func TestRunsSettleOnce(t *testing.T) {
	answer := tool.New("wait", "Waits.", func(ctx context.Context, in lookIn) (string, error) {
		d, err := time.ParseDuration(in.Order)
		if err != nil {
			return "", err
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return "", ctx.Err()
		}
		return "waited " + in.Order, nil
	}, tool.Readonly())
	def := agent.MustDefine[lookIn, string]("waiter", agent.Config[lookIn]{Instructions: agent.Text[lookIn]("Wait."), Tools: []*tool.Tool{answer}})
	h := buildOn(t, embedded.Config{}, def, waiting{})
	rt, second, conversations := h.rt, 1.0, 40
	if dynamoDB != nil {
		conversations = 12 // two at a time
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var runs sync.WaitGroup
	endings := sync.Map{}
	for i := range conversations {
		runs.Add(1)
		go func() {
			defer runs.Done()
			c := fmt.Sprint("c", i)
			wait := time.Second + time.Duration(i%5-2)*5*time.Millisecond // around the deadline and the abort
			receipt, err := rt.Submit(ctx, engine.SubmitRequest{Agent: "waiter", Conversation: c, Input: fmt.Appendf(nil, `{"order":%q}`, wait),
				Allowance: engine.AllowanceRequest{Seconds: &second}})
			if err != nil {
				t.Error(err)
				return
			}
			if i%4 == 0 {
				time.Sleep(time.Second - 20*time.Millisecond + time.Duration(i)*time.Millisecond)
				if _, err := rt.RequestAbort(ctx, engine.AbortRequest{Conversation: c, Submission: receipt.Submission}); err != nil {
					var refused *engine.Error
					if !errors.As(err, &refused) || refused.Kind != engine.KindSettled {
						t.Error(err)
					}
				}
			}
			p, err := rt.Await(ctx, "", receipt.Submission, engine.UntilSettled)
			if err != nil {
				t.Error(err)
				return
			}
			endings.Store(p.Status, true)
			if p.Status == "completed" && string(p.Output) != fmt.Sprintf("%q", "waited "+wait.String()) {
				t.Errorf("%s ends with the output %s", c, p.Output)
			}
			oneEnd(t, rt, c)
		}()
	}
	runs.Wait()
	if _, failed := endings.Load("failed"); !failed {
		t.Error("no deadline ever passed")
	}
}

// oneEnd holds a conversation of one run to one end, which is last.
func oneEnd(t *testing.T, rt building, conversation string) {
	t.Helper()
	ends, last := 0, event.Kind("")
	for n, err := range rt.Events(t.Context(), "", conversation, engine.EventsOptions{}) {
		if err != nil {
			t.Error(err)
			return
		}
		switch last = n.Event.Data.Kind(); last {
		case event.KindRunCompleted, event.KindRunFailed, event.KindRunInterrupted:
			ends++
		}
	}
	if ends != 1 || !slices.Contains([]event.Kind{event.KindRunCompleted, event.KindRunFailed, event.KindRunInterrupted}, last) {
		t.Errorf("%s has %d ends and ends with %s", conversation, ends, last)
	}
}

// waiting calls the tool with the order of the input, and then says its result.
type waiting struct{}

func (waiting) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	last := req.Messages[len(req.Messages)-1]
	parts := []model.Part{model.Start{Provider: "test", Model: "waiting"}}
	if text, failed, ok := resultOf(last); ok && !failed {
		parts = append(parts, model.TextDelta{Text: text}, model.Finish{Reason: model.Stop})
	} else {
		parts = append(parts, model.ToolCallStart{ID: "c1", Tool: "wait"}, model.ToolArgsDelta{JSON: inputOf(req)}, model.ToolCallEnd{}, model.Finish{Reason: model.ToolCalls})
	}
	for _, p := range parts {
		if err := emit(p); err != nil {
			return err
		}
	}
	return nil
}

// conformance: BP-05, BP-07, BP-09 @embedded @serverless
//
// Limits of the configuration hold on SQLite as they do in memory, and only
// tighten.
func TestEmbeddedLimits(t *testing.T) {
	for name, row := range map[string]struct {
		limits engine.BufferLimits
		kind   string
	}{
		"none":       {engine.BufferLimits{}, ""},
		"wider":      {engine.BufferLimits{ResponseParts: 1e9, ResponseBytes: 1e12, RunEvents: 1e9}, ""},
		"few parts":  {engine.BufferLimits{ResponseParts: 4}, core.ModelProtocolError},
		"few events": {engine.BufferLimits{RunEvents: 6}, core.ModelProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := buildOn(t, embedded.Config{Limits: row.limits}, enginetest.ReferenceAgent(), enginetest.Instant{})
			p := h.await(h.submit("k"), engine.UntilSettled)
			got := ""
			if p.Outcome.Error != nil {
				got = p.Outcome.Error.Kind
			}
			if got != row.kind {
				t.Errorf("%s: %+v", p.Status, p.Outcome.Error)
			}
		})
	}
}

// conformance: RUN-007 @embedded
//
// What a runtime and its runs started is gone with them.
func TestNoGoroutinesAreLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	rt := opened(t, t.TempDir(), embedded.Config{Agents: []*agent.Definition{enginetest.ReferenceAgent()}, Model: enginetest.Instant{}})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 5 {
		r, err := rt.Submit(ctx, engine.SubmitRequest{Agent: "reference", Input: []byte(`{"order":"A-1001"}`)})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := rt.Await(ctx, "local", r.Submission, engine.UntilSettled); err != nil || p.Status != "completed" {
			t.Fatal(p, err)
		}
	}
	closing(t, rt)
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
		runtime.Gosched()
	}
}

// resultOf is the text of a message's tool result.
func resultOf(m record.Message) (text string, failed, ok bool) {
	for _, p := range m.Parts {
		if r, is := p.(record.ToolResultPart); is {
			return r.Result.Text(), r.Failed, true
		}
	}
	return "", false, false
}

// inputOf is the run's input, as the last user message shows it.
func inputOf(req *model.Request) string {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		if m := req.Messages[i]; m.Role == record.User {
			for _, p := range m.Parts {
				if text, is := p.(record.TextPart); is {
					return text.Text.Text()
				}
			}
		}
	}
	return "{}"
}
