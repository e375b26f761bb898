// Package ddbjournal is the journal port on one DynamoDB table, for functions
// that scale to zero and for any number of them.
//
// Every durable step is one conditional write of one item; the order of the
// items in an operation makes a crash between them harmless, so there are no
// transactions. Reads that decide are strongly consistent and read every page.
// The index of due lanes is a hint and is checked against the heads.
//
// A write whose answer was lost is looked at before it is believed lost: each
// one leaves evidence of who wrote it (a slot its id and digest, a claim its
// owner, an entry, a row and a release a nonce), because the SDK's own retry
// of a write that took effect is answered with a failed condition.
package ddbjournal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/layover-run/layover/core/journal"
)

// Config configures a journal. Table is required.
type Config struct {
	// Table is the name of the table, as Table defines it.
	Table string
	// Watch is how often a watched head is read. Defaults to 2 s.
	Watch time.Duration
	// Retention is how long a settled submission row, and with it the
	// idempotency of its key, is kept. Defaults to 30 days; negative means for
	// ever. The log is not affected.
	Retention time.Duration
	// Contention bounds how long one operation competes with others for an
	// inbox slot or a head before it says that the store did not answer.
	// Defaults to 15 s.
	Contention time.Duration
}

// Journal is a journal.Journal on a table. New makes one. It holds no
// connection of its own and needs no closing.
type Journal struct {
	api  API
	cfg  Config
	logs tails
}

var _ journal.Journal = (*Journal)(nil)

// New returns a journal on an existing table.
func New(api API, cfg Config) (*Journal, error) {
	if api == nil || cfg.Table == "" {
		return nil, errors.New("ddbjournal: a client and Config.Table are required")
	}
	if cfg.Watch <= 0 {
		cfg.Watch = 2 * time.Second
	}
	if cfg.Retention == 0 {
		cfg.Retention = 30 * 24 * time.Hour
	}
	if cfg.Contention <= 0 {
		cfg.Contention = 15 * time.Second
	}
	return &Journal{api: api, cfg: cfg}, nil
}

// answerTime is how long one try waits for the store's answer. An environment
// that was frozen between two invocations wakes with connections that are dead
// and do not know it: waiting for them would use up the invocation.
const answerTime = 5 * time.Second

// ClientOptions sets a client up for this package: the standard retryer, three
// tries, at most a second between them, and five seconds for each answer, so
// that a throttled call or a dead connection is over well inside an
// invocation. An HTTP client of the caller's own is left as it is. Use it as
// dynamodb.NewFromConfig(cfg, ddbjournal.ClientOptions).
func ClientOptions(o *dynamodb.Options) {
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 3
		o.MaxBackoff = time.Second
	})
	o.RetryMaxAttempts = 3
	ours, is := o.HTTPClient.(*awshttp.BuildableClient)
	if o.HTTPClient == nil {
		ours, is = awshttp.NewBuildableClient(), true
	}
	if is {
		o.HTTPClient = ours.WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = answerTime })
	}
}

// nonce tells one call's writes apart from every other's.
func nonce() string { return rand.Text()[:16] }

// Between two tries for one item: full jitter, from 5 ms doubling.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 200 * time.Millisecond
)

// pause waits a random part of d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(time.Duration(mathrand.Int64N(int64(d)) + 1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tries is one operation's competition with others for an item.
type tries struct {
	until time.Time
	bound time.Duration
	wait  time.Duration
}

func (j *Journal) try() *tries {
	return &tries{until: time.Now().Add(j.cfg.Contention), bound: j.cfg.Contention, wait: firstPause}
}

// again waits before the next try, or says that there has been enough of them.
func (t *tries) again(ctx context.Context, what string) error {
	if time.Now().After(t.until) {
		return &StoreError{Err: fmt.Errorf("%s was not to be had for %s", what, t.bound)}
	}
	wait := t.wait
	t.wait = min(2*wait, lastPause)
	return pause(ctx, wait)
}
