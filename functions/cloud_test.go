package functions_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/ddbjournal/ddbtest"
	"github.com/layover-run/layover/functions"
	"github.com/layover-run/layover/functions/sqsqueue"
	"github.com/layover-run/layover/localstack/peers"
)

// cloud is the serverless assembly around one agent: the three functions on
// DynamoDB and SQS, each environment of a function with a journal of its own,
// and between them nothing but messages. What is outside is the ingress queue
// and the HTTP API. Every message is sent twice.
type cloud struct {
	t        *testing.T
	table    *ddbtest.Table
	sqs      *sqs.Client
	urls     map[string]string // queues by name
	registry *engine.Registry
	model    *modeltest.Model
	api      *client.Client
	ahead    atomic.Int64 // of the functions' clock, in nanoseconds

	mu       sync.Mutex
	attempts []*ddbtest.Journal // of the environments of the attempt function
	log      lockedBuffer
}

const (
	ingress    = "ingress"
	visibility = 2 // seconds
	receives   = 20
)

var (
	dynamoDB   = ddbtest.NewPeer()
	cloudCount atomic.Int64
)

func newCloud(t *testing.T, def *agent.Definition, steps ...modeltest.Step) *cloud {
	t.Helper()
	endpoint := peers.SQS(t)
	c := &cloud{t: t, table: dynamoDB.NewTable(t), urls: map[string]string{}, model: modeltest.Script(steps...),
		sqs: sqs.New(sqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}, sqsqueue.Retries)}
	var err error
	if c.registry, err = engine.NewRegistry(0, def.Bind(c.model).Engine()); err != nil {
		t.Fatal(err)
	}
	prefix := fmt.Sprintf("cloud-%d-%d-", os.Getpid(), cloudCount.Add(1))
	c.create("dead", prefix, nil)
	arn, err := c.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: aws.String(c.urls["dead"]),
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{ingress, string(queue.Attempt), string(queue.Settle)} {
		c.create(name, prefix, map[string]string{"VisibilityTimeout": fmt.Sprint(visibility),
			"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arn.Attributes["QueueArn"], receives)})
	}
	c.deploy()
	return c
}

func (c *cloud) create(name, prefix string, attributes map[string]string) {
	c.t.Helper()
	out, err := c.sqs.CreateQueue(c.t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(prefix + name), Attributes: attributes})
	if err != nil {
		c.t.Fatal(err)
	}
	c.urls[name] = *out.QueueUrl
	c.t.Cleanup(func() {
		_, _ = c.sqs.DeleteQueue(context.WithoutCancel(c.t.Context()), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
	})
}

// twice is at-least-once delivery at its worst.
type twice struct{ *sqs.Client }

func (d twice) SendMessage(ctx context.Context, in *sqs.SendMessageInput, o ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	if out, err := d.Client.SendMessage(ctx, in, o...); err != nil {
		return out, err
	}
	return d.Client.SendMessage(ctx, in, o...)
}

// deploy starts the functions: one environment of admit and settle, two of
// attempt, a schedule for the sweep. They end with the test.
func (c *cloud) deploy() {
	c.t.Helper()
	ctx, stop := context.WithCancel(c.t.Context())
	var work sync.WaitGroup
	c.t.Cleanup(func() { stop(); work.Wait() })
	log := slog.New(slog.NewTextHandler(&c.log, nil))

	admitter, err := engine.NewAdmitter(c.config(c.table.Open(c.t)), c.registry.Manifest())
	if err != nil {
		c.t.Fatal(err)
	}
	settler, err := engine.NewSettler(c.config(c.table.Open(c.t)))
	if err != nil {
		c.t.Fatal(err)
	}
	admit := functions.NewAdmit(admitter, functions.AdmitOptions{Log: log})
	server := httptest.NewServer(functions.NewAPI(admit, functions.APIOptions{Log: log}))
	c.t.Cleanup(server.Close)
	if c.api, err = client.New(server.URL, client.Options{Principal: "ann"}); err != nil {
		c.t.Fatal(err)
	}
	work.Go(func() { c.lambda(ctx, ingress, 10, func() handler { return admit.Handle }) })
	work.Go(func() {
		c.lambda(ctx, string(queue.Settle), 1, func() handler { return functions.NewSettle(settler, log).Handle })
	})
	for range 2 {
		work.Go(func() { c.lambda(ctx, string(queue.Attempt), 1, c.environment) })
	}
	work.Go(func() { settler.Run(ctx, 100*time.Millisecond) })
}

func (c *cloud) config(j journal.Journal) engine.Config {
	wakes, err := sqsqueue.New(sqsqueue.Config{Client: twice{c.sqs}, Wakes: map[queue.Kind]string{
		queue.Attempt: c.urls[string(queue.Attempt)], queue.Settle: c.urls[string(queue.Settle)]}})
	if err != nil {
		panic(err)
	}
	return engine.Config{Journal: j, Queue: wakes, Log: slog.New(slog.NewTextHandler(&c.log, nil)), Grace: 50 * time.Millisecond,
		Now: func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }}
}

