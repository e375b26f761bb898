package record_test

import (
	"strings"
	"time"

	"github.com/layover-run/layover/core/record"
)

var (
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later  = noon.Add(1500 * time.Millisecond)
	digest = record.Digest([]byte("something"))
	aside  = record.Value{Aside: &record.Ref{SHA256: record.Digest([]byte("large")), Size: 1 << 20}}
)

func n(v int64) *int64 { return &v }

func usage() record.Usage {
	return record.Usage{
		InputTokens: n(900), CacheReadTokens: n(700), CacheWriteTokens: n(0), OutputTokens: n(64), ReasoningTokens: n(32),
		CostMicroUSD: n(record.MaxSafeInteger), Raw: []byte(`{"cached":700,"total":900}`),
	}
}

func failure() *record.Error {
	return &record.Error{Kind: "ToolError", Message: "the tool said \"no\"\n", Hint: "ask again"}
}

// sample is one record and what its golden file is called.
type sample struct {
	name   string
	record record.Record
}

// samples has every kind: with every field filled (the variants of a kind
// together fill all of them) and, as .min, with nothing that can be absent.
func samples() []sample {
	input := record.MustValue(map[string]any{"orderId": "A-1001", "note": "<b>&\u2028é😀\x7f", "n": 9007199254740993})
	full := record.Message{Role: record.Assistant, Parts: record.Parts{
		record.TextPart{Text: record.TextValue("one\ttwo")},
		record.ReasoningPart{Text: record.TextValue("hm"), Opaque: record.BytesValue([]byte{0, 1, 0xfe, 0xff}), Provider: "demo"},
		record.ReasoningPart{},
		record.ToolCallPart{ID: "c1", Tool: "look_up", Args: input, ProviderExecuted: true},
		record.ToolResultPart{Call: "c1", Tool: "look_up", Result: aside, Failed: true, ProviderExecuted: true},
		record.MediaPart{MediaType: "image/png", Content: *aside.Aside, Name: "a.png"},
		record.InputPart{},
	}}
	return []sample{
		{"attemptStarted", record.AttemptStarted{Boot: "b1", Until: later, Definition: digest}},
		{"attemptStarted.min", record.AttemptStarted{}},
		{"submissionQueued", record.SubmissionQueued{
			Entry: 3, Submission: "s1", Agent: "refund", Input: input, Principal: "ada", ReplyTo: "q", FollowUp: true, AdmittedAt: noon,
			Allowance: record.Allowance{Turns: 3, ToolCalls: 4, Duration: time.Minute},
			Parent:    record.ParentLink{Conversation: "c0", Run: "s0", Call: "k0", Depth: 1, Tail: 9},
		}},
		{"submissionQueued.min", record.SubmissionQueued{Entry: 1, Submission: "s1", Agent: "refund", Input: record.MustValue(nil), Principal: "ada", AdmittedAt: noon}},
		{"runStarted", record.RunStarted{Run: "s1", Agent: "refund", Definition: digest, Duration: time.Hour, Turns: 20, ToolCalls: 40}},
		{"steeringQueued", record.SteeringQueued{Entry: 4, Submission: "s1", Key: "k1", By: "ada", Text: record.TextValue("shorter"), At: noon}},
		{"steeringApplied.queued", record.SteeringApplied{By: "ada", Queued: 4}},
		{"steeringDropped.queued", record.SteeringDropped{By: "ada", Reason: "the run ended", Queued: 4}},
		{"steeringDropped.late", record.SteeringDropped{Entry: 5, By: "ada", Reason: "the run ended", Submission: "s1", Key: "k1"}},
		{"submissionQueued.join", record.SubmissionQueued{Entry: 1, Submission: "s1", Agent: "refund", Input: record.MustValue(nil), Principal: "ada", AdmittedAt: noon,
			Allowance: record.Allowance{Join: true}}},
		{"runSettled.joined", record.RunSettled{Run: "s4", Status: record.StatusCompleted, FinishReason: record.ModelStop, Host: "s1", Attempts: 1, Turns: 1}},
		{"steeringApplied", record.SteeringApplied{Entry: 4, By: "ada", Text: record.TextValue("shorter")}},
		{"steeringDropped", record.SteeringDropped{Entry: 4, By: "ada", Reason: "the run ended"}},
		{"followUpApplied", record.FollowUpApplied{Submission: "s2", Text: record.TextValue("and then?")}},
		{"responseRecorded", record.ResponseRecorded{
			Turn: 1, Message: full, Stop: "tool-calls", RawStop: "tool_use", Provider: "demo", Model: "demo-1", Tier: "fast",
			PricingVersion: "2026-01", ResponseID: "r1", Usage: usage(), Request: digest, Constrained: true, Grace: true, Exhausted: "turns",
			Prefix: []record.Message{
				record.TextMessage(record.System, "be brief"),
				{Role: record.User, Parts: record.Parts{record.InputPart{}}},
			},
			Calls: []record.DeclaredCall{
				{ID: "c1", Tool: "look_up", Version: "1", Class: record.Readonly, ArgsDigest: digest, Problem: "no such tool"},
				{ID: "c2", Tool: "pay", Class: record.Idempotent, ArgsDigest: digest},
				{ID: "c3", Tool: "pay", Class: record.Uncertain, ArgsDigest: digest},
			},
			Repairs: []record.Repair{{Name: "empty-args", Raw: "{"}, {Name: "other"}},
		}},
		{"responseRecorded.provider", record.ResponseRecorded{Turn: 1, Stop: "stop", Provider: "demo", Model: "demo-1",
			Message: record.Message{Role: record.Assistant, Parts: record.Parts{
				record.ToolCallPart{ID: "c1", Tool: "web_search", Args: input, ProviderExecuted: true, Provider: "demo"},
				record.ToolResultPart{Call: "c1", Tool: "web_search", Result: aside, ProviderExecuted: true, Provider: "demo", Opaque: record.BytesValue([]byte{0, 0xff})},
				record.TextPart{Text: record.TextValue("found")},
			}}}},
		{"responseRecorded.opaque", record.ResponseRecorded{Turn: 1, Stop: "tool-calls", RawStop: "pause_turn", Provider: "demo", Model: "demo-1",
			Message: record.Message{Role: record.Assistant, Parts: record.Parts{
				record.ToolCallPart{ID: "c1", Tool: "web_search", Args: input, ProviderExecuted: true, Provider: "demo", Opaque: record.BytesValue([]byte{1, 0xfe})},
				record.TextPart{Text: record.TextValue("found"), Provider: "demo", Opaque: record.BytesValue([]byte{2, 0xfd})},
			}}}},
		{"responseRecorded.min", record.ResponseRecorded{Turn: 1, Stop: "stop", Provider: "demo", Model: "demo-1", Message: record.TextMessage(record.Assistant, "done")}},
		{"responseRecorded.zeros", record.ResponseRecorded{Turn: 2, Stop: "stop", Provider: "demo", Model: "demo-1",
			Message: record.Message{Role: record.Assistant, Parts: record.Parts{}}, Usage: record.Usage{InputTokens: n(0), OutputTokens: n(0)}}},
		{"approvalRequested", record.ApprovalRequested{Approval: "s1.1.c1", Call: "c1", Tool: "pay", Version: "1", ArgsDigest: digest, ExpiresAt: later}},
		{"approvalRequested.min", record.ApprovalRequested{Approval: "s1.1.c1", Call: "c1", Tool: "pay", ArgsDigest: digest}},
		{"approvalResolved", record.ApprovalResolved{Entry: 5, Approval: "s1.1.c1", Call: "c1", Decision: record.Denied, By: "max", Reason: "too much", At: later}},
		{"approvalResolved.approved", record.ApprovalResolved{Entry: 5, Approval: "s1.1.c1", Call: "c1", Decision: record.Approved, By: "max", At: later}},
		{"approvalResolved.min", record.ApprovalResolved{Approval: "s1.1.c1", Call: "c1", Decision: record.Expired, At: later}},
		{"callPrepared", record.CallPrepared{Call: "c1", Operation: "op1"}},
		{"callSettled", record.CallSettled{Call: "c1", Outcome: record.Failed, Result: aside, Tag: "timeout", Synthetic: record.OverBudget, Truncated: 70000, Source: "late", Entry: 6, Duration: 1234567 * time.Nanosecond}},
		{"callSettled.min", record.CallSettled{Call: "c1", Outcome: record.Succeeded, Result: record.MustValue(nil)}},
		{"callWaiting", record.CallWaiting{Call: "c1", ChildConversation: "c2", ChildSubmission: "s2"}},
		{"callUnknown", record.CallUnknown{Call: "c1", Reason: record.LostOutcome}},
		{"callResolved", record.CallResolved{Entry: 7, Call: "c1", Resolution: record.NotHappened, Source: "operator", By: "max", Reason: "looked"}},
		{"callResolved.min", record.CallResolved{Call: "c1", Resolution: record.SafeToRetry, Source: "probe"}},
		{"stepRecorded", record.StepRecorded{Call: "c1", Step: "charge", Result: record.MustValue([]int{1, 2})}},
		{"childLinked", record.ChildLinked{Call: "c1", Conversation: "c2", Submission: "s2", Agent: "triage"}},
		{"childSettled", record.ChildSettled{Entry: 8, Call: "c1", Submission: "s2", Status: record.StatusFailed, Output: record.MustValue("part"), Error: failure(), Usage: usage()}},
		{"childSettled.min", record.ChildSettled{Entry: 8, Call: "c1", Submission: "s2", Status: record.StatusAborted}},
		{"budgetReserved", record.BudgetReserved{Call: "c1", Allowance: record.Allowance{Turns: 1}, Tokens: 1000, MicroUSD: 5}},
		{"budgetReserved.min", record.BudgetReserved{Call: "c1"}},
		{"budgetReleased", record.BudgetReleased{Call: "c1"}},
		{"budgetAnswered", record.BudgetAnswered{Turn: 2, Allowed: true, Reason: "paid"}},
		{"budgetAnswered.min", record.BudgetAnswered{Turn: 2}},
		{"budgetWarned", record.BudgetWarned{Dimension: "turns", Used: 8, Limit: 10}},
		{"compactionCreated", record.CompactionCreated{Compaction: "k1", CoversThrough: 12, Summary: record.TextValue("so far"), Usage: usage()}},
		{"compactionCreated.min", record.CompactionCreated{Compaction: "k1", CoversThrough: 12}},
		{"backoffScheduled", record.BackoffScheduled{Until: later, Retries: 2, Class: "rate-limited", Message: "slow down"}},
		{"backoffScheduled.min", record.BackoffScheduled{Until: later, Class: "overloaded"}},
		{"runHeld", record.RunHeld{Reason: "definition", Detail: "other digest", Until: later}},
		{"runHeld.min", record.RunHeld{Reason: "definition"}},
		{"runReleased", record.RunReleased{Entry: 9, By: "max", Reason: "fixed"}},
		{"runReleased.min", record.RunReleased{}},
		{"abortRequested", record.AbortRequested{Entry: 10, Submission: "s1", By: "ada", Reason: "changed my mind"}},
		{"abortRequested.min", record.AbortRequested{Entry: 10, Submission: "s1", By: "ada"}},
		{"entryIgnored", record.EntryIgnored{Entry: 11, What: "decision", Reason: "already decided"}},
		{"runSettled", record.RunSettled{
			Run: "s1", Status: record.StatusCompleted, FinishReason: record.ModelStop, Output: record.MustValue(map[string]any{"refunded": true}),
			Disposition: record.MustValue("done"), Usage: usage(), Attempts: 2, Turns: 3, Queued: []string{"s2", "s3"}, Joined: []string{"s4"},
		}},
		{"runSettled.exhausted", record.RunSettled{Run: "s1", Status: record.StatusCompleted, FinishReason: record.BudgetExhausted, Exhausted: "turns", Output: aside, Attempts: 1, Turns: 9}},
		{"runSettled.policy", record.RunSettled{Run: "s1", Status: record.StatusFailed, PolicyLimit: "duration", Attempts: 1,
			Error: &record.Error{Kind: record.PolicyError, Limit: "duration", Message: "the run passed its limit", Hint: "allow more time"}}},
		{"runSettled.aborted", record.RunSettled{Run: "s1", Status: record.StatusAborted, Error: failure(), Attempts: 1, Turns: 1}},
		{"runSettled.min", record.RunSettled{Run: "s1", Status: record.StatusCompleted}},
	}
}

// kindOf is the kind a golden file holds.
func kindOf(name string) string { kind, _, _ := strings.Cut(name, "."); return kind }

// batchOf puts records into a batch whose every field is filled.
func batchOf(records ...record.Record) record.Batch {
	return record.Batch{
		Tenant: "acme", Conversation: "conversation \"1\"", Slot: 7, ID: "batch-7", Epoch: 2, Attempt: "attempt-2",
		Prev: record.Digest([]byte("slot 6")), At: later, Records: records,
	}
}
