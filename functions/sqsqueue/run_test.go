package sqsqueue_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/tool"
	"github.com/layover-run/layover/functions"
	"github.com/layover-run/layover/functions/sqsqueue"
)

type handler func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)

// lambda does what Lambda does with a queue: two invocations at a time, one
// message each, a message deleted when its invocation did not fail it.
func (p *peer) lambda(ctx context.Context, work *sync.WaitGroup, kind queue.Kind, handle handler) {
	for range 2 {
		work.Go(func() {
			for ctx.Err() == nil {
				got, err := p.take(ctx, p.urls[kind], 1, time.Second)
				if err != nil || len(got) == 0 {
					continue
				}
				m := got[0]
				resp, err := handle(ctx, events.SQSEvent{Records: []events.SQSMessage{{
					MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body, Attributes: m.Attributes, EventSource: "aws:sqs"}}})
				if err == nil && len(resp.BatchItemFailures) == 0 {
					_ = p.delete(ctx, p.urls[kind], *m.ReceiptHandle)
				}
			}
		})
	}
}

// A run whose first wake is lost and whose other wakes all come twice has one
// outcome, one call of its tool, and no dead letter: the sweep finds what was
// lost, and a second delivery finds an owner or nothing to do.
func TestRunOverLossyQueue(t *testing.T) {
	p := newPeer(t)
	way := &disturbed{Client: p.client} // loses everything
	wakes, err := sqsqueue.New(sqsqueue.Config{Client: way, Wakes: p.urls})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	type order struct {
		ID string `json:"id"`
	}
	pay := tool.New("pay", "Pays an order.", func(_ context.Context, in order) (string, error) { calls.Add(1); return "paid " + in.ID, nil })
	payer, err := agent.Define[order, string]("payer", agent.Config[order]{
		Instructions: func(context.Context, order) (string, error) { return "Pay the order.", nil }, Tools: []*tool.Tool{pay}})
	if err != nil {
		t.Fatal(err)
	}
	script := modeltest.Script(modeltest.Calls(modeltest.Call{ID: "c1", Tool: "pay", Args: order{ID: "7"}}), modeltest.Text("done"))
	registry, err := engine.NewRegistry(0, payer.Bind(script).Engine())
	if err != nil {
		t.Fatal(err)
	}
	store, quiet := memjournal.New(), slog.New(slog.NewTextHandler(io.Discard, nil))
	cfg := engine.Config{Journal: store, Queue: wakes, Boot: store.Boot(), Log: quiet, Grace: 50 * time.Millisecond}
	admitter, err1 := engine.NewAdmitter(cfg, registry.Manifest())
	attempter, err2 := engine.NewAttempter(cfg, registry)
	settler, err3 := engine.NewSettler(cfg)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	receipt, err := admitter.Submit(t.Context(), engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "payer", Conversation: "Zürich 1", Input: json.RawMessage(`{"id":"7"}`)})
	if err != nil {
		t.Fatal(err)
	}
	way.copies.Store(2)

	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	p.lambda(ctx, &work, queue.Attempt, functions.NewAttempt(attempter, quiet).Handle)
	p.lambda(ctx, &work, queue.Settle, functions.NewSettle(settler, quiet).Handle)
	work.Go(func() { settler.Run(ctx, 100*time.Millisecond) })

	waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end, err := admitter.Await(waiting, "t", receipt.Submission, engine.UntilSettled)
	if err != nil || end.Status != "completed" || calls.Load() != 1 {
		t.Fatalf("%+v, %v, %d calls", end, err, calls.Load())
	}
	v, err := admitter.Verify(t.Context(), journal.Lane{Tenant: "t", Conversation: "Zürich 1"})
	if err != nil || !v.OK {
		t.Errorf("verify: %+v, %v", v, err)
	}
	for kind := range p.dead {
		if dead, err := p.take(t.Context(), p.dead[kind], 10, 0); err != nil || len(dead) != 0 {
			t.Errorf("dead %s letters %v, %v", kind, dead, err)
		}
	}
}
