package record_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/record"
)

// verdict is what Open says about a record somebody else wrote: the record is
// encoded by its tags and sealed around the checks of Seal.
func verdict(t *testing.T, r record.Record) error {
	t.Helper()
	body := swap(t, bodyOf(t, "runReleased.min"), `{"kind":"runReleased","v":1}`, string(tagged(t, r)))
	_, openErr := open(sealBody(t, body))
	b := batchOf(r)
	_, sealErr := record.Seal(&b)
	if (openErr == nil) != (sealErr == nil) {
		t.Errorf("Open and Seal disagree about %+v: %v, %v", r, openErr, sealErr)
	}
	return openErr
}

// judge checks one row: accepted, or refused as corrupt.
func judge(t *testing.T, what string, r record.Record, ok bool) {
	t.Helper()
	if err := verdict(t, r); ok && err != nil || !ok && !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("%s: %v", what, err)
	}
}

var (
	completed = record.RunSettled{Run: "s1", Status: record.StatusCompleted, FinishReason: record.ModelStop}
	failed    = record.RunSettled{Run: "s1", Status: record.StatusFailed, Error: failure()}
	aborted   = record.RunSettled{Run: "s1", Status: record.StatusAborted}
	exhausted = record.RunSettled{Run: "s1", Status: record.StatusCompleted, FinishReason: record.BudgetExhausted, Exhausted: "turns"}
	policy    = record.RunSettled{Run: "s1", Status: record.StatusFailed, PolicyLimit: "turns",
		Error: &record.Error{Kind: record.PolicyError, Limit: "turns", Message: "20 turns used"}}
)

func with(s record.RunSettled, change func(*record.RunSettled)) record.RunSettled {
	change(&s)
	return s
}

// conformance: RUN-011e
func TestExhaustedFamily(t *testing.T) {
	reason := func(s *record.RunSettled) { s.FinishReason = record.BudgetExhausted }
	dimension := func(s *record.RunSettled) { s.Exhausted = "turns" }
	judge(t, "both", exhausted, true)
	judge(t, "neither", completed, true)
	judge(t, "the reason alone", with(completed, reason), false)
	judge(t, "the dimension alone", with(completed, dimension), false)
	judge(t, "the dimension without any reason", record.RunSettled{Run: "s1", Status: record.StatusCompleted, Exhausted: "turns"}, false)
	judge(t, "both on a failed run", with(failed, func(s *record.RunSettled) { reason(s); dimension(s) }), false)
	judge(t, "both on an aborted run", with(aborted, func(s *record.RunSettled) { reason(s); dimension(s) }), false)
	judge(t, "another reason on a failed run", with(failed, func(s *record.RunSettled) { s.FinishReason = record.ModelStop }), false)
	judge(t, "the dimension on a failed run", with(failed, dimension), false)
}

// conformance: RUN-011f
func TestPolicyLimitFamily(t *testing.T) {
	limit := func(s *record.RunSettled) { s.PolicyLimit = "turns" }
	judge(t, "a failed run with the error", policy, true)
	judge(t, "a failed run without limit", failed, true)
	judge(t, "an older failed run of that kind", with(policy, func(s *record.RunSettled) { s.PolicyLimit = "" }), true)
	judge(t, "a completed run", with(completed, limit), false)
	judge(t, "an aborted run", with(aborted, limit), false)
	judge(t, "an aborted run with the error", with(policy, func(s *record.RunSettled) { s.Status = record.StatusAborted }), false)
	judge(t, "another error", with(failed, limit), false)
	judge(t, "the error of another limit", with(policy, func(s *record.RunSettled) { s.PolicyLimit = "tool-calls" }), false)
	judge(t, "no error", with(policy, func(s *record.RunSettled) { s.Error = nil }), false)
	judge(t, "an error on a completed run", with(completed, func(s *record.RunSettled) { s.Error = failure() }), false)
}

// conformance: RUN-029h
func TestDispositionFamily(t *testing.T) {
	for what, row := range map[string]struct {
		settled record.RunSettled
		may     bool
	}{
		"completed": {completed, true}, "failed": {failed, false}, "aborted": {aborted, false},
		"exhausted": {exhausted, false}, "policy": {policy, false},
	} {
		judge(t, what+" without", row.settled, true)
		judge(t, what+" with a disposition", with(row.settled, func(s *record.RunSettled) { s.Disposition = record.MustValue("won") }), row.may)
		judge(t, what+" with null", with(row.settled, func(s *record.RunSettled) { s.Disposition = record.MustValue(nil) }), row.may)
		judge(t, what+" with one aside", with(row.settled, func(s *record.RunSettled) { s.Disposition = aside }), row.may)
	}
}

