// Package sqsqueue is the wake port on SQS: standard queues, one for each
// function, and the queues that hear how a run ended.
//
// Bodies are ASCII JSON: SQS takes the characters of XML 1.0 only, and not
// every tool on the way gets the others right. A wake carries its tenant as the
// message group, which on a standard queue turns on fair queues: a noisy tenant
// does not delay the others.
package sqsqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/layover-run/layover/core/queue"
)

// Client is the part of *sqs.Client that sending needs.
type Client interface {
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
	SendMessageBatch(context.Context, *sqs.SendMessageBatchInput, ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
}

// Retries is how an SQS client for this package repeats a failed call: three
// tries within about a second, because a wake is not worth the time of an
// invocation. Use it as sqs.NewFromConfig(cfg, sqsqueue.Retries).
func Retries(o *sqs.Options) {
	o.Retryer = retry.NewStandard(func(s *retry.StandardOptions) {
		s.MaxAttempts = tries
		s.MaxBackoff = time.Second
	})
}

// Config names the queues. URLs are used literally, as CreateQueue answered
// them.
type Config struct {
	Client Client
	// Wakes is the URL of the queue for each kind of wake. A function needs
	// those it sends. Standard queues only: a FIFO queue knows no delay of a
	// single message, and one lane that fails would block its whole group.
	Wakes map[queue.Kind]string
	// Replies is the URL of each queue that a submission may name in replyTo.
	// They may be FIFO queues. Defaults to none.
	Replies map[string]string
}

// Queue sends wakes and replies. It is safe for concurrent use.
type Queue struct{ cfg Config }

var (
	_ queue.Queue = (*Queue)(nil)
	_ queue.Batch = (*Queue)(nil)
)

// New refuses a configuration that could not send.
func New(c Config) (*Queue, error) {
	if c.Client == nil || len(c.Wakes) == 0 {
		return nil, errors.New("sqsqueue: Config.Client and Config.Wakes are required")
	}
	for kind, url := range c.Wakes {
		if err := usable(url); err != nil {
			return nil, fmt.Errorf("sqsqueue: the %s queue: %w", kind, err)
		}
		if fifo(url) {
			return nil, fmt.Errorf("sqsqueue: the %s queue is a FIFO queue (%s): use a standard one", kind, url)
		}
	}
	for name, url := range c.Replies {
		if err := usable(url); err != nil {
			return nil, fmt.Errorf("sqsqueue: the reply queue %q: %w", name, err)
		}
	}
	return &Queue{cfg: c}, nil
}

func usable(url string) error {
	if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://") {
		return fmt.Errorf("%q is no queue URL: give the whole URL, not a name or an ARN", url)
	}
	return nil
}

func fifo(url string) bool { return strings.HasSuffix(url, ".fifo") }

// maxDelay is what SQS takes. A longer delay is cut to it; the due time on the
// lane's head says when the lane is really wanted.
const maxDelay = 900 * time.Second

// seconds is a delay as SQS counts it: a wake is rather late than early.
func seconds(delay time.Duration) int32 {
	delay = min(max(delay, 0), maxDelay)
	return int32((delay + time.Second - 1) / time.Second)
}

// Send sends one wake. Delays are rounded up to whole seconds and cut to 15
// minutes. The client repeats what is worth repeating, so that a wake may
// arrive twice.
func (q *Queue) Send(ctx context.Context, w queue.Wake, delay time.Duration) error {
	url, body, err := q.prepare(w)
	if err != nil {
		return err
	}
	_, err = q.cfg.Client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: &url, MessageBody: &body, DelaySeconds: seconds(delay), MessageGroupId: group(w.Tenant),
	})
	if err != nil {
		return failed(fmt.Sprintf("the %s queue", w.Kind), err)
	}
	return nil
}

func (q *Queue) prepare(w queue.Wake) (url, body string, err error) {
	url, ok := q.cfg.Wakes[w.Kind]
	if !ok {
		return "", "", fmt.Errorf("sqsqueue: no queue for %q wakes is configured", w.Kind)
	}
	body, err = ascii(w)
	if err != nil {
		return "", "", fmt.Errorf("sqsqueue: a wake for the %s queue: %w", w.Kind, err)
	}
	return url, body, nil
}

// Reply is a message for the queue a submission named in replyTo.
type Reply struct {
	To string // the name, as in Config.Replies
	// ID is the same each time the same thing is told: the deduplication id of
	// a FIFO queue, a message attribute "id" of any. Not empty.
	ID string
	// Tenant and Conversation group messages: the order of a conversation on a
	// FIFO queue, the fair share of a tenant on a standard one.
	Tenant, Conversation string
	Body                 any // encoded as JSON
}

// ErrNoReplyQueue says that nobody configured the name a submission gave.
var ErrNoReplyQueue = errors.New("no such reply queue")

// maxMessage is what SQS takes for one message, its attributes included, in
// bytes.
const maxMessage = 1 << 20

// ErrTooLarge says that a reply is larger than a message may be.
var ErrTooLarge = errors.New("too large for a message")

// Reply sends a message to a reply queue. Its errors are ErrNoReplyQueue and
// ErrTooLarge, which time does not mend, and those of the service.
func (q *Queue) Reply(ctx context.Context, r Reply) error {
	url, ok := q.cfg.Replies[r.To]
	if !ok {
		return fmt.Errorf("sqsqueue: reply to %q: %w", r.To, ErrNoReplyQueue)
	}
	if r.ID == "" {
		return fmt.Errorf("sqsqueue: reply to %q: it has no id", r.To)
	}
	body, err := ascii(r.Body)
	if err != nil {
		return fmt.Errorf("sqsqueue: reply to %q: %w", r.To, err)
	}
	const name, kind = "id", "String"
	if size := len(body) + len(name) + len(kind) + len(r.ID); size > maxMessage {
		return fmt.Errorf("sqsqueue: reply to %q: %w: it has %d bytes, the service takes %d; refer to what is large instead",
			r.To, ErrTooLarge, size, maxMessage)
	}
	in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body, MessageGroupId: group(r.Tenant),
		MessageAttributes: map[string]types.MessageAttributeValue{name: {DataType: aws.String(kind), StringValue: &r.ID}}}
	if fifo(url) {
		in.MessageGroupId = group(r.Tenant + "/" + r.Conversation)
		in.MessageDeduplicationId = group(r.ID)
	}
	if _, err := q.cfg.Client.SendMessage(ctx, in); err != nil {
		return failed(fmt.Sprintf("the reply queue %q", r.To), err)
	}
	return nil
}

// failed adds what the reader can do where the cause is a known one.
func failed(where string, err error) error {
	var missing *types.QueueDoesNotExist
	if errors.As(err, &missing) {
		return fmt.Errorf("sqsqueue: %s does not exist; its URL is used literally, as CreateQueue answered it: %w", where, err)
	}
	return fmt.Errorf("sqsqueue: send to %s: %w", where, err)
}
