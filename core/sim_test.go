package core_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// world is a lane with everything that can happen to it, driven by choices: an
// interpreter without effects, whose every schedule rapid can draw.
type world struct {
	spec   core.Spec
	state  *core.State
	log    []record.Batch
	desk   *core.Desk
	info   core.AttemptInfo
	end    time.Time
	now    time.Time
	boot   int
	epoch  uint64
	batch  int
	inbox  []core.InboxEntry
	fates  map[string]string // what a handler of the call will do
	effect map[string]int    // effects that really happened, by operation
	traces []trace           // when each effect happened
	starts map[string]int    // handler starts, by call
	// allowed is what the host said and the places it gave, by attempt and call.
	allowed map[string]bool
	live    []core.Effect   // effects under way in this attempt
	seen    map[string]bool // proposals of this attempt
	turns   int
	steps   int
	plans   []string
	host    bool   // authorizes every call
	places  bool   // bounds handlers across its runs
	closed  uint64 // slot settle has handed over
}

// trace is one effect and the length of the log when it happened.
type trace struct {
	batches   int
	operation string
}

func newWorld() *world {
	w := &world{state: &core.State{}, now: epoch0, fates: map[string]string{}, effect: map[string]int{}, starts: map[string]int{}, allowed: map[string]bool{},
		spec: core.Spec{Agent: "a", Version: "1", Digest: "def1", Policy: defaultPolicy()}}
	for _, t := range []core.ToolSpec{
		{Name: "look", Class: record.Readonly}, {Name: "put", Class: record.Idempotent}, {Name: "pay", Class: record.Uncertain},
		{Name: "wire", Class: record.Uncertain, Probe: true}, {Name: "sign", Class: record.Uncertain, Approval: true, Probe: true},
		{Name: "lone", Class: record.Readonly, Sequential: true}, {Name: "row", Class: record.Idempotent, Group: "db"},
	} {
		t.Timeout = time.Minute
		w.spec.Tools = append(w.spec.Tools, t)
	}
	w.spec.Policy.RepeatedFailureLimit = 0
	w.spec.Policy.MaxDuration = 48 * time.Hour
	w.spec.Policy.ToolConcurrency = 2
	w.spec.Policy.Groups = map[string]int{"db": 1}
	w.spec.ProviderTools = []string{"web"}
	return w
}

func (w *world) send(cmd core.Command) {
	w.inbox = append(w.inbox, core.InboxEntry{Slot: uint64(len(w.inbox) + 1), By: "kim", At: w.now, Command: cmd})
	if w.desk != nil {
		core.Note(w.desk, core.Woken{})
	}
}

// claim begins an attempt; its predecessor, if any, is gone with its desk.
func (w *world) claim(newBoot bool) {
	if newBoot {
		w.boot++
	}
	w.epoch++
	w.info = core.AttemptInfo{ID: fmt.Sprint("A", w.epoch), Boot: fmt.Sprint("boot", w.boot), Epoch: w.epoch, Version: uint64(len(w.inbox)),
		Settled: w.closed, Exclusive: true, Authorizes: w.host, Permits: w.places}
	w.desk, w.live, w.seen = core.NewDesk(w.info), nil, map[string]bool{}
	w.end = w.now.Add(15 * time.Minute)
}

func (w *world) clock() core.Clock {
	return core.Clock{Now: w.now, InvocationEnd: w.end, LongestInvocation: 16 * time.Minute}
}

