package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
)

// A hundred runs are in flight and the process is killed at random instants:
// every accepted run has one outcome, every approved refund happened once, every
// log checks. The seed is printed; LAYOVER_SEED repeats a schedule's choices.
//
// failure: A02, A03
func TestKillAtRandomInstants(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a busy server eight times: run without -short")
	}
	const runs, kills = 100, 8
	seed := rand.Uint64()
	if s := os.Getenv("LAYOVER_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LAYOVER_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &swarm{t: t, dir: t.TempDir()}
	w.restart()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()

	var all sync.WaitGroup
	for i := range runs {
		all.Add(1)
		go func() {
			defer all.Done()
			w.submit(ctx, fmt.Sprintf("run-%03d", i))
		}()
	}
	approving, stop := context.WithCancel(ctx)
	var approver sync.WaitGroup
	approver.Add(1)
	go func() {
		defer approver.Done()
		w.approveAll(approving)
	}()
	for range kills {
		time.Sleep(time.Duration(20+rng.IntN(180)) * time.Millisecond)
		w.restart()
	}
	all.Wait()
	for i := range runs {
		if err := w.settled(ctx, fmt.Sprintf("run-%03d", i)); err != nil {
			t.Errorf("run-%03d: %v", i, err)
		}
	}
	stop()
	approver.Wait()
	w.checkRefunds(runs)
}

// swarm is a server that is killed and restarted under its clients.
type swarm struct {
	t      *testing.T
	dir    string
	mu     sync.Mutex
	server *server
	ids    sync.Map // conversation → submission
}

// restart kills the process, whatever it does, and starts another.
func (w *swarm) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server != nil {
		w.server.kill()
	}
	s, ok := start(w.t, w.dir, "")
	if !ok {
		w.t.Errorf("the server does not come up:\n%s", s.stderr)
		return
	}
	w.server = s
}

func (w *swarm) client() *client.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.server.client()
}

// retry repeats do while the server is away.
func (w *swarm) retry(ctx context.Context, do func(*client.Client) error) error {
	for {
		err := do(w.client())
		var away *client.Unreachable
		if err == nil || !errors.As(err, &away) || ctx.Err() != nil {
			return err
		}
	}
}

func (w *swarm) submit(ctx context.Context, conversation string) {
	err := w.retry(ctx, func(c *client.Client) error {
		s, err := c.Submit(ctx, conversation, wire.Submit{Agent: "refund", Key: "k", Input: json.RawMessage(`{"orderId":"A-1001","reason":"arrived broken"}`)})
		if err == nil {
			w.ids.Store(conversation, s.Submission)
		}
		return err
	})
	if err != nil {
		w.t.Errorf("submit %s: %v", conversation, err)
	}
}

// approveAll approves whatever is pending, again and again. A decision whose
// answer was lost with the server shows up as already decided.
func (w *swarm) approveAll(ctx context.Context) {
	for ctx.Err() == nil {
		var pending []wire.Approval
		if err := w.retry(ctx, func(c *client.Client) (err error) { pending, err = c.Approvals(ctx); return err }); err != nil {
			if ctx.Err() == nil {
				w.t.Errorf("approvals: %v", err)
			}
			return
		}
		for _, a := range pending {
			err := w.retry(ctx, func(c *client.Client) error {
				_, err := c.Decide(ctx, a.ID, wire.Decide{Decision: "approve", ArgsDigest: a.ArgsDigest})
				return err
			})
			var p *client.Problem
			if err != nil && ctx.Err() == nil && (!errors.As(err, &p) || p.Kind != "decided" && p.Kind != "settled") {
				w.t.Errorf("approve %s: %v", a.ID, err)
			}
		}
	}
}

func (w *swarm) settled(ctx context.Context, conversation string) error {
	id, ok := w.ids.Load(conversation)
	if !ok {
		return errors.New("was not accepted")
	}
	return w.retry(ctx, func(c *client.Client) error {
		p, err := c.Await(ctx, conversation, id.(string), client.UntilSettled, 60*time.Second)
		if err != nil {
			return err
		}
		if p.Status != "completed" {
			return fmt.Errorf("%s: %+v", p.Status, p.Error)
		}
		v, err := c.Verify(ctx, conversation)
		if err == nil && !v.OK {
			return fmt.Errorf("verify: %v", v.Violations)
		}
		return err
	})
}

// checkRefunds holds that each operation is in the ledger exactly once.
func (w *swarm) checkRefunds(want int) {
	b, err := os.ReadFile(filepath.Join(w.dir, "refunds.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	seen := map[string]int{}
	for line := range strings.Lines(string(b)) {
		var entry struct{ Operation string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			w.t.Fatalf("ledger line %q: %v", line, err)
		}
		seen[entry.Operation]++
	}
	for op, n := range seen {
		if n != 1 {
			w.t.Errorf("refund %s happened %d times", op, n)
		}
	}
	if len(seen) != want {
		w.t.Errorf("%d refunds, want %d", len(seen), want)
	}
}
