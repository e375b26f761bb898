package engine

import (
	"log/slog"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// tellOutcome logs how a handler ended, in one bounded line without its result
// or its error's text. An interruption is no outcome (CLS-07).
func (j job) tellOutcome(e core.StartTool, ended core.ToolEnded) {
	state := "failure"
	switch ended.Outcome {
	case record.Interrupted:
		return
	case record.Succeeded:
		state = "success"
	}
	if !j.a.cfg.Log.Enabled(j.effects, slog.LevelDebug) {
		return
	}
	j.logger(e.Call).Debug("tool call ended", slog.String("tool", e.Tool), slog.String("state", state), slog.String("outcome", string(ended.Outcome)), slog.String("tag", clipped(ended.Tag)),
		slog.Duration("took", ended.Duration))
}
