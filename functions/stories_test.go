package functions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
	"github.com/layover-run/layover/localstack/peers"
)

// worker is an agent over text with the tools of a story.
func worker(t *testing.T, tools ...*tool.Tool) *agent.Definition {
	t.Helper()
	d, err := agent.Define[string, string]("a", agent.Config[string]{Instructions: agent.Text[string]("Work."), Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

type step struct {
	N int `json:"n"`
}

func does(name string, do func(ctx context.Context, in step) (string, error), opts ...tool.Option) *tool.Tool {
	return tool.New(name, "Does "+name+".", do, opts...)
}

func asks(calls ...modeltest.Call) modeltest.Step { return modeltest.Calls(calls...) }

func the(name string, n int) modeltest.Call { return modeltest.Call{Tool: name, Args: step{n}} }

// Every main story, told by the functions over a real DynamoDB and a real SQS,
// with every message delivered twice: one recorded outcome, one execution of
// each uncertain call, no dead letter, a log that verifies.
func TestStories(t *testing.T) {
	peers.SQS(t)
	for name, tell := range map[string]func(t *testing.T){
		"plain":                   plainStory,
		"one after another":       queuedStory,
		"parallel tools":          parallelStory,
		"approved":                func(t *testing.T) { approvalStory(t, "approve") },
		"denied":                  func(t *testing.T) { approvalStory(t, "deny") },
		"aborted at work":         abortStory,
		"yields":                  yieldStory,
		"steered":                 steeringStory,
		"unknown after a timeout": timeoutStory,
		"unknown after a death":   deathStory,
		"again after a death":     readonlyDeathStory,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t)
		})
	}
}

func plainStory(t *testing.T) {
	var paid atomic.Int64
	pay := does("pay", func(_ context.Context, in step) (string, error) { paid.Add(1); return fmt.Sprint("paid ", in.N), nil })
	c := newCloud(t, worker(t, pay), asks(the("pay", 7)), modeltest.Text("done"))
	id := c.submit("k")
	p := c.ends(id, "completed")
	if string(p.Output) != `"done"` || p.Turns != 2 || paid.Load() != 1 {
		t.Errorf("%+v, paid %d times", p, paid.Load())
	}
	c.rests()
}

// Two submissions to one conversation run in the order of their admission.
func queuedStory(t *testing.T) {
	c := newCloud(t, worker(t), modeltest.Text("first"), modeltest.Text("second"))
	first, second := c.submit("1"), c.submit("2")
	if p := c.ends(second, "completed"); string(p.Output) != `"second"` {
		t.Errorf("the second answered %s", p.Output)
	}
	if p := c.ends(first, "completed"); string(p.Output) != `"first"` {
		t.Errorf("the first answered %s", p.Output)
	}
	c.rests()
}

// Calls of one response run at once, and their results are told in the order
// of the calls.
func parallelStory(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	meet := does("meet", func(_ context.Context, in step) (string, error) {
		both.Done()
		both.Wait() // never over if they came one after the other
		return fmt.Sprint("met ", in.N), nil
	})
	c := newCloud(t, worker(t, meet), asks(the("meet", 1), the("meet", 2)), modeltest.Text("done"))
	id := c.submit("k")
	c.ends(id, "completed")
	if told := toldResults(c.model, 1); told != `"met 1" "met 2"` {
		t.Errorf("the model was told %s", told)
	}
	c.rests()
}

// toldResults is every tool result in a request the model got.
func toldResults(m *modeltest.Model, request int) string {
	var all []string
	for _, message := range m.Requests()[request].Messages {
		for _, p := range message.Parts {
			if r, ok := p.(record.ToolResultPart); ok {
				all = append(all, string(r.Result.Inline))
			}
		}
	}
	return strings.Join(all, " ")
}

// A run that waits for a person holds nothing; the answer, given once over the
// API, lets another invocation go on.
func approvalStory(t *testing.T, decision string) {
	var paid atomic.Int64
	pay := does("pay", func(context.Context, step) (string, error) { paid.Add(1); return "paid", nil }, tool.RequireApproval())
	c := newCloud(t, worker(t, pay), asks(the("pay", 7)), modeltest.Text("done"))
	id := c.submit("k")
	if p := c.await(id, client.UntilParked); p.Status != wire.StatusParked || p.Parked.Reason != core.WaitApproval || paid.Load() != 0 {
		t.Fatalf("%+v, paid %d times", p, paid.Load())
	}
	pending, err := c.api.Approvals(t.Context())
	if err != nil || len(pending) != 1 || pending[0].Submission != id {
		t.Fatalf("%+v, %v", pending, err)
	}
	answer := wire.Decide{Decision: decision, ArgsDigest: pending[0].ArgsDigest}
	if _, err := c.api.Decide(t.Context(), pending[0].ID, answer); err != nil {
		t.Fatal(err)
	}
	if p := c.ends(id, "completed"); p.Attempts < 2 {
		t.Errorf("%d attempts", p.Attempts)
	}
	want := map[string]int64{"approve": 1, "deny": 0}[decision]
	if paid.Load() != want {
		t.Errorf("paid %d times, want %d", paid.Load(), want)
	}
	c.rests()
}

// An abort over the ingress queue reaches a handler that is at work in another
// process.
func abortStory(t *testing.T) {
	working, stopped := make(chan struct{}), make(chan struct{})
	hang := does("hang", func(ctx context.Context, _ step) (string, error) {
		close(working)
		<-ctx.Done()
		close(stopped)
		return "", ctx.Err()
	}, tool.Readonly())
	c := newCloud(t, worker(t, hang), asks(the("hang", 1)))
	id := c.submit("k")
	<-working
	c.Send(`{"v":1,"type":"abort","conversation":"` + cloudLane + `","submission":"` + id + `","reason":"by mistake"}`)
	c.ends(id, "aborted")
	<-stopped
	c.rests()
}

