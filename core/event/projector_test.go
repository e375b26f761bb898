package event_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/record"
)

var update = flag.Bool("update", false, "rewrite the golden traces in testdata")

// at is the n-th minute of every story.
func at(n int) time.Time { return time.Date(2026, 3, 1, 12, n, 0, 0, time.UTC) }

// story is the log of one conversation.
type story struct {
	name    string
	batches [][]record.Record // an AttemptStarted raises the epoch
}

func (s story) log() []record.Batch {
	var log []record.Batch
	epoch := uint64(0)
	for i, records := range s.batches {
		if _, ok := records[0].(record.AttemptStarted); ok {
			epoch++
		}
		log = append(log, record.Batch{Tenant: "local", Conversation: "demo", Slot: uint64(i + 1), Epoch: epoch,
			Attempt: fmt.Sprintf("attempt-%d", epoch), At: at(i), Records: records})
	}
	return log
}

func queued(id, agent string) record.SubmissionQueued {
	return record.SubmissionQueued{Entry: 1, Submission: id, Agent: agent, Principal: "ada@local", Input: record.TextValue("hello"), AdmittedAt: at(0)}
}

func started(id, agent string) record.RunStarted {
	return record.RunStarted{Run: id, Agent: agent, Definition: "d1", Duration: time.Hour, Turns: 12, ToolCalls: 24}
}

func response(turn int, text string, calls ...record.ToolCallPart) record.ResponseRecorded {
	r := record.ResponseRecorded{Turn: turn, Stop: "stop", Provider: "script", Model: "script-1",
		Message: record.Message{Role: record.Assistant, Parts: record.Parts{record.TextPart{Text: record.TextValue(text)}}}}
	for _, c := range calls {
		r.Stop = "tool-calls"
		r.Message.Parts = append(r.Message.Parts, c)
		if !c.ProviderExecuted {
			r.Calls = append(r.Calls, record.DeclaredCall{ID: c.ID, Tool: c.Tool, ArgsDigest: c.Args.Digest()})
		}
	}
	return r
}

func calls(id, tool string, args any) record.ToolCallPart {
	return record.ToolCallPart{ID: id, Tool: tool, Args: record.MustValue(args)}
}

func settled(id string, took time.Duration, result any) record.CallSettled {
	return record.CallSettled{Call: id, Outcome: record.Succeeded, Result: record.MustValue(result), Duration: took}
}

func completed(id string, turns, attempts int, output any) record.RunSettled {
	return record.RunSettled{Run: id, Status: record.StatusCompleted, FinishReason: record.ModelStop, Output: record.MustValue(output), Turns: turns, Attempts: attempts}
}

