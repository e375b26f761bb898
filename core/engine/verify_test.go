package engine_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// settledTwice is a conversation of two completed runs.
func settledTwice(r *rig) {
	r.submit(kim)
	r.submit(kim)
	r.work()
}

// waiting is a conversation whose run waits for a person.
func waiting(r *rig) {
	r.restartModel(modeltest.Calls(call("pay", 0)))
	r.submit(kim)
	r.work()
}

// unsettled is a conversation whose second outcome is not handed over.
func unsettled(r *rig) {
	r.submit(kim)
	r.once(engine.HandedOver)
	r.settle()
	r.submit(kim)
	r.once(engine.HandedOver)
}

// lost is a journal that has no rows of these submissions.
type lost struct {
	*hooked
	gone func(id string) bool
}

func (j lost) Submission(ctx context.Context, tenant, id string) (journal.Submission, error) {
	if j.gone(id) {
		return journal.Submission{}, journal.ErrNotFound
	}
	return j.hooked.Submission(ctx, tenant, id)
}

// emptied is a journal that lost its log.
type emptied struct{ *hooked }

func (emptied) Read(context.Context, journal.Lane, uint64) iter.Seq2[record.Sealed, error] {
	return func(func(record.Sealed, error) bool) {}
}

// What a store keeps beside the log has to follow from it: each row is one way
// in which a head or a ledger row does not, and what verify says about it.
func TestVerifyLedger(t *testing.T) {
	idle := func(h *journal.Head, _ *[]journal.Entry) { h.State, h.Due = journal.Idle, time.Time{} }
	for name, row := range map[string]struct {
		play  func(*rig)
		inbox func(*journal.Head, *[]journal.Entry)
		row   func(n int, s *journal.Submission)
		says  string // nothing: it holds
	}{
		"two settled runs":                    {settledTwice, nil, nil, ""},
		"a run that waits":                    {waiting, nil, nil, ""},
		"an outcome that waits for settle":    {unsettled, nil, nil, ""},
		"a ready lane with unread entries":    {func(r *rig) { settledTwice(r); r.submit(kim) }, nil, nil, ""},
		"the head's epoch is behind":          {waiting, func(h *journal.Head, _ *[]journal.Entry) { h.Epoch = 0 }, nil, "the head is at epoch 0, the log at 1"},
		"the head knows a later outcome":      {settledTwice, func(h *journal.Head, _ *[]journal.Entry) { h.Settled += 7 }, nil, "the head knows of slot"},
		"idle, the end of the log is missing": {settledTwice, func(h *journal.Head, _ *[]journal.Entry) { h.Epoch++; h.Settled-- }, nil, "the lane is idle at epoch 3, and the log ends in epoch 2"},
		"idle under a run":                    {waiting, idle, nil, "idle with an open run"},
		"idle over queued work":               {func(r *rig) { r.submit(kim); r.submit(kim); r.once(engine.HandedOver); r.settle() }, idle, nil, "queued work"},
		"idle over unread entries": {settledTwice, func(_ *journal.Head, e *[]journal.Entry) {
			*e = append(*e, journal.Entry{Slot: 3}, journal.Entry{Slot: 4})
		}, nil,
			"idle with 2 unread inbox entries"},
		"idle before the outcome was told":                {unsettled, idle, nil, "was not handed over"},
		"parked without a due time":                       {waiting, func(h *journal.Head, _ *[]journal.Entry) { h.Due = time.Time{} }, nil, "the lane is parked and has no due time"},
		"a row that was never settled":                    {settledTwice, nil, func(n int, s *journal.Submission) { clearOutcome(n == 1, s) }, "its row does not say so"},
		"the last row was never settled":                  {settledTwice, nil, func(n int, s *journal.Submission) { clearOutcome(n == 2, s) }, "its row does not say so"},
		"an earlier row is open while the last one waits": {unsettled, nil, func(n int, s *journal.Submission) { clearOutcome(n == 1, s) }, "its row does not say so"},
		"a row that says something else": {settledTwice, nil, func(n int, s *journal.Submission) {
			if n == 2 {
				s.Outcome.Status = record.StatusFailed
			}
		}, "settled as completed but its row says failed"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				r := newRig(t, define(t, agent.Policy{}, handler(c, "pay", tool.RequireApproval())), modeltest.Text("1"), modeltest.Text("2"))
				row.play(r)
				j := &hooked{Journal: r.journal}
				if row.inbox != nil {
					j.inbox = func(h *journal.Head, e *[]journal.Entry) error { row.inbox(h, e); return nil }
				}
				rows := 0
				if row.row != nil {
					j.row = func(_ string, s *journal.Submission) error { rows++; row.row(rows, s); return nil }
				}
				r.services(j, nil)
				mustVerify(t, r, row.says)
			})
		})
	}
	t.Run("the whole log is missing", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, define(t, agent.Policy{}), modeltest.Text("1"))
			r.submit(kim)
			r.work()
			j := &hooked{Journal: r.journal, inbox: func(h *journal.Head, _ *[]journal.Entry) error { h.Settled = 0; return nil }}
			r.services(emptied{j}, nil)
			mustVerify(t, r, "the lane is idle at epoch 1, and the log ends in epoch 0")
		})
	})
	t.Run("a row is missing", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, define(t, agent.Policy{}), modeltest.Text("1"), modeltest.Text("2"))
			settledTwice(r)
			n := 0
			r.services(lost{&hooked{Journal: r.journal}, func(string) bool { n++; return n == 1 }}, nil)
			mustVerify(t, r, "has no row")
		})
	})
}

