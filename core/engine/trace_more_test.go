package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// renamed is a model with an identity of the test's own.
type renamed struct {
	model.Model
	provider, name string
}

func (r renamed) Identity() (provider, name string) { return r.provider, r.name }

// nameless is a model that does not say what it is.
type nameless struct{ model model.Model }

func (n nameless) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	return n.model.Stream(ctx, req, emit)
}

// A model's span says what the provider reported, and leaves out what it did
// not; the provider is spelled as the conventions have it.
func TestSpansOfModels(t *testing.T) {
	count := func(n int64) *int64 { return &n }
	answer := modeltest.Emit(model.Start{Provider: "p", Model: "m-2"}, model.TextDelta{Text: "x"}, model.UsageReport{Usage: record.Usage{
		InputTokens: count(100), CacheReadTokens: count(40), CacheWriteTokens: count(20), OutputTokens: count(9), ReasoningTokens: count(3)}},
		model.Finish{Reason: model.Stop, Raw: "end_turn"})
	for want, m := range map[string]model.Model{
		"chat m-1 aws.bedrock": renamed{modeltest.Script(answer), "bedrock", "m-1"},
		"chat custom custom":   nameless{modeltest.Script(answer)},
	} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, define(t, agent.Policy{}))
			tr := newTraced()
			r.submit(kim)
			mustEnd(t, r.traceWith(tr, r.journal, m), r.lane, engine.HandedOver)
			s := tr.named("chat")[0]
			if got := s.Name + " " + attr(s, "gen_ai.provider.name"); got != want {
				t.Errorf("span %q, want %q", got, want)
			}
			for key, want := range map[string]string{"gen_ai.usage.input_tokens": "100", "gen_ai.usage.cache_read.input_tokens": "40",
				"gen_ai.usage.cache_write.input_tokens": "20", "gen_ai.usage.output_tokens": "9", "gen_ai.usage.reasoning.output_tokens": "3",
				"gen_ai.response.model": "m-2", "gen_ai.response.finish_reasons": `["stop"]`} {
				if got := attr(s, key); got != want {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
			for _, a := range s.Attributes {
				if a.Key == "gen_ai.response.id" {
					t.Errorf("a response id from nowhere: %s", a.Value.String())
				}
			}
		})
	}
}

// A probe has a span, and what it could say; a model adapter that panics is a
// defect; a handler that is not entered says so and is no failure.
func TestSpansOfRareEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tr := newTraced()
		pay := tool.New("pay", "Pays.", func(ctx context.Context, _ arg) (string, error) { <-ctx.Done(); return "", ctx.Err() }, tool.Timeout(time.Second),
			tool.Reconcile(func(context.Context, arg) (string, tool.Resolution, error) { return "paid", tool.Happened, nil }))
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		id := r.submit(kim)
		mustEnd(t, r.trace(tr, r.journal, 0), r.lane, engine.HandedOver)
		must(t, r.settled(id), "completed", "")
		if probes := tr.named("reconcile pay"); len(probes) != 1 || attr(probes[0], "layover.tool.resolution") != "happened" || attr(probes[0], "gen_ai.tool.call.id") != "call-1-1" {
			t.Errorf("probes %v", probes)
		}
	})
	inBubble(t, func(t *testing.T) {
		tr := newTraced()
		r := newRig(t, define(t, agent.Policy{}))
		r.submit(kim)
		mustEnd(t, r.traceWith(tr, r.journal, nameless{}), r.lane, engine.HandedOver) // calls a nil model
		if s := tr.named("chat"); len(s) != 1 || attr(s[0], "error.type") != "Defect" {
			t.Errorf("spans %v", s)
		}
	})
	inBubble(t, func(t *testing.T) {
		tr := newTraced()
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.Timeout(time.Second))), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		r.submit(kim)
		n := 0
		slow := &faulty{Journal: r.journal, beforeApp: func(record.Sealed) {
			if n++; n == 2 {
				time.Sleep(29 * time.Second) // the store is slow with callPrepared
			}
		}}
		_, _ = r.trace(tr, slow, 30*time.Second).Attempt(bg, r.lane)
		s := tr.named("execute_tool")
		if len(s) != 1 || c.of("pay") != 0 || attr(s[0], "layover.tool.not_entered") != "true" || attr(s[0], "error.type") != "" {
			t.Errorf("the handler ran %d times; spans %v", c.of("pay"), s)
		}
	})
}

// A store that goes away ends a tool's effect before its handler, and the
// attempt with it: both show.
func TestSpansWithoutStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tr := newTraced()
		look := tool.New("look", "Looks.", func(ctx context.Context, _ input) (string, error) { <-ctx.Done(); return "", ctx.Err() }, tool.Readonly())
		r := newRig(t, define(t, agent.Policy{}, look), modeltest.Calls(modeltest.Call{ID: "call-1-1", Tool: "look", Args: input{strings.Repeat("k", 300<<10)}}))
		r.submit(kim)
		over := r.attemptUntil(after(time.Second))
		_ = r.journal.Close()
		<-over
		r.reopen()
		away := &faulty{Journal: r.journal, payloadErr: func() error { return errors.New("away") }}
		if _, err := r.trace(tr, away, 0).Attempt(bg, r.lane); err == nil {
			t.Fatal("the attempt did not die")
		}
		tools, attempts := tr.named("execute_tool"), tr.named("invoke_agent")
		if len(tools) != 1 || attr(tools[0], "error.type") != "unavailable" {
			t.Errorf("tools %v", tools)
		}
		if len(attempts) != 1 || attr(attempts[0], "layover.attempt.ended") != "died" || attr(attempts[0], "error.type") == "" {
			t.Errorf("attempts %v", attempts)
		}
	})
}

func after(d time.Duration) <-chan struct{} {
	ch := make(chan struct{})
	time.AfterFunc(d, func() { close(ch) })
	return ch
}

// An attempt's span begins with its claim, ends with it, and says nothing of an
// earlier run of its conversation.
func TestSpansOfALaterRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}, handler(&counter{}, "pay", tool.RequireApproval())), modeltest.Text("first"), modeltest.Calls(call("pay", 0)))
		must(t, r.run(kim), "completed", "")
		tr := newTraced()
		id := r.submit(kim)
		slow := &faulty{Journal: r.journal, readErr: func() error { time.Sleep(2 * time.Second); return nil }}
		mustEnd(t, r.trace(tr, slow, 0), r.lane, engine.ParkedLane)
		s := tr.named("invoke_agent")
		if len(s) != 1 || attr(s[0], "layover.run.id") != id || attr(s[0], "layover.run.status") != "" || s[0].EndTime.Sub(s[0].StartTime) < 2*time.Second {
			t.Errorf("spans %v", s)
		}
	})
}
