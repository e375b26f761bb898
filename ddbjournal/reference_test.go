package ddbjournal_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/engine/enginetest"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/ddbjournal"
)

// List prices, us-east-1, in dollars per million.
const (
	priceWrite = 0.625 // write units, on demand
	priceRead  = 0.125 // read units, on demand
	priceQueue = 0.40  // SQS requests
)

// meter counts the SDK's calls once each, however often the SDK tries them.
type meter struct {
	mu         sync.Mutex
	calls      map[string]int
	writes     int
	writeUnits float64
	readUnits  float64
	indexUnits float64
	due        map[string]string // what the index has, by partition key
}

func newMeter() *meter { return &meter{calls: map[string]int{}, due: map[string]string{}} }

// on puts the meter into a client, at its Initialize step.
func (m *meter) on(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("meter", m.count), middleware.After)
	})
}

func (m *meter) count(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	total := types.ReturnConsumedCapacityTotal
	switch p := in.Parameters.(type) {
	case *dynamodb.PutItemInput:
		p.ReturnConsumedCapacity = total
	case *dynamodb.UpdateItemInput:
		p.ReturnConsumedCapacity = total
	case *dynamodb.GetItemInput:
		p.ReturnConsumedCapacity = total
	case *dynamodb.QueryInput:
		p.ReturnConsumedCapacity = total
	case *dynamodb.BatchGetItemInput:
		p.ReturnConsumedCapacity = total
	}
	out, meta, err := next.HandleInitialize(ctx, in)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", in.Parameters), "*dynamodb."), "Input")]++
	switch r := out.Result.(type) {
	case *dynamodb.PutItemOutput:
		m.writes++
		m.writeUnits += units(r.ConsumedCapacity)
	case *dynamodb.UpdateItemOutput:
		m.writes++
		m.writeUnits += units(r.ConsumedCapacity)
		m.index(r.Attributes)
	case *dynamodb.GetItemOutput:
		m.readUnits += max(1, units(r.ConsumedCapacity)) // one that finds nothing costs too
	case *dynamodb.QueryOutput:
		m.readUnits += max(1, units(r.ConsumedCapacity))
	case *dynamodb.BatchGetItemOutput:
		for _, c := range r.ConsumedCapacity {
			m.readUnits += units(&c)
		}
	}
	return out, meta, err
}

func units(c *types.ConsumedCapacity) float64 {
	if c == nil || c.CapacityUnits == nil {
		return 0
	}
	return *c.CapacityUnits
}

// index adds what a write costs in the index, which dynalite does not count:
// one unit to put a row, one to delete it, both when its key moves. A row holds
// four keys, well under 1 KB.
func (m *meter) index(now map[string]types.AttributeValue) {
	pk := now[ddbjournal.AttrPartition].(*types.AttributeValueMemberS).Value
	due := ""
	if n, ok := now[ddbjournal.AttrDue].(*types.AttributeValueMemberN); ok {
		due = n.Value
	}
	was := m.due[pk]
	switch m.due[pk] = due; {
	case was == due:
	case was == "" || due == "":
		m.indexUnits++
	default:
		m.indexUnits += 2
	}
}

func (m *meter) reads() int { return m.calls["GetItem"] + m.calls["Query"] + m.calls["BatchGetItem"] }

// sends is a queue that only counts.
type sends struct {
	mu    sync.Mutex
	kinds []queue.Kind
}

func (s *sends) Send(_ context.Context, w queue.Wake, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds = append(s.kinds, w.Kind)
	return nil
}

type lookIn struct {
	Order string `json:"order"`
}

// services are the engine's three over one journal.
type services struct {
	admitter *engine.Admitter
	attempts *engine.Attempter
	settler  *engine.Settler
	sends    *sends
}

