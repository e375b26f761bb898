package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// Wakes are hints: they are lost, doubled, late by an hour and out of order,
// and invocations that take them die, stand still and hear no answers. Whatever
// the schedule, every submission that was accepted comes to one outcome, every
// log holds against its head, inbox and rows, and nothing is paid for twice.
func TestMessageSchedules(t *testing.T) {
	seeds := map[string]uint64{"": 40, "embedded": 6}[os.Getenv(assembly)] // each is a store of its own
	if seeds == 0 {
		t.Skip("hundreds of sweeps of a store behind a network take minutes")
	}
	var all tally
	for seed := range seeds {
		inBubble(t, func(t *testing.T) {
			s := newSchedule(t, seed)
			s.disturb(200)
			s.calm()
			s.judge()
			all.add(s.tally)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d schedules: %v", seeds, all)
	for _, what := range []string{"lost", "put back", "delivered again", "handled, and not taken back", "stood still", string(engine.ParkedLane), "completed"} {
		if all[what] == 0 {
			t.Errorf("no schedule had this: %s", what)
		}
	}
	if seeds >= 40 && (all[string(engine.FencedOff)] == 0 || all["resolved"] == 0 || all["settled by probe"] == 0 || all["aborted"] == 0) {
		t.Error("the schedules are too tame")
	}
}

// tally counts what schedules did.
type tally map[string]int

func (t *tally) add(more tally) {
	if *t == nil {
		*t = tally{}
	}
	for what, n := range more {
		(*t)[what] += n
	}
}

// schedule is one course of events over a few conversations.
type schedule struct {
	t       *testing.T
	journal Journal
	queue   *memqueue.Queue
	def     *agent.Definition
	reader  *engine.Admitter // its store is never disturbed
	calmed  bool
	asked   []work
	frozen  []*invocation
	tally   tally

	mu      sync.Mutex // of what follows; handlers and senders use it
	draw    *rand.Rand
	effects map[string]int // by operation
	ids     int
}

// work is a submission: its id is known once it is accepted.
type work struct{ conversation, key, id string }

const (
	conversations = 3
	submissions   = 7
	visibility    = 20 * time.Minute
)

func newSchedule(t *testing.T, seed uint64) *schedule {
	s := &schedule{t: t, journal: newJournal(t), draw: rand.New(rand.NewPCG(seed, 3)), effects: map[string]int{}, tally: tally{}}
	s.queue = memqueue.NewWith(memqueue.Options{Visibility: visibility, Copies: func(queue.Wake) int {
		if s.calmed {
			return 1
		}
		return []int{0, 1, 1, 1, 2, 3}[s.pick(6)]
	}})
	look := tool.New("look", "Looks.", func(ctx context.Context, _ arg) (string, error) { return "seen", s.rest(ctx) }, tool.Readonly())
	pays := func(name string, opts ...tool.Option) *tool.Tool {
		return tool.New(name, "Pays.", func(ctx context.Context, _ arg) (string, error) {
			if err := s.rest(ctx); err != nil {
				return "", err
			}
			info, _ := tool.CallInfo(ctx)
			s.mu.Lock()
			s.effects[info.Operation]++
			s.mu.Unlock()
			return "paid", s.rest(ctx)
		}, opts...)
	}
	probe := tool.Reconcile(func(ctx context.Context, _ arg) (string, record.Resolution, error) {
		if info, _ := tool.CallInfo(ctx); s.happened(info.Operation) {
			return "paid", record.Happened, nil
		}
		return "", record.NotHappened, nil
	})
	s.def = define(t, agent.Policy{}, look, pays("pay"), pays("charge", probe), pays("wire", tool.RequireApproval()))
	s.reader, _, _ = s.services(s.journal)
	for n := range submissions {
		s.asked = append(s.asked, work{conversation: fmt.Sprint("c", n%conversations), key: fmt.Sprint("k", n)})
	}
	return s
}

// services are those of one invocation.
func (s *schedule) services(j journal.Journal) (*engine.Admitter, *engine.Attempter, *engine.Settler) {
	s.t.Helper()
	run := []modeltest.Step{modeltest.Calls(call("look", 0), call("pay", 0)), modeltest.Calls(call("charge", 0)),
		modeltest.Calls(call("wire", 0)), modeltest.Text("done")}
	registry, err := engine.NewRegistry(0, s.def.Bind(modeltest.Turns(slices.Repeat(run, submissions)...)).Engine())
	if err != nil {
		s.t.Fatal(err)
	}
	newID := func() string { s.mu.Lock(); defer s.mu.Unlock(); s.ids++; return fmt.Sprint("id ", s.ids) }
	cfg := engine.Config{Journal: j, Queue: slow{s}, NewID: newID, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	admitter, errA := engine.NewAdmitter(cfg, registry.Manifest())
	attempter, errB := engine.NewAttempter(cfg, registry)
	settler, errC := engine.NewSettler(cfg)
	if err := errors.Join(errA, errB, errC); err != nil {
		s.t.Fatal(err)
	}
	return admitter, attempter, settler
}

// pick draws a number below n.
func (s *schedule) pick(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draw.IntN(n)
}

func (s *schedule) happened(operation string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[operation] > 0
}

// rest is what a handler waits for somebody else: as long for an operation each
// time, whoever else draws meanwhile.
func (s *schedule) rest(ctx context.Context) error {
	info, _ := tool.CallInfo(ctx)
	sum := fnv.New32()
	_, _ = sum.Write([]byte(info.Operation))
	select {
	case <-time.After(time.Duration(sum.Sum32()%30_000) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slow is the queue as senders have it: a wake may take its time.
type slow struct{ s *schedule }

func (q slow) Send(ctx context.Context, w queue.Wake, delay time.Duration) error {
	if !q.s.calmed && q.s.pick(4) == 0 {
		delay += time.Duration(q.s.pick(3600)) * time.Second
	}
	return q.s.queue.Send(ctx, w, delay)
}

// invoke runs one invocation to its end, or until it stands still.
func (s *schedule) invoke(work func(*engine.Admitter, *engine.Attempter, *engine.Settler) error) error {
	s.t.Helper()
	i := s.invocation()
	admitter, attempter, settler := s.services(i)
	go func() { i.ended <- work(admitter, attempter, settler) }()
	select {
	case err := <-i.ended:
		return err
	case <-i.still:
		s.tally["stood still"]++
		s.frozen = append(s.frozen, i)
		return errStill
	}
}

var errStill = errors.New("the invocation stands still")

// thaw lets an invocation that stood still go on to its end.
func (s *schedule) thaw(n int) {
	i := s.frozen[n]
	s.frozen = slices.Delete(s.frozen, n, n+1)
	close(i.thaw)
	<-i.ended
}

// deliver hands one wake to its function, as a queue service does: what is not
// taken back comes again.
func (s *schedule) deliver(kind queue.Kind) {
	d, ok := s.queue.TryReceive(kind)
	if !ok {
		return
	}
	if d.Receives > 1 {
		s.tally["delivered again"]++
	}
	if !s.calmed {
		switch s.pick(10) {
		case 0:
			s.tally["lost"]++
			s.queue.Done(d)
			return
		case 1:
			s.tally["put back"]++
			s.queue.Return(d, time.Duration(s.pick(600))*time.Second)
			return
		}
	}
	err := s.invoke(func(_ *engine.Admitter, a *engine.Attempter, st *engine.Settler) error {
		if kind == queue.Settle {
			_, err := st.Settle(bg, d.Wake.Lane())
			return err
		}
		ended, err := a.Attempt(bg, d.Wake.Lane())
		s.mu.Lock()
		s.tally[string(ended)]++
		s.mu.Unlock()
		return err
	})
	switch {
	case err != nil:
	case !s.calmed && s.pick(6) == 0:
		s.tally["handled, and not taken back"]++
	default:
		s.queue.Done(d)
	}
}

// submit asks for what is not accepted yet, or once more for what is.
func (s *schedule) submit() {
	n := slices.IndexFunc(s.asked, func(a work) bool { return a.id == "" })
	if n < 0 || n > 0 && s.pick(4) == 0 {
		n = s.pick(max(n, 1))
	}
	was := s.asked[n]
	var got engine.Receipt
	err := s.invoke(func(a *engine.Admitter, _ *engine.Attempter, _ *engine.Settler) (err error) {
		got, err = a.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: s.def.Name(), Conversation: was.conversation,
			Key: was.key, Input: json.RawMessage(kim)})
		return err
	})
	switch {
	case err != nil:
	case was.id == "":
		s.asked[n].id = got.Submission
	case got.Submission != was.id:
		s.t.Errorf("%s asked for again is %s", was.id, got.Submission)
	}
}

// decide answers an approval, perhaps one that was answered already.
func (s *schedule) decide() {
	all, err := s.reader.Approvals(bg, "t")
	if err != nil {
		s.t.Fatal(err)
	}
	if len(all) == 0 {
		return
	}
	r := engine.DecisionRequest{Tenant: "t", Principal: "kim", Approval: all[s.pick(len(all))].ID, Approve: s.pick(4) > 0}
	_ = s.invoke(func(a *engine.Admitter, _ *engine.Attempter, _ *engine.Settler) error {
		_, err := a.Decide(bg, r)
		return err
	})
}

// resolve tells the truth about a call whose outcome is unknown.
func (s *schedule) resolve() {
	conversation := fmt.Sprint("c", s.pick(conversations))
	st, err := s.reader.Status(bg, journal.Lane{Tenant: "t", Conversation: conversation})
	if err != nil || st.Active == nil || st.Active.Waits == nil || st.Active.Waits.Reason != core.WaitUnknown {
		return
	}
	s.tally["resolved"]++
	lost := st.Active.Waits.Calls[0]
	r := engine.ResolveRequest{Tenant: "t", Principal: "op", Conversation: conversation, Call: lost.ID, Resolution: record.NotHappened}
	if s.happened(lost.Operation) {
		r.Resolution, r.Result = record.Happened, json.RawMessage(`"paid"`)
	}
	_ = s.invoke(func(a *engine.Admitter, _ *engine.Attempter, _ *engine.Settler) error { return a.Resolve(bg, r) })
}

func (s *schedule) abort() {
	a := s.asked[s.pick(len(s.asked))]
	if a.id == "" || s.pick(4) > 0 {
		return
	}
	r := engine.AbortRequest{Tenant: "t", Principal: "kim", Conversation: a.conversation, Submission: a.id}
	_ = s.invoke(func(a *engine.Admitter, _ *engine.Attempter, _ *engine.Settler) error {
		_, err := a.RequestAbort(bg, r)
		return err
	})
}

func (s *schedule) sweep() {
	_ = s.invoke(func(_ *engine.Admitter, _ *engine.Attempter, st *engine.Settler) error {
		_, err := st.Sweep(bg, 2+s.pick(5))
		return err
	})
}

// disturb does that many things, one after another.
func (s *schedule) disturb(steps int) {
	for range steps {
		switch what := s.pick(20); {
		case what < 7:
			s.deliver(queue.Attempt)
		case what < 10:
			s.deliver(queue.Settle)
		case what < 12:
			s.sweep()
		case what < 14:
			s.submit()
		case what < 15:
			s.decide()
		case what < 16:
			s.resolve()
		case what < 17:
			s.abort()
		case what < 18 && len(s.frozen) > 2:
			s.thaw(s.pick(len(s.frozen)))
		default:
			time.Sleep([]time.Duration{time.Second, time.Minute, 10 * time.Minute, 20 * time.Minute, time.Hour}[s.pick(5)])
		}
	}
}

// calm ends every disturbance: what was asked for is asked for until it is
// accepted, people answer, and a sweep a minute does the rest.
func (s *schedule) calm() {
	s.mu.Lock()
	s.calmed = true
	s.mu.Unlock()
	for len(s.frozen) > 0 {
		s.thaw(0)
	}
	for slices.ContainsFunc(s.asked, func(a work) bool { return a.id == "" }) {
		s.submit()
	}
	for range 600 {
		s.decide()
		s.resolve()
		s.sweep()
		for s.queue.Len(queue.Attempt)+s.queue.Len(queue.Settle) > 0 && !s.idle() {
			before := s.queue.Len(queue.Attempt) + s.queue.Len(queue.Settle)
			s.deliver(queue.Attempt)
			s.deliver(queue.Settle)
			if s.queue.Len(queue.Attempt)+s.queue.Len(queue.Settle) == before {
				break
			}
		}
		if s.idle() {
			return
		}
		time.Sleep(time.Minute)
	}
	s.t.Error("the conversations do not come to rest")
}

func (s *schedule) idle() bool {
	for n := range conversations {
		h, err := s.journal.Head(bg, journal.Lane{Tenant: "t", Conversation: fmt.Sprint("c", n)})
		if err != nil {
			s.t.Fatal(err)
		}
		if h.State != journal.Idle {
			return false
		}
	}
	return true
}

// judge holds the conversations to what must have come of them.
func (s *schedule) judge() {
	for n := range conversations {
		lane := journal.Lane{Tenant: "t", Conversation: fmt.Sprint("c", n)}
		v, err := s.reader.Verify(bg, lane)
		if err != nil || !v.OK {
			s.t.Errorf("%s: %+v, %v", lane.Conversation, v, err)
		}
		s.judgeLog(lane)
	}
	for operation, times := range s.effects {
		if times != 1 {
			s.t.Errorf("operation %s had its effect %d times", operation, times)
		}
	}
	for _, a := range s.asked {
		row, err := s.journal.Submission(bg, "t", a.id)
		switch {
		case err != nil || row.Outcome == nil:
			s.t.Errorf("submission %s was accepted and has no outcome: %v", a.id, err)
		case row.Outcome.Status == record.StatusFailed:
			s.t.Errorf("submission %s failed: %+v", a.id, row.Outcome.Error)
		default:
			s.tally[string(row.Outcome.Status)]++
		}
	}
}

// judgeLog holds recorded results against the effects the world has seen.
func (s *schedule) judgeLog(lane journal.Lane) {
	uncertain, operations := map[string]bool{}, map[string]string{} // by call
	for b, err := range s.reader.Records(bg, lane) {
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range b.Records {
			switch r := r.(type) {
			case record.ResponseRecorded:
				for _, c := range r.Calls {
					uncertain[c.ID] = c.Class == record.Uncertain
				}
			case record.CallPrepared:
				operations[r.Call] = r.Operation
			case record.CallSettled:
				if r.Outcome == record.Succeeded && uncertain[r.Call] && s.effects[operations[r.Call]] != 1 {
					s.t.Errorf("%s: call %s succeeded, and its effect happened %d times", lane.Conversation, r.Call, s.effects[operations[r.Call]])
				}
				if r.Source != "" {
					s.tally["settled by "+r.Source]++
				}
			}
		}
	}
}
