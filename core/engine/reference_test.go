package engine_test

import (
	"context"
	"iter"
	"os"
	"sync/atomic"
	"testing"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// counted is a journal that counts what it is asked to read.
type counted struct {
	Journal
	reads atomic.Int64
}

func (j *counted) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	j.reads.Add(1)
	return j.Journal.Read(ctx, lane, from)
}

func (j *counted) Inbox(ctx context.Context, lane journal.Lane, after uint64) (journal.Head, []journal.Entry, error) {
	j.reads.Add(1)
	return j.Journal.Inbox(ctx, lane, after)
}

func (j *counted) Head(ctx context.Context, lane journal.Lane) (journal.Head, error) {
	j.reads.Add(1)
	return j.Journal.Head(ctx, lane)
}

func (j *counted) Submission(ctx context.Context, tenant, id string) (journal.Submission, error) {
	j.reads.Add(1)
	return j.Journal.Submission(ctx, tenant, id)
}

// Run W, three turns with a tool call in each of the first two, on the journal
// of every assembly: 12 writes of one row each, two wakes, and as many reads as
// the loop takes looks: what it pays for is counted here.
func TestReferenceRun(t *testing.T) {
	if os.Getenv(lossy) != "" {
		t.Skip("a bump whose answer is lost is made again")
	}
	inBubble(t, func(t *testing.T) {
		var c counter
		r := newRig(t, define(t, agent.Policy{}, handler(&c, "look", tool.Readonly())),
			modeltest.Calls(call("look", 0)), modeltest.Calls(call("look", 0)), modeltest.Text("done"))
		j := &counted{Journal: r.journal}
		sent := r.services(j, nil)
		before := r.journal.Writes()
		id := r.submit(kim)
		r.once(engine.HandedOver)
		r.settle()
		writes, reads := r.journal.Writes()-before, j.reads.Load()
		if p := r.progress(id); p.Status != "completed" || p.Turns != 3 || c.of("look") != 2 {
			t.Fatalf("%+v", p)
		}
		if writes != 12 {
			t.Errorf("%d writes, want 12", writes)
		}
		if attempts, settles := sent.take(queue.Attempt, "c"), sent.take(queue.Settle, "c"); attempts != 1 || settles != 1 {
			t.Errorf("%d and %d wakes, want one for the attempt and one for settle", attempts, settles)
		}
		if reads != referenceReads {
			t.Errorf("%d reads, want %d", reads, referenceReads)
		}
	})
}

// referenceReads are the reads of run W: the head before the admission; the
// log; the inbox at the start with the submission's row; the inbox at the seam
// of each tool turn and before the end; head, log and inbox for settle.
const referenceReads = 10
