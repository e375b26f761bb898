package engine_test

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/tool"
)

// told is a queue that keeps what was sent, in one list with the writes.
type told struct{ list *[]string }

func (q told) Send(_ context.Context, w queue.Wake, _ time.Duration) error {
	*q.list = append(*q.list, "wake "+string(w.Kind))
	return nil
}

// Commit first, wake after: who is woken finds what it was woken for. A wake
// that came first would find a lane with a live owner, or nothing to do, and be
// gone.
func TestWakesFollowTheirWrites(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		pay := handler(&counter{}, "pay", tool.RequireApproval())
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Calls(call("pay", 0)), modeltest.Text("done"), modeltest.Text("done"))
		registry, err := engine.NewRegistry(0, r.def.Bind(r.model).Engine())
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		ends := func() {} // the invocation that has just claimed
		cfg := engine.Config{Journal: r.journal, Queue: told{&list}, Boot: r.journal.Boot(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
		if r.admitter, err = engine.NewAdmitter(cfg, registry.Manifest()); err != nil {
			t.Fatal(err)
		}
		if r.attempt, err = engine.NewAttempter(cfg, registry); err != nil {
			t.Fatal(err)
		}
		if r.settler, err = engine.NewSettler(cfg); err != nil {
			t.Fatal(err)
		}
		r.journal.SetFault(func(op string, after bool) error {
			if after {
				list = append(list, op)
			}
			if after && op == "claim" {
				ends()
			}
			return nil
		})
		attempt := func(ctx context.Context) {
			t.Helper()
			if _, err := r.attempt.Attempt(ctx, r.lane); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			name string
			do   func()
			want []string // from its last write on
		}{
			{"submit", func() { r.submit(kim); r.submit(kim) }, []string{"admit", "wake attempt"}},
			{"park", func() { attempt(bg) }, []string{"park"}},
			{"decide", func() { r.approve(0, true) }, []string{"signal", "wake attempt"}},
			{"yield", func() {
				ctx, cancel := context.WithCancel(bg)
				ends = cancel
				attempt(ctx)
				ends = func() {}
			}, []string{"park", "wake attempt"}},
			{"end", func() { attempt(bg) }, []string{"append", "wake settle"}},
			{"settle, with more to do", func() {
				if _, err := r.settler.Settle(bg, r.lane); err != nil {
					t.Fatal(err)
				}
			}, []string{"finish", "wake attempt"}},
		} {
			list = nil
			step.do()
			if n := len(step.want); len(list) < n || !slices.Equal(list[len(list)-n:], step.want) {
				t.Errorf("%s: %v, want %v at the end", step.name, list, step.want)
			}
		}
	})
}
