package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/tool"
)

// traced is what was exported.
type traced struct {
	exporter *tracetest.InMemoryExporter
	provider *sdk.TracerProvider
}

func newTraced() *traced {
	exporter := tracetest.NewInMemoryExporter()
	return &traced{exporter: exporter, provider: sdk.NewTracerProvider(sdk.WithSyncer(exporter))}
}

// trace gives the rig's next attempts a tracer, over any journal.
func (r *rig) trace(tr *traced, j journal.Journal, timeout time.Duration) *engine.Attempter {
	r.t.Helper()
	return r.traced(tr, engine.Config{Journal: j, AttemptTimeout: timeout}, r.model)
}

// traceWith is trace with a model of the test's own.
func (r *rig) traceWith(tr *traced, j journal.Journal, m model.Model) *engine.Attempter {
	r.t.Helper()
	return r.traced(tr, engine.Config{Journal: j}, m)
}

func (r *rig) traced(tr *traced, cfg engine.Config, m model.Model) *engine.Attempter {
	r.t.Helper()
	cfg.Queue, cfg.Boot, cfg.Log, cfg.Tracing = memqueue.New(), r.journal.Boot(), slog.New(slog.NewTextHandler(io.Discard, nil)), tr.provider
	a, err := engine.NewAttempter(cfg, r.registry(m))
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// settled settles by hand and tells how the run ended.
func (r *rig) settled(id string) engine.Progress {
	r.t.Helper()
	if _, err := r.settler.Settle(bg, r.lane); err != nil {
		r.t.Fatal(err)
	}
	return r.progress(id)
}

// tree renders the exported spans: each under its parent, with its attributes
// but those every span of its attempt has.
func (tr *traced) tree(t *testing.T, run string) string {
	t.Helper()
	spans := tr.exporter.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int {
		if c := a.StartTime.Compare(b.StartTime); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	root := engine.RunTrace(run)
	var out strings.Builder
	var under func(parent oteltrace.SpanID, indent string)
	under = func(parent oteltrace.SpanID, indent string) {
		for _, s := range spans {
			if s.Parent.SpanID() != parent {
				continue
			}
			if s.SpanContext.TraceID() != root.TraceID() {
				t.Errorf("%s is in trace %s, want that of the run", s.Name, s.SpanContext.TraceID())
			}
			fmt.Fprintf(&out, "%s%s (%s) %s %s\n", indent, s.Name, s.SpanKind, s.Status.Code, s.EndTime.Sub(s.StartTime))
			if s.Status.Description != "" || len(s.Events) > 0 {
				t.Errorf("%s carries a text: %q %v", s.Name, s.Status.Description, s.Events)
			}
			slices.SortFunc(s.Attributes, func(a, b attribute.KeyValue) int { return strings.Compare(string(a.Key), string(b.Key)) })
			for _, a := range s.Attributes {
				switch a.Key {
				case "layover.run.id", "gen_ai.conversation.id", "gen_ai.agent.name", "layover.attempt.id":
					continue // held by common
				}
				fmt.Fprintf(&out, "%s    %s=%s\n", indent, a.Key, a.Value.String())
			}
			under(s.SpanContext.SpanID(), indent+"  ")
		}
	}
	under(root.SpanID(), "")
	return out.String()
}

// named lists spans by name.
func (tr *traced) named(prefix string) (out []tracetest.SpanStub) {
	for _, s := range tr.exporter.GetSpans() {
		if strings.HasPrefix(s.Name, prefix) {
			out = append(out, s)
		}
	}
	return out
}

func attr(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

var update = flag.Bool("update", false, "rewrite the golden files of this package")

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("not as in %s (-want +got):\n%s", file, diff)
	}
}

// A run over two attempts is one trace: an attempt each, under it what was
// executed, with the names of the GenAI conventions, and every execution once
// although the second attempt folds what the first one did.
func TestSpansOfARun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		d := define(t, agent.Policy{}, handler(c, "look", tool.Readonly()), handler(c, "pay", tool.RequireApproval()))
		r := newRig(t, d, modeltest.Calls(call("look", 3)), modeltest.Calls(call("pay", 1)), modeltest.Text("paid"))
		tr := newTraced()
		id := r.submit(kim)
		mustEnd(t, r.trace(tr, r.journal, 0), r.lane, engine.ParkedLane)
		time.Sleep(time.Hour)
		script := r.model
		r.reopen()
		r.model = script
		r.assemble()
		r.approve(0, true)
		mustEnd(t, r.trace(tr, r.journal, 0), r.lane, engine.HandedOver)
		golden(t, "spans_run.txt", tr.tree(t, id))
		for _, s := range tr.exporter.GetSpans() {
			if attr(s, "layover.run.id") != id || attr(s, "gen_ai.conversation.id") != "c" || attr(s, "gen_ai.agent.name") != "a" || attr(s, "layover.attempt.id") == "" {
				t.Errorf("%s does not say whose it is: %v", s.Name, s.Attributes)
			}
		}
	})
}

func mustEnd(t *testing.T, a *engine.Attempter, lane journal.Lane, want engine.Ended) {
	t.Helper()
	if ended, err := a.Attempt(bg, lane); err != nil || ended != want {
		t.Fatalf("the attempt %s, %v; want %s", ended, err, want)
	}
}

