package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
)

// Settler hands terminal records over and wakes lanes that are due. It never
// runs an agent.
type Settler struct{ cfg Config }

// NewSettler needs no definitions.
func NewSettler(cfg Config) (*Settler, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Settler{cfg: cfg}, nil
}

// Settle tells everybody about a lane's terminal record and frees the lane, in
// that order and idempotently. Without one it does nothing and answers false.
func (s *Settler) Settle(ctx context.Context, lane journal.Lane) (bool, error) {
	for {
		head, err := s.cfg.Journal.Head(ctx, lane)
		if err != nil {
			return false, fmt.Errorf("engine: settle %s: %w", lane.Conversation, err)
		}
		term, err := s.pending(ctx, head)
		if err != nil || term == nil {
			return false, err
		}
		err = s.finish(ctx, head, term)
		if errors.Is(err, journal.ErrRefused) {
			continue // the inbox or the head moved: look again
		}
		if err != nil {
			return false, fmt.Errorf("engine: settle %s: %w", lane.Conversation, err)
		}
		return true, nil
	}
}

// terminal is a terminal record that is not handed over yet.
type terminal struct {
	slot    uint64
	record  record.RunSettled
	drained uint64 // inbox slot up to which the log has entries
}

// pending finds the terminal record behind head.settled: at most one waits.
func (s *Settler) pending(ctx context.Context, head journal.Head) (*terminal, error) {
	if head.State == journal.Idle {
		return nil, nil
	}
	var found *terminal
	drained := head.Drained
	for sealed, err := range s.cfg.Journal.Read(ctx, head.Lane, head.Settled+1) {
		if err != nil {
			return nil, fmt.Errorf("engine: read log of %s: %w", head.Lane.Conversation, err)
		}
		b, err := record.Open(sealed, head.Lane.Tenant, head.Lane.Conversation)
		if err != nil {
			return nil, fmt.Errorf("engine: log of %s: %w", head.Lane.Conversation, err)
		}
		for _, r := range b.Records {
			drained = max(drained, record.Drained(r))
			if settled, ok := r.(record.RunSettled); ok {
				found = &terminal{slot: b.Slot, record: settled}
			}
		}
	}
	if found != nil {
		found.drained = drained
	}
	return found, nil
}

// finish settles the submission's row and frees the lane: ready when work
// waits in the log or the inbox, else idle.
func (s *Settler) finish(ctx context.Context, head journal.Head, term *terminal) error {
	look, entries, err := s.cfg.Journal.Inbox(ctx, head.Lane, term.drained)
	if err != nil {
		return err
	}
	if look.Settled != head.Settled {
		return journal.ErrRefused
	}
	now := s.cfg.Now()
	req := journal.FinishRequest{
		Lane: head.Lane, Outcomes: core.Outcomes(term.record), At: now, Was: head.Settled, Settled: term.slot,
		Version: look.Version, To: journal.Idle, Drained: term.drained,
	}
	if len(entries) > 0 || len(term.record.Queued) > 0 {
		req.To, req.Due = journal.Ready, now.Add(s.cfg.Grace)
	}
	fpFinishBefore.Hit()
	if _, err := untilClear(ctx, func() error { return s.cfg.Journal.Finish(ctx, req) }); err != nil {
		return err
	}
	fpFinishAfter.Hit()
	if req.To == journal.Ready {
		send(ctx, s.cfg, queue.Attempt, head.Lane, 0)
	}
	return nil
}

// Sweep looks at up to limit due lanes: it settles on the spot what has a
// terminal record and wakes an attempt for the rest. It writes no due time, so
// two sweeps at once are harmless.
func (s *Settler) Sweep(ctx context.Context, limit int) (int, error) {
	due, err := s.cfg.Journal.Due(ctx, s.cfg.Now(), limit)
	if err != nil {
		return 0, fmt.Errorf("engine: sweep: %w", err)
	}
	var errs []error
	var wakes []queue.Wake
	for _, head := range due {
		if head.State != journal.Ready {
			settled, err := s.Settle(ctx, head.Lane)
			if err != nil {
				errs = append(errs, err)
			}
			if settled || err != nil {
				continue
			}
		}
		if wakes = append(wakes, queue.For(queue.Attempt, head.Lane)); len(wakes) == sweepBatch {
			s.wake(ctx, wakes)
			wakes = nil
		}
	}
	s.wake(ctx, wakes)
	return len(due), errors.Join(errs...)
}

// sweepBatch is how many wakes of a sweep go together, so that the first lanes
// need not wait for the last: what SQS takes in one call.
const sweepBatch = 10

// wake sends wakes of a sweep. What is lost is due at the next one again.
func (s *Settler) wake(ctx context.Context, wakes []queue.Wake) {
	if len(wakes) == 0 {
		return
	}
	fpSendBefore.Hit()
	if err := queue.SendAll(ctx, s.cfg.Queue, wakes); err != nil {
		lanes := make([]string, len(wakes))
		for i, w := range wakes {
			lanes[i] = w.Conversation
		}
		s.cfg.Log.Warn("wakes of a sweep not sent; the next sweep repairs it", "conversations", lanes, "error", err)
	}
	fpSendAfter.Hit()
}

// Run sweeps at once and then every interval until ctx ends.
func (s *Settler) Run(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if _, err := s.Sweep(ctx, 1000); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("sweep", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