// environment is a new process of the attempt function.
func (c *cloud) environment() handler {
	j := c.table.Open(c.t)
	attempter, err := engine.NewAttempter(c.config(j), c.registry)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts = append(c.attempts, j)
	return functions.NewAttempt(attempter, slog.New(slog.NewTextHandler(&c.log, nil))).Handle
}

// crash is the death of every environment the attempt function has.
func (c *cloud) crash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.attempts {
		_ = j.Close()
	}
}

type handler func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)

// lambda does what Lambda does with a queue: an invocation for a batch, the
// messages it did not fail deleted, another environment after one that failed.
func (c *cloud) lambda(ctx context.Context, name string, batch int32, start func() handler) {
	handle := start()
	for ctx.Err() == nil {
		got, err := c.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: aws.String(c.urls[name]), MaxNumberOfMessages: batch, WaitTimeSeconds: 1,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}})
		if err != nil || len(got.Messages) == 0 {
			continue
		}
		var ev events.SQSEvent
		for _, m := range got.Messages {
			ev.Records = append(ev.Records, events.SQSMessage{MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body,
				Attributes: m.Attributes, EventSource: "aws:sqs"})
		}
		invocation, end := context.WithTimeout(ctx, 15*time.Minute)
		resp, err := handle(invocation, ev)
		end()
		for _, m := range ev.Records {
			if err == nil && !slices.Contains(resp.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId}) {
				_, _ = c.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: aws.String(c.urls[name]), ReceiptHandle: &m.ReceiptHandle})
			}
		}
		if err != nil || len(resp.BatchItemFailures) > 0 {
			handle = start()
		}
	}
}

// send puts a message into the ingress queue.
func (c *cloud) send(body string) {
	c.t.Helper()
	if _, err := (twice{c.sqs}).SendMessage(c.t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String(c.urls[ingress]), MessageBody: &body}); err != nil {
		c.t.Fatal(err)
	}
}

const cloudLane = "c"

// submit sends a submission and waits until it is durable.
func (c *cloud) submit(key string) (id string) {
	c.t.Helper()
	c.send(`{"v":1,"type":"submit","agent":"a","conversation":"` + cloudLane + `","key":"` + key + `","input":"go"}`)
	j, before := c.table.Open(c.t), 0
	c.until("the submission is admitted", func() bool {
		_, entries, err := j.Inbox(c.t.Context(), local(cloudLane), 0)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, e := range entries {
			row, err := j.Submission(c.t.Context(), "local", e.Ref)
			if e.Kind == journal.EntrySubmit && err == nil && row.Key == key {
				id, before = e.Ref, before+1
			}
		}
		return id != ""
	})
	if before != 1 {
		c.t.Fatalf("%d submissions of one key", before)
	}
	return id
}

// until waits for what the functions have to bring about by themselves.
func (c *cloud) until(what string, done func() bool) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("not within a minute: %s\n%s", what, c.log.String())
		}
	}
}

// await is where a submission stands once it has come as far as asked.
func (c *cloud) await(id string, until client.Until) wire.Progress {
	c.t.Helper()
	p, err := c.api.Await(c.t.Context(), cloudLane, id, until, time.Minute)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// ends holds a submission to its outcome, the log to what every log has to be,
// and the functions to leave no dead letter and no lane behind.
func (c *cloud) ends(id, status string) wire.Progress {
	c.t.Helper()
	p := c.await(id, client.UntilSettled)
	if p.Status != status {
		c.t.Fatalf("the run is %s %+v, want %s\n%s", p.Status, p.Error, status, c.log.String())
	}
	v, err := c.api.Verify(c.t.Context(), cloudLane)
	if err != nil || !v.OK {
		c.t.Errorf("verify: %+v, %v", v, err)
	}
	dead, err := c.sqs.ReceiveMessage(c.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(c.urls["dead"])})
	if err != nil || len(dead.Messages) > 0 {
		c.t.Errorf("dead letters: %+v, %v", dead.Messages, err)
	}
	return p
}

// rests waits until the lane is idle.
func (c *cloud) rests() {
	c.t.Helper()
	c.until("the lane is idle", func() bool {
		s, err := c.api.Status(c.t.Context(), cloudLane)
		if err != nil {
			c.t.Fatal(err)
		}
		return s.State == string(journal.Idle) && s.Queued == 0
	})
}

// records lists what the log holds of one kind.
func (c *cloud) records(kind record.Kind) (found []record.Record) {
	c.t.Helper()
	for raw, err := range c.table.Open(c.t).Read(c.t.Context(), local(cloudLane), 1) {
		if err != nil {
			c.t.Fatal(err)
		}
		b, err := record.Open(raw, "local", cloudLane)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, r := range b.Records {
			if r.Kind() == kind {
				found = append(found, r)
			}
		}
	}
	return found
}