// A run that is longer than an invocation goes on in the next one, with its
// counters and without a step done twice.
func yieldStory(t *testing.T) {
	var c *cloud
	var mu sync.Mutex
	var done []int
	long := does("long", func(_ context.Context, in step) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		done = append(done, in.N)
		c.Pass(14*time.Minute + 55*time.Second) // of fifteen
		return fmt.Sprint(in.N), nil
	})
	c = newCloud(t, worker(t, long), asks(the("long", 1)), asks(the("long", 2)), asks(the("long", 3)), modeltest.Text("done"))
	id := c.submit("k")
	p := c.ends(id, "completed")
	if fmt.Sprint(done) != "[1 2 3]" || p.Attempts < 4 || p.Turns != 4 {
		t.Errorf("did %v; %d attempts, %d turns", done, p.Attempts, p.Turns)
	}
	if told := toldResults(c.model, 3); told != `"1" "2" "3"` {
		t.Errorf("the last invocation told the model %s", told)
	}
	c.rests()
}

// Steering that arrives while a tool works is in the next request, once.
func steeringStory(t *testing.T) {
	working, goOn := make(chan struct{}), make(chan struct{})
	wait := does("wait", func(context.Context, step) (string, error) { close(working); <-goOn; return "waited", nil })
	c := newCloud(t, worker(t, wait), asks(the("wait", 1)), modeltest.Text("done"))
	id := c.submit("k")
	<-working
	c.Send(`{"v":1,"type":"steer","conversation":"` + cloudLane + `","submission":"` + id + `","key":"s","text":"be quick"}`)
	j := c.Table.Open(t)
	c.until("the steering is durable", func() bool {
		_, entries, err := j.Inbox(t.Context(), local(cloudLane), 0)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries) == 2
	})
	close(goOn)
	c.ends(id, "completed")
	if said := fmt.Sprintf("%s", c.model.Requests()[1].Messages); strings.Count(said, "be quick") != 1 {
		t.Errorf("the model was told %s", said)
	}
	if n := len(c.records(record.KindSteeringApplied)); n != 1 {
		t.Errorf("steered %d times", n)
	}
	c.rests()
}

// A call that may have happened is not made again: an operator says what is
// known, and the run goes on with that.
func timeoutStory(t *testing.T) {
	var paid atomic.Int64
	pay := does("pay", func(ctx context.Context, _ step) (string, error) { paid.Add(1); <-ctx.Done(); return "", ctx.Err() }, tool.Timeout(200*time.Millisecond))
	c := newCloud(t, worker(t, pay), asks(the("pay", 7)), modeltest.Text("done"))
	c.resolved(c.submit("k"))
	if paid.Load() != 1 {
		t.Errorf("paid %d times", paid.Load())
	}
}

// resolved sees a run park on a call of unknown outcome, says that it happened,
// and sees it end.
func (c *cloud) resolved(id string) {
	c.t.Helper()
	p := c.await(id, client.UntilParked)
	if p.Status != wire.StatusParked || p.Parked.Reason != core.WaitUnknown || len(p.Parked.On) != 1 {
		c.t.Fatalf("%+v\n%s", p, c.log.String())
	}
	happened := wire.Resolve{Call: p.Parked.On[0], Resolution: record.Happened, Result: []byte(`"paid, says the bank"`)}
	if _, err := c.api.Resolve(c.t.Context(), cloudLane, happened); err != nil {
		c.t.Fatal(err)
	}
	c.ends(id, "completed")
	if told := toldResults(c.model, 1); told != `"paid, says the bank"` {
		c.t.Errorf("the model was told %s", told)
	}
	c.rests()
}

// dying is a handler under which the process dies, the first time; it says
// when, and how often it was entered.
func dying(entered *atomic.Int64) (do func(context.Context, step) (string, error), working chan struct{}, dead chan struct{}) {
	working, dead = make(chan struct{}), make(chan struct{})
	return func(context.Context, step) (string, error) {
		if entered.Add(1) > 1 {
			return "did it again", nil
		}
		close(working)
		<-dead
		return "", errors.New("nobody hears this")
	}, working, dead
}

// The invocation dies under an uncertain handler. Its lease ends, a sweep finds
// the lane, and the next invocation asks instead of paying again.
func deathStory(t *testing.T) {
	var paid atomic.Int64
	do, working, dead := dying(&paid)
	c := newCloud(t, worker(t, does("pay", do)), asks(the("pay", 7)), modeltest.Text("done"))
	id := c.submit("k")
	<-working
	c.Crash()
	close(dead)
	c.Pass(16 * time.Minute)
	c.resolved(id)
	if paid.Load() != 1 {
		t.Errorf("paid %d times", paid.Load())
	}
}

// What is safe to do again is done again, with nobody asked.
func readonlyDeathStory(t *testing.T) {
	var looked atomic.Int64
	do, working, dead := dying(&looked)
	c := newCloud(t, worker(t, does("look", do, tool.Readonly())), asks(the("look", 7)), modeltest.Text("done"))
	id := c.submit("k")
	<-working
	c.Crash()
	close(dead)
	c.Pass(16 * time.Minute)
	if p := c.ends(id, "completed"); p.Attempts < 2 || looked.Load() != 2 {
		t.Errorf("%d attempts, looked %d times", p.Attempts, looked.Load())
	}
	c.rests()
}
