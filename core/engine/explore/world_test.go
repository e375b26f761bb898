package explore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

var (
	bg   = context.Background()
	lane = journal.Lane{Tenant: "t", Conversation: "c"}
)

// scenario is a story and what may disturb it.
type scenario struct {
	name     string
	approval bool // the tool's call waits for a decision
	abort    bool // somebody asks to abort while it runs
	second   bool // a second submission comes
	crashes  int  // invocations that die
	losses   int  // answers that are lost
	ahead    bool // a second delivery, to an invocation whose clock says that the first one's lease is over
	pauses   int  // invocations that stand still while the others go on
	deep     bool // one unusual choice more than the others
	control  control
}

func (sc scenario) submissions() int {
	if sc.second {
		return 2
	}
	return 1
}

// world is one play of a scenario under one schedule.
type world struct {
	t              *testing.T
	sc             scenario
	s              *scheduler
	j              *memjournal.Journal
	q              *wakes
	reader         *engine.Admitter
	counts         map[string]int // invocations of each kind so far
	asked          map[string]bool
	ids            []string // of the submissions that are acknowledged
	entries        []string // keys of the entries that are acknowledged
	started        int
	answeredByHand bool // an operator said what became of the call
	jumps          int
}

type arg struct{}

// An invocation lives a quarter of an hour; skew is more.
const (
	lease = 15 * time.Minute
	skew  = 20 * time.Minute
)

func newWorld(t *testing.T, sc scenario, script []int) *world {
	w := &world{t: t, sc: sc, s: newScheduler(script), j: memjournal.New(), q: &wakes{waiting: map[queue.Kind]int{}},
		counts: map[string]int{}, asked: map[string]bool{}}
	w.s.extra, w.s.crashes, w.s.losses, w.s.pauses = w.offers, sc.crashes, sc.losses, sc.pauses
	w.reader, _, _ = w.services(w.j, "reader")
	return w
}

// services are the three services as one actor has them.
func (w *world) services(j journal.Journal, actor string) (*engine.Admitter, *engine.Attempter, *engine.Settler) {
	w.t.Helper()
	opts := []tool.Option{}
	if w.sc.approval {
		opts = append(opts, tool.RequireApproval())
	}
	pay := tool.New("pay", "Pays.", func(context.Context, arg) (string, error) { w.started++; return "paid", nil }, opts...)
	def, err := agent.Define[map[string]string, string]("a", agent.Config[map[string]string]{
		Instructions: agent.Text[map[string]string]("Pay."), Tools: []*tool.Tool{pay}})
	w.must(err)
	pays, done := modeltest.Calls(modeltest.Call{Tool: "pay", Args: arg{}}), modeltest.Text("done")
	m := slow{modeltest.Turns(pays, done, pays, done), w.s, actor}
	registry, err := engine.NewRegistry(0, def.Bind(m).Engine())
	w.must(err)
	minted := 0
	now := time.Now
	if w.sc.ahead && strings.HasPrefix(actor, "attempt") && actor != "attempt 1" {
		now = func() time.Time { return time.Now().Add(skew) }
	}
	cfg := engine.Config{Journal: j, Queue: w.q, Now: now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		NewID: func() string { minted++; return fmt.Sprintf("%s.%d", actor, minted) }}
	admitter, err := engine.NewAdmitter(cfg, registry.Manifest())
	w.must(err)
	attempter, err := engine.NewAttempter(cfg, registry)
	w.must(err)
	settler, err := engine.NewSettler(cfg)
	w.must(err)
	return admitter, attempter, settler
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

// start begins an invocation of its own name.
func (w *world) start(kind string, work func(*engine.Admitter, *engine.Attempter, *engine.Settler)) {
	w.counts[kind]++
	actor := fmt.Sprintf("%s %d", kind, w.counts[kind])
	admitter, attempter, settler := w.services(handle{w.j, w.s, actor, w.sc.control}, actor)
	w.s.spawn(actor, func() { work(admitter, attempter, settler) })
}

// working counts the live invocations of a kind.
func (w *world) working(kind string) int {
	n := 0
	for actor := range w.s.live {
		if strings.HasPrefix(actor, kind) {
			n++
		}
	}
	return n
}

// offers is what can begin now, in the usual order.
func (w *world) offers() []option {
	var out []option
	head, _, _ := w.j.Peek(lane)
	submit := option{"somebody submits", w.submit}
	if len(w.ids) == 0 && w.working("submit") == 0 {
		out = append(out, submit)
	}
	if w.q.waiting[queue.Attempt] > 0 && w.working("attempt") < 2 {
		out = append(out, option{"a wake starts an attempt", w.attempt})
	}
	if w.q.waiting[queue.Settle] > 0 && w.working("settle") == 0 {
		out = append(out, option{"a wake starts settle", w.settle})
	}
	if approval := w.approval(head); approval != "" {
		out = append(out, option{"somebody approves", func() { w.approve(approval) }})
	}
	if w.sc.abort && !w.asked["abort"] && head.Epoch > 0 && w.working("abort") == 0 {
		out = append(out, option{"somebody aborts", w.abort})
	}
	if head.State != journal.Idle && !head.Due.After(time.Now()) && w.working("sweep") == 0 && w.q.waiting[queue.Attempt] == 0 {
		out = append(out, option{"the sweep runs", w.sweep})
	}
	if call := w.log().unknown; call != "" && head.State == journal.Parked && w.working("operator") == 0 {
		out = append(out, option{"the operator answers", func() { w.operate(call) }})
	}
	if n := len(w.ids); n > 0 && n < w.sc.submissions() && w.working("submit") == 0 {
		out = append(out, submit)
	}
	if wait := time.Until(head.Due); head.State != journal.Idle && wait > 0 && w.jumps < 20 {
		out = append(out, option{"time passes to the lane's due time", func() { w.jumps++; time.Sleep(wait) }})
	}
	return out
}

func (w *world) submit() {
	w.start("submit", func(a *engine.Admitter, _ *engine.Attempter, _ *engine.Settler) {
		r, err := a.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Conversation: "c",
			Key: fmt.Sprint("k", len(w.ids)), Input: json.RawMessage(`{}`)})
		if err == nil {
			w.ids = append(w.ids, r.Submission)
			w.entries = append(w.entries, r.Submission)
		}
	})
}