// What fails says of which kind, and nothing else.
func TestSpansOfFailures(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tools := []*tool.Tool{
			tool.New("refuses", "Refuses.", func(context.Context, arg) (string, error) {
				return "", tool.Failf("no-funds", "canary")
			}),
			tool.New("fails", "Fails.", func(context.Context, arg) (string, error) { return "", errors.New("canary") }),
			tool.New("hangs", "Hangs.", func(ctx context.Context, _ arg) (string, error) { <-ctx.Done(); return "", ctx.Err() }, tool.Timeout(time.Second), tool.Readonly()),
		}
		r := newRig(t, define(t, agent.Policy{RepeatedFailureLimit: agent.Disabled}, tools...),
			modeltest.Calls(call("refuses", 0), call("fails", 0), call("hangs", 0)),
			modeltest.Fail(&model.Error{Class: model.Refused, Message: "canary"}))
		tr := newTraced()
		id := r.submit(kim)
		mustEnd(t, r.trace(tr, r.journal, 0), r.lane, engine.HandedOver)
		got := tr.tree(t, id)

		panics := tool.New("panics", "Panics.", func(context.Context, arg) (string, error) { panic("canary") }, tool.Readonly())
		r = newRig(t, define(t, agent.Policy{}, panics), modeltest.Calls(call("panics", 0)))
		id = r.submit(kim)
		mustEnd(t, r.trace(tr, r.journal, 0), r.lane, engine.HandedOver)
		golden(t, "spans_failures.txt", got+tr.tree(t, id))
	})
}

// An attempt that dies says so; one that takes over shows what it executes
// again as executions of its own.
func TestSpansOfADeath(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "look", tool.Readonly())), modeltest.Calls(call("look", 5)), modeltest.Text("seen"))
		tr := newTraced()
		id := r.submit(kim)
		died := make(chan error)
		go func() { _, err := r.trace(tr, r.journal, 0).Attempt(bg, r.lane); died <- err }()
		time.Sleep(time.Second)
		_ = r.journal.Close()
		if err := <-died; err == nil {
			t.Fatal("the attempt did not die")
		}
		script := r.model
		r.reopen()
		r.model = script
		mustEnd(t, r.trace(tr, r.journal, 0), r.lane, engine.HandedOver)
		golden(t, "spans_death.txt", tr.tree(t, id))
		if calls := tr.named("execute_tool"); len(calls) != 2 || attr(calls[0], "layover.attempt.id") == attr(calls[1], "layover.attempt.id") {
			t.Errorf("the tool ran %d times and has %d spans", c.of("look"), len(calls))
		}
		if n := len(tr.named("chat")); n != 2 {
			t.Errorf("the model was asked twice, and %d spans say so", n)
		}
	})
}

// Spans of code that a handler calls are its children; the attempt is linked
// to what invoked it; an attempt without work leaves nothing.
func TestSpansOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tr := newTraced()
		mine := tr.provider.Tracer("mine")
		look := tool.New("look", "Looks.", func(ctx context.Context, _ arg) (string, error) {
			_, span := mine.Start(ctx, "query")
			defer span.End()
			return "seen", nil
		}, tool.Readonly())
		reader, err := agent.Define[input, string]("a", agent.Config[input]{Tools: []*tool.Tool{look},
			Instructions: func(ctx context.Context, _ input) (string, error) {
				_, span := mine.Start(ctx, "instructions")
				defer span.End()
				return "Look.", nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, reader, modeltest.Calls(call("look", 0)), modeltest.Text("ok"))
		attempt := r.trace(tr, r.journal, 0)
		mustEnd(t, attempt, r.lane, engine.NotClaimed)
		r.submit(kim)
		ctx, invocation := mine.Start(bg, "invocation")
		if ended, err := attempt.Attempt(ctx, r.lane); err != nil || ended != engine.HandedOver {
			t.Fatalf("%s, %v", ended, err)
		}
		invocation.End()
		attempts, tools, queries := tr.named("invoke_agent"), tr.named("execute_tool"), tr.named("query")
		if len(attempts) != 1 || len(tools) != 1 || len(queries) != 1 {
			t.Fatalf("%d attempts, %d tools, %d queries", len(attempts), len(tools), len(queries))
		}
		if queries[0].Parent.SpanID() != tools[0].SpanContext.SpanID() {
			t.Error("the handler's own span is not under the tool's")
		}
		if own := tr.named("instructions"); len(own) != 1 || own[0].Parent.SpanID() != attempts[0].SpanContext.SpanID() {
			t.Error("the span of the instructions is not under the attempt's")
		}
		if len(attempts[0].Links) != 1 || attempts[0].Links[0].SpanContext.SpanID() != invocation.SpanContext().SpanID() {
			t.Errorf("the attempt is linked to %v, want its invocation", attempts[0].Links)
		}
	})
}

// Runs have different traces, and one run has the same everywhere.
func TestSpansOneTrace(t *testing.T) {
	a, b := engine.RunTrace("run-a"), engine.RunTrace("run-b")
	if !a.IsValid() || !a.IsRemote() || !a.IsSampled() || a.TraceID() == b.TraceID() || a.SpanID() == b.SpanID() {
		t.Errorf("%v, %v", a, b)
	}
	if got := a.TraceID().String(); got != "c1b59bec0ce5aca93e6fbd6b24f86902" {
		t.Errorf("the trace of run-a is %s; an upgrade would tear running traces apart", got)
	}
}
