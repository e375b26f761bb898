package explore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Move is one of the moves a state offers. What a code means is the system's
// own matter.
type Move struct {
	Code uint16
	// Outside is a fault or something new from outside. What the system does by
	// itself, without outside moves, must lead it to rest.
	Outside bool
}

// System is a state of what is explored. States are not changed by a search.
type System[S any] interface {
	// Moves appends the moves this state offers, always in the same order.
	Moves([]Move) []Move
	// Apply is the state after a move. With explain it also says in words what
	// happened.
	Apply(m Move, explain bool) (next S, what string)
	// Key appends the canonical form of the state: two states of one key have
	// the same future.
	Key([]byte) []byte
	// Check names the invariant this state breaks, or returns nil.
	Check() error
	// Rest says that nothing is left to do.
	Rest() bool
}

// Options bound a search.
type Options struct {
	// States is how many states are visited at most. Zero means no bound; a
	// search that meets it has proved nothing and says so.
	States int
	// Liveness also checks L1 and L2: from every state the system comes to rest
	// by itself. It costs memory for every edge.
	Liveness bool
}

// Result is what a search found.
type Result struct {
	States, Edges, Depth int
	// Violation is the first broken invariant, nil when there is none.
	Violation error
	// Trace tells the way from the first state to the violation.
	Trace []string
}

// The violations of liveness.
var (
	// ErrStuck: not at rest, and nothing happens any more by itself.
	ErrStuck = errors.New("L1: the system is stuck before it is at rest")
	// ErrLivelock: something happens for ever and never leads to rest.
	ErrLivelock = errors.New("L2: no path leads to rest without help from outside")
	// ErrBound: the bound on states was met before the search was complete.
	ErrBound = errors.New("the bound on states was met: nothing is proved")
)

type digest [16]byte

// origin is how a state was first reached.
type origin struct {
	from int32
	move Move
}

// search is one walk over a system.
type search[S System[S]] struct {
	first   S
	options Options
	known   map[digest]int32
	origins []origin
	rest    []bool
	from    [][]int32 // for each state, the states that lead to it by themselves
	quiet   []bool    // nothing moves by itself
	result  Result
	buf     []byte
}

// Search visits every state reachable from first.
func Search[S System[S]](first S, o Options) Result {
	s := &search[S]{first: first, options: o, known: map[digest]int32{}}
	s.walk()
	s.result.States = len(s.origins)
	return s.result
}

func (s *search[S]) walk() {
	first, _ := s.id(s.first)
	s.visit(first, first, Move{}, s.first)
	level := []S{s.first}
	if s.judge(first, s.first) {
		return
	}
	for at := int32(0); len(level) > 0; s.result.Depth++ {
		var next []S
		for _, state := range level {
			for _, m := range state.Moves(nil) {
				s.result.Edges++
				to, _ := state.Apply(m, false)
				id, fresh := s.id(to)
				s.visit(at, id, m, to)
				if !fresh {
					continue
				}
				if s.judge(id, to) {
					return
				}
				next = append(next, to)
			}
			at++
			if s.options.States > 0 && len(s.origins) > s.options.States {
				s.result.Violation = ErrBound
				return
			}
		}
		level = next
	}
	if s.options.Liveness {
		s.live()
	}
}

// id is the number of a state, and whether it is seen for the first time.
func (s *search[S]) id(state S) (int32, bool) {
	s.buf = state.Key(s.buf[:0])
	sum := sha256.Sum256(s.buf)
	d := digest(sum[:16])
	id, found := s.known[d]
	if !found {
		id = int32(len(s.origins))
		s.known[d] = id
	}
	return id, !found
}

// visit notes an edge and, for a new state, where it came from.
func (s *search[S]) visit(from, to int32, m Move, state S) {
	if int(to) == len(s.origins) {
		s.origins = append(s.origins, origin{from: from, move: m})
		if s.options.Liveness {
			s.rest, s.quiet, s.from = append(s.rest, state.Rest()), append(s.quiet, true), append(s.from, nil)
		}
	}
	if s.options.Liveness && !m.Outside && from != to {
		s.quiet[from] = false
		s.from[to] = append(s.from[to], from)
	}
}

// judge checks a new state.
func (s *search[S]) judge(id int32, state S) (broken bool) {
	err := state.Check()
	if err != nil {
		s.result.Violation, s.result.Trace = err, s.trace(id)
	}
	return err != nil
}

// live walks back from the states at rest over the moves the system makes by
// itself. A state that is not met never comes to rest.
func (s *search[S]) live() {
	met := slices.Clone(s.rest)
	var todo []int32
	for id, rests := range s.rest {
		if rests {
			todo = append(todo, int32(id))
		}
	}
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, before := range s.from[id] {
			if !met[before] {
				met[before] = true
				todo = append(todo, before)
			}
		}
	}
	// A stuck state says more than the states that can only lead to it.
	for _, stuck := range []bool{true, false} {
		for id := range met {
			if met[id] || stuck && !s.quiet[id] {
				continue
			}
			if s.result.Violation = ErrLivelock; stuck {
				s.result.Violation = ErrStuck
			}
			s.result.Trace = s.trace(int32(id))
			return
		}
	}
}

// trace replays the way to a state and tells it.
func (s *search[S]) trace(id int32) []string {
	var moves []Move
	for ; id != 0; id = s.origins[id].from {
		moves = append(moves, s.origins[id].move)
	}
	slices.Reverse(moves)
	var told []string
	state := s.first
	for _, m := range moves {
		next, what := state.Apply(m, true)
		state, told = next, append(told, what)
	}
	return told
}

// String tells the result in a few lines.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d states, %d moves, depth %d", r.States, r.Edges, r.Depth)
	if r.Violation != nil {
		fmt.Fprintf(&b, "\n%v", r.Violation)
	}
	for i, step := range r.Trace {
		fmt.Fprintf(&b, "\n%3d  %s", i+1, step)
	}
	return b.String()
}
