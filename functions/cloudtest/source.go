package cloudtest

import (
	"context"
	"slices"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

type handler func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)

// timeout is what Lambda gives an invocation.
const timeout = 15 * time.Minute

// source does what Lambda does with a queue, with one environment at a time:
// an invocation for a batch, the messages it did not fail deleted, and another
// environment after an invocation that failed any.
func (a *Account) source(ctx context.Context, name string, batch int32, start func() handler) {
	handle := start()
	for ctx.Err() == nil {
		got, err := a.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: a.url(name), MaxNumberOfMessages: batch, WaitTimeSeconds: 1,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}})
		if err != nil || len(got.Messages) == 0 {
			continue
		}
		ev := eventOf(got.Messages)
		invocation, end := context.WithTimeout(ctx, timeout)
		resp, err := handle(invocation, ev)
		end()
		for _, m := range ev.Records {
			if err == nil && !slices.Contains(resp.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId}) {
				_, _ = a.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: a.url(name), ReceiptHandle: &m.ReceiptHandle})
			}
		}
		if err != nil || len(resp.BatchItemFailures) > 0 {
			handle = start()
		}
	}
}

func eventOf(messages []types.Message) (ev events.SQSEvent) {
	for _, m := range messages {
		ev.Records = append(ev.Records, events.SQSMessage{MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body,
			Attributes: m.Attributes, EventSource: "aws:sqs"})
	}
	return ev
}
