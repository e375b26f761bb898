package engine_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/layover-run/layover/core/engine"
)

// conformance: LIFE-01 @embedded
//
// Whatever is asked of it, a lifecycle goes forward through every state to one
// end, and stays there.
func TestLifecycle(t *testing.T) {
	order := []engine.RunState{engine.StateCreated, engine.StatePreparing, engine.StateRunning}
	ends := []engine.RunState{engine.StateCompleted, engine.StateFailed, engine.StateInterrupted, engine.StateSuspended}
	for seed := range uint64(500) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var l engine.Lifecycle
		for range 8 {
			to := append(slices.Clone(order), ends...)[draw.IntN(7)]
			before := l.Path()
			moved := l.To(to)
			path := l.Path()
			if now := l.State(); moved != (len(path) > len(before)) || moved && now != to || !slices.Equal(path[:len(before)], before) {
				t.Fatalf("seed %d: To(%s) = %v made %v of %v", seed, to, moved, path, before)
			}
			n := min(len(path), len(order))
			if !slices.Equal(path[:n], order[:n]) || len(path) > 4 || len(path) == 4 && !slices.Contains(ends, path[3]) {
				t.Fatalf("seed %d: %v", seed, path)
			}
			if l.State().Ended() != (len(path) == 4) {
				t.Fatalf("seed %d: %s has ended: %v", seed, l.State(), l.State().Ended())
			}
		}
	}
}
