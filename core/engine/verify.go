package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Verification is what Verify found.
type Verification struct {
	OK      bool
	Batches int
	// Head is the digest of the last good batch.
	Head string
	// FirstBad is the slot of the first batch that does not hold; 0 for none.
	FirstBad   uint64
	Violations []string
}

// Verify reads a conversation as a stranger would: every digest, the chain,
// slots and epochs in order, only legal sequences of records, counters within
// their limits, and a head and ledger that follow from the log.
func (a *Admitter) Verify(ctx context.Context, lane journal.Lane) (Verification, error) {
	if err := a.Exists(ctx, lane); err != nil {
		return Verification{}, err
	}
	for tries := 1; ; tries++ {
		v, err := a.verify(ctx, lane)
		if err != nil || v.OK || v.FirstBad != 0 || tries == 5 {
			return v, err
		}
		// A head read behind the log may be ahead of it: of a run that ended in
		// between, nothing is wrong.
		moved := false
		for range a.cfg.Journal.Read(ctx, lane, uint64(v.Batches)+1) {
			moved = true
		}
		if !moved {
			return v, nil
		}
	}
}

func (a *Admitter) verify(ctx context.Context, lane journal.Lane) (Verification, error) {
	v := Verification{}
	state := &core.State{}
	var settled []record.RunSettled
	for sealed, err := range a.cfg.Journal.Read(ctx, lane, 1) {
		if damaged(err) {
			v.FirstBad = state.Slot + 1
			v.Violations = append(v.Violations, err.Error())
			return v, nil
		}
		if err != nil {
			return v, AsError("verify", err)
		}
		b, err := record.Open(sealed, lane.Tenant, lane.Conversation)
		if err == nil {
			err = core.Fold(state, b)
		}
		if err != nil {
			v.FirstBad = sealed.Slot
			v.Violations = append(v.Violations, err.Error())
			return v, nil
		}
		v.Batches, v.Head = v.Batches+1, b.Digest
		for _, r := range b.Records {
			if s, ok := r.(record.RunSettled); ok {
				settled = append(settled, s)
			}
		}
	}
	v.Violations = append(v.Violations, checkRun(state)...)
	found, err := a.checkLedger(ctx, lane, state, settled)
	if err != nil {
		return v, AsError("verify", err)
	}
	v.Violations = append(v.Violations, found...)
	v.OK = len(v.Violations) == 0
	return v, nil
}

func checkRun(s *core.State) []string {
	if s.Run == nil {
		return nil
	}
	var bad []string
	if s.Run.ToolCalls > s.Run.MaxCalls {
		bad = append(bad, fmt.Sprintf("run %s started %d tool calls, limit %d", s.Run.ID, s.Run.ToolCalls, s.Run.MaxCalls))
	}
	if s.Run.Turn > s.Run.MaxTurns+1 {
		bad = append(bad, fmt.Sprintf("run %s took %d turns, limit %d and one grace turn", s.Run.ID, s.Run.Turn, s.Run.MaxTurns))
	}
	return bad
}

// checkLedger compares the log with the head and the submission rows. The head
// is read last: everything the log holds by then it must agree with.
func (a *Admitter) checkLedger(ctx context.Context, lane journal.Lane, s *core.State, settled []record.RunSettled) ([]string, error) {
	head, entries, err := a.cfg.Journal.Inbox(ctx, lane, s.Cursor)
	if err != nil {
		return nil, err
	}
	var bad []string
	if head.Epoch < s.Epoch {
		bad = append(bad, fmt.Sprintf("the head is at epoch %d, the log at %d", head.Epoch, s.Epoch))
	}
	if head.Settled > s.Slot {
		bad = append(bad, fmt.Sprintf("the head knows of slot %d, and the log ends at %d", head.Settled, s.Slot))
	}
	// An attempt that finds an outcome not handed over leaves without a batch.
	left := head.Epoch > s.Epoch && s.Terminal > 0 && s.Terminal == s.Slot && head.Settled == s.Slot
	if head.State == journal.Idle && head.Epoch > s.Epoch && !left {
		bad = append(bad, fmt.Sprintf("the lane is idle at epoch %d, and the log ends in epoch %d", head.Epoch, s.Epoch))
	}
	if head.State == journal.Idle && (head.Epoch == s.Epoch || left) {
		if s.Run != nil || len(s.Queue) > 0 {
			bad = append(bad, "the lane is idle with an open run or queued work")
		}
		if len(entries) > 0 {
			bad = append(bad, fmt.Sprintf("the lane is idle with %d unread inbox entries", len(entries)))
		}
		if s.Terminal > head.Settled {
			bad = append(bad, fmt.Sprintf("the lane is idle and the outcome in slot %d was not handed over", s.Terminal))
		}
	}
	if head.State != journal.Idle && head.Due.IsZero() {
		bad = append(bad, fmt.Sprintf("the lane is %s and has no due time", head.State))
	}
	for i, o := range settled {
		row, err := a.cfg.Journal.Submission(ctx, lane.Tenant, o.Run)
		last := i == len(settled)-1
		switch {
		case errors.Is(err, journal.ErrNotFound):
			bad = append(bad, fmt.Sprintf("submission %s settled but has no row", o.Run))
		case damaged(err):
			bad = append(bad, fmt.Sprintf("the row of submission %s cannot be read: %v", o.Run, err))
		case err != nil: // the store did not answer: nothing is known of the row
			return nil, err
		case row.Outcome == nil && !(last && head.Settled < s.Terminal):
			bad = append(bad, fmt.Sprintf("submission %s settled as %s but its row does not say so", o.Run, o.Status))
		case row.Outcome != nil && row.Outcome.Status != o.Status:
			bad = append(bad, fmt.Sprintf("submission %s settled as %s but its row says %s", o.Run, o.Status, row.Outcome.Status))
		}
	}
	return bad, nil
}
