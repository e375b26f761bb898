package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/layover-run/layover/core"
)

// ToolLimits bounds handlers across all runs of one process. What is absent has
// no bound besides those of each run. With any limit set, a response with calls
// is recorded before its calls wait for their places: one write more.
type ToolLimits struct {
	// Process bounds all handlers; 0 means no bound.
	Process int
	// Agents bounds the handlers of an agent's runs, by agent name.
	Agents map[string]int
	// Groups bounds the handlers of the tools of a group (tool.Group), by group.
	Groups map[string]int
}

func (l ToolLimits) check() error {
	if l.Process < 0 {
		return fmt.Errorf("engine: ToolLimits.Process is %d: a limit is positive, and 0 means none", l.Process)
	}
	for what, limits := range map[string]map[string]int{"Agents": l.Agents, "Groups": l.Groups} {
		for name, n := range limits {
			if n <= 0 {
				return fmt.Errorf("engine: ToolLimits.%s[%q] is %d: a limit is positive; leave it out for none", what, name, n)
			}
		}
	}
	return nil
}

func (l ToolLimits) any() bool { return l.Process > 0 || len(l.Agents) > 0 || len(l.Groups) > 0 }

// permits are the places of a process. A call takes all it needs at once or
// waits, so that nobody holds one place while waiting for another; who waited
// longest is looked at first.
type permits struct {
	limits  ToolLimits
	mu      sync.Mutex
	process int
	agents  map[string]int
	groups  map[string]int
	waiting []*waiter
}

func newPermits(l ToolLimits) *permits {
	return &permits{limits: l, agents: map[string]int{}, groups: map[string]int{}}
}

// want is what one call needs a place for.
type want struct{ agent, group string }

type waiter struct {
	want  want
	given chan struct{} // closed with mu held when the place is taken
}

// take takes the places of a call, or joins the line for them.
func (p *permits) take(w want) (line *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free(w) {
		p.count(w, 1)
		return nil
	}
	line = &waiter{want: w, given: make(chan struct{})}
	p.waiting = append(p.waiting, line)
	return line
}

// wait waits in the line, and reports whether the places were taken before ctx
// ended.
func (p *permits) wait(ctx context.Context, line *waiter) bool {
	select {
	case <-line.given:
		return true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, line); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		return false
	}
	return true // given at the same moment
}

// give gives a call's places back.
func (p *permits) give(w want) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(w, -1)
	p.waiting = slices.DeleteFunc(p.waiting, func(line *waiter) bool {
		if !p.free(line.want) {
			return false
		}
		p.count(line.want, 1)
		close(line.given)
		return true
	})
}

func (p *permits) free(w want) bool {
	below := func(used, limit int) bool { return limit == 0 || used < limit }
	return below(p.process, p.limits.Process) && below(p.agents[w.agent], p.limits.Agents[w.agent]) &&
		(w.group == "" || below(p.groups[w.group], p.limits.Groups[w.group]))
}

func (p *permits) count(w want, n int) {
	p.process += n
	p.agents[w.agent] += n
	if w.group != "" {
		p.groups[w.group] += n
	}
}

// held are the places an attempt holds, by call.
type held struct {
	mu     sync.Mutex
	places map[string]want
	closed bool
}

// hold keeps the place a call has taken. False means that the attempt is over
// and the place given back. A place left over from an earlier call of that id is
// given back too.
func (h *held) hold(p *permits, call string, w want) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		p.give(w)
		return false
	}
	if old, ok := h.places[call]; ok {
		p.give(old)
	}
	if h.places == nil {
		h.places = map[string]want{}
	}
	h.places[call] = w
	return true
}

// pass hands a call's place on to its handler, which gives it back.
func (h *held) pass(call string) (w want, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w, ok = h.places[call]
	delete(h.places, call)
	return w, ok
}

// close gives back what no handler took.
func (h *held) close(p *permits) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for call, w := range h.places {
		p.give(w)
		delete(h.places, call)
	}
}

// acquire takes a call's places if they are free. If not, the line it joins is
// waited in by an effect: places are given in the order they were asked for.
func (a *attempt) acquire(e core.AcquirePermit, agent string) (held bool, wait func(context.Context) core.Fact) {
	w := want{agent: agent, group: e.Group}
	line := a.permits.take(w)
	if line == nil {
		return a.held.hold(a.permits, e.Call, w), nil
	}
	return false, func(ctx context.Context) core.Fact {
		return core.PermitHeld{Call: e.Call, Held: a.permits.wait(ctx, line) && a.held.hold(a.permits, e.Call, w)}
	}
}

// giveBackOf is how a handler gives its place back, once it has returned.
func (a *attempt) giveBackOf(call string) func() {
	w, ok := a.held.pass(call)
	if !ok {
		return func() {}
	}
	return sync.OnceFunc(func() { a.permits.give(w) })
}
