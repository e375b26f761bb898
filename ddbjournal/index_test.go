package ddbjournal_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/ddbjournal"
)

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
	finished, later, parked := admit("finished"), admit("later"), admit("parked")
	stale := b.recordIndex(t)
	if got := whenDue(t, j, "finished later parked"); got != "finished later parked" {
		t.Fatalf("due: %s", got)
	}
	b.replayIndex(stale())
	release(finished, journal.Idle, time.Time{})
	release(later, journal.Parked, start.Add(24*time.Hour))
	release(parked, journal.Parked, start.Add(30*time.Minute))
	if got := whenDue(t, j, "parked"); got != "parked" {
		t.Errorf("with a stale index: due %s", got)
	}
	b.replayIndex(map[string]json.RawMessage{}) // hides everything
	if got := whenDue(t, j, ""); got != "" {
		t.Errorf("with an empty index: due %s", got)
	}
	b.replayIndex(nil)
	if got := whenDue(t, j, "parked"); got != "parked" {
		t.Errorf("once it has caught up: due %s", got)
	}
}

// whenDue names the conversations due within an hour, once they are those
// wanted or the index of the store under test has had its time.
func whenDue(t *testing.T, j journal.Journal, want string) (got string) {
	t.Helper()
	for late := time.Now().Add(indexLag); ; time.Sleep(5 * time.Millisecond) {
		heads, err := j.Due(t.Context(), start.Add(time.Hour), 100)
		check(t, err)
		var found []string
		for _, h := range heads {
			found = append(found, h.Lane.Conversation)
		}
		if got = strings.Join(found, " "); got == want || time.Now().After(late) {
			return got
		}
	}
}

// recordIndex remembers what the index answers, by the query.
func (b bench) recordIndex(t *testing.T) func() map[string]json.RawMessage {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]json.RawMessage{}
	b.net.set(func() {
		b.net.rewrite = func(call, request string, response []byte) []byte {
			if call == "Query" && strings.Contains(request, "IndexName") {
				mu.Lock()
				defer mu.Unlock()
				seen[sorted(request)] = response
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

// sorted is a request with its members in one order: the SDK writes a map's in
// any.
func sorted(request string) string {
	var members any
	if err := json.Unmarshal([]byte(request), &members); err != nil {
		panic(err)
	}
	again, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return string(again)
}

// delayIndex makes the index show nothing the first time a question is asked.
func (b bench) delayIndex() {
	asked := map[string]bool{}
	var mu sync.Mutex
	b.net.set(func() {
		b.net.rewrite = func(call, request string, response []byte) []byte {
			if call != "Query" || !strings.Contains(request, "IndexName") {
				return response
			}
			mu.Lock()
			defer mu.Unlock()
			question := sorted(request)
			if asked[question] {
				return response
			}
			asked[question] = true
			return nothing
		}
	})
}

// nothing is the answer to a query that finds nothing.
var nothing = []byte(`{"Count":0,"Items":[],"ScannedCount":0}`)

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
			if old, ok := answers[sorted(request)]; ok {
				return old
			}
			return nothing
		}
	})
}

// A lane whose due time moves on between two pages is on both of them. The
// store would refuse to be asked for its head twice, and with it the sweep.
func TestALaneTheIndexShowsTwice(t *testing.T) {
	b := newBench(t, 3)
	j := openOn(t, b.client, b.table)
	for _, conversation := range []string{"c1", "c2"} {
		_, err := j.Admit(t.Context(), submission(journal.Lane{Tenant: "acme", Conversation: conversation}, conversation), start, time.Minute)
		check(t, err)
	}
	whenDue(t, j, "c1 c2")
	b.net.set(func() {
		b.net.rewrite = func(call, request string, response []byte) []byte {
			if call != "Query" || !strings.Contains(request, "IndexName") {
				return response
			}
			var got struct {
				Items []map[string]map[string]string
			}
			check(t, json.Unmarshal(response, &got))
			for _, it := range got.Items {
				again := maps.Clone(it)
				again["dueAt"] = map[string]string{"N": fmt.Sprint(start.Add(time.Hour).UnixMilli())}
				got.Items = append(got.Items, again)
			}
			out, err := json.Marshal(got)
			check(t, err)
			return out
		}
	})
	heads, err := j.Due(t.Context(), start.Add(time.Hour), 10)
	check(t, err)
	if len(heads) != 2 || heads[0].Lane.Conversation != "c1" || heads[1].Lane.Conversation != "c2" {
		t.Errorf("due: %+v", heads)
	}
}

// A store that never gets to some of the heads is unclear in the end.
func TestHeadsThatStayUnprocessed(t *testing.T) {
	b := newBench(t, 1)
	j, err := ddbjournal.New(b.client, ddbjournal.Config{Table: b.table, Contention: 20 * time.Millisecond})
	check(t, err)
	_, err = j.Admit(t.Context(), submission(lane, "s1"), start, time.Minute)
	check(t, err)
	whenDue(t, j, lane.Conversation)
	b.net.set(func() {
		b.net.rewrite = func(call, request string, response []byte) []byte {
			if call != "BatchGetItem" {
				return response
			}
			var asked struct{ RequestItems json.RawMessage }
			check(t, json.Unmarshal([]byte(request), &asked))
			return fmt.Appendf(nil, `{"Responses":{},"UnprocessedKeys":%s}`, asked.RequestItems)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := j.Due(ctx, start.Add(time.Hour), 10); !journal.Unclear(err) {
		t.Errorf("got %v", err)
	}
}

// The store may answer a batch of reads in part.
func TestUnprocessedHeadsAreAskedForAgain(t *testing.T) {
	b := newBench(t, 3)
	j := openOn(t, b.client, b.table)
	const lanes = 12
	var all []string
	for n := range lanes {
		l := journal.Lane{Tenant: "acme", Conversation: fmt.Sprintf("c%02d", n)}
		_, err := j.Admit(t.Context(), submission(l, l.Conversation), start, time.Minute)
		check(t, err)
		all = append(all, l.Conversation)
	}
	whenDue(t, j, strings.Join(all, " "))
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
			if sorted(string(it["pk"])) == sorted(string(k["pk"])) { // stores differ in their blanks
				kept = append(kept, raw)
			}
		}
	}
	return kept
}
