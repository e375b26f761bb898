package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// Attempt and batch ids are fresh ids of one invocation (F5): none is made from
// an epoch, a slot or a message, which two deliveries share.
func TestIDsAreMinted(t *testing.T) {
	r := newRig(t, define(t, agent.Policy{}, handler(&counter{}, "look", tool.Readonly())), modeltest.Calls(call("look", 0)), modeltest.Text("done"))
	r.submit(kim)
	registry, err := engine.NewRegistry(0, r.def.Bind(r.model).Engine())
	if err != nil {
		t.Fatal(err)
	}
	minted, used := map[string]bool{}, map[string]bool{}
	attempter, err := engine.NewAttempter(engine.Config{Journal: r.journal, Queue: memqueue.New(), Boot: r.journal.Boot(),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), NewID: func() string {
			id := fmt.Sprint("minted ", len(minted))
			minted[id] = true
			return id
		}}, registry)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attempter.Attempt(bg, r.lane); err != nil {
		t.Fatal(err)
	}
	batches := 0
	for b, err := range r.admitter.Records(bg, r.lane) {
		if err != nil {
			t.Fatal(err)
		}
		batches++
		if !minted[b.ID] || used[b.ID] || !minted[b.Attempt] || b.Attempt == b.ID {
			t.Errorf("slot %d: batch id %q of attempt %q", b.Slot, b.ID, b.Attempt)
		}
		used[b.ID] = true
	}
	if batches < 2 {
		t.Fatalf("%d batches", batches)
	}
}

// A caller whose first answer was lost is told what it would have been told; a
// request that was accepted before is a duplicate, however often it is tried.
func TestOwnSecondTryIsNoDuplicate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Text("done"))
		submit := func(lost bool) engine.Receipt {
			t.Helper()
			r.journal.SetFault(func(op string, after bool) error {
				if !lost || op != "admit" || !after {
					return nil
				}
				lost = false
				return errSilence
			})
			receipt, err := r.admitter.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: r.def.Name(), Conversation: "c", Key: "k",
				Input: json.RawMessage(kim)})
			if err != nil || lost {
				t.Fatal(receipt, err)
			}
			time.Sleep(time.Second)
			return receipt
		}
		first := submit(true)
		if first.Duplicate {
			t.Error("the first request is told it is a duplicate of itself")
		}
		for _, lost := range []bool{false, true} {
			if again := submit(lost); !again.Duplicate || again.Submission != first.Submission || !again.At.Equal(first.At) {
				t.Errorf("once more, an answer lost %v: %+v, first %+v", lost, again, first)
			}
		}
	})
}

// A call that is lost once more after somebody said it may run again is answered
// once more: an answer is about one execution, although the operation is one.
func TestSecondAnswerAboutOneCall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		runs := 0
		pay := tool.New("pay", "Pays.", func(ctx context.Context, _ arg) (string, error) {
			runs++
			<-ctx.Done()
			return "", ctx.Err()
		}, tool.Timeout(time.Minute))
		r := newRig(t, define(t, agent.Policy{}, pay), modeltest.Calls(call("pay", 0)), modeltest.Text("done"))
		id := r.submit(kim)
		r.once(engine.ParkedLane)
		for n, answer := range []engine.ResolveRequest{{Resolution: record.SafeToRetry}, {Resolution: record.Happened, Result: []byte(`"paid"`)}} {
			if runs != n+1 {
				t.Fatalf("it ran %d times before answer %d", runs, n+1)
			}
			answer.Tenant, answer.Principal, answer.Conversation, answer.Call = "t", "op", "c", "call-1-1"
			if err := r.admitter.Resolve(bg, answer); err != nil {
				t.Fatalf("answer %d: %v", n+1, err)
			}
			r.work()
			if n == 0 {
				time.Sleep(time.Hour) // by then whoever ran it is certainly gone
				r.work()
				must(t, r.progress(id), "parked", "")
			}
		}
		must(t, r.progress(id), "completed", "")
		r.verify()
	})
}
