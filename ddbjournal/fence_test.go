package ddbjournal_test

import (
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Every write loses its first answer and is tried again by the SDK, which finds
// it done: each operation knows its own write by its nonce, and tells its
// caller what it would have told without the loss.
func TestItsOwnLostAnswerIsNobodyElses(t *testing.T) {
	b := newBench(t, 3)
	j, ctx := openOn(t, b.client, b.table), t.Context()
	var mu sync.Mutex
	lost := 0
	b.net.set(func() { b.net.next = loseFirst(b.net.next, &mu, map[string]bool{}, &lost) })

	a, err := j.Admit(ctx, submission(lane, "s1"), start, time.Minute)
	check(t, err)
	if a.Duplicate {
		t.Error("a first admission is told it is a duplicate")
	}
	for i, key := range []string{"k1", "k2"} {
		s, err := j.Signal(ctx, lane, journal.Entry{Kind: journal.EntrySteer, Key: key, Digest: "d"}, 0, start, time.Minute)
		check(t, err)
		if s != (journal.Signalled{Slot: uint64(i) + 2}) {
			t.Errorf("%s: %+v", key, s)
		}
	}
	h, err := j.Claim(ctx, claimRequest(lane, "a1", start))
	check(t, err)
	check(t, j.Append(ctx, lane, sealed(1, 1, "b1")))
	check(t, j.Park(ctx, journal.ReleaseRequest{Lane: lane, Epoch: 1, Owner: "a1", To: journal.Parked, Due: start.Add(time.Hour), Version: h.Version, Drained: 3}))
	h, err = j.Claim(ctx, claimRequest(lane, "a2", start.Add(time.Hour)))
	check(t, err)
	if h.Epoch != 2 {
		t.Errorf("epoch %d", h.Epoch)
	}
	check(t, j.Finish(ctx, journal.FinishRequest{Lane: lane, Outcomes: []record.RunSettled{{Run: "s1", Status: record.StatusCompleted}}, At: start,
		Settled: 1, Version: h.Version, To: journal.Idle, Drained: 3}))
	if lost < 10 {
		t.Errorf("%d answers were lost", lost)
	}
}
