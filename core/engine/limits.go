package engine

import (
	"math"

	"github.com/layover-run/layover/core/model"
)

// The ceilings of one interpreter (D-39).
const (
	// MaxRunEvents is how many canonical events one attempt makes, the last one
	// kept free for the end of the run.
	MaxRunEvents = 65_536
	// MaxResponseParts and MaxResponseBytes bound one model call.
	MaxResponseParts = model.DefaultMaxParts
	MaxResponseBytes = model.DefaultMaxBytes
)

// BufferLimits tighten the ceilings; they cannot widen them. A field that is
// not positive, not finite, or above its ceiling leaves the ceiling as it is;
// fractions are dropped.
type BufferLimits struct {
	ResponseParts float64 // parts of one model call, at most MaxResponseParts
	ResponseBytes float64 // estimated memory of one model call, at most MaxResponseBytes
	RunEvents     float64 // canonical events of one attempt, at most MaxRunEvents
}

// Ceilings are BufferLimits in effect.
type Ceilings struct{ ResponseParts, ResponseBytes, RunEvents int }

// Resolve is what is in effect.
func (l BufferLimits) Resolve() Ceilings {
	return Ceilings{
		ResponseParts: tightened(l.ResponseParts, MaxResponseParts),
		ResponseBytes: tightened(l.ResponseBytes, MaxResponseBytes),
		RunEvents:     tightened(l.RunEvents, MaxRunEvents),
	}
}

func tightened(limit float64, ceiling int) int {
	if math.IsNaN(limit) || limit <= 0 || limit >= float64(ceiling) {
		return ceiling
	}
	return max(1, int(limit))
}

func (c Ceilings) model() model.Limits {
	return model.Limits{MaxParts: c.ResponseParts, MaxBytes: c.ResponseBytes}
}
