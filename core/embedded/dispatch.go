package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/memqueue"
)

// handler is one of the functions, as Lambda would invoke it.
type handler func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)

// settleConcurrency bounds the settlements at once: they only wait for the store.
const settleConcurrency = 32

// A failed wake stays hidden for a while, longer each time: an outcome that
// could not be handed over must not wait for the end of a lease.
const (
	redeliver     = 200 * time.Millisecond
	redeliverMost = 30 * time.Second
)

// run starts the event source of each function and the schedule.
func (rt *Runtime) run() {
	ctx, cancel := context.WithCancel(context.Background())
	rt.cancel = cancel
	rt.workers.Add(3)
	go rt.poll(ctx, queue.Attempt, rt.cfg.Concurrency, rt.attempt.Handle)
	go rt.poll(ctx, queue.Settle, settleConcurrency, rt.settle.Handle)
	go func() {
		defer rt.workers.Done()
		rt.settler.Run(ctx, rt.cfg.Sweep)
	}()
}

// poll delivers wakes of one kind, one message for each invocation.
func (rt *Runtime) poll(ctx context.Context, kind queue.Kind, concurrency int, handle handler) {
	defer rt.workers.Done()
	places := make(chan struct{}, concurrency)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		d, err := rt.wakes.Receive(ctx, kind)
		if err != nil {
			return
		}
		rt.work.Add(1)
		go func() {
			defer rt.work.Done()
			defer func() { <-places }()
			rt.deliver(ctx, d, handle)
		}()
	}
}

func (rt *Runtime) deliver(ctx context.Context, d memqueue.Delivery, handle handler) {
	body, err := json.Marshal(d.Wake)
	if err != nil {
		panic(fmt.Sprintf("embedded: a wake does not encode: %v", err))
	}
	resp, err := handle(ctx, events.SQSEvent{Records: []events.SQSMessage{{
		MessageId: d.ID, Body: string(body), EventSource: "aws:sqs",
		Attributes: map[string]string{"ApproximateReceiveCount": fmt.Sprint(d.Receives)},
	}}})
	if err != nil || len(resp.BatchItemFailures) > 0 {
		rt.wakes.Return(d, min(redeliver<<min(d.Receives, 10), redeliverMost))
	}
}
