package sqsqueue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/queuetest"
	"github.com/layover-run/layover/functions/sqsqueue"
	"github.com/layover-run/layover/localstack/peers"
)

// peer is the queues of one test on a real service, and what Lambda does with
// them.
type peer struct {
	t      *testing.T
	client *sqs.Client
	urls   map[queue.Kind]string
	dead   map[queue.Kind]string
}

const (
	visibility  = 2 * time.Second
	maxReceives = 2
)

var peerCount atomic.Int64

func newPeer(t *testing.T) *peer {
	t.Helper()
	endpoint := peers.SQS(t)
	p := &peer{t: t, client: client(sqsqueue.Retries, func(o *sqs.Options) { o.BaseEndpoint = &endpoint }),
		urls: map[queue.Kind]string{}, dead: map[queue.Kind]string{}}
	// Another endpoint than a fresh peer may still know the queues of an
	// earlier run.
	prefix := fmt.Sprintf("layover-%d-%d", time.Now().UnixNano(), peerCount.Add(1))
	for _, kind := range []queue.Kind{queue.Attempt, queue.Settle} {
		p.dead[kind] = p.create(fmt.Sprintf("%s-%s-dead", prefix, kind), map[string]string{})
		attributes, err := p.client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
			QueueUrl: aws.String(p.dead[kind]), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
		if err != nil {
			t.Fatal(err)
		}
		p.urls[kind] = p.create(fmt.Sprintf("%s-%s", prefix, kind), map[string]string{
			"VisibilityTimeout": strconv.Itoa(int(visibility / time.Second)),
			"RedrivePolicy":     fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, attributes.Attributes["QueueArn"], maxReceives),
		})
	}
	return p
}

func (p *peer) create(name string, attributes map[string]string) string {
	p.t.Helper()
	out, err := p.client.CreateQueue(p.t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_, _ = p.client.DeleteQueue(context.WithoutCancel(p.t.Context()), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
	})
	return *out.QueueUrl
}

// take receives up to most messages, waiting as long as wait says. A long poll
// may come back early without one.
func (p *peer) take(ctx context.Context, url string, most int32, wait time.Duration) ([]types.Message, error) {
	for until := time.Now().Add(wait); ; {
		left := max(time.Until(until), 0)
		out, err := p.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: most, WaitTimeSeconds: int32((left + time.Second - 1) / time.Second),
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			return nil, err
		}
		if len(out.Messages) > 0 || left == 0 {
			return out.Messages, nil
		}
	}
}

func (p *peer) delete(ctx context.Context, url, receipt string) error {
	_, err := p.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: &receipt})
	return err
}

// disturbed loses or doubles single sends on their way.
type disturbed struct {
	*sqs.Client
	copies atomic.Int64
}

func (d *disturbed) SendMessage(ctx context.Context, in *sqs.SendMessageInput, o ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	var out *sqs.SendMessageOutput
	for range d.copies.Load() {
		var err error
		if out, err = d.Client.SendMessage(ctx, in, o...); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *peer) subject() queuetest.Subject {
	way := &disturbed{Client: p.client}
	way.copies.Store(1)
	q, err := sqsqueue.New(sqsqueue.Config{Client: way, Wakes: p.urls})
	if err != nil {
		p.t.Fatal(err)
	}
	return queuetest.Subject{
		Queue: q, Visibility: visibility, MaxReceives: maxReceives, Copies: func(n int) { way.copies.Store(int64(n)) },
		Receive: func(ctx context.Context, kind queue.Kind, wait time.Duration) (d queuetest.Delivery, ok bool, err error) {
			got, err := p.take(ctx, p.urls[kind], 1, wait)
			if err != nil || len(got) == 0 {
				return d, false, err
			}
			if d.Receives, err = strconv.Atoi(got[0].Attributes["ApproximateReceiveCount"]); err != nil {
				return d, false, err
			}
			d.Token = *got[0].ReceiptHandle
			return d, true, json.Unmarshal([]byte(*got[0].Body), &d.Wake)
		},
		Done: func(ctx context.Context, d queuetest.Delivery) error {
			return p.delete(ctx, p.urls[d.Wake.Kind], d.Token.(string))
		},
		Dead: func(ctx context.Context, kind queue.Kind) (wakes []queue.Wake, _ error) {
			got, err := p.take(ctx, p.dead[kind], 10, 0)
			for _, m := range got {
				var w queue.Wake
				if err := json.Unmarshal([]byte(*m.Body), &w); err != nil {
					return nil, err
				}
				wakes = append(wakes, w)
			}
			return wakes, err
		},
	}
}

// The queue passes the certification on a real service, all of it.
func TestCertified(t *testing.T) {
	peers.SQS(t)
	missing := queuetest.Run(t, queuetest.Config{
		Open: func(t *testing.T) queuetest.Subject { return newPeer(t).subject() }, Late: 5 * time.Second})
	for name, why := range missing {
		t.Errorf("%q was not exercised: %s", name, why)
	}
}

// A queue that does not exist is an error that says what to look at.
func TestNoSuchQueue(t *testing.T) {
	p := newPeer(t)
	q, err := sqsqueue.New(sqsqueue.Config{Client: p.client, Wakes: map[queue.Kind]string{queue.Attempt: p.urls[queue.Attempt] + "x"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"one":  q.Send(t.Context(), wake(queue.Attempt, "a"), 0),
		"many": q.SendAll(t.Context(), wakes(3)),
	} {
		if err == nil || !strings.Contains(err.Error(), "used literally") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
