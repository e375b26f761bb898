package core_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// evidence is a conversation before it is sealed: a row of the test changes one
// thing in it, and whoever seals it afterwards knows how to chain digests.
type evidence struct {
	batches []record.Batch
	ledger  core.Ledger
	sealed  func([]record.Sealed) []record.Sealed
}

var checkStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func (e *evidence) add(epoch uint64, after time.Duration, records ...record.Record) {
	n := len(e.batches) + 1
	e.batches = append(e.batches, record.Batch{Tenant: "t", Conversation: "c", ID: fmt.Sprint("batch ", n), Epoch: epoch,
		Attempt: fmt.Sprint("attempt ", epoch), At: checkStart.Add(after), Records: records})
}

func (e *evidence) seal(t *testing.T) core.Evidence {
	t.Helper()
	out := core.Evidence{Tenant: "t", Conversation: "c", Ledger: e.ledger}
	prev := ""
	for i, b := range e.batches {
		if b.Slot == 0 {
			b.Slot = uint64(i) + 1
		}
		if b.Prev == "" {
			b.Prev = prev
		}
		s, err := record.Seal(&b)
		if err != nil {
			t.Fatal(err)
		}
		prev = b.Digest
		out.Log = append(out.Log, s)
	}
	if e.sealed != nil {
		out.Log = e.sealed(out.Log)
	}
	return out
}

const leaseLength = 15 * time.Minute

func attemptAt(at time.Duration) record.AttemptStarted {
	return record.AttemptStarted{Until: checkStart.Add(at + leaseLength)}
}

func queuedSub(entry uint64, id string) record.SubmissionQueued {
	return record.SubmissionQueued{Entry: entry, Submission: id, Agent: "a", Principal: "kim", Input: record.TextValue("x"), AdmittedAt: checkStart}
}

func begins(id string) record.RunStarted {
	return record.RunStarted{Run: id, Agent: "a", Definition: "d", Duration: 3 * time.Hour, Turns: 2, ToolCalls: 3}
}

// answers is a response that calls tools, by call id, or gives the final text.
func answers(turn int, class record.Class, calls ...string) record.ResponseRecorded {
	r := record.ResponseRecorded{Turn: turn, Message: record.Message{Role: record.Assistant}, Stop: "stop", Provider: "p", Model: "m"}
	for _, id := range calls {
		args := record.MustValue(map[string]any{})
		r.Message.Parts = append(r.Message.Parts, record.ToolCallPart{ID: id, Tool: "pay", Args: args})
		r.Calls = append(r.Calls, record.DeclaredCall{ID: id, Tool: "pay", Class: class, ArgsDigest: args.Digest()})
	}
	if len(calls) == 0 {
		r.Message.Parts = record.Parts{record.TextPart{Text: record.TextValue("done")}}
	}
	if turn == 1 {
		r.Prefix = []record.Message{{Role: record.User, Parts: record.Parts{record.TextPart{Text: record.TextValue("go")}}}}
	}
	return r
}

func prepares(call, operation string) record.CallPrepared {
	return record.CallPrepared{Call: call, Operation: operation}
}

func succeeds(call string) record.CallSettled {
	return record.CallSettled{Call: call, Outcome: record.Succeeded, Result: record.TextValue("ok")}
}

func completes(run string, attempts, turns int, queued ...string) record.RunSettled {
	return record.RunSettled{Run: run, Status: record.StatusCompleted, FinishReason: record.ModelStop, Output: record.TextValue("done"),
		Attempts: attempts, Turns: turns, Queued: queued}
}

