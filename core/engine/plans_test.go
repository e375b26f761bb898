package engine_test

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// noting is a model that notes when it is asked.
type noting struct {
	model.Model
	note func(string)
}

func (m noting) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	m.note("request")
	return m.Model.Stream(ctx, req, emit)
}

// Each turn has its own preparation, once and before its request, also in the
// attempt behind a crash.
//
// conformance: TURN-03 @embedded @serverless
func TestEachTurnIsPreparedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		note := func(what string) { mu.Lock(); defer mu.Unlock(); seen = append(seen, what) }
		var c counter
		def := agent.MustDefine[input, string]("a", agent.Config[input]{
			Instructions: agent.Text[input]("Help."), Tools: []*tool.Tool{handler(&c, "look", tool.Readonly()), handler(&c, "pay", tool.RequireApproval())},
			Prompt: func(context.Context, input) (agent.Prompt, error) {
				note("prepare")
				return agent.Prompt{Text: "Hello."}, nil
			},
		})
		r := newRig(t, def)
		script := func(steps ...modeltest.Step) {
			cfg := engine.Config{Journal: r.journal, Queue: memqueue.New(), Boot: r.journal.Boot(), Log: slog.New(slog.DiscardHandler)}
			var err error
			if r.attempt, err = engine.NewAttempter(cfg, r.registry(noting{modeltest.Script(steps...), note})); err != nil {
				t.Fatal(err)
			}
		}
		script(modeltest.Calls(call("look", 0)), modeltest.Calls(call("pay", 0)))
		id := r.submit(kim)
		r.once(engine.ParkedLane)
		r.approve(0, true)
		script(modeltest.Text("done"))
		r.once(engine.HandedOver)
		r.settle()
		must(t, r.progress(id), "completed", "")
		want := []string{"prepare", "request", "prepare", "request", "prepare", "request"}
		if !slices.Equal(seen, want) {
			t.Errorf("seen %v, want %v", seen, want)
		}
	})
}

// What the transitions decided is a function of the log: folded again and again,
// by nothing but the reducer, it gives one state, at every slot.
//
// conformance: TURN-21 @embedded @serverless
func TestTheLogAloneGivesTheState(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var c counter
		r := newRig(t, define(t, agent.Policy{}, handler(&c, "look", tool.Readonly()), handler(&c, "pay", tool.RequireApproval())),
			modeltest.Calls(call("look", 0), call("look", 1)), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		id := r.submit(kim)
		var before []*core.State
		r.once(engine.ParkedLane)
		before = append(before, r.folded())
		r.approve(0, true)
		r.once(engine.HandedOver)
		before = append(before, r.folded())
		r.settle()
		must(t, r.progress(id), "completed", "")

		r.restart(nil)
		again := r.folded()
		if !reflect.DeepEqual(before[1], again) {
			t.Errorf("the same log gives another state in another process:\n%+v\n%+v", before[1], again)
		}
		if before[0].Slot >= again.Slot || before[0].Run == nil || again.Run != nil {
			t.Errorf("the fold stood at slot %d and stands at %d, with the run %v", before[0].Slot, again.Slot, again.Run)
		}
	})
}

// folded folds the log with the reducer alone.
func (r *rig) folded() *core.State {
	r.t.Helper()
	s := &core.State{}
	for sealed, err := range r.journal.Read(bg, r.lane, 1) {
		if err != nil {
			r.t.Fatal(err)
		}
		b, err := record.Open(sealed, r.lane.Tenant, r.lane.Conversation)
		if err != nil {
			r.t.Fatal(err)
		}
		if err := core.Fold(s, b); err != nil {
			r.t.Fatal(err)
		}
	}
	return s
}
