package core

import (
	"slices"

	"github.com/layover-run/layover/core/record"
)

// startCalls hands out permits in declaration order and reports why it stopped
// early: a call that does not fit the rest of the invocation, or one whose
// earlier invocation may still be alive.
func (p *planner) startCalls() (blocked string) {
	if p.d.cancelled {
		return "stop"
	}
	if p.d.looking { // what has arrived may be an abort: read it first (INT-01)
		return ""
	}
	for _, c := range slices.Clone(p.s.Run.Calls) {
		if !p.startable(c) {
			continue
		}
		t, ok := p.spec.Tool(c.Tool)
		if !ok {
			continue // held() has seen to it
		}
		switch {
		case !p.authorized(c):
			return "stop"
		case !p.turnOf(c, t):
			return ""
		case !p.groupFree(c, t):
			continue // another group may have room
		case !p.fits(t.Timeout):
			return "time"
		case c.Starts > 0 && c.Class == record.Uncertain && !c.Unentered && !certainlyDead(c.Prepared, p.d.Attempt, p.c) &&
			!(c.Prepared.Attempt == p.d.Attempt.ID && c.UnknownAs == record.TimeoutOutcome):
			return "alive"
		case !p.permitted(c, t):
			continue // asked for; what is behind may have its own
		}
		p.start(c, t)
	}
	return ""
}

// engaged lists the calls other than c that run or have asked for a permit.
func (p *planner) engaged(c Call) []string {
	var ids []string
	for _, id := range slices.Concat(p.d.running, p.d.acquiring) {
		if id != c.ID {
			ids = append(ids, id)
		}
	}
	return ids
}

// turnOf reports whether the run has a place for a call: below its concurrency,
// and neither it nor a call beside it has to be alone (SCH-04).
func (p *planner) turnOf(c Call, t ToolSpec) bool {
	beside := p.engaged(c)
	if len(beside) >= p.spec.Policy.ToolConcurrency {
		return false
	}
	if t.Sequential {
		return len(beside) == 0
	}
	return !slices.ContainsFunc(beside, func(id string) bool { return p.toolOf(id).Sequential })
}

// groupFree reports whether the run may start another call of a tool's group.
func (p *planner) groupFree(c Call, t ToolSpec) bool {
	limit := p.spec.Policy.Groups[t.Group]
	if t.Group == "" || limit == 0 {
		return true
	}
	members := 0
	for _, id := range p.engaged(c) {
		if p.toolOf(id).Group == t.Group {
			members++
		}
	}
	return members < limit
}

func (p *planner) toolOf(call string) ToolSpec {
	if c := p.s.Run.call(call); c != nil {
		t, _ := p.spec.Tool(c.Tool)
		return t
	}
	return ToolSpec{}
}

// permitted reports whether a call holds what the process bounds, and asks for
// it where it does not: the record that it may have started comes after.
func (p *planner) permitted(c Call, t ToolSpec) bool {
	if !p.d.Attempt.Permits {
		return true
	}
	if !slices.Contains(p.d.acquiring, c.ID) {
		p.d.acquiring = append(p.d.acquiring, c.ID)
		p.single("permit "+c.ID, AcquirePermit{Call: c.ID, Group: t.Group})
		return false
	}
	return !p.d.pending["permit "+c.ID]
}

// waitsForHost reports whether calls wait for the host's word or for a permit.
func (d *Desk) waitsForHost() bool {
	return d.pending["authorize"] || slices.ContainsFunc(d.acquiring, func(id string) bool { return d.pending["permit "+id] })
}

// notePermit keeps a permit for its call. One that was not given is asked for
// again, if anybody still wants it.
func (d *Desk) notePermit(f PermitHeld) {
	d.end("permit " + f.Call)
	if !f.Held {
		d.acquiring = slices.DeleteFunc(d.acquiring, func(id string) bool { return id == f.Call })
	}
}
