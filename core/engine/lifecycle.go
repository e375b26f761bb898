package engine

import (
	"slices"

	"github.com/layover-run/layover/core/event"
)

// RunState is where a run stands, the same in every assembly.
type RunState string

// The states, in the order a run goes through them; it ends in one of the last
// four.
const (
	StateCreated     RunState = "created"   // accepted
	StatePreparing   RunState = "preparing" // begun: input, instructions, first request
	StateRunning     RunState = "running"   // the model has been asked
	StateCompleted   RunState = "completed"
	StateFailed      RunState = "failed"
	StateInterrupted RunState = "interrupted"
	StateSuspended   RunState = "suspended" // ends this trace; a durable run goes on later in another
)

var forward = []RunState{StateCreated, StatePreparing, StateRunning}

// Ended reports whether nothing follows this state.
func (s RunState) Ended() bool { return s != "" && !slices.Contains(forward, s) }

// Lifecycle walks one trace of a run through its states: never backwards, never
// past one, never on from an end. The zero Lifecycle is a run that is created.
type Lifecycle struct{ path []RunState }

// Path is every state so far.
func (l *Lifecycle) Path() []RunState {
	if len(l.path) == 0 {
		l.path = []RunState{StateCreated}
	}
	return slices.Clone(l.path)
}

// State is the last one.
func (l *Lifecycle) State() RunState {
	path := l.Path()
	return path[len(path)-1]
}

// To moves on, through every state between. It is false, and nothing moves,
// when that would be no way forward.
func (l *Lifecycle) To(s RunState) bool {
	now := l.State()
	if now.Ended() || s == now {
		return false
	}
	from, to := slices.Index(forward, now), slices.Index(forward, s)
	if to >= 0 && to <= from {
		return false
	}
	if to < 0 {
		l.path = append(append(l.path, forward[from+1:]...), s)
		return true
	}
	l.path = append(l.path, forward[from+1:to+1]...)
	return true
}

// Add moves as far as an event says.
func (l *Lifecycle) Add(e event.Event) bool {
	switch e.Data.(type) {
	case event.RunStarted:
		return l.To(StatePreparing)
	case event.TurnStarted:
		return l.To(StateRunning)
	case event.RunCompleted:
		return l.To(StateCompleted)
	case event.RunFailed:
		return l.To(StateFailed)
	case event.RunInterrupted:
		return l.To(StateInterrupted)
	case event.RunSuspended:
		return l.To(StateSuspended)
	}
	return false
}
