package core

import (
	"slices"

	"github.com/layover-run/layover/core/record"
)

// startable reports whether a call may be executed by this attempt: it never
// was, or its earlier attempt is gone and its class lets it run again.
func (p *planner) startable(c Call) bool {
	again := c.Phase == Prepared && c.Class != record.Uncertain && c.Prepared.Attempt != p.d.Attempt.ID
	return c.Phase == Declared || again
}

// authorize asks the host about every call that may be executed, one after
// another in declaration order, and decides once all answers are in (RUN-031).
// Answers are never recorded: a new attempt asks again. True means the plan is
// complete.
func (p *planner) authorize() bool {
	if !p.d.Attempt.Authorizes {
		return false
	}
	r := p.s.Run
	var denied []Call
	for _, c := range r.Calls {
		if !p.startable(c) {
			continue
		}
		verdict, known := p.d.verdicts[c.ID]
		switch {
		case !known && (p.d.cancelled || p.d.stopping || !p.fits(0)):
			return false // without an answer nothing starts
		case !known:
			p.step("12 authorize")
			p.single("authorize", Authorize{Run: r.ID, Turn: r.Turn, Input: r.Input, Call: c.ID, Tool: c.Tool, Class: c.Class, Args: c.Args})
			return true
		case !verdict.Allowed:
			denied = append(denied, c)
		}
	}
	for _, c := range denied {
		p.emit(unauthorized(c, p.d.verdicts[c.ID].Reason))
	}
	return len(denied) > 0 && p.ending()
}

// authorized reports whether a call may start as far as the host is concerned.
func (p *planner) authorized(c Call) bool {
	return !p.d.Attempt.Authorizes || p.d.verdicts[c.ID].Allowed
}

// unauthorized settles a call the host denied. A call that an earlier attempt
// may have executed is not called unexecuted.
func unauthorized(c Call, reason string) record.CallSettled {
	message := "the call was not authorized"
	if reason != "" {
		message += ": " + clip(reason)
	}
	settled := record.CallSettled{Call: c.ID, Outcome: record.DeniedCall, Tag: record.NotAuthorized, Result: failure(record.NotAuthorized, message)}
	if c.Starts == 0 {
		settled.Synthetic = record.NotAuthorized
	}
	return settled
}

// unanswered is the failure of a host that could not say whether a call is
// authorized: the run fails, because nothing starts without a yes (AUTH-07).
func (d *Desk) unanswered() *record.Error {
	for _, id := range d.asked {
		if err := d.verdicts[id].Err; err != nil {
			return err
		}
	}
	return nil
}

// noteAuthorized keeps an answer. A question that was cut off has none.
func (d *Desk) noteAuthorized(f Authorized) {
	d.end("authorize")
	if f.Interrupted {
		return
	}
	if d.verdicts == nil {
		d.verdicts = map[string]Authorized{}
	}
	d.verdicts[f.Call] = f
	if !slices.Contains(d.asked, f.Call) {
		d.asked = append(d.asked, f.Call)
	}
}
