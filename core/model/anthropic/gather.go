package anthropic

import "github.com/layover-run/layover/core/model"

// A response may have model.DefaultMaxParts parts, and a long answer has more
// deltas than that. Deltas go out as they come as long as there are few; behind
// that they are gathered.
const (
	gatherBehind = model.DefaultMaxParts / 4
	gatherBytes  = 2 << 10
)

// gather hands parts out, deltas together once there are many.
type gather struct {
	emit    func(model.Part) error
	parts   int
	pending model.Part // a delta, or nil
}

func (g *gather) out(p model.Part) error {
	if g.parts++; g.parts <= gatherBehind {
		return g.emit(p)
	}
	if g.pending != nil {
		if both, ok := joined(g.pending, p); ok {
			g.pending = both
			return nil
		}
		if err := g.emit(g.pending); err != nil {
			return err
		}
		g.pending = nil
	}
	if _, delta := joined(p, p); delta {
		g.pending = p
		return nil
	}
	return g.emit(p)
}

// joined is two deltas of one block as one, if they are that and not too long.
func joined(a, b model.Part) (model.Part, bool) {
	if size(a) >= gatherBytes {
		return nil, false
	}
	switch a := a.(type) {
	case model.TextDelta:
		b, ok := b.(model.TextDelta)
		return model.TextDelta{Index: a.Index, Text: a.Text + b.Text}, ok && a.Index == b.Index
	case model.ReasoningDelta:
		b, ok := b.(model.ReasoningDelta)
		return model.ReasoningDelta{Index: a.Index, Text: a.Text + b.Text}, ok && a.Index == b.Index
	case model.ToolArgsDelta:
		b, ok := b.(model.ToolArgsDelta)
		return model.ToolArgsDelta{Index: a.Index, JSON: a.JSON + b.JSON}, ok && a.Index == b.Index
	}
	return nil, false
}
