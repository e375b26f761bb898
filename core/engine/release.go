package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
)

// release gives the lane back. An empty Ended with no error means it was
// refused: something arrived, look again and go on.
func (a *attempt) release(ctx context.Context, rest core.Rest) (Ended, error) {
	r := journal.ReleaseRequest{
		Lane: a.lane, Epoch: a.head.Epoch, Owner: a.head.Owner, To: journal.Parked, Due: rest.Due,
		Version: rest.Version, Drained: a.state.Cursor,
	}
	ended := ParkedLane
	switch {
	case rest.Kind == core.RestYield:
		r.To, r.Due, ended = journal.Ready, a.cfg.Now().Add(a.cfg.Grace), Yielded
	case rest.Due.IsZero():
		r.To, ended = journal.Idle, IdleLane
	}
	fpParkBefore.Hit()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CleanupTimeout)
	defer cancel()
	err := repeat(ctx, except(journal.ErrFenced, journal.ErrRefused, journal.ErrClosed), func() error { return a.cfg.Journal.Park(ctx, r) })
	switch {
	case errors.Is(err, journal.ErrRefused):
		return "", nil
	case err != nil && !errors.Is(err, journal.ErrFenced):
		a.unclear = true
		return "", fmt.Errorf("engine: release %s stayed unclear: %w", a.lane.Conversation, err)
	}
	fpParkAfter.Hit()
	if rest.Kind == core.RestYield {
		a.send(ctx, queue.Attempt, 0)
	}
	return ended, nil
}

// send wakes a function. A lost wake is repaired by the lane's due time, so an
// error is only worth a line.
func (a *attempt) send(ctx context.Context, kind queue.Kind, delay time.Duration) {
	if err := trySend(ctx, a.cfg, kind, a.lane, delay); err != nil {
		a.logger().Warn(notSent, "kind", kind, "error", err)
	}
}

func send(ctx context.Context, cfg Config, kind queue.Kind, lane journal.Lane, delay time.Duration) {
	if err := trySend(ctx, cfg, kind, lane, delay); err != nil {
		cfg.Log.Warn(notSent, "kind", kind, "conversation", lane.Conversation, "error", err)
	}
}

const notSent = "wake not sent; the sweep repairs it"

func trySend(ctx context.Context, cfg Config, kind queue.Kind, lane journal.Lane, delay time.Duration) error {
	fpSendBefore.Hit()
	defer fpSendAfter.Hit()
	return cfg.Queue.Send(ctx, queue.For(kind, lane), delay)
}

// giveBack releases the lane of an attempt that failed with everything known
// and nothing running, so that it need not wait for the end of the lease.
func (a *attempt) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CleanupTimeout)
	defer cancel()
	err := a.cfg.Journal.Park(ctx, journal.ReleaseRequest{Lane: a.lane, Epoch: a.head.Epoch, Owner: a.head.Owner, To: journal.Ready,
		Due: a.cfg.Now().Add(retryFailed), Drained: a.state.Cursor})
	if err != nil {
		a.logger().Warn("lane not given back; its lease ends by itself", "error", err)
	}
}

// retryFailed is when a lane is looked at again after its attempt failed.
const retryFailed = 30 * time.Second

// abandon cancels what still runs when an attempt dies, and waits for it as
// long as a handler may take to notice. It reports whether everything ended.
func (a *attempt) abandon() bool {
	a.stop()
	gone := make(chan struct{})
	go func() { a.running.Wait(); close(gone) }()
	timer := time.NewTimer(a.cfg.CleanupTimeout)
	defer timer.Stop()
	for {
		select {
		case p := <-a.posted:
			if p.err == nil {
				core.Note(a.desk, p.fact)
			}
		case <-gone:
			// What was posted last may still be in the channel.
			for len(a.posted) > 0 {
				if p := <-a.posted; p.err == nil {
					core.Note(a.desk, p.fact)
				}
			}
			return true
		case <-timer.C:
			a.logger().Error("a handler did not return after its context ended", "calls", a.desk.Running())
			a.leaks.add(a.head.Owner, gone, a.posted)
			return false
		}
	}
}

// handInLate hands the results an attempt holds and could not record in as
// evidence, for the owner the lane has now or next.
func (a *attempt) handInLate(ctx context.Context) {
	for _, late := range a.desk.LateResults(a.state) {
		if err := signalLate(ctx, a.cfg, a.lane, a.state.Cursor, late, a.head.Owner); err != nil {
			a.logger().Warn("late outcome not handed in; the call stays unknown", "call", late.Call, "error", err)
		}
	}
}