// stories are legal logs that go everywhere the projection can go.
func stories() []story {
	order, pay := calls("k1", "look_up", map[string]any{"order": "A-1"}), calls("k2", "pay", map[string]any{"cents": 4900})
	mail := calls("k3", "mail", map[string]any{"to": "ada\u202e\u0007"})
	ask := record.ApprovalRequested{Approval: "r1.2.0", Call: "k2", Tool: "pay", Version: "2", ArgsDigest: pay.Args.Digest(), ExpiresAt: at(59)}
	search := record.ToolCallPart{ID: "w1", Tool: "web_search", Args: record.MustValue(map[string]any{"q": "x"}), ProviderExecuted: true}
	large := record.Value{Aside: &record.Ref{SHA256: record.Digest([]byte("large")), Size: 70000}}
	answered := response(1, "", search, order)
	answered.Message.Parts = append(answered.Message.Parts,
		record.ToolResultPart{Call: "w1", Tool: "web_search", Result: record.MustValue([]int{1}), ProviderExecuted: true})
	return []story{
		{"approval", [][]record.Record{
			{record.AttemptStarted{Definition: "d1"}, queued("r1", "refund"), started("r1", "refund")},
			{response(1, "Let me look.", order), record.CallPrepared{Call: "k1", Operation: "r1.1.0"}},
			{settled("k1", 12*time.Millisecond, map[string]any{"total": 4900})},
			{response(2, "", pay, mail), ask},
			// A second submission wakes the lane; the run still waits for the same.
			{record.AttemptStarted{}, queued("r2", "triage")},
			// The process is killed after the call was prepared.
			{record.AttemptStarted{}, record.ApprovalResolved{Entry: 2, Approval: "r1.2.0", Call: "k2", Decision: record.Approved, By: "bob", Reason: "ok", At: at(5)},
				record.CallPrepared{Call: "k2", Operation: "r1.2.0"}},
			{record.AttemptStarted{}, record.CallResolved{Call: "k2", Resolution: record.Happened, Source: "probe"},
				record.CallSettled{Call: "k2", Outcome: record.Succeeded, Result: record.MustValue(map[string]any{"paid": true}), Source: "probe"},
				record.CallPrepared{Call: "k3", Operation: "r1.2.1"}},
			{record.CallSettled{Call: "k3", Outcome: record.Failed, Tag: "bad-address", Result: record.MustValue(map[string]any{"error": "no"}), Duration: time.Second}},
			{response(3, `{"ok":true}`), completed("r1", 3, 4, map[string]any{"ok": true})},
			{started("r2", "triage")},
			{response(1, "urgent\x1b[31m"), completed("r2", 1, 1, "urgent\x1b[31m")},
		}},
		{"waiting", [][]record.Record{
			{record.AttemptStarted{}, queued("r1", "refund"), started("r1", "refund")},
			{record.BackoffScheduled{Until: at(9), Retries: 1, Class: "overloaded"}},
			{record.AttemptStarted{}},
			{record.BackoffScheduled{Until: at(19), Retries: 2, Class: "overloaded"}},
			{record.AttemptStarted{}, record.RunHeld{Reason: "definition", Detail: "agent refund is not in this build"}},
			{record.AttemptStarted{}, record.RunReleased{Reason: "this build can go on"}},
			{answered, record.CallPrepared{Call: "k1", Operation: "r1.1.0"}},
			// The attempt is lost with the call; nobody knows.
			{record.AttemptStarted{}, record.CallUnknown{Call: "k1", Reason: record.LostOutcome}},
			{record.AttemptStarted{}, record.CallResolved{Entry: 2, Call: "k1", Resolution: record.NotHappened, Source: "operator", By: "ada", Reason: "looked"},
				record.CallPrepared{Call: "k1", Operation: "r1.1.0"}},
			{record.CallSettled{Call: "k1", Outcome: record.Succeeded, Result: large, Truncated: 900000, Duration: time.Millisecond}},
			{record.SteeringApplied{Entry: 3, By: "ada", Text: record.TextValue("be brief")}, record.BudgetWarned{Dimension: "turns", Used: 10, Limit: 12},
				record.CompactionCreated{Compaction: "c1", CoversThrough: 4}},
			{response(2, ""), record.RunSettled{Run: "r1", Status: record.StatusFailed, PolicyLimit: "turns",
				Error: &record.Error{Kind: record.PolicyError, Message: "the run used all of its 2 turns", Hint: "raise the limit"}, Turns: 2, Attempts: 6}},
		}},
		{"ending", [][]record.Record{
			{record.AttemptStarted{}, queued("r1", "refund"), started("r1", "refund")},
			{response(1, "", pay, order), record.CallPrepared{Call: "k2", Operation: "r1.1.0"}},
			// Aborted while a payment may have happened: the other call never starts.
			{record.AttemptStarted{}, record.AbortRequested{Entry: 2, Submission: "r1", By: "ada", Reason: "wrong"}, record.CallUnknown{Call: "k2", Reason: record.LostOutcome}},
			{record.AttemptStarted{}, queued("r2", "triage"), record.AbortRequested{Entry: 4, Submission: "r2", By: "ada"},
				record.CallResolved{Call: "k2", Resolution: record.Happened, Source: "operator"}, settled("k2", 0, "paid"),
				record.CallSettled{Call: "k1", Outcome: record.Interrupted, Synthetic: record.RunEnding, Result: record.MustValue(map[string]any{"error": "not executed"})},
				record.RunSettled{Run: "r1", Status: record.StatusAborted, Error: &record.Error{Kind: "Aborted", Message: "aborted by ada: wrong"}, Turns: 1, Attempts: 3}},
			{record.RunSettled{Run: "r2", Status: record.StatusAborted, Error: &record.Error{Kind: "Aborted", Message: "aborted by ada"}}},
			{record.AttemptStarted{}, queued("r3", "refund"), started("r3", "refund")},
			{response(1, "", pay), ask},
			{record.AttemptStarted{}, record.ApprovalResolved{Approval: "r1.2.0", Call: "k2", Decision: record.Expired, At: at(7)}},
			{record.CallSettled{Call: "k2", Outcome: record.Interrupted, Synthetic: record.RunEnding, Result: record.MustValue("x")},
				record.RunSettled{Run: "r3", Status: record.StatusFailed, Error: &record.Error{Kind: "ApprovalExpiredError", Message: "nobody decided"}, Turns: 1, Attempts: 2}},
		}},
	}
}