// twoRuns is a conversation of two runs. In the first an uncertain call was
// lost with its attempt, and the operator said that it did not happen, once the
// attempt was certainly dead; the second ended at once.
func twoRuns() *evidence {
	e := &evidence{}
	e.add(1, 0, attemptAt(0), queuedSub(1, "r1"), queuedSub(2, "r2"), begins("r1"))                                         // 1
	e.add(1, 0, answers(1, record.Uncertain, "c1"), prepares("c1", "o1"))                                                   // 2
	e.add(2, 20*time.Minute, attemptAt(20*time.Minute))                                                                     // 3
	e.add(2, 20*time.Minute, record.CallUnknown{Call: "c1", Reason: record.LostOutcome})                                    // 4
	e.add(3, 40*time.Minute, attemptAt(40*time.Minute))                                                                     // 5
	e.add(3, 40*time.Minute, record.CallResolved{Entry: 3, Call: "c1", Resolution: record.NotHappened, Source: "operator"}) // 6
	e.add(3, 40*time.Minute, prepares("c1", "o1"))                                                                          // 7
	e.add(3, 40*time.Minute, succeeds("c1"))                                                                                // 8
	e.add(3, 40*time.Minute, answers(2, ""), completes("r1", 3, 2, "r2"))                                                   // 9
	e.add(4, 41*time.Minute, attemptAt(41*time.Minute), begins("r2"))                                                       // 10
	e.add(4, 41*time.Minute, answers(1, ""), completes("r2", 1, 1))                                                         // 11
	one, two := completes("r1", 3, 2, "r2"), completes("r2", 1, 1)
	e.ledger = core.Ledger{
		Head: core.LaneHead{Epoch: 4, State: "idle", Settled: 11, Drained: 3},
		Inbox: []core.InboxSlot{{Slot: 1, Kind: "submit", Key: "r1", Ref: "r1"}, {Slot: 2, Kind: "submit", Key: "r2", Ref: "r2"},
			{Slot: 3, Kind: "resolve", Key: "resolve o1"}},
		Rows: []core.Row{{Submission: "r1", Conversation: "c", Outcome: &one}, {Submission: "r2", Conversation: "c", Outcome: &two}},
	}
	return e
}

// cut ends the log behind a slot, with the rows as they were then.
func (e *evidence) cut(slot int, head core.LaneHead, entries int) {
	e.batches, e.ledger.Head, e.ledger.Inbox = e.batches[:slot], head, e.ledger.Inbox[:entries]
	for i := range e.ledger.Rows {
		if slot < 9 || i == 1 && slot < 11 {
			e.ledger.Rows[i].Outcome = nil
		}
	}
}

// insert puts records behind those of a slot.
func (e *evidence) insert(slot int, records ...record.Record) {
	e.batches[slot-1].Records = append(slices.Clip(e.batches[slot-1].Records), records...)
}

func (e *evidence) drop(slot int) { e.batches = slices.Delete(e.batches, slot-1, slot) }

