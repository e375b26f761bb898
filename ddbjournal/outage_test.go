package ddbjournal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var (
	lane  = journal.Lane{Tenant: "acme", Conversation: "c1"}
	start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

const lease = 5 * time.Minute

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}

func submission(lane journal.Lane, id string) journal.Submission {
	return journal.Submission{Lane: lane, ID: id, Key: id, Digest: "digest of " + id, Agent: "a", Principal: "ann", Input: []byte(`{}`), AdmittedAt: start}
}

func claimRequest(lane journal.Lane, owner string, now time.Time) journal.ClaimRequest {
	return journal.ClaimRequest{Lane: lane, Owner: owner, Now: now, Lease: now.Add(lease)}
}

func sealed(epoch, slot uint64, id string) record.Sealed {
	body := []byte(id)
	return record.Sealed{Slot: slot, ID: id, Epoch: epoch, Digest: record.Digest(body), Body: body}
}

// operations are every operation of the port, in an order in which each can be
// done, with what to expect of it.
func operations(t testing.TB, j journal.Journal) []struct {
	name string
	do   func() error
} {
	ctx := t.Context()
	var h journal.Head
	payload := []byte(strings.Repeat("payload ", 50_000))
	return []struct {
		name string
		do   func() error
	}{
		{"admit", func() error { _, err := j.Admit(ctx, submission(lane, "s1"), start, time.Minute); return err }},
		{"signal", func() error {
			_, err := j.Signal(ctx, lane, journal.Entry{Kind: journal.EntrySteer, Key: "k", Digest: "d"}, 0, start, time.Minute)
			return err
		}},
		{"claim", func() (err error) { h, err = j.Claim(ctx, claimRequest(lane, "a1", start)); return err }},
		{"read", func() error {
			for _, err := range j.Read(ctx, lane, 1) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"append", func() error { return j.Append(ctx, lane, sealed(1, 1, "b1")) }},
		{"append again", func() error { return j.Append(ctx, lane, sealed(1, 2, "b2")) }},
		{"put payload", func() error { return j.PutPayload(ctx, "acme", record.Digest(payload), payload) }},
		{"payload", func() error { _, err := j.Payload(ctx, "acme", record.Digest(payload)); return err }},
		{"inbox", func() (err error) { h, _, err = j.Inbox(ctx, lane, 0); return err }},
		{"due", func() error {
			heads, err := j.Due(ctx, start.Add(time.Hour), 10)
			if err == nil && len(heads) != 1 {
				return fmt.Errorf("%d lanes are due: %w", len(heads), record.ErrCorrupt)
			}
			return err
		}},
		{"submission", func() error { _, err := j.Submission(ctx, "acme", "s1"); return err }},
		{"watch", func() error { _, err := j.Watch(ctx, lane, journal.Head{}); return err }},
		{"park", func() error {
			return j.Park(ctx, journal.ReleaseRequest{Lane: lane, Epoch: 1, Owner: "a1", To: journal.Parked, Due: start.Add(time.Hour), Version: h.Version, Drained: 2})
		}},
		{"head", func() (err error) { h, err = j.Head(ctx, lane); return err }},
		{"finish", func() error {
			return j.Finish(ctx, journal.FinishRequest{Lane: lane, Outcomes: []record.RunSettled{{Run: "s1", Status: record.StatusCompleted}}, At: start,
				Settled: 2, Version: h.Version, To: journal.Idle, Drained: 2})
		}},
	}
}

// faultCodes are answers with which the store refuses a call that it may do
// when asked again.
var faultCodes = []struct {
	status int
	code   string
}{
	{400, "ProvisionedThroughputExceededException"}, {400, "ThrottlingException"}, {400, "RequestLimitExceeded"},
	{500, "InternalServerError"}, {503, "ServiceUnavailable"},
}

// A store that throttles or fails for a moment is asked again inside the call.
func TestAFewFaultsAreRetriedInside(t *testing.T) {
	for _, fault := range faultCodes {
		t.Run(fault.code, func(t *testing.T) {
			b := newBench(t, 3)
			var mu sync.Mutex
			tried := map[string]int{}
			b.net.set(func() {
				b.net.answer = func(call, body string) *http.Response {
					mu.Lock()
					defer mu.Unlock()
					if tried[call+body]++; tried[call+body]%3 == 0 {
						return nil
					}
					return refusal(fault.status, fault.code)
				}
			})
			for _, op := range operations(t, openOn(t, b.client, b.table)) {
				if err := op.do(); err != nil {
					t.Fatalf("%s: %v", op.name, err)
				}
			}
		})
	}
}

// A store that stays away is an unclear answer of every operation, never one
// of the port's words, and never a fence; when it is back, each one works.
func TestLastingFaultsAreUnclear(t *testing.T) {
	for _, fault := range faultCodes {
		t.Run(fault.code, func(t *testing.T) {
			b := newBench(t, 2)
			away := func(on bool) {
				b.net.set(func() {
					b.net.answer = nil
					if on {
						b.net.answer = func(string, string) *http.Response { return refusal(fault.status, fault.code) }
					}
				})
			}
			for _, op := range operations(t, openOn(t, b.client, b.table)) {
				away(true)
				err := op.do()
				if !journal.Unclear(err) {
					t.Fatalf("%s: %v, want an unclear answer", op.name, err)
				}
				if !strings.Contains(err.Error(), fault.code) {
					t.Errorf("%s: %v does not name %s", op.name, err, fault.code)
				}
				away(false)
				if err := op.do(); err != nil {
					t.Fatalf("%s, once the store is back: %v", op.name, err)
				}
			}
		})
	}
}

// Every read that decides is strongly consistent: no peer shows a stale one, so
// what is asked for is looked at. Only the index, a hint, cannot be.
func TestReadsAreConsistent(t *testing.T) {
	b := newBench(t, 3)
	var mu sync.Mutex
	looked := map[string]int{}
	b.net.set(func() {
		b.net.answer = func(call, body string) *http.Response {
			mu.Lock()
			defer mu.Unlock()
			switch looked[call]++; {
			case call != "GetItem" && call != "Query" && call != "BatchGetItem", strings.Contains(body, `"IndexName"`):
			case !strings.Contains(body, `"ConsistentRead":true`):
				t.Errorf("%s %s", call, body)
			}
			return nil
		}
	})
	for _, op := range operations(t, openOn(t, b.client, b.table)) {
		if err := op.do(); err != nil {
			t.Fatalf("%s: %v", op.name, err)
		}
	}
	for _, call := range []string{"GetItem", "Query", "BatchGetItem"} {
		if looked[call] == 0 {
			t.Errorf("no %s was seen", call)
		}
	}
}

// A connection that timed out is no end of the caller's own context: it is
// unclear, and worth another try.
func TestATimeoutBelowIsNotTheCallers(t *testing.T) {
	b := newBench(t, 1)
	j := openOn(t, b.client, b.table)
	b.net.setAround(func(string, bool) error { return fmt.Errorf("dial: %w", os.ErrDeadlineExceeded) })
	if err := j.Append(t.Context(), lane, sealed(1, 1, "b1")); !journal.Unclear(err) {
		t.Fatalf("got %v", err)
	}
	b.net.setAround(func(string, bool) error { return fmt.Errorf("the client gave up: %w", contextTimeout{}) })
	if err := j.Append(t.Context(), lane, sealed(1, 1, "b1")); !journal.Unclear(err) {
		t.Fatalf("got %v", err)
	}
}

// contextTimeout claims to be the end of a context, as net/http's own timeouts do.
type contextTimeout struct{}

func (contextTimeout) Error() string   { return "timed out" }
func (contextTimeout) Unwrap() error   { return errDeadline }
func (contextTimeout) Timeout() bool   { return true }
func (contextTimeout) Temporary() bool { return true }

// failure: A14
//
// Every write loses its first answer and is tried again by the SDK, which is
// then told that the condition failed: nobody is ever taken for fenced, and
// nothing is written twice. CI injects 10,000 losses.
func TestNoFalseFence(t *testing.T) {
	losses, lanes := 1_000, 8
	if os.Getenv("CI") != "" {
		losses = 10_000
	}
	b := newBench(t, 3)
	j := openOn(t, b.client, b.table)
	var mu sync.Mutex
	lost := 0
	waiting := map[string]bool{} // a write whose answer was lost and that is tried again
	b.net.set(func() {
		b.net.rewrite = nil
		b.net.next = loseFirst(b.net.next, &mu, waiting, &lost)
	})
	var wg sync.WaitGroup
	errs := make([]error, lanes)
	for n := range lanes {
		wg.Go(func() { errs[n] = fenceless(t, j, fmt.Sprint("lane ", n), losses/lanes/6) })
	}
	wg.Wait()
	check(t, errors.Join(errs...))
	if lost < losses*9/10 {
		t.Errorf("only %d answers were lost, want about %d", lost, losses)
	}
	t.Logf("%d lost answers, no false fence", lost)
}

// fenceless is the life of one lane: every answer has to be success.
func fenceless(t *testing.T, j journal.Journal, conversation string, epochs int) error {
	lane, ctx := journal.Lane{Tenant: "acme", Conversation: conversation}, t.Context()
	if _, err := j.Admit(ctx, submission(lane, conversation), start, time.Minute); err != nil {
		return err
	}
	slot := uint64(0)
	for epoch := uint64(1); epoch <= uint64(epochs); epoch++ {
		h, err := j.Claim(ctx, claimRequest(lane, fmt.Sprint(conversation, " owner ", epoch), start))
		if err != nil {
			return fmt.Errorf("claim %d: %w", epoch, err)
		}
		if h.Epoch != epoch {
			return fmt.Errorf("claimed epoch %d, want %d", h.Epoch, epoch)
		}
		for range 2 {
			slot++
			if err := j.Append(ctx, lane, sealed(epoch, slot, fmt.Sprint(conversation, " batch ", slot))); err != nil {
				return fmt.Errorf("append %d: %w", slot, err)
			}
		}
		err = j.Park(ctx, journal.ReleaseRequest{Lane: lane, Epoch: epoch, Owner: h.Owner, To: journal.Parked, Due: start.Add(time.Hour), Version: h.Version, Drained: epoch})
		if err != nil {
			return fmt.Errorf("park %d: %w", epoch, err)
		}
		if _, err := j.Signal(ctx, lane, journal.Entry{Kind: journal.EntrySteer, Key: fmt.Sprint(epoch), Digest: "d"}, epoch, start, time.Minute); err != nil {
			return fmt.Errorf("signal %d: %w", epoch, err)
		}
	}
	next := uint64(1)
	for b, err := range j.Read(ctx, lane, 1) {
		if err != nil || b.Slot != next {
			return fmt.Errorf("slot %d: %+v, %w", next, b, err)
		}
		next++
	}
	if next != slot+1 {
		return fmt.Errorf("%d batches, want %d", next-1, slot)
	}
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// loseFirst loses the answer of every write once it took effect.
func loseFirst(next http.RoundTripper, mu *sync.Mutex, waiting map[string]bool, lost *int) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || response.StatusCode != http.StatusOK || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), "Item") ||
			strings.HasSuffix(r.Header.Get("X-Amz-Target"), "GetItem") {
			return response, err
		}
		id := r.Header.Get("Amz-Sdk-Invocation-Id")
		mu.Lock()
		defer mu.Unlock()
		if waiting[id] {
			delete(waiting, id)
			return response, nil
		}
		waiting[id] = true
		*lost++
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return nil, io.ErrUnexpectedEOF
	})
}