func newServices(t testing.TB, j journal.Journal, b *agent.Binding) services {
	t.Helper()
	registry, err := engine.NewRegistry(0, b.Engine())
	if err != nil {
		t.Fatal(err)
	}
	s := services{sends: &sends{}}
	cfg := engine.Config{Journal: j, Queue: s.sends, AttemptTimeout: 5 * time.Minute, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if s.admitter, err = engine.NewAdmitter(cfg, registry.Manifest()); err != nil {
		t.Fatal(err)
	}
	if s.attempts, err = engine.NewAttempter(cfg, registry); err != nil {
		t.Fatal(err)
	}
	if s.settler, err = engine.NewSettler(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// reference plays run W: what the three functions do, one after another.
func (s services) reference(ctx context.Context, conversation string) error {
	lane := journal.Lane{Tenant: "acme", Conversation: conversation}
	if _, err := s.admitter.Submit(ctx, engine.SubmitRequest{Tenant: lane.Tenant, Principal: "ann", Agent: "reference",
		Conversation: conversation, Key: "k", Input: []byte(`{"order":"A-1001"}`)}); err != nil {
		return err
	}
	if ended, err := s.attempts.Attempt(ctx, lane); err != nil || ended != engine.HandedOver {
		return fmt.Errorf("the attempt ended as %q: %w", ended, err)
	}
	if settled, err := s.settler.Settle(ctx, lane); err != nil || !settled {
		return fmt.Errorf("settled: %v, %w", settled, err)
	}
	return nil
}

// Run W on DynamoDB: 12 writes of one item each, two sends inside, and at list
// prices at most 20 dollars for a million runs.
func TestReferenceRun(t *testing.T) {
	m := newMeter()
	c := client(t, transport, 3, m.on)
	j, err := ddbjournal.New(c, ddbjournal.Config{Table: newTable(t, c)})
	if err != nil {
		t.Fatal(err)
	}
	s := newServices(t, j, enginetest.ReferenceAgent().Bind(enginetest.Instant{}))
	*m = *newMeter()
	const runs = 5
	for i := range runs {
		if err := s.reference(t.Context(), fmt.Sprint("c", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range runs {
		h, err := j.Head(t.Context(), journal.Lane{Tenant: "acme", Conversation: fmt.Sprint("c", i)})
		if err != nil || h.State != journal.Idle {
			t.Fatalf("lane %d: %+v, %v", i, h, err)
		}
	}
	m.calls["GetItem"] -= runs // those of this check
	m.readUnits -= runs

	if m.writes != 12*runs || m.calls["PutItem"]+m.calls["UpdateItem"] != m.writes {
		t.Errorf("%d runs made %d writes that took effect of %v, want 12 each", runs, m.writes, m.calls)
	}
	if want := slices.Repeat([]queue.Kind{queue.Attempt, queue.Settle}, runs); !slices.Equal(s.sends.kinds, want) {
		t.Errorf("sends: %v", s.sends.kinds)
	}
	// Submit looks how much waits (1) and admit at head and inbox tail (2); claim
	// at the head (1); the attempt folds the log (1), takes the submission (1) and
	// looks at head and inbox four times (8); settle reads head, log, head and
	// inbox, and finish the head (5): 19.
	if reads := m.reads(); reads > 20*runs {
		t.Errorf("%d reads, want at most 20 for each run: %v", reads, m.calls)
	}
	if m.indexUnits != 4*runs {
		t.Errorf("%v index units, want 4 for each run", m.indexUnits)
	}
	// Three messages (the submission, two wakes), each sent, received, deleted.
	const requests = 9
	write, index, read := m.writeUnits/runs, m.indexUnits/runs, m.readUnits/runs
	dollars := (write+index)*priceWrite + read*priceRead + requests*priceQueue
	t.Logf("run W: %d writes, %.1f reads (%v for %d runs)", m.writes/runs, float64(m.reads())/runs, m.calls, runs)
	t.Logf("per run: %.1f write units + %.1f in the index, %.1f read units, %d queue requests", write, index, read, requests)
	t.Logf("a million runs at list price: %.1f x $%.3f + %.1f x $%.3f + %d x $%.2f = $%.2f",
		write+index, priceWrite, read, priceRead, requests, priceQueue, dollars)
	if dollars > 20 {
		t.Errorf("a million runs cost $%.2f, at most $20 are allowed", dollars)
	}
}

// counted is instant, counting its calls.
type counted struct{ n atomic.Int64 }

func (c *counted) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	c.n.Add(1)
	return enginetest.Instant{}.Stream(ctx, req, emit)
}
