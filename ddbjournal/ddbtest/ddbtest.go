// Package ddbtest gives the tests of other packages the journal of the
// serverless assembly: ddbjournal and the SDK as functions have them, on a
// real peer, in a synctest bubble too.
package ddbtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/ddbjournal"
	"github.com/layover-run/layover/localstack/peers"
)

// Peer is a DynamoDB that bubbles can reach.
type Peer struct {
	way    *Way
	lossy  bool
	tables atomic.Int64
}

// NewPeer opens the way to it. It must be called outside of every bubble.
func NewPeer() *Peer {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 128
	return &Peer{way: NewWay(t)}
}

// NewLossyPeer is one on the way from which the first answer to every write is
// lost: the SDK makes each a second time, at once, and meets what it wrote.
func NewLossyPeer() *Peer {
	p := NewPeer()
	p.lossy = true
	return p
}

// Table is one table of a peer. It outlives the processes that use it.
type Table struct {
	t        testing.TB
	name     string
	endpoint string
	peer     *Peer
	writes   atomic.Int64
}

// NewTable makes an empty table that ends with the test. Where there is no
// peer the test skips and says how to have one; in a bubble
// LAYOVER_DYNAMODB_ENDPOINT has to name it.
func (p *Peer) NewTable(t testing.TB) *Table {
	t.Helper()
	table := &Table{t: t, name: fmt.Sprintf("layover-%d-%d", os.Getpid(), p.tables.Add(1)), endpoint: peers.DynamoDB(t), peer: p}
	c, ctx := table.client(p.way), context.Background()
	if _, err := c.CreateTable(ctx, ddbjournal.Table(table.name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := c.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table.name}); err != nil {
			t.Error(err)
		}
	})
	for looks := 1000; ; looks-- { // and no pause: a bubble's clock stands where it is
		out, err := c.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table.name})
		switch {
		case err != nil:
			t.Fatal(err)
		case out.Table.TableStatus == types.TableStatusActive:
			return table
		case looks == 0:
			t.Fatalf("table %s does not become active", table.name)
		}
	}
}

func (b *Table) client(way dynamodb.HTTPClient) *dynamodb.Client {
	keys := peers.Account()
	return dynamodb.New(dynamodb.Options{Region: keys.Region, BaseEndpoint: aws.String(b.endpoint),
		Credentials: credentials.NewStaticCredentialsProvider(keys.ID, keys.Secret, keys.Session), HTTPClient: way},
		ddbjournal.ClientOptions, Strict(b.t), func(o *dynamodb.Options) {
			o.Retryer = retryer{o.Retryer}
			if b.peer.lossy {
				o.Retryer = atOnce{retryer{retry.NewStandard(func(o *retry.StandardOptions) { o.RateLimiter = ratelimit.None })}}
			}
		})
}

// atOnce has no pauses between tries: a bubble's clock stands where it is.
type atOnce struct{ aws.Retryer }

func (atOnce) RetryDelay(int, error) (time.Duration, error) { return 0, nil }

// retryer is the SDK's, but for a process that is no more.
type retryer struct{ aws.Retryer }

func (r retryer) IsErrorRetryable(err error) bool {
	return !errors.Is(err, journal.ErrClosed) && r.Retryer.IsErrorRetryable(err)
}

// Writes is how many items were written, those whose answer was lost included.
func (b *Table) Writes() int64 { return b.writes.Load() }

// Open is the journal of one process, with a client of its own. Its
// configuration is the default one but for the changes.
func (b *Table) Open(t testing.TB, change ...func(*ddbjournal.Config)) *Journal {
	t.Helper()
	w, config := &wire{table: b}, ddbjournal.Config{Table: b.name}
	for _, f := range change {
		f(&config)
	}
	j, err := ddbjournal.New(b.client(w), config)
	if err != nil {
		t.Fatal(err)
	}
	return &Journal{Journal: j, wire: w}
}

// Journal is the journal of a process that can die and whose wire to the store
// can break.
type Journal struct {
	*ddbjournal.Journal
	wire *wire
}

// Close is the death of the process: nothing it still tries reaches the store,
// and every operation answers journal.ErrClosed.
func (j *Journal) Close() error {
	j.wire.closed.Store(true)
	return nil
}

// Fault is asked around every exchange that writes an item, with the name of
// the call: before it, when nothing has happened, and after one that took
// effect. An error is a connection that broke there; the SDK tries again.
type Fault func(call string, after bool) error

// SetWriteFault installs f; nil removes it.
func (j *Journal) SetWriteFault(f Fault) { j.wire.fault.Store(&f) }

// wire is the HTTP client of one process, asked once for each try of the SDK.
type wire struct {
	table  *Table
	closed atomic.Bool
	fault  atomic.Pointer[Fault]
}

func (w *wire) Do(req *http.Request) (*http.Response, error) {
	if w.closed.Load() {
		return nil, journal.ErrClosed
	}
	_, call, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	if call != "PutItem" && call != "UpdateItem" {
		return w.table.peer.way.Do(req)
	}
	if err := w.broken(call, false); err != nil {
		return nil, err
	}
	response, err := w.table.peer.way.Do(req)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	w.table.writes.Add(1)
	if w.table.peer.lossy && strings.Contains(req.Header.Get("Amz-Sdk-Request"), "attempt=1;") {
		return nil, io.ErrUnexpectedEOF
	}
	if err := w.broken(call, true); err != nil {
		return nil, err
	}
	return response, nil
}

func (w *wire) broken(call string, after bool) error {
	if f := w.fault.Load(); f != nil && *f != nil {
		return (*f)(call, after)
	}
	return nil
}