// Each row is a conversation tampered with in one way, its digests right again,
// and the one rule that finds it. Without that rule nothing else would.
func TestCheckConversation(t *testing.T) {
	due := checkStart.Add(time.Hour)
	parked := core.LaneHead{Epoch: 2, State: "parked", Due: due, Drained: 2}
	for name, row := range map[string]struct {
		change func(e *evidence)
		rule   core.Rule // none: it holds
		slot   uint64
	}{
		"two runs":                  {func(*evidence) {}, "", 0},
		"no log at all":             {func(e *evidence) { *e = evidence{ledger: core.Ledger{Head: core.LaneHead{State: "idle"}}} }, "", 0},
		"parked on an unknown call": {func(e *evidence) { e.cut(4, parked, 2) }, "", 0},
		"an outcome that waits for settle": {func(e *evidence) {
			e.cut(9, core.LaneHead{Epoch: 3, State: "running", Due: due, Lease: due, Drained: 2}, 3)
		}, "", 0},
		"its row is settled before its head": {func(e *evidence) {
			e.cut(11, core.LaneHead{Epoch: 4, State: "running", Due: due, Lease: due, Settled: 9}, 3)
		}, "", 0},
		"an attempt that left without a batch": {func(e *evidence) { e.ledger.Head.Epoch++ }, "", 0},
		"an aborted submission never starts": {func(e *evidence) {
			e.batches[9].Records = []record.Record{attemptAt(41 * time.Minute), record.RunSettled{Run: "r2", Status: record.StatusAborted, Error: &record.Error{Kind: "Aborted", Message: "m"}}}
			e.drop(11)
			o := e.batches[9].Records[1].(record.RunSettled)
			e.ledger.Rows[1].Outcome, e.ledger.Head.Settled = &o, 10
		}, "", 0},
		"a handler that was not entered starts again at once": {func(e *evidence) {
			e.batches[5].Records = []record.Record{record.EntryIgnored{Entry: 3, What: "resolve", Reason: "r"}}
			e.batches[6].Records = []record.Record{record.CallSettled{Call: "c1", Outcome: record.Succeeded, Result: record.TextValue("ok"), Source: "operator"}}
			e.drop(8)
			e.batches[3].Records = []record.Record{record.CallResolved{Call: "c1", Resolution: record.NotHappened, Source: core.NotEntered}, prepares("c1", "o1")}
			e.batches[2].At, e.batches[3].At = checkStart, checkStart
			e.ledger.Head.Settled = 10
		}, "", 0},
		"another boot of a process that holds the store alone": {func(e *evidence) {
			for i, slot := range []int{1, 3, 5, 10} {
				s := e.batches[slot-1].Records[0].(record.AttemptStarted)
				s.Boot = fmt.Sprint("boot ", i)
				e.batches[slot-1].Records[0] = s
			}
			for i := range e.batches {
				e.batches[i].At = checkStart
			}
		}, "", 0},

		"another body": {func(e *evidence) {
			e.sealed = func(s []record.Sealed) []record.Sealed {
				s[3].Body = slices.Replace(slices.Clone(s[3].Body), 5, 6, 'x')
				return s
			}
		}, core.RuleDamaged, 4},
		"of another tenant":       {func(e *evidence) { e.batches[3].Tenant = "other" }, core.RuleDamaged, 4},
		"a gap":                   {func(e *evidence) { e.batches[3].Slot = 5 }, core.RuleSlot, 5},
		"a slot twice":            {func(e *evidence) { e.batches[3].Slot = 3 }, core.RuleSlot, 3},
		"a broken chain":          {func(e *evidence) { e.batches[3].Prev = "sha256:other" }, core.RuleChain, 4},
		"a batch behind a fence":  {func(e *evidence) { e.batches[3].Epoch, e.batches[3].Attempt = 1, "attempt 1" }, core.RuleEpoch, 4},
		"of no attempt":           {func(e *evidence) { e.batches[3].Epoch = 7 }, core.RuleEpoch, 4},
		"of another attempt":      {func(e *evidence) { e.batches[3].Attempt = "other" }, core.RuleEpoch, 4},
		"an epoch that goes back": {func(e *evidence) { e.batches[4].Epoch = 2 }, core.RuleEpoch, 5},
		"an attempt that starts late": {func(e *evidence) {
			e.batches[4].Records = append(e.batches[4].Records, e.batches[5].Records...)
			e.batches[4].Records[0], e.batches[4].Records[1] = e.batches[4].Records[1], e.batches[4].Records[0]
			e.batches[4].Epoch, e.batches[4].Attempt = 2, "attempt 2"
			e.cut(5, core.LaneHead{Epoch: 3, State: "parked", Due: due}, 3)
		}, core.RuleEpoch, 5},
		"an attempt id twice": {func(e *evidence) {
			for i := 9; i < 11; i++ {
				e.batches[i].Attempt = "attempt 2"
			}
		}, core.RuleIdentity, 10},
		"a batch id twice":                  {func(e *evidence) { e.batches[6].ID = e.batches[2].ID }, core.RuleIdentity, 7},
		"an operation of another call":      {func(e *evidence) { e.secondCall("o1") }, core.RuleIdentity, 11},
		"a second call of a second run":     {func(e *evidence) { e.secondCall("o2") }, "", 0},
		"a call that changes its operation": {func(e *evidence) { e.batches[6].Records[0] = prepares("c1", "o7") }, core.RuleIdentity, 7},
		"a submission twice": {func(e *evidence) {
			e.batches[9].Records = append(e.batches[9].Records, queuedSub(4, "r1"))
			e.batches[10].Records[1] = completes("r2", 1, 1, "r1")
			e.ledger.Inbox = append(e.ledger.Inbox, core.InboxSlot{Slot: 4, Kind: "submit", Key: "r1", Ref: "r1"})
			o := completes("r2", 1, 1, "r1")
			e.ledger.Rows[1].Outcome = &o
			e.cut(10, core.LaneHead{Epoch: 4, State: "running", Due: due, Lease: due, Settled: 9, Drained: 3}, 4)
		}, core.RuleStart, 10},
		"a run that starts twice":            {func(e *evidence) { e.batches[9].Records[1] = begins("r1") }, core.RuleStart, 10},
		"a run inside a run":                 {func(e *evidence) { e.insert(1, begins("r2")) }, core.RuleLane, 1},
		"a run that ends another":            {func(e *evidence) { e.batches[10].Records[1] = completes("r3", 1, 1) }, core.RuleLane, 11},
		"a second end":                       {func(e *evidence) { e.insert(11, completes("r2", 1, 1)) }, core.RuleTerminal, 11},
		"a start after the end":              {func(e *evidence) { e.startAfterAbort() }, core.RuleTerminal, 11},
		"an end that forgets who waits":      {func(e *evidence) { e.endsWith(9, completes("r1", 3, 2)) }, core.RuleTerminal, 9},
		"the second submission starts first": {func(e *evidence) { e.batches[0].Records[3] = begins("r2") }, core.RuleOrder, 1},
		"the second one ends unstarted":      {func(e *evidence) { e.batches[0].Records[3] = completes("r2", 0, 0, "r1") }, core.RuleOrder, 1},
		"uncertain, started again":           {func(e *evidence) { e.insert(3, prepares("c1", "o1")) }, core.RuleUncertain, 3},
		"uncertain, started again by itself": {func(e *evidence) { e.insert(2, prepares("c1", "o1")) }, core.RuleUncertain, 2},
		"uncertain, started a third time":    {func(e *evidence) { e.insert(7, prepares("c1", "o1")) }, core.RuleUncertain, 7},
		"uncertain, started although it happened": {func(e *evidence) {
			r := e.batches[5].Records[0].(record.CallResolved)
			r.Resolution = record.Happened
			e.batches[5].Records[0] = r
		}, core.RuleUncertain, 7},
		"uncertain, started before its attempt was dead": {func(e *evidence) {
			for i := 2; i < 9; i++ {
				e.batches[i].At = checkStart.Add(14 * time.Minute)
			}
		}, core.RuleEarly, 7},
		"an entry twice":                         {func(e *evidence) { e.entry(2) }, core.RuleInbox, 6},
		"an entry left out":                      {func(e *evidence) { e.entry(4) }, core.RuleInbox, 6},
		"an entry nobody wrote":                  {func(e *evidence) { e.ledger.Inbox = e.ledger.Inbox[:2] }, core.RuleInbox, 6},
		"a hole in the inbox":                    {func(e *evidence) { e.ledger.Inbox[2].Slot = 4 }, core.RuleInbox, 0},
		"an entry taken for another":             {func(e *evidence) { e.ledger.Inbox[2].Kind = "abort" }, core.RuleInbox, 6},
		"another submission's entry":             {func(e *evidence) { e.ledger.Inbox[0].Ref = "r9" }, core.RuleInbox, 1},
		"accepted work is passed over":           {func(e *evidence) { e.passOver() }, core.RuleInbox, 1},
		"an entry of a later build":              {func(e *evidence) { e.laterBuild() }, "", 0},
		"too many attempts":                      {func(e *evidence) { e.endsWith(9, completes("r1", 4, 2, "r2")) }, core.RuleCounters, 9},
		"too few turns":                          {func(e *evidence) { e.endsWith(9, completes("r1", 3, 1, "r2")) }, core.RuleCounters, 9},
		"less usage than the responses had":      {func(e *evidence) { e.usage(10, 10, 9) }, core.RuleCounters, 11},
		"more usage, of what was never recorded": {func(e *evidence) { e.usage(10, 11, 10) }, "", 0},
		"more calls than the limit":              {func(e *evidence) { e.limits(2, 0) }, core.RuleCounters, 2},
		"more turns than the limit":              {func(e *evidence) { e.limits(0, 3) }, core.RuleCounters, 9},
		"the grace turn":                         {func(e *evidence) { e.limits(1, 3) }, "", 0},
		"a result of a call nobody prepared": {func(e *evidence) {
			e.batches[1].Records = []record.Record{answers(1, record.Uncertain, "c1"), succeeds("c1")}
			e.cut(2, core.LaneHead{Epoch: 1, State: "running", Due: due, Lease: due}, 2)
		}, core.RuleSequence, 2},
		"the head's epoch is behind":    {func(e *evidence) { e.ledger.Head.Epoch = 3 }, core.RuleHead, 0},
		"the head knows a later slot":   {func(e *evidence) { e.ledger.Head.Settled = 12 }, core.RuleHead, 0},
		"the end of the log is cut off": {func(e *evidence) { e.cut(8, core.LaneHead{Epoch: 4, State: "idle"}, 3) }, core.RuleHead, 0},
		"the head's slot holds no outcome": {func(e *evidence) {
			e.cut(10, core.LaneHead{Epoch: 4, State: "running", Due: due, Lease: due, Settled: 10}, 3)
		}, core.RuleHead, 10},
		"two outcomes wait":              {func(e *evidence) { e.ledger.Head = core.LaneHead{Epoch: 4, State: "running", Due: due, Lease: due} }, core.RuleHead, 0},
		"the head is ahead of the inbox": {func(e *evidence) { e.ledger.Head.Drained = 4 }, core.RuleHead, 0},
		"idle under a run":               {func(e *evidence) { e.cut(4, core.LaneHead{Epoch: 2, State: "idle"}, 2) }, core.RuleIdle, 0},
		"idle over queued work":          {func(e *evidence) { e.cut(9, core.LaneHead{Epoch: 3, State: "idle", Settled: 9}, 3) }, core.RuleIdle, 0},
		"idle over an unread entry": {func(e *evidence) {
			e.ledger.Inbox = append(e.ledger.Inbox, core.InboxSlot{Slot: 4, Kind: "abort"})
		}, core.RuleIdle, 0},
		"parked over an unread entry":       {func(e *evidence) { e.cut(4, parked, 3) }, core.RuleIdle, 0},
		"idle before the outcome is told":   {func(e *evidence) { e.ledger.Head.Settled = 9 }, core.RuleIdle, 0},
		"parked before the outcome is told": {func(e *evidence) { e.cut(9, core.LaneHead{Epoch: 3, State: "parked", Due: due}, 3) }, core.RuleIdle, 0},
		"parked without a due time":         {func(e *evidence) { e.cut(4, core.LaneHead{Epoch: 2, State: "parked"}, 2) }, core.RuleDue, 0},
		"running without a lease":           {func(e *evidence) { e.cut(4, core.LaneHead{Epoch: 2, State: "running", Due: due}, 2) }, core.RuleDue, 0},
		"a row that is missing":             {func(e *evidence) { e.ledger.Rows[0] = core.Row{Submission: "r1", Missing: true} }, core.RuleRow, 0},
		"a waiting one's row is missing":    {func(e *evidence) { e.cut(4, parked, 2); e.ledger.Rows[1] = core.Row{Submission: "r2", Missing: true} }, core.RuleRow, 0},
		"a row that cannot be read":         {func(e *evidence) { e.ledger.Rows[0] = core.Row{Submission: "r1", Problem: "p"} }, core.RuleRow, 0},
		"a row of another conversation":     {func(e *evidence) { e.ledger.Rows[0].Conversation = "d" }, core.RuleRow, 0},
		"a row that was never settled":      {func(e *evidence) { e.ledger.Rows[0].Outcome = nil }, core.RuleRow, 0},
		"the last row was never settled":    {func(e *evidence) { e.ledger.Rows[1].Outcome = nil }, core.RuleRow, 0},
		"an earlier row is open, the last waits": {func(e *evidence) {
			e.cut(11, core.LaneHead{Epoch: 4, State: "running", Due: due, Lease: due, Settled: 9}, 3)
			e.ledger.Rows[0].Outcome = nil
		}, core.RuleRow, 0},
		"a row that settled early":  {func(e *evidence) { e.cut(4, parked, 2); o := completes("r2", 1, 1); e.ledger.Rows[1].Outcome = &o }, core.RuleRow, 0},
		"a row with another status": {func(e *evidence) { e.ledger.Rows[1].Outcome.Status = record.StatusFailed }, core.RuleRow, 0},
		"a row with another output": {func(e *evidence) { e.ledger.Rows[1].Outcome.Output = record.TextValue("more") }, core.RuleRow, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := twoRuns()
			row.change(e)
			found := core.CheckConversation(e.seal(t))
			switch {
			case row.rule == "" && len(found) > 0:
				t.Errorf("found %+v", found)
			case row.rule != "" && (len(found) != 1 || found[0].Rule != row.rule || found[0].Slot != row.slot):
				t.Errorf("found %+v, want one of rule %s in slot %d", found, row.rule, row.slot)
			}
		})
	}
}