// failure: A35
//
// The index of due lanes is a hint: it may show a lane that has finished, or
// at a time that was, and hide one that has just parked. What it shows is read
// again from the heads; what it hides is found when it has caught up.
func TestTheIndexIsAHint(t *testing.T) {
	b := newBench(t, 3)
	j := openOn(t, b.client, b.table)
	ctx := t.Context()
	admit := func(conversation string) journal.Lane {
		l := journal.Lane{Tenant: "acme", Conversation: conversation}
		_, err := j.Admit(ctx, submission(l, conversation), start, time.Minute)
		check(t, err)
		return l
	}
	release := func(l journal.Lane, to journal.State, due time.Time) {
		h, err := j.Claim(ctx, claimRequest(l, "owner of "+l.Conversation, start))
		check(t, err)
		check(t, j.Park(ctx, journal.ReleaseRequest{Lane: l, Epoch: h.Epoch, Owner: h.Owner, To: to, Due: due, Version: h.Version, Drained: 1}))
	}
	due := func() (found []string) {
		heads, err := j.Due(ctx, start.Add(time.Hour), 10)
		check(t, err)
		for _, h := range heads {
			found = append(found, h.Lane.Conversation)
		}
		return found
	}
	finished, later, parked := admit("finished"), admit("later"), admit("parked")
	stale := b.recordIndex(t)
	if got := fmt.Sprint(due()); got != "[finished later parked]" {
		t.Fatalf("due: %s", got)
	}
	b.replayIndex(stale())
	release(finished, journal.Idle, time.Time{})
	release(later, journal.Parked, start.Add(24*time.Hour))
	release(parked, journal.Parked, start.Add(30*time.Minute))
	if got := fmt.Sprint(due()); got != "[parked]" {
		t.Errorf("with a stale index: due %s", got)
	}
	b.replayIndex(map[string]json.RawMessage{}) // hides everything
	if got := fmt.Sprint(due()); got != "[]" {
		t.Errorf("with an empty index: due %s", got)
	}
	b.replayIndex(nil)
	if got := fmt.Sprint(due()); got != "[parked]" {
		t.Errorf("once it has caught up: due %s", got)
	}
}

