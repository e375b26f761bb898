package core_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// joinedRun is a conversation of one run that a follow-up joined.
func joinedRun() *evidence {
	e := &evidence{}
	follow := queuedSub(2, "r2")
	follow.FollowUp = true
	end := completes("r1", 1, 2)
	end.Joined = []string{"r2"}
	e.add(1, 0, attemptAt(0), queuedSub(1, "r1"), follow, begins("r1"))                                    // 1
	e.add(1, 0, answers(1, ""), record.FollowUpApplied{Submission: "r2", Text: record.TextValue("go on")}) // 2
	e.add(1, 0, answers(2, ""), end)                                                                       // 3
	outcomes := core.Outcomes(end)
	e.ledger = core.Ledger{
		Head:  core.LaneHead{Epoch: 1, State: "idle", Settled: 3, Drained: 2},
		Inbox: []core.InboxSlot{{Slot: 1, Kind: "submit", Key: "r1", Ref: "r1"}, {Slot: 2, Kind: "submit", Key: "r2", Ref: "r2"}},
		Rows:  []core.Row{{Submission: "r1", Conversation: "c", Outcome: &outcomes[0]}, {Submission: "r2", Conversation: "c", Outcome: &outcomes[1]}},
	}
	return e
}

// Submissions that joined a run: each row as in TestCheckConversation.
func TestCheckJoined(t *testing.T) {
	for name, row := range map[string]struct {
		change func(e *evidence)
		rule   core.Rule
		slot   uint64
	}{
		"a follow-up joins":                   {func(*evidence) {}, "", 0},
		"one that does not wait joins":        {func(e *evidence) { e.batches[1].Records[1] = record.FollowUpApplied{Submission: "r9"} }, core.RuleOrder, 2},
		"an end that forgets who joined":      {func(e *evidence) { e.endsWith(3, completes("r1", 1, 2)) }, core.RuleTerminal, 3},
		"the row of one that joined is open":  {func(e *evidence) { e.ledger.Rows[1].Outcome = nil }, core.RuleRow, 0},
		"it tells another outcome":            {func(e *evidence) { e.ledger.Rows[1].Outcome.Host = "r7" }, core.RuleRow, 0},
		"it holds the numbers of the run too": {func(e *evidence) { e.ledger.Rows[1].Outcome.Turns = 2 }, core.RuleRow, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := joinedRun()
			row.change(e)
			found := core.CheckConversation(e.seal(t))
			if row.rule == "" && len(found) > 0 || row.rule != "" && (len(found) != 1 || found[0].Rule != row.rule || found[0].Slot != row.slot) {
				t.Errorf("found %+v, want one of rule %q in slot %d", found, row.rule, row.slot)
			}
		})
	}
}

// boots gives the attempts that begin in these slots the id of a process, and
// lets everything happen at one instant.
func (e *evidence) boots(boot string, slots ...int) {
	for _, slot := range slots {
		s := e.batches[slot-1].Records[0].(record.AttemptStarted)
		s.Boot = boot
		e.batches[slot-1].Records[0] = s
	}
	for i := range e.batches {
		e.batches[i].At = checkStart
	}
}

// What makes a rule's condition as narrow as it is, and no narrower: without
// any part of it one of these rows is told otherwise.
func TestCheckConditions(t *testing.T) {
	parked := core.LaneHead{Epoch: 2, State: "parked", Due: checkStart.Add(time.Hour), Drained: 2}
	again := func(reason string) []record.Record {
		return []record.Record{record.CallUnknown{Call: "c1", Reason: reason},
			record.CallResolved{Call: "c1", Resolution: record.NotHappened, Source: "probe"}, prepares("c1", "o1")}
	}
	for name, row := range map[string]struct {
		change func(e *evidence)
		rule   core.Rule
		slot   uint64
	}{
		"a call that timed out starts again in its attempt": {func(e *evidence) { e.insert(2, again(record.TimeoutOutcome)...) }, "", 0},
		"one that was lost does not":                        {func(e *evidence) { e.insert(2, again(record.LostOutcome)...) }, core.RuleEarly, 2},
		"one that timed out starts again once only": {func(e *evidence) {
			e.insert(2, append(again(record.TimeoutOutcome), again("")[1:]...)...)
		}, core.RuleEarly, 2},
		"all of one process that lives":             {func(e *evidence) { e.boots("b", 1, 3, 5, 10) }, core.RuleEarly, 7},
		"prepared by a process that said nothing":   {func(e *evidence) { e.boots("b", 3, 5, 10) }, core.RuleEarly, 7},
		"taken over by a process that says nothing": {func(e *evidence) { e.boots("b", 1) }, core.RuleEarly, 7},
		"an entry of the other submission":          {func(e *evidence) { e.ledger.Inbox[1].Ref = "r1" }, core.RuleInbox, 1},
		"an entry about another approval":           {func(e *evidence) { e.approved("a2") }, core.RuleInbox, 3},
		"an entry about this approval":              {func(e *evidence) { e.approved("a1") }, "", 0},
		"idle under a run with nothing behind it": {func(e *evidence) {
			e.cut(10, core.LaneHead{Epoch: 4, State: "idle", Settled: 9, Drained: 3}, 3)
		}, core.RuleIdle, 0},
		"the end is cut off, and the head knows where": {func(e *evidence) { e.cut(10, core.LaneHead{Epoch: 5, State: "idle", Settled: 10}, 3) }, core.RuleHead, 0},
		"the end is cut off behind an outcome":         {func(e *evidence) { e.ledger.Head = core.LaneHead{Epoch: 5, State: "idle", Settled: 9} }, core.RuleHead, 0},
		"more calls than the limit in an open run":     {func(e *evidence) { e.limits(2, 0); e.cut(4, parked, 2) }, core.RuleCounters, 2},
		"less usage of the input than responses had":   {func(e *evidence) { e.usage(10, 9, 10) }, core.RuleCounters, 11},
		"a settled call starts again beside an open one": {func(e *evidence) {
			e.batches[1].Records = slices.Concat([]record.Record{answers(1, record.Uncertain, "c1", "c2")}, e.batches[1].Records[1:])
			e.batches[6].Records = []record.Record{succeeds("c1"), prepares("c1", "o1")}
		}, core.RuleUncertain, 7},
	} {
		t.Run(name, func(t *testing.T) {
			e := twoRuns()
			row.change(e)
			found := core.CheckConversation(e.seal(t))
			if row.rule == "" && len(found) > 0 || row.rule != "" && (len(found) != 1 || found[0].Rule != row.rule || found[0].Slot != row.slot) {
				t.Errorf("found %+v, want one of rule %q in slot %d", found, row.rule, row.slot)
			}
		})
	}
}