// secondCall gives the second run a call under an operation id.
func (e *evidence) secondCall(operation string) {
	e.batches[10].Records = []record.Record{answers(1, record.Readonly, "c9"), prepares("c9", operation)}
	e.cut(11, core.LaneHead{Epoch: 4, State: "running", Due: checkStart, Lease: checkStart, Settled: 9, Drained: 3}, 3)
	e.ledger.Rows[1].Outcome = nil
}

// startAfterAbort starts the second run although it was aborted unstarted.
func (e *evidence) startAfterAbort() {
	aborted := record.RunSettled{Run: "r2", Status: record.StatusAborted, Error: &record.Error{Kind: "Aborted", Message: "m"}}
	e.batches[9].Records = []record.Record{attemptAt(41 * time.Minute), aborted}
	e.batches[10].Records = []record.Record{begins("r2")}
}

// endsWith gives a slot another terminal record, and its row too.
func (e *evidence) endsWith(slot int, s record.RunSettled) {
	records := e.batches[slot-1].Records
	records[len(records)-1] = s
	for i := range e.ledger.Rows {
		if e.ledger.Rows[i].Submission == s.Run {
			e.ledger.Rows[i].Outcome = &s
		}
	}
}

// entry makes the resolution consume another entry.
func (e *evidence) entry(slot uint64) {
	r := e.batches[5].Records[0].(record.CallResolved)
	r.Entry = slot
	e.batches[5].Records[0] = r
}