// recordIndex remembers what the index answers, by the query's body.
func (b bench) recordIndex(t *testing.T) func() map[string]json.RawMessage {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]json.RawMessage{}
	b.net.set(func() {
		b.net.rewrite = func(call, request string, response []byte) []byte {
			if call == "Query" && strings.Contains(request, "IndexName") {
				mu.Lock()
				defer mu.Unlock()
				seen[request] = response
			}
			return response
		}
	})
	return func() map[string]json.RawMessage {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

// replayIndex makes the index answer what it did once; nil ends that.
func (b bench) replayIndex(answers map[string]json.RawMessage) {
	b.net.set(func() {
		b.net.rewrite = nil
		if answers == nil {
			return
		}
		b.net.rewrite = func(call, request string, response []byte) []byte {
			if call != "Query" || !strings.Contains(request, "IndexName") {
				return response
			}
			if old, ok := answers[request]; ok {
				return old
			}
			return []byte(`{"Count":0,"Items":[],"ScannedCount":0}`)
		}
	})
}

// The store may answer a batch of reads in part.
func TestUnprocessedHeadsAreAskedForAgain(t *testing.T) {
	b := newBench(t, 3)
	j := openOn(t, b.client, b.table)
	const lanes = 12
	for n := range lanes {
		l := journal.Lane{Tenant: "acme", Conversation: fmt.Sprintf("c%02d", n)}
		_, err := j.Admit(t.Context(), submission(l, l.Conversation), start, time.Minute)
		check(t, err)
	}
	partly := 0
	b.net.set(func() {
		b.net.answer = func(call, body string) *http.Response { return nil }
		b.net.rewrite = func(call, request string, response []byte) []byte {
			if call != "BatchGetItem" {
				return response
			}
			var asked struct {
				RequestItems map[string]map[string]json.RawMessage
			}
			var got struct {
				Responses       map[string][]json.RawMessage
				UnprocessedKeys map[string]map[string]json.RawMessage
			}
			check(t, errors.Join(json.Unmarshal([]byte(request), &asked), json.Unmarshal(response, &got)))
			var keys []map[string]json.RawMessage
			check(t, json.Unmarshal(asked.RequestItems[b.table]["Keys"], &keys))
			if len(keys) < 2 {
				return response
			}
			partly++
			kept := keys[:len(keys)/2]
			left, err := json.Marshal(keys[len(keys)/2:])
			check(t, err)
			asked.RequestItems[b.table]["Keys"] = left
			got.UnprocessedKeys = asked.RequestItems
			got.Responses[b.table] = only(t, got.Responses[b.table], kept)
			out, err := json.Marshal(got)
			check(t, err)
			return out
		}
	})
	heads, err := j.Due(t.Context(), start.Add(time.Hour), 100)
	check(t, err)
	if len(heads) != lanes || partly == 0 {
		t.Errorf("%d lanes of %d, %d answers in part", len(heads), lanes, partly)
	}
}

// only keeps the items with one of the keys.
func only(t *testing.T, items []json.RawMessage, keys []map[string]json.RawMessage) (kept []json.RawMessage) {
	t.Helper()
	for _, raw := range items {
		var it map[string]json.RawMessage
		check(t, json.Unmarshal(raw, &it))
		for _, k := range keys {
			if string(it["pk"]) == string(k["pk"]) {
				kept = append(kept, raw)
			}
		}
	}
	return kept
}
