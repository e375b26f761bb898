package journaltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// t0 is when every test begins; later times are t0 and something.
var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	grace = 10 * time.Second
	lease = 5 * time.Minute
)

// fixture is a journal with the helpers that keep the tests readable.
type fixture struct {
	journal.Journal
	t    *testing.T
	ctx  context.Context
	lane journal.Lane
	boot string

	offers
	omitted string // why the check did not run on this adapter
}

// omit ends a check that this adapter cannot be held to, and says why in the
// result.
func (f *fixture) omit(why string) {
	f.omitted = why
	f.t.SkipNow()
}

func newFixture(t *testing.T, j journal.Journal) *fixture {
	f := &fixture{Journal: j, t: t, ctx: t.Context(), lane: journal.Lane{Tenant: "acme", Conversation: "c1"}}
	if b, ok := j.(interface{ Boot() string }); ok {
		f.boot = b.Boot()
	}
	return f
}

func (f *fixture) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) want(err, target error) {
	f.t.Helper()
	if !errors.Is(err, target) {
		f.t.Fatalf("got error %v, want %v", err, target)
	}
}

func (f *fixture) equal(got, want any) {
	f.t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		f.t.Fatalf("(-want +got)\n%s", d)
	}
}

func (f *fixture) submission(id string) journal.Submission {
	return journal.Submission{
		Lane: f.lane, ID: id, Key: "key-" + id, Digest: "digest-" + id, Agent: "writer", Principal: "ann",
		Input: []byte(`{"question":"` + id + `"}`), ReplyTo: "queue", Allowance: record.Allowance{Turns: 3},
		Parent: record.ParentLink{Conversation: "p", Run: "r", Call: "k", Depth: 1, Tail: 7}, AdmittedAt: t0,
	}
}

func (f *fixture) admit(id string) journal.Admission {
	f.t.Helper()
	a, err := f.Admit(f.ctx, f.submission(id), t0, grace)
	f.check(err)
	return a
}

func (f *fixture) steer(key string) journal.Entry {
	return journal.Entry{Kind: journal.EntrySteer, Key: key, Digest: "digest-" + key, Body: []byte(`"` + key + `"`), By: "bob", At: t0}
}

func (f *fixture) signal(key string, after uint64) journal.Signalled {
	f.t.Helper()
	s, err := f.Signal(f.ctx, f.lane, f.steer(key), after, t0, grace)
	f.check(err)
	return s
}

func (f *fixture) request(owner string, now time.Time) journal.ClaimRequest {
	return journal.ClaimRequest{Lane: f.lane, Owner: owner, Boot: f.boot, Now: now, Lease: now.Add(lease)}
}

func (f *fixture) claim(owner string, now time.Time) journal.Head {
	f.t.Helper()
	h, err := f.Claim(f.ctx, f.request(owner, now))
	f.check(err)
	return h
}

func (f *fixture) head() journal.Head {
	f.t.Helper()
	h, err := f.Head(f.ctx, f.lane)
	f.check(err)
	return h
}

func (f *fixture) inbox(after uint64) []journal.Entry {
	f.t.Helper()
	_, entries, err := f.Inbox(f.ctx, f.lane, after)
	f.check(err)
	return entries
}

func (f *fixture) batch(slot uint64, id string) record.Sealed {
	body := []byte(fmt.Sprintf(`{"batch":%q,"slot":%d}`, id, slot))
	return record.Sealed{Slot: slot, ID: id, Epoch: 1, Digest: record.Digest(body), Body: body}
}

func (f *fixture) append(slot uint64, id string) record.Sealed {
	f.t.Helper()
	b := f.batch(slot, id)
	f.check(f.Append(f.ctx, f.lane, b))
	return b
}

func (f *fixture) log(from uint64) []record.Sealed {
	f.t.Helper()
	var out []record.Sealed
	for b, err := range f.Read(f.ctx, f.lane, from) {
		f.check(err)
		out = append(out, b)
	}
	return out
}

// release is a request that gives back the lane as h has it.
func (f *fixture) release(h journal.Head, to journal.State, due time.Time) journal.ReleaseRequest {
	return journal.ReleaseRequest{Lane: f.lane, Epoch: h.Epoch, Owner: h.Owner, To: to, Due: due, Version: h.Version, Drained: 1}
}

// finish is a request that settles run and frees the lane as h has it.
func (f *fixture) finish(h journal.Head, run string, slot uint64) journal.FinishRequest {
	return journal.FinishRequest{
		Lane: f.lane, Outcomes: []record.RunSettled{f.outcome(run)}, At: t0.Add(time.Minute),
		Was: h.Settled, Settled: slot, Version: h.Version, To: journal.Idle, Drained: 1,
	}
}

func (f *fixture) outcome(run string) record.RunSettled {
	tokens := int64(12)
	return record.RunSettled{
		Run: run, Status: record.StatusCompleted, FinishReason: record.ModelStop, Output: record.MustValue("<done> & dusted\u2028"),
		Usage: record.Usage{InputTokens: &tokens}, Attempts: 1, Turns: 2, Queued: []string{"later"},
	}
}
