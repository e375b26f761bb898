package core_test

import (
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
	"pgregory.net/rapid"
)

func submission(id, agent string, a record.Allowance) core.Submit {
	return core.Submit{Submission: core.Submission{ID: id, Agent: agent, Input: record.MustValue(1), Allowance: a}}
}

// A submission may ask for less than the policy gives, and never for more.
//
// conformance: RUN-021b
func TestAllowancesOnlyTighten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := func(name string) int { return rapid.IntRange(1, 100).Draw(t, name) }
		asked := func(name string) int { return rapid.IntRange(0, 200).Draw(t, name) }
		policy := core.Policy{MaxTurns: limit("turns"), MaxToolCalls: limit("calls"), MaxDuration: time.Duration(limit("duration"))}
		allowance := record.Allowance{Turns: asked("fewer turns"), ToolCalls: asked("fewer calls"), Duration: time.Duration(asked("shorter"))}
		d := core.NewDesk(core.AttemptInfo{ID: "A", Epoch: 1})
		core.Note(d, core.InboxRead{Entries: []core.InboxEntry{{Slot: 1, Command: submission("s", "a", allowance)}}})
		plan := core.Next(&core.Spec{Agent: "a", Policy: policy}, &core.State{}, d, core.Clock{Now: time.Unix(1, 0)})
		for _, r := range plan.Append {
			if run, ok := r.(record.RunStarted); ok {
				want := func(limit, asked int) int {
					if asked == 0 {
						return limit
					}
					return min(limit, asked)
				}
				if run.Turns != want(policy.MaxTurns, allowance.Turns) || run.ToolCalls != want(policy.MaxToolCalls, allowance.ToolCalls) ||
					int(run.Duration) != want(int(policy.MaxDuration), int(allowance.Duration)) {
					t.Fatalf("%+v of %+v gives %+v", allowance, policy, run)
				}
				return
			}
		}
		t.Fatalf("no run starts: %+v", plan)
	})
}

// Whose definition the next plan needs: the run's, else that of the first
// submission queued, else of the first one read that is new.
func TestWanted(t *testing.T) {
	queue := func(agents ...string) *core.State {
		s := &core.State{Cursor: uint64(len(agents))}
		for _, a := range agents {
			s.Queue = append(s.Queue, core.Submission{ID: "of-" + a, Agent: a})
		}
		return s
	}
	read := []core.InboxEntry{
		{Slot: 1, Command: submission("old", "old", record.Allowance{})},
		{Slot: 2, Command: core.Decide{Approval: "x"}},
		{Slot: 3, Command: submission("new", "new", record.Allowance{})},
		{Slot: 4, Command: submission("newer", "newer", record.Allowance{})},
	}
	active := queue("queued")
	active.Run = &core.Run{Submission: core.Submission{Agent: "running"}, Definition: "d1"}
	after := &core.State{Cursor: 1}
	for name, row := range map[string]struct {
		s                 *core.State
		entries           []core.InboxEntry
		agent, definition string
		ok                bool
	}{
		"a run goes first":        {active, read, "running", "d1", true},
		"then the queue":          {queue("first", "second"), read, "first", "", true},
		"then what was just read": {after, read, "new", "", true},
		"not what is folded":      {after, read[:2], "", "", false},
		"nothing":                 {after, nil, "", "", false},
	} {
		d := core.NewDesk(core.AttemptInfo{})
		core.Note(d, core.InboxRead{Entries: row.entries})
		agent, definition, ok := core.Wanted(row.s, d)
		if agent != row.agent || definition != row.definition || ok != row.ok {
			t.Errorf("%s: %q %q %v", name, agent, definition, ok)
		}
	}
}

// What does not fit one batch stays on the desk, and nothing else is decided
// before it is in the log too.
func TestDrainTakesItsBatchesInOrder(t *testing.T) {
	const many = 250
	read := []core.InboxEntry{{Slot: 1, Command: submission("s", "a", record.Allowance{})}}
	for i := range uint64(many) {
		read = append(read, core.InboxEntry{Slot: i + 2, Command: core.Unreadable{What: "what", Reason: "reason"}})
	}
	s, d := &core.State{}, core.NewDesk(core.AttemptInfo{ID: "A", Epoch: 1})
	core.Note(d, core.InboxRead{Entries: read})
	spec := &core.Spec{Agent: "a", Policy: core.Policy{MaxTurns: 1, MaxToolCalls: 1, MaxDuration: time.Hour}}
	next := uint64(2)
	for range 10 {
		plan := core.Next(spec, s, d, core.Clock{Now: time.Unix(1, 0)})
		if len(plan.Append) > 120 {
			t.Fatalf("%d records in one batch", len(plan.Append))
		}
		for _, r := range plan.Append {
			switch r := r.(type) {
			case record.EntryIgnored:
				if r.Entry != next {
					t.Fatalf("entry %d where %d is next", r.Entry, next)
				}
				next++
			case record.RunStarted:
				if next != many+2 {
					t.Fatalf("a run starts with %d of %d entries in the log", next-2, many)
				}
				return
			}
			if err := core.Reduce(s, core.Envelope{Slot: s.Slot + 1, Epoch: 1, Attempt: "A"}, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("the run never starts")
}