// passOver consumes the second submission without queueing it.
func (e *evidence) passOver() {
	e.batches[0].Records[2] = record.EntryIgnored{Entry: 2, What: "submit", Reason: "unreadable"}
	e.endsWith(9, completes("r1", 3, 2))
	e.batches, e.ledger.Rows = e.batches[:9], e.ledger.Rows[:1]
	e.ledger.Head.Epoch, e.ledger.Head.Settled = 3, 9
}

// laterBuild passes over an entry of a kind this build does not know.
func (e *evidence) laterBuild() {
	e.batches[5].Records = append(e.batches[5].Records, record.EntryIgnored{Entry: 4, What: "hello", Reason: "unknown"})
	e.ledger.Inbox = append(e.ledger.Inbox, core.InboxSlot{Slot: 4, Kind: "hello", Key: "k"})
}

// usage gives the second run's response some tokens, and its end others.
func (e *evidence) usage(used, in, out int64) {
	r := e.batches[10].Records[0].(record.ResponseRecorded)
	r.Usage = record.Usage{InputTokens: &used, OutputTokens: &used}
	e.batches[10].Records[0] = r
	end := completes("r2", 1, 1)
	end.Usage = record.Usage{InputTokens: &in, OutputTokens: &out}
	e.endsWith(11, end)
}

// limits admits fewer calls than were made, or fewer turns.
func (e *evidence) limits(turns, calls int) {
	s := e.batches[0].Records[3].(record.RunStarted)
	if turns == 0 { // a run starts with at least one turn, so it takes three
		turns = 1
		e.batches[8].Records = []record.Record{answers(2, record.Readonly, "c2"), prepares("c2", "o2"), succeeds("c2"), answers(3, ""),
			completes("r1", 3, 3, "r2")}
		o := completes("r1", 3, 3, "r2")
		e.ledger.Rows[0].Outcome = &o
	}
	s.Turns, s.ToolCalls = turns, calls
	e.batches[0].Records[3] = s
}
