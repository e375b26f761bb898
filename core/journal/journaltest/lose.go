package journaltest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// errReset is what an injected fault answers: nothing the port has a word for.
var errReset = errors.New("connection reset by the test")

// losing are the checks with answers that get lost and writes that fail.
func losing() map[string]check {
	checks := map[string]check{
		"Lost/EveryFirstAnswer": func(t *testing.T, f *fixture) {
			// Each write takes effect and is not answered the first time.
			lost := map[string]bool{}
			faults := f.count(func(write string, n int, after bool) bool {
				if after {
					lost[write] = !lost[write]
				}
				return after && lost[write]
			})
			f.life(true)
			if *faults == 0 {
				t.Fatal("no answer was lost")
			}
		},
		"Lost/ClaimIsAnsweredAgain": func(t *testing.T, f *fixture) {
			f.admit("s1")
			f.count(func(_ string, n int, after bool) bool { return after && n == 1 })
			h := f.claimed("a1", t0)
			f.equal(h.Epoch, uint64(1))
			f.equal(f.head(), h)
			_, err := f.Claim(f.ctx, f.request("a2", t0))
			f.want(err, journal.ErrNotClaimable)
		},
		"Lost/ReleasedClaimIsNotTakenForLive": func(t *testing.T, f *fixture) {
			// F4: the claim's answer is lost and settle frees the lane meanwhile.
			f.admit("s1")
			h := f.claim("a1", t0)
			f.append(1, "b1")
			f.check(f.Finish(f.ctx, f.finish(h, "s1", 1)))
			_, err := f.Claim(f.ctx, f.request("a1", t0))
			f.want(err, journal.ErrNotClaimable)
		},
		"Lost/EntryWithoutBumpIsBumpedByTheRetry": func(t *testing.T, f *fixture) {
			// The writer dies behind its first write; the same call again must
			// leave the lane due, wherever that was.
			f.count(func(_ string, n int, after bool) bool { return after && n == 1 })
			_, err := f.Signal(f.ctx, f.lane, f.steer("k"), 0, t0, grace)
			if err != nil && !journal.Unclear(err) {
				t.Fatal(err)
			}
			f.faults(f.Journal, nil)
			f.signal("k", 0)
			f.equal(f.keys(), []string{"k"})
			h := f.head()
			f.equal([]any{h.State, h.Due}, []any{journal.Ready, t0.Add(grace)})
		},
	}
	for _, after := range []bool{false, true} {
		name := map[bool]string{false: "Failed", true: "Lost"}[after]
		checks[name+"/EachWriteOnce"] = func(t *testing.T, f *fixture) {
			for n := 1; ; n++ {
				f.lane.Conversation = fmt.Sprintf("%s %d", name, n)
				faults := f.count(func(_ string, write int, at bool) bool { return at == after && write == n })
				f.life(after)
				if *faults == 0 {
					break
				}
			}
		}
	}
	maps.Copy(checks, orders())
	return checks
}

// count makes the journal fail where at says so: it is asked with the number of
// the write, counted from 1. The answer counts the failures.
func (f *fixture) count(at func(write string, n int, after bool) bool) *int {
	var mu sync.Mutex
	n, fired := 0, 0
	f.faults(f.Journal, func(write string, after bool) error {
		mu.Lock()
		defer mu.Unlock()
		if !after {
			n++
		}
		if at(write, n, after) {
			fired++
			return fmt.Errorf("%s: %w", write, errReset)
		}
		return nil
	})
	return &fired
}

// clear repeats an operation until its answer is clear, as its callers do.
func (f *fixture) clear(do func() error) error {
	f.t.Helper()
	for range 20 {
		if err := do(); !journal.Unclear(err) {
			return err
		}
	}
	f.t.Fatal("an operation stays unclear")
	return nil
}

func (f *fixture) claimed(owner string, now time.Time) (h journal.Head) {
	f.t.Helper()
	f.check(f.clear(func() (err error) { h, err = f.Claim(f.ctx, f.request(owner, now)); return err }))
	return h
}

func (f *fixture) keys() (keys []string) {
	f.t.Helper()
	for i, e := range f.inbox(0) {
		f.equal(e.Slot, uint64(i+1))
		keys = append(keys, e.Key)
	}
	return keys
}

// life is a conversation from its first submission to rest, each operation
// repeated until its answer is clear. It must come out the same whatever was
// lost on the way. parkedUnseen allows a release to answer ErrFenced: it took
// effect and only its answer was lost.
func (f *fixture) life(parkedUnseen bool) {
	f.t.Helper()
	id := "s of " + f.lane.Conversation
	signal := func(key string) {
		f.check(f.clear(func() error { _, err := f.Signal(f.ctx, f.lane, f.steer(key), 0, t0, grace); return err }))
	}
	appendBatch := func(slot uint64, name string) record.Sealed {
		b := f.batch(slot, name)
		f.check(f.clear(func() error { return f.Append(f.ctx, f.lane, b) }))
		return b
	}
	body := []byte("payload of " + f.lane.Conversation)
	f.check(f.clear(func() error { _, err := f.Admit(f.ctx, f.submission(id), t0, grace); return err }))
	signal("early")
	first := f.claimed("a1", t0)
	f.equal(first.Epoch, uint64(1))
	var want []record.Sealed
	want = append(want, appendBatch(1, "b1"))
	f.check(f.clear(func() error { return f.PutPayload(f.ctx, f.lane.Tenant, record.Digest(body), body) }))
	want = append(want, appendBatch(2, "b2"))
	signal("while running")
	seen, _, err := f.Inbox(f.ctx, f.lane, 0)
	f.check(err)
	err = f.clear(func() error { return f.Park(f.ctx, f.release(seen, journal.Parked, t0.Add(7*24*time.Hour))) })
	if err != nil && !(parkedUnseen && errors.Is(err, journal.ErrFenced)) {
		f.t.Fatal(err)
	}
	f.equal(f.head().State, journal.Parked)
	signal("decision")
	f.equal([]any{f.head().State, f.head().Due}, []any{journal.Ready, t0.Add(grace)})
	second := f.claimed("a2", t0)
	f.equal(second.Epoch, uint64(2))
	want = append(want, appendBatch(3, "b3"))
	f.check(f.clear(func() error {
		h := f.head()
		return f.Finish(f.ctx, f.finish(h, id, 3))
	}))
	f.faults(f.Journal, nil)

	f.equal(f.log(1), want)
	f.equal(f.keys(), []string{id, "early", "while running", "decision"})
	h := f.head()
	f.equal([]any{h.State, h.Epoch, h.Owner, h.Settled, h.Due.IsZero(), h.Lease.IsZero()}, []any{journal.Idle, uint64(2), "a2", uint64(3), true, true})
	s, err := f.Submission(f.ctx, f.lane.Tenant, id)
	f.check(err)
	f.equal(s.Outcome.Run, id)
	got, err := f.Payload(f.ctx, f.lane.Tenant, record.Digest(body))
	f.check(err)
	f.equal(got, body)
	heads, err := f.Due(f.ctx, t0.AddDate(1, 0, 0), 1000)
	f.check(err)
	if slices.ContainsFunc(heads, func(h journal.Head) bool { return h.Lane == f.lane }) {
		f.t.Fatal("an idle lane is due")
	}
}