// conformance: RUN-033c
//
// The prefix is a list of its own, so that no length can be wrong; what is left
// to check is who speaks in it, and that the response is the model's.
func TestPrefix(t *testing.T) {
	for role, ok := range map[record.Role]bool{record.System: true, record.User: true, record.Assistant: false, record.Tool: false} {
		r := record.ResponseRecorded{Message: record.TextMessage(record.Assistant, "ok"), Prefix: []record.Message{
			record.TextMessage(record.System, "be brief"), record.TextMessage(role, "hello"),
		}}
		judge(t, "a prefix of the "+string(role), r, ok)
		r = record.ResponseRecorded{Message: record.TextMessage(role, "ok")}
		judge(t, "a response of the "+string(role), r, role == record.Assistant)
	}
	body := bodyOf(t, "responseRecorded.min")
	for what, forged := range map[string]string{
		"a length":          swap(t, body, `"provider"`, `"prefix":1,"provider"`),
		"a negative length": swap(t, body, `"provider"`, `"prefix":-1,"provider"`),
		"no response":       swap(t, body, `"message":{"parts":[{"text":{"inline":"done"},"type":"text"}],"role":"assistant"},`, ``),
	} {
		if _, err := open(sealBody(t, forged)); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Each count, wherever usage is persisted, is a safe integer or absent.
func TestUsageBounds(t *testing.T) {
	counts := []func(*record.Usage) **int64{
		func(u *record.Usage) **int64 { return &u.InputTokens }, func(u *record.Usage) **int64 { return &u.CacheReadTokens },
		func(u *record.Usage) **int64 { return &u.CacheWriteTokens }, func(u *record.Usage) **int64 { return &u.OutputTokens },
		func(u *record.Usage) **int64 { return &u.ReasoningTokens }, func(u *record.Usage) **int64 { return &u.CostMicroUSD },
	}
	if want := reflect.TypeFor[record.Usage]().NumField() - 1; len(counts) != want {
		t.Fatalf("%d counts, %d tested", want, len(counts))
	}
	for i, count := range counts {
		for v, ok := range map[int64]bool{-1: false, 0: true, record.MaxSafeInteger: true, record.MaxSafeInteger + 1: false} {
			var u record.Usage
			*count(&u) = &v
			judge(t, "a response", record.ResponseRecorded{Message: record.TextMessage(record.Assistant, "ok"), Usage: u}, ok)
			judge(t, "a settlement", with(completed, func(s *record.RunSettled) { s.Usage = u }), ok)
			judge(t, "a child", record.ChildSettled{Status: record.StatusCompleted, Usage: u}, ok)
			judge(t, "a compaction", record.CompactionCreated{Usage: u}, ok)
			if t.Failed() {
				t.Fatalf("count %d, value %d", i, v)
			}
		}
	}
	sample := bodyOf(t, "responseRecorded.zeros")
	for _, bad := range []string{"1.5", "-1", "9007199254740992", "1e99", `"7"`, "null"} {
		_, err := open(sealBody(t, swap(t, sample, `"inputTokens":0`, `"inputTokens":`+bad)))
		if !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A part of what one response used is not above its total.
func TestUsageParts(t *testing.T) {
	for what, row := range map[string]struct {
		usage record.Usage
		ok    bool
	}{
		"all cached":           {record.Usage{InputTokens: n(5), CacheReadTokens: n(3), CacheWriteTokens: n(2)}, true},
		"too much cached":      {record.Usage{InputTokens: n(5), CacheReadTokens: n(3), CacheWriteTokens: n(3)}, false},
		"no total":             {record.Usage{CacheReadTokens: n(3)}, true},
		"all reasoning":        {record.Usage{OutputTokens: n(5), ReasoningTokens: n(5)}, true},
		"too much reasoning":   {record.Usage{OutputTokens: n(5), ReasoningTokens: n(6)}, false},
		"reasoning, no output": {record.Usage{ReasoningTokens: n(6)}, true},
	} {
		judge(t, what, record.ResponseRecorded{Message: record.TextMessage(record.Assistant, "ok"), Usage: row.usage}, row.ok)
	}
}

// Absent stays absent, and zero stays zero.
func TestUsageAdd(t *testing.T) {
	sum := record.Usage{InputTokens: n(1), CacheReadTokens: n(0), OutputTokens: n(2), Raw: []byte(`1`)}.Add(
		record.Usage{InputTokens: n(10), CacheWriteTokens: n(4), CostMicroUSD: n(0)})
	want := record.Usage{InputTokens: n(11), CacheReadTokens: n(0), CacheWriteTokens: n(4), OutputTokens: n(2), CostMicroUSD: n(0)}
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(record.Usage{}, record.Usage{}.Add(record.Usage{})); diff != "" {
		t.Error(diff)
	}
	a := record.Usage{InputTokens: n(1)}
	if got := a.Add(record.Usage{}); got.InputTokens == a.InputTokens {
		t.Error("the sum shares its counts with a summand")
	}
}

func TestMessageCalls(t *testing.T) {
	m := record.Message{Parts: record.Parts{record.ToolCallPart{ID: "a"}, record.TextPart{}, record.ToolCallPart{ID: "b"}}}
	var ids []string
	for _, c := range m.Calls() {
		ids = append(ids, c.ID)
	}
	if strings.Join(ids, " ") != "a b" {
		t.Error(ids)
	}
}
