package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
)

// batches notes what it is given together, and may fail.
type batches struct {
	deafQueue
	sent [][]queue.Wake
	err  error
}

func (b *batches) SendAll(_ context.Context, wakes []queue.Wake) error {
	b.sent = append(b.sent, wakes)
	return b.err
}

// A sweep wakes each due lane once, ten in a call where the queue takes many;
// wakes that are lost are a line in the log and no error.
func TestSweepSendsBatches(t *testing.T) {
	for _, lost := range []error{nil, errors.New("throttled")} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, define(t, agent.Policy{}))
			for i := range 23 {
				if _, err := r.admitter.Submit(bg, engine.SubmitRequest{Tenant: "t", Principal: "kim", Agent: "a", Conversation: fmt.Sprint("c", i), Input: []byte(kim)}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			var log bytes.Buffer
			q := &batches{err: lost}
			s, err := engine.NewSettler(engine.Config{Journal: r.journal, Queue: q, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if n, err := s.Sweep(bg, 1000); n != 23 || err != nil {
				t.Errorf("swept %d lanes, %v", n, err)
			}
			woken := map[journal.Lane]int{}
			var sizes []int
			for _, b := range q.sent {
				sizes = append(sizes, len(b))
				for _, w := range b {
					woken[w.Lane()]++
				}
			}
			if fmt.Sprint(sizes) != "[10 10 3]" || len(woken) != 23 {
				t.Errorf("batches of %v for %d lanes", sizes, len(woken))
			}
			if said := strings.Count(log.String(), "wakes of a sweep not sent"); (lost == nil) != (said == 0) || lost != nil && !strings.Contains(log.String(), "c22") {
				t.Errorf("the log says %q", log.String())
			}
		})
	}
}
