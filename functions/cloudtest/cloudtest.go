// Package cloudtest is the serverless assembly for tests: the functions over
// DynamoDB and SQS, on real peers. Each environment of a function has a journal
// and a client of its own, and nothing is between them but messages.
package cloudtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/ddbjournal"
	"github.com/layover-run/layover/ddbjournal/ddbtest"
	"github.com/layover-run/layover/functions"
	"github.com/layover-run/layover/functions/sqsqueue"
	"github.com/layover-run/layover/localstack/peers"
)

// Account is what outlives every deployment: the table, the queues, the time.
type Account struct {
	Table *ddbtest.Table
	t     testing.TB
	sqs   *sqs.Client
	urls  map[string]string
	ahead atomic.Int64
}

// The queues of an account, by name; the others are those of the wakes.
const (
	ingress = "ingress"
	dead    = "dead"
)

// What the queues do with a message that was not deleted.
const (
	visibility = 2 // seconds
	receives   = 20
)

var accounts atomic.Int64

// NewAccount makes an empty one that ends with the test. Where there are no
// peers the test skips and says how to have them.
func NewAccount(t testing.TB, p *ddbtest.Peer) *Account {
	t.Helper()
	endpoint, keys := peers.SQS(t), peers.Account()
	a := &Account{Table: p.NewTable(t), t: t, urls: map[string]string{}, sqs: sqs.New(sqs.Options{Region: keys.Region, BaseEndpoint: &endpoint,
		Credentials: credentials.NewStaticCredentialsProvider(keys.ID, keys.Secret, keys.Session)}, sqsqueue.Retries)}
	prefix := fmt.Sprintf("cloud-%d-%d-", os.Getpid(), accounts.Add(1))
	a.create(dead, prefix, nil)
	arn, err := a.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: a.url(dead),
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{ingress, string(queue.Attempt), string(queue.Settle)} {
		a.create(name, prefix, map[string]string{"VisibilityTimeout": fmt.Sprint(visibility),
			"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arn.Attributes["QueueArn"], receives)})
	}
	return a
}

func (a *Account) create(name, prefix string, attributes map[string]string) {
	a.t.Helper()
	out, err := a.sqs.CreateQueue(a.t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(prefix + name), Attributes: attributes})
	if err != nil {
		a.t.Fatal(err)
	}
	a.urls[name] = *out.QueueUrl
	a.t.Cleanup(func() {
		_, _ = a.sqs.DeleteQueue(context.WithoutCancel(a.t.Context()), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
	})
}

func (a *Account) url(name string) *string { return aws.String(a.urls[name]) }

// Pass lets time go by for all functions.
func (a *Account) Pass(d time.Duration) { a.ahead.Add(int64(d)) }

// Now is the functions' clock.
func (a *Account) Now() time.Time { return time.Now().Add(time.Duration(a.ahead.Load())) }

// Send puts a message into the ingress queue, twice: at-least-once delivery at
// its worst, as it is with the wakes.
func (a *Account) Send(body string) {
	a.t.Helper()
	in := &sqs.SendMessageInput{QueueUrl: a.url(ingress), MessageBody: &body}
	if _, err := (twice{a.sqs}).SendMessage(a.t.Context(), in); err != nil {
		a.t.Fatal(err)
	}
}

// Dead is the bodies of the dead letters.
func (a *Account) Dead() (bodies []string) {
	a.t.Helper()
	out, err := a.sqs.ReceiveMessage(a.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: a.url(dead), MaxNumberOfMessages: 10})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, m := range out.Messages {
		bodies = append(bodies, *m.Body)
	}
	return bodies
}

type twice struct{ *sqs.Client }

func (d twice) SendMessage(ctx context.Context, in *sqs.SendMessageInput, o ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	if out, err := d.Client.SendMessage(ctx, in, o...); err != nil {
		return out, err
	}
	return d.Client.SendMessage(ctx, in, o...)
}

// Deployment is the functions at work in an account.
type Deployment struct {
	Admit *functions.Admit

	account  *Account
	config   engine.Config
	registry *engine.Registry
	stop     context.CancelFunc
	work     sync.WaitGroup
	mu       sync.Mutex
	closed   bool
	journals []*ddbtest.Journal
}

// watching is how often who waits for an outcome looks for it.
func watching(c *ddbjournal.Config) { c.Watch = 50 * time.Millisecond }

// Deploy starts the functions: one environment of admit, one of settle with a
// schedule for the sweep, two of attempt. They end with the test, or at Kill.
// Journal, Queue, Now and Grace of the configuration are set here.
func (a *Account) Deploy(config engine.Config, registry *engine.Registry) *Deployment {
	a.t.Helper()
	d := &Deployment{account: a, config: config, registry: registry}
	wakes, err := sqsqueue.New(sqsqueue.Config{Client: twice{a.sqs}, Wakes: map[queue.Kind]string{
		queue.Attempt: a.urls[string(queue.Attempt)], queue.Settle: a.urls[string(queue.Settle)]}})
	if err != nil {
		a.t.Fatal(err)
	}
	d.config.Queue, d.config.Now, d.config.Grace = wakes, a.Now, 50*time.Millisecond
	admitter, err := engine.NewAdmitter(d.over(watching), registry.Manifest())
	if err != nil {
		a.t.Fatal(err)
	}
	settler, err := engine.NewSettler(d.over())
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := engine.NewAttempter(d.over(), registry); err != nil {
		a.t.Fatal(err)
	}
	d.Admit = functions.NewAdmit(admitter, functions.AdmitOptions{Log: config.Log})
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	a.t.Cleanup(d.end)
	settle := functions.NewSettle(settler, config.Log).Handle
	d.work.Go(func() { a.source(ctx, ingress, 10, func() handler { return d.Admit.Handle }) })
	d.work.Go(func() { a.source(ctx, string(queue.Settle), 1, func() handler { return settle }) })
	for range 2 {
		d.work.Go(func() { a.source(ctx, string(queue.Attempt), 1, d.environment) })
	}
	d.work.Go(func() { settler.Run(ctx, time.Second) })
	return d
}

// Journal looks at the table from outside of the functions.
func (d *Deployment) Journal() *ddbtest.Journal { return d.account.Table.Open(d.account.t) }

// Now is the functions' clock.
func (d *Deployment) Now() time.Time { return d.account.Now() }

// over is the configuration of one environment.
func (d *Deployment) over(change ...func(*ddbjournal.Config)) engine.Config {
	j := d.account.Table.Open(d.account.t, change...)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.journals = append(d.journals, j)
	if d.closed {
		_ = j.Close()
	}
	c := d.config
	c.Journal = j
	return c
}

// environment is a new process of the attempt function.
func (d *Deployment) environment() handler {
	attempter, err := engine.NewAttempter(d.over(), d.registry)
	if err != nil {
		panic(err) // it was made once before
	}
	return functions.NewAttempt(attempter, d.config.Log).Handle
}

// Crash is the death of every environment there is. Their leases go on; others
// take their place at the next messages.
func (d *Deployment) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, j := range d.journals[2:] { // those of admit and settle live
		_ = j.Close()
	}
}

// Kill ends the deployment with its invocations where they are: nothing of it
// reaches the store any more. It does not wait for handlers.
func (d *Deployment) Kill() {
	d.mu.Lock()
	d.closed = true
	for _, j := range d.journals {
		_ = j.Close()
	}
	d.mu.Unlock()
	d.stop()
}

func (d *Deployment) end() {
	d.stop()
	d.work.Wait()
}
