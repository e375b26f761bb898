package core_test

import (
	"errors"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// Records to build logs from.
var (
	started  = record.AttemptStarted{Boot: "boot"}
	queued   = record.SubmissionQueued{Entry: 1, Submission: "s", Agent: "a", Input: record.MustValue(1), Principal: "kim"}
	queued2  = record.SubmissionQueued{Entry: 2, Submission: "s2", Agent: "a", Input: record.MustValue(1), Principal: "kim"}
	running  = record.RunStarted{Run: "s", Agent: "a", Definition: "d", Duration: time.Hour, Turns: 3, ToolCalls: 3}
	prefix   = []record.Message{{Role: record.User, Parts: record.Parts{record.InputPart{}}}}
	answer   = record.ResponseRecorded{Turn: 1, Prefix: prefix, Message: record.TextMessage(record.Assistant, "done"), Stop: "stop"}
	response = record.ResponseRecorded{Turn: 1, Prefix: prefix, Stop: "tool-calls",
		Message: record.Message{Role: record.Assistant, Parts: record.Parts{
			record.ToolCallPart{ID: "c", Tool: "pay", Args: record.MustValue(1)}, record.ToolCallPart{ID: "e", Tool: "look", Args: record.MustValue(1)}}},
		Calls: []record.DeclaredCall{{ID: "c", Tool: "pay", Class: record.Uncertain, ArgsDigest: "x"}, {ID: "e", Tool: "look", Class: record.Readonly, ArgsDigest: "y"}}}
	asked    = record.ApprovalRequested{Approval: "s.1.0", Call: "c", Tool: "pay", ArgsDigest: "x"}
	approved = record.ApprovalResolved{Entry: 2, Approval: "s.1.0", Call: "c", Decision: record.Approved}
	prepared = record.CallPrepared{Call: "c", Operation: "s.1.0"}
	prepare2 = record.CallPrepared{Call: "e", Operation: "s.1.1"}
	unknown  = record.CallUnknown{Call: "c", Reason: record.LostOutcome}
	notDone  = record.CallResolved{Call: "c", Resolution: record.NotHappened, Source: "probe"}
	settled  = record.CallSettled{Call: "c", Outcome: record.Succeeded, Result: record.MustValue(1)}
	finished = record.RunSettled{Run: "s", Status: record.StatusCompleted, FinishReason: record.ModelStop}
)

// follow is a queued follow-up, joined its end as a submission of its own, and
// steer a command in an inbox slot.
var (
	follow = record.SubmissionQueued{Entry: 2, Submission: "s2", Agent: "a", Input: record.MustValue(1), Principal: "kim", FollowUp: true}
	joined = record.FollowUpApplied{Submission: "s2", Text: record.MustValue(1)}
)

func steer(entry uint64) record.Record {
	return record.SteeringQueued{Entry: entry, Submission: "s", Text: record.TextValue("x")}
}

func records(rs ...record.Record) []record.Record { return rs }

// A log that no correct writer makes is refused, record by record. Each row is
// the shortest such log.
//
// conformance: RUN-002a, RUN-013
func TestReduceRefuses(t *testing.T) {
	open := records(started, queued, running)
	batch := append(open[:3:3], response)
	for name, row := range map[string]struct {
		log []record.Record
		bad record.Record
	}{
		"anything before an attempt":                    {nil, queued},
		"a second start of an epoch":                    {records(started), started},
		"an entry out of order":                         {records(started), queued2},
		"an entry twice":                                {records(started, queued), record.EntryIgnored{Entry: 1}},
		"a submission queued twice":                     {records(started, queued), record.SubmissionQueued{Entry: 2, Submission: "s"}},
		"the running submission queued":                 {open, record.SubmissionQueued{Entry: 2, Submission: "s"}},
		"a run without a submission":                    {records(started), running},
		"a run that is not the next one":                {records(started, queued, queued2), record.RunStarted{Run: "s2", Duration: 1, Turns: 1}},
		"a run inside a run":                            {append(open[:3:3], queued2), record.RunStarted{Run: "s2", Duration: 1, Turns: 1}},
		"a run without a deadline":                      {records(started, queued), record.RunStarted{Run: "s", Turns: 1}},
		"a run without turns":                           {records(started, queued), record.RunStarted{Run: "s", Duration: 1}},
		"a run with negative calls":                     {records(started, queued), record.RunStarted{Run: "s", Duration: 1, Turns: 1, ToolCalls: -1}},
		"a response without a run":                      {records(started, queued), answer},
		"steering for nobody":                           {records(started, queued), record.SteeringQueued{Entry: 2, Submission: "s2"}},
		"steering applied that is not queued":           {open, record.SteeringApplied{Queued: 2}},
		"steering applied out of order":                 {append(open[:3:3], steer(2), steer(3)), record.SteeringApplied{Queued: 3}},
		"steering applied inside a batch":               {append(batch[:4:4], steer(2)), record.SteeringApplied{Queued: 2}},
		"steering dropped that is not queued":           {open, record.SteeringDropped{Queued: 2}},
		"an end with steering unanswered":               {append(open[:3:3], steer(2), answer), finished},
		"a follow-up that is not queued":                {append(open[:3:3], answer), record.FollowUpApplied{Submission: "s2"}},
		"a submission that is no follow-up":             {append(open[:3:3], queued2, answer), record.FollowUpApplied{Submission: "s2"}},
		"a follow-up before the first response":         {append(open[:3:3], follow), record.FollowUpApplied{Submission: "s2"}},
		"a follow-up inside a batch":                    {append(batch[:4:4], follow), record.FollowUpApplied{Submission: "s2"}},
		"a joined submission queued again":              {append(open[:3:3], answer, follow, joined), record.SubmissionQueued{Entry: 3, Submission: "s2"}},
		"an end without those that joined":              {append(open[:3:3], answer, follow, joined), finished},
		"a response out of turn":                        {open, record.ResponseRecorded{Turn: 2, Prefix: prefix, Message: answer.Message}},
		"a first response without a prefix":             {open, record.ResponseRecorded{Turn: 1, Message: answer.Message}},
		"a second prefix":                               {append(open[:3:3], answer), record.ResponseRecorded{Turn: 2, Prefix: prefix, Message: answer.Message}},
		"a response over open calls":                    {batch, record.ResponseRecorded{Turn: 2, Message: answer.Message}},
		"a call that is not pinned":                     {open, record.ResponseRecorded{Turn: 1, Prefix: prefix, Message: response.Message, Calls: response.Calls[:1]}},
		"calls pinned in another order":                 {open, record.ResponseRecorded{Turn: 1, Prefix: prefix, Message: response.Message, Calls: []record.DeclaredCall{response.Calls[1], response.Calls[0]}}},
		"a pinned call nobody declared":                 {open, record.ResponseRecorded{Turn: 1, Prefix: prefix, Message: answer.Message, Calls: response.Calls[:1]}},
		"an approval of no call":                        {batch, record.ApprovalRequested{Approval: "s.1.0", Call: "z"}},
		"an approval of other arguments":                {batch, record.ApprovalRequested{Approval: "s.1.0", Call: "c", Tool: "pay", ArgsDigest: "z"}},
		"an approval of another tool":                   {batch, record.ApprovalRequested{Approval: "s.1.0", Call: "c", Tool: "look", ArgsDigest: "x"}},
		"an approval of another version":                {batch, record.ApprovalRequested{Approval: "s.1.0", Call: "c", Tool: "pay", Version: "2", ArgsDigest: "x"}},
		"an approval asked again":                       {append(batch[:4:4], asked, approved), asked},
		"an approval of a prepared call":                {append(batch[:4:4], prepared), asked},
		"a decision nobody asked for":                   {batch, approved},
		"a decision about another approval":             {append(batch[:4:4], asked), record.ApprovalResolved{Entry: 2, Approval: "s.1.1", Call: "c", Decision: record.Approved}},
		"a second decision":                             {append(batch[:4:4], asked, approved), record.ApprovalResolved{Entry: 3, Approval: "s.1.0", Call: "c", Decision: record.Denied}},
		"an unknown decision":                           {append(batch[:4:4], asked), record.ApprovalResolved{Entry: 2, Approval: "s.1.0", Call: "c", Decision: "maybe"}},
		"a preparation of no call":                      {batch, record.CallPrepared{Call: "z"}},
		"a preparation before the decision":             {append(batch[:4:4], asked), prepared},
		"another prepared while one is asked":           {append(batch[:4:4], asked), prepare2},
		"an uncertain call prepared again":              {append(batch[:4:4], prepared), prepared},
		"a readonly call prepared again by its attempt": {append(batch[:4:4], prepare2), prepare2},
		"an unknown call prepared":                      {append(batch[:4:4], prepared, unknown), prepared},
		"another operation id":                          {append(batch[:4:4], prepared, notDone), record.CallPrepared{Call: "c", Operation: "other"}},
		"a settled call prepared":                       {append(batch[:4:4], prepared, settled), prepared},
		"a step of a call that does not run":            {batch, record.StepRecorded{Call: "c", Step: "1"}},
		"a step of no call":                             {batch, record.StepRecorded{Call: "z", Step: "1"}},
		"a step twice":                                  {append(batch[:4:4], prepared, record.StepRecorded{Call: "c", Step: "1"}), record.StepRecorded{Call: "c", Step: "1"}},
		"unknown but never prepared":                    {batch, unknown},
		"unknown, no such call":                         {batch, record.CallUnknown{Call: "z"}},
		"a resolution of a declared call":               {batch, notDone},
		"a resolution of no call":                       {batch, record.CallResolved{Call: "z", Resolution: record.NotHappened}},
		"an unknown resolution":                         {append(batch[:4:4], prepared), record.CallResolved{Call: "c", Resolution: "perhaps"}},
		"a result of a call never started":              {batch, settled},
		"a synthetic result of a started call":          {append(batch[:4:4], prepared), record.CallSettled{Call: "c", Outcome: record.Failed, Synthetic: record.OverBudget}},
		"a result twice":                                {append(batch[:4:4], prepared, settled), settled},
		"a result of no call":                           {batch, record.CallSettled{Call: "z", Outcome: record.Succeeded}},
		"a settlement with open calls":                  {batch, finished},
		"a settlement of another run":                   {open, record.RunSettled{Run: "z", Status: record.StatusFailed}},
		"a second settlement":                           {append(open[:3:3], answer, finished), finished},
		"a queued submission completed":                 {records(started, queued), record.RunSettled{Run: "s", Status: record.StatusCompleted}},
		"a queued submission aborted inside a run":      {append(open[:3:3], queued2), record.RunSettled{Run: "s2", Status: record.StatusAborted}},
		"a decision about no call":                      {append(batch[:4:4], asked), record.ApprovalResolved{Entry: 2, Approval: "s.1.0", Call: "z", Decision: record.Approved}},
		"a queued submission aborted early":             {records(started, queued, queued2), record.RunSettled{Run: "s2", Status: record.StatusAborted}},
		"a kind this build cannot carry out":            {open, record.ChildLinked{Call: "c"}},
		"a record of calls without a run":               {records(started), record.BackoffScheduled{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &core.State{}
			env := core.Envelope{Slot: 1, Epoch: 1, Attempt: "A", At: epoch0}
			for _, r := range row.log {
				if err := core.Reduce(s, env, r); err != nil {
					t.Fatalf("the log before it: %s: %v", r.Kind(), err)
				}
			}
			if err := core.Reduce(s, env, row.bad); !errors.Is(err, core.ErrIllegal) {
				t.Errorf("accepted, or another error: %v", err)
			}
		})
	}
}

// A batch of an older epoch, of another attempt of the same epoch, of a slot
// out of order or off the chain is refused (I2).
func TestFoldRefuses(t *testing.T) {
	base := func() *core.State {
		s := &core.State{}
		b := record.Batch{Slot: 1, Epoch: 2, Attempt: "A", Digest: "d1", Records: record.Records{started, queued}}
		if err := core.Fold(s, b); err != nil {
			t.Fatal(err)
		}
		return s
	}
	good := record.Batch{Slot: 2, Epoch: 2, Attempt: "A", Prev: "d1", Digest: "d2", Records: record.Records{running}}
	if err := core.Fold(base(), good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*record.Batch){
		"a gap":                         func(b *record.Batch) { b.Slot = 3 },
		"the same slot":                 func(b *record.Batch) { b.Slot = 1 },
		"a broken chain":                func(b *record.Batch) { b.Prev = "d0" },
		"an older epoch":                func(b *record.Batch) { b.Epoch = 1 },
		"another attempt":               func(b *record.Batch) { b.Attempt = "B" },
		"a newer epoch without a start": func(b *record.Batch) { b.Epoch = 3 },
		"a start of the same epoch":     func(b *record.Batch) { b.Attempt, b.Records = "B", record.Records{started} },
		"a start of an older epoch":     func(b *record.Batch) { b.Epoch, b.Records = 1, record.Records{started} },
	} {
		t.Run(name, func(t *testing.T) {
			b := good
			change(&b)
			if err := core.Fold(base(), b); !errors.Is(err, core.ErrIllegal) {
				t.Errorf("accepted, or another error: %v", err)
			}
		})
	}
}

// conformance: RUN-018f, POL-09, POL-10
//
// The failure counter folds a whole batch in declaration order, whatever the
// order in which its calls ended; a refused batch leaves it alone; reaching the
// limit anywhere counts, also when a success follows (D-49).
func TestFailureCounter(t *testing.T) {
	type call struct {
		outcome   record.Outcome
		synthetic string
	}
	fail, ok := call{outcome: record.Failed}, call{outcome: record.Succeeded}
	over, bad := call{record.Failed, record.OverBudget}, call{record.Failed, record.InvalidBatch}
	for name, row := range map[string]struct {
		batches       [][]call
		failures, top int
	}{
		"failures add up over turns":     {[][]call{{fail}, {fail}}, 2, 2},
		"a success resets":               {[][]call{{fail, fail}, {ok}, {fail}}, 1, 2},
		"declaration order decides":      {[][]call{{fail, fail}, {ok, fail}}, 1, 2},
		"a later success does not undo":  {[][]call{{fail, fail, fail, ok}}, 0, 3},
		"a refused batch neither way":    {[][]call{{fail, fail}, {over, over, over, over}}, 2, 2},
		"an invalid batch counts once":   {[][]call{{bad, bad, bad}}, 1, 1},
		"a denied call is a failed call": {[][]call{{{outcome: record.DeniedCall, synthetic: record.NotApproved}}}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &core.State{}
			env := core.Envelope{Slot: 1, Epoch: 1, Attempt: "A", At: epoch0}
			fold := func(r record.Record) {
				t.Helper()
				if err := core.Reduce(s, env, r); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range records(started, queued, record.RunStarted{Run: "s", Duration: time.Hour, Turns: 9, ToolCalls: 99}) {
				fold(r)
			}
			for turn, calls := range row.batches {
				resp := record.ResponseRecorded{Turn: turn + 1, Message: record.Message{Role: record.Assistant}}
				if turn == 0 {
					resp.Prefix = prefix
				}
				for i := range calls {
					id := string(rune('a' + i))
					resp.Message.Parts = append(resp.Message.Parts, record.ToolCallPart{ID: id, Tool: "t", Args: record.MustValue(1)})
					resp.Calls = append(resp.Calls, record.DeclaredCall{ID: id, Tool: "t", Class: record.Readonly})
				}
				fold(resp)
				for i := len(calls) - 1; i >= 0; i-- { // ended in the opposite order
					id := string(rune('a' + i))
					if calls[i].synthetic == "" {
						fold(record.CallPrepared{Call: id, Operation: id})
					}
					fold(record.CallSettled{Call: id, Outcome: calls[i].outcome, Synthetic: calls[i].synthetic, Result: record.MustValue(1)})
				}
			}
			if s.Run.Failures != row.failures || s.Run.Peak != row.top {
				t.Errorf("failures %d peak %d, want %d and %d", s.Run.Failures, s.Run.Peak, row.failures, row.top)
			}
		})
	}
}

// An expired approval is pending no more, and it ends the run under its name.
func TestExpiredApprovalIsNotPending(t *testing.T) {
	s := &core.State{}
	env := core.Envelope{Slot: 1, Epoch: 1, Attempt: "A", At: epoch0}
	for _, r := range records(started, queued, running, response, asked,
		record.ApprovalResolved{Approval: "s.1.0", Call: "c", Decision: record.Expired}) {
		if err := core.Reduce(s, env, r); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.Pending()); n != 0 || s.Run.Failing == nil || s.Run.Failing.Kind != core.ApprovalExpired {
		t.Errorf("%d pending, failing %+v", n, s.Run.Failing)
	}
}