// A store that does not answer is an error, not a finding.
func TestVerifyNeedsAnAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("1"), modeltest.Text("2"))
		settledTwice(r)
		r.services(&hooked{Journal: r.journal, row: func(string, *journal.Submission) error { return errReset }}, nil)
		if v, err := r.admitter.Verify(bg, r.lane); !errors.Is(err, errReset) || len(v.Violations) > 0 {
			t.Errorf("%v, violations %q", err, v.Violations)
		}
		r.services(&hooked{Journal: r.journal, row: func(string, *journal.Submission) error { return record.ErrCorrupt }}, nil)
		if v, err := r.admitter.Verify(bg, r.lane); err != nil || len(v.Violations) != 2 {
			t.Errorf("%v, violations %q", err, v.Violations)
		}
	})
}

func clearOutcome(when bool, s *journal.Submission) {
	if when {
		s.Outcome = nil
	}
}

// mustVerify wants exactly one violation that says so, or none.
func mustVerify(t *testing.T, r *rig, says string) {
	t.Helper()
	v, err := r.admitter.Verify(bg, r.lane)
	switch {
	case err != nil:
		t.Error(err)
	case says == "" && !v.OK, says != "" && (v.OK || len(v.Violations) != 1 || !strings.Contains(v.Violations[0], says)):
		t.Errorf("verify says %q, want %q", v.Violations, says)
	}
}

// An attempt that finds an outcome waiting for settle leaves without a batch.
// The lane is then idle in an epoch that the log never saw, and nothing is
// wrong with that; but what stands open in such a lane is still wrong.
func TestVerifyAfterAnEmptyAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("1"))
		r.submit(kim)
		r.once(engine.HandedOver)
		time.Sleep(15 * time.Minute) // the settle wake was lost, and an attempt comes before the sweep
		r.once(engine.HandedOver)
		r.settle()
		if h := r.head(); h.State != journal.Idle || h.Epoch != 2 {
			t.Fatalf("the lane is %s in epoch %d", h.State, h.Epoch)
		}
		mustVerify(t, r, "")
		r.services(&hooked{Journal: r.journal, inbox: func(_ *journal.Head, e *[]journal.Entry) error {
			*e = append(*e, journal.Entry{Slot: 2})
			return nil
		}}, nil)
		mustVerify(t, r, "idle with 1 unread inbox entries")
	})
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}))
		_, err := r.admitter.Verify(bg, r.lane)
		mustKind(t, "a conversation nobody used", err, engine.KindNotFound)
	})
}

// edited is a journal whose log was edited by somebody who can seal batches and
// chain them: only what the records say can still give it away.
type edited struct {
	Journal
	t    *testing.T
	lane journal.Lane
	edit func(record.Record) record.Record
}

func (j edited) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		prev := ""
		for b, err := range j.Journal.Read(ctx, lane, from) {
			if err == nil {
				var open record.Batch
				if open, err = record.Open(b, lane.Tenant, lane.Conversation); err == nil {
					for i, r := range open.Records {
						open.Records[i] = j.edit(r)
					}
					open.Prev = prev
					b, err = record.Seal(&open)
					prev = b.Digest
				}
			}
			if err != nil {
				j.t.Error(err)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// Counters within their limits: a log in which a run took more than it was
// given does not hold, and the one grace turn is not more.
func TestVerifyCounters(t *testing.T) {
	for name, row := range map[string]struct {
		turns, calls int
		says         string
	}{
		"as it was given":      {2, 2, ""},
		"the grace turn":       {1, 2, ""},
		"too many turns":       {0, 2, "turns, limit"},
		"too many tool calls":  {2, 1, "started 2 tool calls, limit 1"},
		"no tool calls at all": {2, 0, "started 2 tool calls, limit 0"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				r := newRig(t, define(t, agent.Policy{MaxTurns: 5, MaxToolCalls: 5}, handler(c, "look", tool.Readonly()), handler(c, "pay", tool.RequireApproval())),
					modeltest.Calls(call("look", 0), call("look", 1)), modeltest.Calls(call("pay", 0)))
				if row.turns == 0 { // a run starts with at least one turn: it took three
					row.turns = 1
					r.restartModel(modeltest.Calls(call("look", 0)), modeltest.Calls(call("look", 1)), modeltest.Calls(call("pay", 0)))
				}
				r.submit(kim)
				r.once(engine.ParkedLane)
				r.assembleOver(edited{r.journal, t, r.lane, func(rec record.Record) record.Record {
					if s, ok := rec.(record.RunStarted); ok {
						s.Turns, s.ToolCalls = row.turns, row.calls
						return s
					}
					return rec
				}})
				mustVerify(t, r, row.says)
			})
		})
	}
}

// busy is a journal in which something happens behind a read of the log.
type busy struct {
	Journal
	then func()
}

func (j busy) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		for b, err := range j.Journal.Read(ctx, lane, from) {
			if !yield(b, err) {
				return
			}
		}
		j.then()
	}
}

// A run that ends while its conversation is verified is no violation.
func TestVerifyBesideARun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("1"), modeltest.Text("2"), modeltest.Text("3"))
		r.submit(kim)
		r.work()
		worker := &rig{t: t, journal: r.journal, def: r.def, model: r.model, lane: r.lane}
		worker.assemble()
		runs := 0
		r.assembleOver(busy{r.journal, func() {
			if runs++; runs <= 2 {
				worker.submit(kim)
				worker.work()
			}
		}})
		mustVerify(t, r, "")
	})
}