// approved is a conversation that waits for its attempt: the call of its run is
// approved, by an entry about an approval.
func (e *evidence) approved(by string) {
	args := record.MustValue(map[string]any{})
	*e = evidence{}
	e.add(1, 0, attemptAt(0), queuedSub(1, "r1"), begins("r1"))
	e.add(1, 0, answers(1, record.Uncertain, "c1"), record.ApprovalRequested{Approval: "a1", Call: "c1", Tool: "pay", ArgsDigest: args.Digest()})
	e.add(1, 0, record.ApprovalResolved{Entry: 2, Approval: "a1", Call: "c1", Decision: record.Approved, By: "kim"})
	e.ledger = core.Ledger{
		Head:  core.LaneHead{Epoch: 1, State: "ready", Due: checkStart, Drained: 2},
		Inbox: []core.InboxSlot{{Slot: 1, Kind: "submit", Key: "r1", Ref: "r1"}, {Slot: 2, Kind: "decision", Key: by}},
		Rows:  []core.Row{{Submission: "r1", Conversation: "c"}},
	}
}

// The fold refuses by itself what the checker has a rule for: an uncertain call
// that another attempt prepares again without a word about the first time.
func TestFoldRefusesASecondStart(t *testing.T) {
	fold := func(class record.Class) error {
		s, env := &core.State{}, core.Envelope{Slot: 1, Epoch: 1, Attempt: "a1", At: checkStart}
		for _, r := range []record.Record{attemptAt(0), queuedSub(1, "r1"), begins("r1"), answers(1, class, "c1"), prepares("c1", "o1")} {
			if err := core.Reduce(s, env, r); err != nil {
				t.Fatal(err)
			}
		}
		env = core.Envelope{Slot: 2, Epoch: 2, Attempt: "a2", At: checkStart}
		if err := core.Reduce(s, env, attemptAt(0)); err != nil {
			t.Fatal(err)
		}
		return core.Reduce(s, env, prepares("c1", "o1"))
	}
	if err := fold(record.Uncertain); !errors.Is(err, core.ErrIllegal) {
		t.Errorf("an uncertain call: %v", err)
	}
	for _, class := range []record.Class{record.Readonly, record.Idempotent} {
		if err := fold(class); err != nil {
			t.Errorf("a call that is %s: %v", class, err)
		}
	}
}

// What the log has not read is asked for too: its row must be there.
func TestCheckerAsksForUnreadWork(t *testing.T) {
	e := twoRuns()
	e.ledger.Inbox = append(e.ledger.Inbox, core.InboxSlot{Slot: 4, Kind: "submit", Key: "r3", Ref: "r3"}, core.InboxSlot{Slot: 5, Kind: "steer", Key: "k"})
	sealed := e.seal(t)
	c := core.NewChecker("t", "c")
	for _, b := range sealed.Log {
		if !c.Batch(b) {
			t.Fatal(c.Violations())
		}
	}
	if got := c.Submissions(e.ledger.Inbox); !slices.Equal(got, []string{"r1", "r2", "r3"}) {
		t.Errorf("asks for the rows of %v", got)
	}
	if got := c.Submissions(e.ledger.Inbox[:3]); !slices.Equal(got, []string{"r1", "r2"}) {
		t.Errorf("asks for the rows of %v", got)
	}
}
