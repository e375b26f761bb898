package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// swapped is an edited journal that also gives out one more payload.
type swapped struct {
	edited
	digest string
	body   []byte
}

func (j swapped) Payload(ctx context.Context, tenant, digest string) ([]byte, error) {
	if digest == j.digest {
		return j.body, nil
	}
	return j.Journal.Payload(ctx, tenant, digest)
}

// conformance: RUN-022e @embedded @serverless
//
// A result that somebody put into the log past the bound, or that is no JSON, is
// found when the run is resumed: a typed error, and nothing is written, asked or
// started behind it. The same log untouched goes on.
func TestResumeHoldsResultsToTheirBound(t *testing.T) {
	hostile := []byte("<html>" + strings.Repeat("x", 200))
	noncanonical := []byte(`{"b":1, "a":2}`)
	aside := func(body []byte, size int) record.Value {
		return record.Value{Aside: &record.Ref{SHA256: record.Digest(body), Size: size}}
	}
	for name, row := range map[string]struct {
		result record.Value
		body   []byte
		failed bool
		bad    bool
	}{
		"untouched":              {record.Value{}, nil, false, false},
		"as large as can be":     {record.TextValue(strings.Repeat("x", 998)), nil, false, false},
		"a byte too large":       {record.TextValue(strings.Repeat("x", 999)), nil, false, true},
		"aside and too large":    {aside(hostile, 1001), hostile, false, true},
		"aside and no JSON":      {aside(hostile, len(hostile)), hostile, false, true},
		"aside, another form":    {aside(noncanonical, len(noncanonical)), noncanonical, false, true},
		"a long failure of ours": {record.TextValue(strings.Repeat("x", 4000)), nil, true, false},
		"an endless failure":     {record.TextValue(strings.Repeat("x", 40000)), nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				r := newRig(t, define(t, agent.Policy{ToolResultBounds: 1000}, handler(c, "look", tool.Readonly()), handler(c, "pay", tool.RequireApproval())),
					modeltest.Calls(call("look", 0)), modeltest.Calls(call("pay", 0)))
				r.submit(kim)
				r.work()
				r.approve(0, true)
				writes := r.journal.Writes()
				r.model = modeltest.Script(modeltest.Text("done"))
				r.assembleOver(swapped{edited{r.journal, t, r.lane, func(rec record.Record) record.Record {
					if s, ok := rec.(record.CallSettled); ok && !row.result.IsZero() {
						s.Result = row.result
						if row.failed {
							s.Outcome = record.Failed
						}
						return s
					}
					return rec
				}}, record.Digest(row.body), row.body})
				_, err := r.attempt.Attempt(bg, r.lane)
				wrote := r.journal.Writes() - writes
				if !row.bad {
					// Nothing can be appended behind a log that was edited; but it was read.
					if errors.Is(err, record.ErrCorrupt) || row.result.IsZero() && err != nil {
						t.Error(err)
					}
					return
				}
				if !errors.Is(err, record.ErrCorrupt) || wrote > 1 { // the claim
					t.Errorf("%v after %d writes", err, wrote)
				}
				if c.of("pay") != 0 || len(r.model.Requests()) != 0 {
					t.Errorf("%d handlers and %d requests", c.of("pay"), len(r.model.Requests()))
				}
			})
		})
	}
}

// A build with another bound goes on with what was recorded under the old one:
// the bound is part of the definition that a run pins.
func TestBoundIsPinned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		with := func(bound int) *agent.Definition {
			return define(t, agent.Policy{ToolResultBounds: bound}, talker(40000), handler(&counter{}, "pay", tool.RequireApproval()))
		}
		if with(0).Engine().Spec.Digest == with(1000).Engine().Spec.Digest {
			t.Error("the bound is not part of the digest")
		}
		r := newRig(t, with(0), modeltest.Calls(call("talk", 0)), modeltest.Calls(call("pay", 0)))
		id := r.submit(kim)
		r.work()
		r.approve(0, true)
		r.restart(with(1000), modeltest.Text("done"))
		r.work()
		must(t, r.progress(id), "completed", "")
		if got := resultOf(r.model.Requests()[0], "talk"); len(got) != 40002 {
			t.Errorf("the result is shown with %d bytes", len(got))
		}
	})
}

// An operator's word about a call is bounded as any result is.
func TestOperatorsResultIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		die := make(chan struct{})
		do := tool.New("talk", "Says a lot.", func(ctx context.Context, _ arg) (string, error) { close(die); <-ctx.Done(); return "", ctx.Err() })
		r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("talk", 0)))
		id := r.submit(kim)
		gone := r.attemptUntil(die)
		r.restart(nil, modeltest.Text("fine"))
		r.work()
		err := r.admitter.Resolve(bg, engine.ResolveRequest{Tenant: "t", Principal: "op", Conversation: "c", Call: "call-1-1", Resolution: record.Happened,
			Result: json.RawMessage(`"` + strings.Repeat("y", 100<<10) + `"`)})
		if err != nil {
			t.Fatal(err)
		}
		r.work()
		must(t, r.progress(id), "completed", "")
		mustBound(t, "the operator's result", resultOf(r.model.Requests()[0], "talk"), 100<<10+2)
		<-gone
	})
}