type fataler interface {
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// ask runs plan, append, fold, start until the plan rests. die says whether
// the process is lost right after the append, before anything starts.
func (w *world) ask(t fataler, die func() bool) (core.Rest, bool) {
	for range 50 {
		var spec *core.Spec // as the interpreter finds it
		if agent, _, ok := core.Wanted(w.state, w.desk); ok && agent == w.spec.Agent {
			spec = &w.spec
		}
		plan := core.Next(spec, w.state, w.desk, w.clock())
		w.plans = append(w.plans, fmt.Sprintf("%v %s %s %v", plan.Steps, mustJSON(plan.Append), mustJSON(plan.Then), plan.Rest))
		if len(plan.Append) > 0 {
			w.append(t, plan.Append)
			if die() {
				w.desk = nil
				return core.Rest{}, false
			}
		}
		for _, e := range plan.Then {
			w.begin(t, e)
		}
		if len(plan.Append) == 0 {
			return plan.Rest, true
		}
	}
	t.Fatalf("the transitions keep appending")
	return core.Rest{}, false
}

func (w *world) append(t fataler, records record.Records) {
	w.batch++
	b := record.Batch{Tenant: "t", Conversation: "c", Slot: w.state.Slot + 1, ID: fmt.Sprint("b", w.batch), Epoch: w.info.Epoch,
		Attempt: w.info.ID, Prev: w.state.Digest, At: w.now, Records: records}
	sealed, err := record.Seal(&b)
	if err != nil {
		t.Fatalf("seal: %v", err)
	}
	opened, err := record.Open(sealed, "t", "c")
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if err := core.Fold(w.state, opened); err != nil {
		t.Fatalf("fold: %v", err)
	}
	w.log = append(w.log, opened)
}

// begin starts an effect and holds law 2: nothing is proposed twice in an attempt.
func (w *world) begin(t fataler, e core.Effect) {
	switch e := e.(type) {
	case core.AckStep, core.StopEffects:
		if _, stop := e.(core.StopEffects); stop {
			for i, l := range w.live {
				switch l := l.(type) {
				case core.StartTool:
					w.live[i] = stopped{l}
				case core.Authorize:
					w.live[i] = cutQuestion{l}
				case core.AcquirePermit:
					w.live[i] = cutWait{l}
				}
			}
		}
		return
	case core.StartTool:
		key := "start " + e.Call
		c := w.call(e.Call)
		if c == nil || c.Phase != core.Prepared || c.Prepared.Attempt != w.info.ID {
			t.Fatalf("handler of %s starts without its prepared record", e.Call)
		}
		if w.seen[key] && w.tool(e.Tool).Class == record.Uncertain && c.Starts == w.starts[e.Call] {
			t.Fatalf("handler of %s proposed twice for one preparation", e.Call)
		}
		if w.host && !w.allowed[w.info.ID+e.Call] {
			t.Fatalf("handler of %s starts without the host's word", e.Call)
		}
		if w.places && !w.allowed[w.info.ID+" place "+e.Call] {
			t.Fatalf("handler of %s starts without a place", e.Call)
		}
		delete(w.allowed, w.info.ID+" place "+e.Call)
		w.seen[key] = true
		w.starts[e.Call]++
		w.runHandler(e)
	case core.ReadInbox, core.Reconcile, core.CallModel, core.Delay, core.Authorize, core.AcquirePermit: // may be repeated for a new reason, never while one is under way
		for _, l := range w.live {
			if mustJSON(l) == mustJSON(e) && fmt.Sprintf("%T", l) == fmt.Sprintf("%T", e) {
				t.Fatalf("%T proposed while it is under way", e)
			}
		}
	default:
		key := fmt.Sprintf("%T %d", e, w.state.Run.Turn)
		if w.seen[key] {
			t.Fatalf("%s proposed twice", key)
		}
		w.seen[key] = true
	}
	w.live = append(w.live, e)
}

// stopped is a handler that was told to end.
type stopped struct{ core.StartTool }

// A question and a wait that were told to end: they have no answer.
type (
	cutQuestion struct{ core.Authorize }
	cutWait     struct{ core.AcquirePermit }
)

// runHandler decides at the start whether the effect happens: whether anybody
// learns of it is another matter.
func (w *world) runHandler(e core.StartTool) {
	if fate := w.fates[e.Call]; fate != "never" {
		w.effect[e.Operation]++
		w.traces = append(w.traces, trace{len(w.log), e.Operation})
	}
}

func (w *world) tool(name string) core.ToolSpec {
	i := slices.IndexFunc(w.spec.Tools, func(t core.ToolSpec) bool { return t.Name == name })
	return w.spec.Tools[i]
}

func (w *world) call(id string) *core.Call {
	if w.state.Run == nil {
		return nil
	}
	for i := range w.state.Run.Calls {
		if w.state.Run.Calls[i].ID == id {
			return &w.state.Run.Calls[i]
		}
	}
	return nil
}

// finish ends live effect i with a fact.
func (w *world) finish(t *rapid.T, i int) {
	e := w.live[i]
	w.live = slices.Delete(slices.Clone(w.live), i, i+1)
	if panics := rapid.IntRange(0, 60).Draw(t, "panic"); panics == 0 {
		switch e.(type) {
		case core.DecodeInput, core.Instruct, core.CheckCalls, core.Conclude, core.PrepareContext:
			core.Note(w.desk, core.Faulted{Where: fmt.Sprintf("%T", e), Of: e})
			return
		}
	}
	core.Note(w.desk, w.ending(t, e))
}

func (w *world) ending(t *rapid.T, e core.Effect) core.Fact {
	switch e := e.(type) {
	case cutQuestion:
		return core.Authorized{Call: e.Call, Interrupted: true}
	case cutWait:
		return core.PermitHeld{Call: e.Call}
	case core.Authorize:
		a := core.Authorized{Call: e.Call, Allowed: rapid.IntRange(0, 11).Draw(t, "allowed") > 0}
		if rapid.IntRange(0, 30).Draw(t, "host fails") == 0 {
			a = core.Authorized{Call: e.Call, Err: &record.Error{Kind: core.AuthorizationFailed, Message: "no"}}
		}
		w.allowed[w.info.ID+e.Call] = a.Allowed
		return a
	case core.AcquirePermit:
		w.allowed[w.info.ID+" place "+e.Call] = true
		return core.PermitHeld{Call: e.Call, Held: true}
	case core.ReadInbox:
		return core.InboxRead{Version: uint64(len(w.inbox)), Entries: slices.Clone(w.inbox[min(e.After, uint64(len(w.inbox))):])}
	case core.DecodeInput:
		return core.InputDecoded{}
	case core.Instruct:
		return core.InstructionsReady{Text: "Go."}
	case core.PrepareContext:
		w.checkPairs(t, e.Request.Messages)
		return core.ContextPrepared{Digest: "req"}
	case core.CallModel:
		return w.model(t)
	case core.CheckCalls:
		var f core.CallsChecked
		for _, c := range e.Calls {
			f.Checks = append(f.Checks, core.Check{Call: c.ID, ArgsDigest: "d-" + c.ID})
		}
		return f
	case core.Conclude:
		return core.Concluded{Output: record.MustValue("done")}
	case core.Delay:
		return core.Delayed{}
	case core.Reconcile:
		r := core.Reconciled{Call: e.Call, Resolution: record.NotHappened}
		if w.effect[e.Operation] > 0 {
			r.Resolution, r.Outcome, r.Result = record.Happened, record.Succeeded, record.MustValue(e.Call)
		} else if rapid.Bool().Draw(t, "probe silent") {
			r.Resolution = ""
		}
		return r
	case stopped:
		return core.ToolEnded{Call: e.Call, Outcome: record.Interrupted, Result: record.MustValue(nil)}
	case core.StartTool:
		return w.toolEnds(t, e)
	}
	t.Fatalf("unknown effect %T", e)
	return nil
}

func (w *world) toolEnds(t *rapid.T, e core.StartTool) core.Fact {
	result := record.MustValue(e.Call)
	switch rapid.SampledFrom([]string{"success", "success", "success", "failure", "typed", "defect", "timeout", "step"}).Draw(t, "tool ends") {
	case "failure":
		return core.ToolEnded{Call: e.Call, Outcome: record.Failed, Tag: "Oops", Result: result}
	case "typed":
		if rapid.IntRange(0, 4).Draw(t, "really") == 0 {
			return core.ToolEnded{Call: e.Call, Outcome: record.Aborted, Tag: "Stop", Result: result}
		}
	case "defect":
		if rapid.IntRange(0, 4).Draw(t, "really") == 0 {
			return core.ToolEnded{Call: e.Call, Outcome: record.Infrastructure, Defect: true, Tag: core.Defect, Result: result}
		}
	case "timeout":
		return core.ToolEnded{Call: e.Call, Outcome: record.Failed, Tag: "timeout", TimedOut: true, Result: result}
	case "step":
		w.live = append(w.live, e)
		w.steps++
		return core.StepEnded{Call: e.Call, Step: fmt.Sprint("s", w.steps), Result: result}
	}
	return core.ToolEnded{Call: e.Call, Outcome: record.Succeeded, Result: result}
}

func (w *world) model(t *rapid.T) core.Fact {
	w.turns++
	if r := w.state.Run; r != nil && rapid.IntRange(0, 9).Draw(t, "somebody writes") == 0 {
		w.somebodyWrites(t, r.ID)
	}
	resp := &core.Response{Stop: "stop", Provider: "test", Model: "m", Message: record.TextMessage(record.Assistant, "done")}
	switch n := rapid.IntRange(0, 9).Draw(t, "model"); {
	case n == 0:
		return core.ModelEnded{Failure: &core.ModelFailure{Class: core.FailTransient, Message: "no"}}
	case n <= 6 && !w.constrained():
		resp.Stop, resp.Message = "tool-calls", record.Message{Role: record.Assistant}
		for i := range rapid.IntRange(1, 3).Draw(t, "calls") {
			id := fmt.Sprintf("c%d.%d", w.turns, i)
			tool := rapid.SampledFrom(w.spec.Tools).Draw(t, "tool").Name
			w.fates[id] = rapid.SampledFrom([]string{"happens", "never"}).Draw(t, "fate")
			resp.Message.Parts = append(resp.Message.Parts, record.ToolCallPart{ID: id, Tool: tool, Args: record.MustValue(map[string]any{})})
		}
	case n == 7 && !w.constrained():
		id := fmt.Sprintf("w%d", w.turns)
		resp.Message.Parts = append(record.Parts{record.ToolCallPart{ID: id, Tool: "web", Args: record.MustValue(nil), ProviderExecuted: true},
			record.ToolResultPart{Call: id, Tool: "web", Result: record.MustValue(1), ProviderExecuted: true}}, resp.Message.Parts...)
		if rapid.Bool().Draw(t, "goes on") {
			resp.Stop = "tool-calls"
		}
	case n == 8: // the provider paused, beside a call of its own or not
		resp.Stop = "tool-calls"
		if !w.constrained() && rapid.Bool().Draw(t, "left open") {
			resp.Message.Parts = append(resp.Message.Parts, record.ToolCallPart{ID: fmt.Sprintf("w%d", w.turns), Tool: "web", Args: record.MustValue(nil), ProviderExecuted: true})
		}
	}
	return core.ModelEnded{Response: resp}
}

// somebodyWrites sends steering or a follow-up while the model is asked.
func (w *world) somebodyWrites(t *rapid.T, run string) {
	if rapid.Bool().Draw(t, "steering") {
		w.send(core.Steer{Submission: run, Key: fmt.Sprint("k", len(w.inbox)), Text: record.TextValue("hurry")})
		return
	}
	w.send(core.Submit{Submission: core.Submission{ID: fmt.Sprint("f", len(w.inbox)), Agent: "a", Input: record.MustValue(1), FollowUp: true, AdmittedAt: w.now}})
}

func (w *world) constrained() bool {
	r := w.state.Run
	return r != nil && (r.Exhausted != "" || r.Turn >= r.MaxTurns)
}

// checkPairs holds that a request pairs every call with exactly one result, in
// declaration order, in the message right behind it.
func (w *world) checkPairs(t fataler, messages []record.Message) {
	for i, m := range messages {
		calls := slices.DeleteFunc(m.Calls(), func(c record.ToolCallPart) bool { return c.ProviderExecuted })
		if len(calls) == 0 {
			continue
		}
		if i+1 >= len(messages) || len(messages[i+1].Parts) != len(calls) {
			t.Fatalf("a request shows calls without their results")
		}
		for k, c := range calls {
			if r, ok := messages[i+1].Parts[k].(record.ToolResultPart); !ok || r.Call != c.ID {
				t.Fatalf("result %d does not answer call %s", k, c.ID)
			}
		}
	}
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
