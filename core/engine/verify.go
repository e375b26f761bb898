package engine

import (
	"context"
	"errors"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
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

// Verify reads a conversation as a stranger would and holds it against every
// rule of core.CheckConversation.
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
	check := core.NewChecker(lane.Tenant, lane.Conversation)
	whole := true
	for sealed, err := range a.cfg.Journal.Read(ctx, lane, 1) {
		if damaged(err) {
			good, _ := check.Good()
			v.FirstBad = good + 1
			v.Violations = append(v.Violations, err.Error())
			whole = false
			break
		}
		if err != nil {
			return v, AsError("verify", err)
		}
		if whole = check.Batch(sealed); !whole {
			break
		}
	}
	if whole {
		if err := a.checkLedger(ctx, lane, check); err != nil {
			return v, AsError("verify", err)
		}
	}
	good, digest := check.Good()
	v.Batches, v.Head = int(good), digest
	for _, found := range check.Violations() {
		v.Violations = append(v.Violations, found.Text)
		if found.Slot > 0 && (v.FirstBad == 0 || found.Slot < v.FirstBad) {
			v.FirstBad = found.Slot
		}
	}
	v.OK = len(v.Violations) == 0
	return v, nil
}

// checkLedger reads what is kept beside the log. The head is read behind the
// log and the rows behind the head: everything the log holds by then they must
// agree with.
func (a *Admitter) checkLedger(ctx context.Context, lane journal.Lane, check *core.Checker) error {
	head, entries, err := a.cfg.Journal.Inbox(ctx, lane, 0)
	if err != nil {
		return err
	}
	ledger := core.Ledger{Head: core.LaneHead{Epoch: head.Epoch, State: string(head.State), Due: head.Due, Lease: head.Lease,
		Settled: head.Settled, Drained: head.Drained}}
	for _, e := range entries {
		ledger.Inbox = append(ledger.Inbox, core.InboxSlot{Slot: e.Slot, Kind: string(e.Kind), Key: e.Key, Ref: e.Ref})
	}
	for _, id := range check.Submissions(ledger.Inbox) {
		row := core.Row{Submission: id}
		s, err := a.cfg.Journal.Submission(ctx, lane.Tenant, id)
		switch {
		case errors.Is(err, journal.ErrNotFound):
			row.Missing = true
		case damaged(err):
			row.Problem = err.Error()
		case err != nil: // the store did not answer: nothing is known of the row
			return err
		}
		row.Conversation, row.Outcome = s.Lane.Conversation, s.Outcome
		ledger.Rows = append(ledger.Rows, row)
	}
	check.Ledger(ledger)
	return nil
}
