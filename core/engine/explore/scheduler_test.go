package explore_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing/synctest"
	"time"
)

// verdict is what the scheduler says to a goroutine that wants to go on.
type verdict uint8

const (
	goOn verdict = iota
	lose         // do it, and hear nothing
	die          // the invocation is gone
)

// request is a goroutine of an actor in front of its next step.
type request struct {
	actor string
	what  string
	write bool
	grant chan verdict
}

// option is one thing that can happen next.
type option struct {
	what string
	do   func()
}

// scheduler lets one thing happen at a time. Between two of them everybody in
// the bubble waits: for the scheduler, for somebody else, or for time to pass.
type scheduler struct {
	script  []int // what to choose, from the beginning; then always 0
	offered []int // how many options there were at each choice
	trace   []string

	mu      sync.Mutex
	waiting []*request
	live    map[string]bool // actors at work
	last    string          // who moved last
	changed chan struct{}   // capacity 1: somebody waits or has ended
	crashes int
	losses  int
	pauses  int
	extra   func() []option // what the world offers besides
	dead    map[string]bool
	paused  map[string]bool // they go on only when nothing else can happen, or are chosen
}

func newScheduler(script []int) *scheduler {
	return &scheduler{script: script, live: map[string]bool{}, dead: map[string]bool{}, paused: map[string]bool{}, changed: make(chan struct{}, 1)}
}

// ask waits until the scheduler lets the actor take its step.
func (s *scheduler) ask(actor, what string, write bool) verdict {
	r := &request{actor: actor, what: what, write: write, grant: make(chan verdict)}
	s.mu.Lock()
	if s.dead[actor] {
		s.mu.Unlock()
		return die
	}
	s.waiting = append(s.waiting, r)
	s.mu.Unlock()
	s.signal()
	return <-r.grant
}

func (s *scheduler) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// spawn runs an actor's work in a goroutine of its own.
func (s *scheduler) spawn(actor string, work func()) {
	s.live[actor], s.last = true, actor
	delete(s.dead, actor)
	go func() {
		work()
		s.mu.Lock()
		delete(s.live, actor)
		s.mu.Unlock()
		s.signal()
	}()
}

// next lets one thing happen. It says false when nothing can.
func (s *scheduler) next() bool {
	synctest.Wait()
	options := s.options()
	if len(options) == 0 {
		return false
	}
	choice := 0
	if n := len(s.offered); n < len(s.script) {
		choice = s.script[n]
	}
	s.offered = append(s.offered, len(options))
	if choice >= len(options) {
		panic(fmt.Sprintf("choice %d of %d options: the schedule does not repeat\n%v", choice, len(options), s.trace))
	}
	s.trace = append(s.trace, options[choice].what)
	options[choice].do()
	return true
}

// options lists what can happen, the usual thing first: who moved last goes
// on, then whoever else is in the middle of something, then what can begin, and
// who is paused after everything else.
func (s *scheduler) options() []option {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.waiting, func(a, b *request) int {
		return cmp.Or(cmp.Compare(rank(a.actor == s.last), rank(b.actor == s.last)), cmp.Compare(a.actor, b.actor), cmp.Compare(a.what, b.what))
	})
	var usual, late, faults []option
	busy := map[string]bool{}
	for _, r := range s.waiting {
		busy[r.actor] = true
		step := option{r.actor + ": " + r.what, func() { s.grant(r, goOn) }}
		if s.paused[r.actor] {
			late = append(late, step)
			continue
		}
		usual = append(usual, step)
		if r.write && s.losses > 0 {
			faults = append(faults, option{r.actor + ": " + r.what + ", answer lost", func() { s.losses--; s.grant(r, lose) }})
		}
		if s.crashes > 0 {
			faults = append(faults, option{r.actor + ": dies before it would " + r.what, func() { s.crashes--; s.kill(r.actor) }})
		}
		if s.pauses > 0 {
			faults = append(faults, option{r.actor + ": pauses before it would " + r.what, func() { s.pauses--; s.paused[r.actor] = true }})
		}
	}
	for actor := range s.live {
		if !busy[actor] {
			// Somebody sleeps, such as between two tries.
			usual = append(usual, option{"somebody wakes up", s.sleep})
			break
		}
	}
	return slices.Concat(usual, s.extra(), late, faults)
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// sleep lets time pass until somebody wants to go on, and a minute at most.
func (s *scheduler) sleep() {
	select {
	case <-s.changed:
	default:
	}
	select {
	case <-s.changed:
	case <-time.After(time.Minute):
	}
}

func (s *scheduler) grant(r *request, v verdict) {
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *request) bool { return other == r })
	s.last = r.actor
	delete(s.paused, r.actor)
	s.mu.Unlock()
	r.grant <- v
}

// kill ends an invocation: nothing it asks for happens any more.
func (s *scheduler) kill(actor string) {
	s.mu.Lock()
	s.dead[actor] = true
	var gone []*request
	s.waiting = slices.DeleteFunc(s.waiting, func(r *request) bool {
		if r.actor == actor {
			gone = append(gone, r)
		}
		return r.actor == actor
	})
	s.mu.Unlock()
	for _, r := range gone {
		r.grant <- die
	}
}
