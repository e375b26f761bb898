package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// end runs one attempt whose context ends after a while, and says how it ended
// and how long that took.
func (r *rig) end(after time.Duration) (engine.Ended, time.Duration, error) {
	ctx, cancel := context.WithCancel(bg)
	began := time.Now()
	time.AfterFunc(after, cancel)
	ended, err := r.attempt.Attempt(ctx, r.lane)
	return ended, time.Since(began), err
}

// A process that goes down waits for what it cannot cut short, a handler, and
// for nothing else: not for a model, not for the pause before it is asked
// again. What it leaves is ready at once for the next process.
func TestShutdown(t *testing.T) {
	limited := modeltest.Fail(&model.Error{Class: model.RateLimited, Message: "slow down", RetryAfter: 10 * time.Second})
	for name, row := range map[string]struct {
		policy   agent.Policy
		first    modeltest.Step
		took     time.Duration
		requests int
	}{
		"while a handler runs":             {agent.Policy{}, modeltest.Calls(call("look", 30)), 30 * time.Second, 1},
		"while the model answers":          {agent.Policy{ModelRetries: agent.Disabled}, modeltest.Hang(), time.Second, 1},
		"while it waits to ask once more":  {agent.Policy{}, limited, time.Second, 1},
		"while nobody would ask it again ": {agent.Policy{}, modeltest.Hang(), time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := &counter{}
				r := newRig(t, define(t, row.policy, handler(c, "look", tool.Readonly())), row.first)
				q := r.services(r.journal, nil)
				id := r.submit(kim)
				q.take(queue.Attempt, "c")
				ended, took, err := r.end(time.Second)
				if ended != engine.Yielded || err != nil || took != row.took {
					t.Errorf("ended %q, %v after %s; want yielded after %s", ended, err, took, row.took)
				}
				if n := len(r.model.Requests()); n != row.requests {
					t.Errorf("%d requests", n)
				}
				if h := r.head(); h.State != journal.Ready || time.Until(h.Due) != 2*time.Second || q.take(queue.Attempt, "c") != 1 {
					t.Errorf("the lane is %s, due in %s, or nobody was told", h.State, time.Until(h.Due))
				}
				for _, rec := range r.records(record.KindBackoffScheduled, record.KindCallSettled) {
					if s, ok := rec.(record.CallSettled); !ok || s.Outcome != record.Succeeded {
						t.Errorf("recorded %+v", rec)
					}
				}
				for _, e := range r.heard { // a call that the attempt itself ended is nobody's error
					if errors.Is(e.Err, context.Canceled) {
						t.Errorf("heard %+v", e)
					}
				}
				r.restartModel(modeltest.Text("done"))
				r.work()
				must(t, r.progress(id), "completed", "")
				r.verify()
			})
		})
	}
}

// Effects are told to end a margin before the invocation does, and then no
// model is asked again.
func TestEffectsEndBeforeTheInvocation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var deadline time.Time
		def, err := agent.Define[input, string]("a", agent.Config[input]{
			Instructions: func(ctx context.Context, _ input) (string, error) { deadline, _ = ctx.Deadline(); return "Help.", nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, def, modeltest.Hang())
		r.submit(kim)
		began := time.Now()
		ctx, cancel := context.WithTimeout(bg, 2*time.Minute)
		defer cancel()
		if ended, err := r.attempt.Attempt(ctx, r.lane); ended != engine.Yielded || err != nil {
			t.Errorf("ended %q, %v", ended, err)
		}
		if left := deadline.Sub(began).Round(time.Second); left != 110*time.Second {
			t.Errorf("effects had to end after %s of an invocation of 2m", left)
		}
		if took := time.Since(began); took > 111*time.Second || len(r.model.Requests()) != 1 {
			t.Errorf("the attempt ended after %s and %d requests", took, len(r.model.Requests()))
		}
	})
}

// deafModel does not hear the end of its context until let is closed.
type deafModel struct{ let chan struct{} }

func (m deafModel) Stream(ctx context.Context, _ *model.Request, _ func(model.Part) error) error {
	<-m.let
	return ctx.Err()
}

// An effect that does not end when it is told to is waited for twice the
// cleanup time, not until the end of the invocation. The attempt then dies and
// does not give the lane away, because something of it still runs: only the end
// of its lease does.
func TestDeafEffectEndsTheAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("done"))
		id := r.submit(kim)
		deaf := deafModel{make(chan struct{})}
		cfg := engine.Config{Journal: r.journal, Queue: &wakes{}, Boot: r.journal.Boot(), CleanupTimeout: 20 * time.Second}
		a, err := engine.NewAttempter(cfg, r.registry(deaf))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(time.Minute, cancel)
		began := time.Now()
		ended, err := a.Attempt(ctx, r.lane)
		// One minute, twice the cleanup time, and once more to let it notice.
		if took := time.Since(began); err == nil || ended != "" || took != 2*time.Minute {
			t.Errorf("ended %q, %v after %s", ended, err, took)
		}
		if h := r.head(); h.State != journal.Running || !h.Due.Equal(began.Add(15*time.Minute)) {
			t.Errorf("the lane is %s, due in %s, while its model call still runs", h.State, time.Until(h.Due))
		}
		close(deaf.let)
		time.Sleep(time.Until(began.Add(15 * time.Minute)))
		r.work()
		must(t, r.progress(id), "completed", "")
		r.verify()
	})
}