// conformance: EV-02, EV-04, EV-05, EV-07, EV-08
//
// Each trace shows the batches of a log, the events of each, and under an event
// the line a person reads.
func TestGoldenTraces(t *testing.T) {
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			var got bytes.Buffer
			var p event.Projector
			for _, b := range s.log() {
				fmt.Fprintf(&got, "slot %d\n", b.Slot)
				for _, e := range project(t, &p, b) {
					raw, err := json.Marshal(e)
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprintf(&got, "  %s\n", raw)
					if line := event.Line(e, "layover"); line != "" {
						fmt.Fprintf(&got, "    | %s\n", line)
					}
				}
			}
			path := filepath.Join("testdata", s.name+".txt")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("-want +got; run with -update if this is meant:\n%s", diff)
			}
		})
	}
}

func project(t *testing.T, p *event.Projector, b record.Batch) []event.Event {
	t.Helper()
	events, err := p.Project(b)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// conformance: EV-03
func TestSequenceRisesByOneWithinARun(t *testing.T) {
	for _, s := range stories() {
		var p event.Projector
		last := map[string]uint64{}
		for _, b := range s.log() {
			for _, e := range project(t, &p, b) {
				if e.Sequence != last[e.Run]+1 || e.Epoch != b.Epoch || e.Sub != 0 || e.Provisional {
					t.Errorf("%s: event %+v after sequence %d", s.name, e, last[e.Run])
				}
				last[e.Run] = e.Sequence
			}
		}
		if !p.Idle() {
			t.Errorf("%s: the projector is not idle at the end", s.name)
		}
	}
}

// conformance: EV-09
func TestTraceEndsInOneTerminalEvent(t *testing.T) {
	for _, s := range stories() {
		var p event.Projector
		ends, after := map[string]int{}, map[string]event.Kind{}
		for _, b := range s.log() {
			for _, e := range project(t, &p, b) {
				if ends[e.Run] > 0 {
					t.Errorf("%s: %s of run %s after its end", s.name, e.Data.Kind(), e.Run)
				}
				switch e.Data.Kind() {
				case event.KindRunCompleted, event.KindRunFailed, event.KindRunInterrupted:
					ends[e.Run]++
				}
				after[e.Run] = e.Data.Kind()
			}
		}
		for run, kind := range after {
			if ends[run] != 1 {
				t.Errorf("%s: run %s ends %d times, last event %s", s.name, run, ends[run], kind)
			}
		}
	}
}

func TestProjectorRefusesAGap(t *testing.T) {
	var p event.Projector
	log := stories()[0].log()
	project(t, &p, log[0])
	for _, b := range []record.Batch{log[0], log[2]} {
		if _, err := p.Project(b); err == nil {
			t.Errorf("slot %d was taken after slot 1", b.Slot)
		}
	}
	if p.Slot() != 1 {
		t.Errorf("slot = %d after refusals", p.Slot())
	}
	project(t, &p, log[1])
}

func TestProjectorNamesTheNewestAttempt(t *testing.T) {
	var p event.Projector
	for _, b := range stories()[0].log()[:1] {
		project(t, &p, b)
	}
	if p.Attempt().Definition != "d1" {
		t.Errorf("attempt = %+v", p.Attempt())
	}
}

// What the log has overtaken is no news: text of a turn with its response, words
// about a call that has ended, and anything of an attempt that is over.
func TestSuperseded(t *testing.T) {
	var p event.Projector
	log := stories()[0].log()
	project(t, &p, log[0])
	at, ok := p.Active()
	if !ok {
		t.Fatal("no run is active")
	}
	text := event.Event{Run: at.Run, Epoch: 1, Turn: 1, Provisional: true, Data: event.TextDelta{Text: "x"}}
	word := event.Event{Run: at.Run, Epoch: 1, Turn: 1, Call: "k1", Provisional: true, Data: event.ToolCallProgress{}}
	other := text
	other.Run = "another"
	check := func(when string, e event.Event, epoch uint64, want bool) {
		t.Helper()
		if got := p.Superseded(e, epoch); got != want {
			t.Errorf("%s: superseded = %v", when, got)
		}
	}
	check("before the response", text, 1, false)
	check("of another run", other, 1, true)
	check("of an older attempt", text, 2, true)
	check("about a call that is not declared", word, 1, true)
	project(t, &p, log[1])
	check("after the response", text, 1, true)
	text.Turn = 2
	check("of the next turn", text, 1, false)
	check("about an open call", word, 1, false)
	for _, b := range log[2:] {
		project(t, &p, b)
	}
	check("about a call that has ended", word, 1, true)
}
