package engine

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/layover-run/layover/core"
)

// What an operator may see: identifiers, counts, kinds and stacks. Payloads,
// and the text of errors and panics of user code, go to Config.OnUserError and
// nowhere else: only their author knows what is in them.

// logger is the attempt's own, for the goroutine of its loop: each line says
// which conversation, attempt, epoch, run and turn.
func (a *attempt) logger() *slog.Logger {
	switch {
	case a.state == nil:
	case a.state.Run != nil:
		return a.lineOf(a.state.Run.ID, turnOf(a.state.Run))
	case a.state.Terminal > a.head.Settled: // it has just ended
		return a.lineOf(a.state.Latest.Run, a.state.Latest.Turns)
	}
	return a.lineOf("", 0)
}

func (a *attempt) lineOf(run string, turn int) *slog.Logger {
	log := a.cfg.Log.With("conversation", a.lane.Conversation, "attempt", a.head.Owner, "epoch", a.head.Epoch)
	if run != "" {
		log = log.With("run", run, "turn", turn)
	}
	return log
}

// logger is an effect's own. call may be empty.
func (j job) logger(call string) *slog.Logger {
	log := j.a.lineOf(j.run, j.turn)
	if call != "" {
		log = log.With("call", call)
	}
	return log
}

// turnOf is the turn a run is in: that of the open batch of calls, else the one
// whose response comes next.
func turnOf(r *core.Run) int {
	if len(r.Calls) > 0 {
		return r.Turn
	}
	return r.Turn + 1
}

// defect reports user code that panicked, with value, or ended its goroutine:
// where and with which stack to the operator, with its text to the author. A
// stack holds no text of the panic.
func (j job) defect(where, call string, problem error, value any, stack []byte) {
	j.logger(call).Error("defect", "where", where, "stack", string(stack))
	j.a.cfg.OnUserError(UserError{Conversation: j.conversation, Run: j.run, Call: call, Where: where, Err: problem})
	j.a.cfg.onDefect(&DefectError{Where: where, Value: value, Stack: stack})
}

// faulted is the fact of an effect whose user function panicked or ended its
// goroutine.
func (j job) faulted(e core.Effect, problem error, value any) core.Fact {
	where, ok := userFunctions[fmt.Sprintf("%T", e)]
	if !ok {
		where = "the engine"
	}
	j.defect(where, callOf(e), problem, value, debug.Stack())
	return core.Faulted{Where: where, Of: e}
}

func callOf(e core.Effect) string {
	switch e := e.(type) {
	case core.StartTool:
		return e.Call
	case core.Reconcile:
		return e.Call
	case core.Authorize:
		return e.Call
	}
	return ""
}

// userFunctions names whose code an effect runs, as its author knows it.
var userFunctions = map[string]string{
	"core.DecodeInput": "the input type", "core.Instruct": "Config.Instructions", "core.PrepareContext": "Config.Prompt", "core.CallModel": "the model adapter",
	"core.CheckCalls": "the argument type of a tool", "core.Conclude": "the output type", "core.Reconcile": "a reconcile probe",
	"core.Authorize": "Config.Authorize",
}
