package ddbjournal_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/ddbjournal"
	"github.com/layover-run/layover/ddbjournal/ddbtest"
	"github.com/layover-run/layover/localstack/peers"
)

// transport keeps a connection per writer: the default of two would churn them.
var transport = func() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 128
	return t
}()

// client is the client of this package's users, with quick retries and without
// a quota of them, so that an injected error is what a test sees.
func client(t testing.TB, via http.RoundTripper, attempts int, more ...func(*dynamodb.Options)) *dynamodb.Client {
	t.Helper()
	keys := peers.Account()
	options := append([]func(*dynamodb.Options){ddbjournal.ClientOptions, ddbtest.Strict(t), func(o *dynamodb.Options) {
		o.Region, o.BaseEndpoint = keys.Region, aws.String(peers.DynamoDB(t))
		o.Credentials = credentials.NewStaticCredentialsProvider(keys.ID, keys.Secret, keys.Session)
		o.HTTPClient = &http.Client{Transport: via}
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff, o.RateLimiter = attempts, time.Millisecond, ratelimit.None
		})
		o.RetryMaxAttempts = attempts
	}}, more...)
	return dynamodb.New(dynamodb.Options{}, options...)
}

var tables atomic.Int64

// newTable creates an empty table for one test.
func newTable(t testing.TB, c *dynamodb.Client) string {
	t.Helper()
	name := fmt.Sprintf("layover-test-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), tables.Add(1))
	ctx := context.Background()
	if _, err := c.CreateTable(ctx, ddbjournal.Table(name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := c.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name}); err != nil {
			t.Error(err)
		}
	})
	ready := dynamodb.NewTableExistsWaiter(c, func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay, o.MaxDelay = time.Millisecond, time.Second })
	if err := ready.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &name}, time.Minute); err != nil {
		t.Fatal(err)
	}
	return name
}

// openOn is a journal on a table. On a machine that is busy fifty writers may
// take long over one inbox, which is not what the tests are about.
func openOn(t testing.TB, c ddbjournal.API, table string) *ddbjournal.Journal {
	t.Helper()
	j, err := ddbjournal.New(c, ddbjournal.Config{Table: table, Watch: 5 * time.Millisecond, Contention: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func digestOf(b []byte) string { return record.Digest(b) }

var errDeadline = context.DeadlineExceeded