// A step of the wall clock, or a machine that slept, uses up no handler's time to
// end: what has been told to stop is about to answer.
func TestClockStepGivesNobodyUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stepped atomic.Bool
		now := func() time.Time {
			if stepped.Load() {
				return time.Now().Add(4 * time.Minute)
			}
			return time.Now()
		}
		tidy := tool.New("do", "Does it.", func(ctx context.Context, _ arg) (string, error) {
			<-ctx.Done()
			stepped.Store(true)
			time.Sleep(time.Second)
			return "", ctx.Err()
		}, tool.Readonly())
		r := newRig(t, define(t, agent.Policy{}, tidy))
		m := modeltest.Script(modeltest.Calls(call("do", 0)))
		cfg := engine.Config{Journal: r.journal, Queue: &wakes{}, Boot: r.journal.Boot(), Now: now}
		a, err := engine.NewAttempter(cfg, r.registry(m))
		if err != nil {
			t.Fatal(err)
		}
		id := r.submit(kim)
		ask := func(principal string) func() {
			return func() {
				if _, err := r.admitter.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: principal, Conversation: "c", Submission: id}); err != nil {
					t.Error(err)
				}
			}
		}
		time.AfterFunc(time.Minute, ask("kim"))
		// Somebody else asks too, so that the attempt looks at its clock again.
		time.AfterFunc(time.Minute+500*time.Millisecond, ask("ana"))
		if ended, err := a.Attempt(bg, r.lane); err != nil || ended != engine.HandedOver {
			t.Fatalf("the attempt ended %q, %v", ended, err)
		}
		if _, err := r.settler.Settle(bg, r.lane); err != nil {
			t.Fatal(err)
		}
		must(t, r.progress(id), "aborted", "Aborted")
		r.verify()
	})
}

// A step whose record does not become durable before the attempt ends has not
// happened for its handler: the next step must not be entered on its strength.
func TestStepOfADyingAttemptFails(t *testing.T) {
	for name, row := range map[string]error{"the store is away": errReset, "the store is closed": journal.ErrClosed} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var entered []string
				var errs []error
				returned := make(chan struct{})
				do := tool.New("do", "Does it.", func(ctx context.Context, _ arg) (string, error) {
					defer close(returned)
					for _, name := range []string{"charge", "ship"} {
						_, err := tool.Step(ctx, name, func(context.Context) (int, error) { entered = append(entered, name); return 1, nil })
						if errs = append(errs, err); err != nil {
							return "", err
						}
					}
					return "done", nil
				}, tool.Idempotent(), tool.Timeout(10*time.Minute))
				r := newRig(t, define(t, agent.Policy{}, do), modeltest.Calls(call("do", 0)))
				r.submit(kim)
				n := 0
				r.services(&hooked{Journal: r.journal, append: func(record.Sealed) error {
					if n++; n > 2 {
						return row
					}
					return nil
				}}, nil)
				began := time.Now()
				if _, err := r.attempt.Attempt(bg, r.lane); !errors.Is(err, row) {
					t.Errorf("the attempt ended with %v", err)
				}
				<-returned
				if len(errs) != 1 || errs[0] == nil || len(entered) != 1 {
					t.Errorf("entered %v; the steps say %v", entered, errs)
				}
				if took := time.Since(began); took > time.Minute {
					t.Errorf("the handler was kept for %s", took)
				}
			})
		})
	}
}

// An attempt hears of a command at once, and only of what moved: the same head
// is not heard twice, and a head that moved without a command is no reason to
// read the inbox.
func TestWatchHearsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &counter{}
		r := newRig(t, define(t, agent.Policy{}, handler(c, "slow", tool.Readonly(), tool.Timeout(10*time.Minute))), modeltest.Calls(call("slow", 500)))
		id := r.submit(kim)
		var watched, looked, moved atomic.Int64
		j := &hooked{Journal: r.journal,
			watch: func(*journal.Head) {
				if watched.Add(1) > 100 {
					t.Error("the watch does not come to rest")
					_ = r.journal.Close()
				}
			},
			inbox: func(*journal.Head, *[]journal.Entry) error { looked.Add(1); return nil },
			moved: func(seen journal.Head) (journal.Head, bool) {
				if moved.Add(1) > 3 {
					return seen, false
				}
				seen.Epoch++ // another owner's claim, seen early
				return seen, true
			},
		}
		r.services(j, nil)
		gone := make(chan struct{})
		go func() { defer close(gone); r.once(engine.HandedOver) }()
		time.Sleep(10 * time.Second)
		before := looked.Load()
		if before != 1 {
			t.Errorf("%d looks at the inbox in front of the handler", before)
		}
		if _, err := r.admitter.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c"}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-gone
		if took := time.Since(began); took > time.Second+hearing() {
			t.Errorf("the abort was heard after %s", took)
		}
		r.settle()
		must(t, r.progress(id), "aborted", "Aborted")
	})
}
