package engine

import (
	"bytes"
	"context"
	"fmt"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// engineFailure is the most that a failed result made by the engine itself can
// take: its text is bounded, whatever the bound of results is.
const engineFailure = 32 << 10

// recheck holds the recorded results of an open run against the bound they were
// recorded under, and reads those that are aside: a resumed attempt goes on with
// nothing that its own seam would not have let through, and writes nothing
// before that is known (RUN-022e). Its error is record.ErrCorrupt, or the store's.
func (a *attempt) recheck(ctx context.Context, s *core.State) error {
	if s.Run == nil {
		return nil
	}
	def := a.registry.definition(s.Run.Agent)
	if def == nil || def.Spec.Digest != s.Run.Definition {
		return nil // recorded under a bound this build does not know
	}
	limit := def.Spec.Policy.ResultBound
	for _, e := range s.History[s.Run.Start:] {
		if e.Message.Role != record.Tool {
			continue // what the provider executed stays as it is
		}
		for _, p := range e.Message.Parts {
			if r, ok := p.(record.ToolResultPart); ok {
				if err := a.recheckResult(ctx, r.Call, r.Result, r.Failed, limit); err != nil {
					return err
				}
			}
		}
	}
	for _, c := range s.Run.Calls {
		if c.Phase == core.Settled {
			if err := a.recheckResult(ctx, c.ID, c.Result, c.Outcome != record.Succeeded, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *attempt) recheckResult(ctx context.Context, call string, v record.Value, failed bool, limit int) error {
	if failed {
		limit = max(limit, engineFailure)
	}
	size := len(v.Inline)
	if v.Aside != nil {
		size = v.Aside.Size
	}
	if limit > 0 && size > limit {
		return fmt.Errorf("engine: %s: %w: the recorded result of call %s has %d bytes, over its bound of %d", a.lane.Conversation, record.ErrCorrupt, call, size, limit)
	}
	if v.Aside == nil {
		return nil // the log itself holds canonical JSON only
	}
	body, err := a.payload(ctx, *v.Aside)
	if err != nil {
		return err
	}
	if canonical, err := record.Canonical(body); err != nil || !bytes.Equal(canonical, body) {
		return fmt.Errorf("engine: %s: %w: the recorded result of call %s is not canonical JSON", a.lane.Conversation, record.ErrCorrupt, call)
	}
	return nil
}