func (w *world) attempt() {
	if !w.sc.ahead || w.counts["attempt"] > 0 {
		w.q.waiting[queue.Attempt]--
	}
	w.start("attempt", func(_ *engine.Admitter, a *engine.Attempter, _ *engine.Settler) { _, _ = a.Attempt(bg, lane) })
}

func (w *world) settle() {
	w.q.waiting[queue.Settle]--
	w.start("settle", func(_ *engine.Admitter, _ *engine.Attempter, s *engine.Settler) { _, _ = s.Settle(bg, lane) })
}

func (w *world) sweep() {
	w.start("sweep", func(_ *engine.Admitter, _ *engine.Attempter, s *engine.Settler) { _, _ = s.Sweep(bg, 10) })
}

// approval is the id of the approval that waits, if somebody may decide it now.
func (w *world) approval(h journal.Head) string {
	if !w.sc.approval || w.asked["approve"] || h.State != journal.Parked || w.working("approve") > 0 {
		return ""
	}
	all, err := w.reader.Approvals(bg, "t")
	w.must(err)
	if len(all) == 0 {
		return ""
	}
	return all[0].ID
}

func (w *world) approve(approval string) {
	w.start("approve", func(a *engine.Admitter, _ *engine.Attempter, _ *engine.Settler) {
		_, err := a.Decide(bg, engine.DecisionRequest{Tenant: "t", Principal: "kim", Approval: approval, Approve: true})
		if err == nil {
			w.entries = append(w.entries, approval)
		}
		w.asked["approve"] = w.asked["approve"] || answered(err)
	})
}

func (w *world) abort() {
	w.start("abort", func(a *engine.Admitter, _ *engine.Attempter, _ *engine.Settler) {
		id, err := a.RequestAbort(bg, engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: "c", Reason: "enough"})
		if err == nil {
			w.entries = append(w.entries, "abort "+id)
		}
		w.asked["abort"] = w.asked["abort"] || answered(err)
	})
}

// answered says that repeating a request cannot help.
func answered(err error) bool {
	var e *engine.Error
	return err == nil || errors.As(err, &e) && e.Kind != engine.KindUnavailable && e.Kind != engine.KindInternal
}

func (w *world) operate(call string) {
	w.answeredByHand = true
	w.start("operator", func(a *engine.Admitter, _ *engine.Attempter, _ *engine.Settler) {
		_ = a.Resolve(bg, engine.ResolveRequest{Tenant: "t", Principal: "op", Conversation: "c", Call: call, Resolution: record.Happened,
			Result: json.RawMessage(`"paid"`)})
	})
}

// end lets whoever is still at work find its store closed.
func (w *world) end() {
	_ = w.j.Close()
	for actor := range w.s.live {
		w.s.kill(actor)
	}
}
