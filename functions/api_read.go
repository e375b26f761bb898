package functions

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/docs"
)

// defaultPage is how many conversations a page lists when nothing is said.
const defaultPage = 50

// MaxWait is the longest a request for progress waits; a caller asks again.
const MaxWait = 60 * time.Second

func (a *api) lane(r *http.Request) journal.Lane {
	tenant, _ := a.caller(r)
	return journal.Lane{Tenant: tenant, Conversation: r.PathValue("conversation")}
}

func (a *api) status(w http.ResponseWriter, r *http.Request) error {
	lane := a.lane(r)
	st, err := a.admit.Admitter().Status(r.Context(), lane)
	if err != nil {
		return err
	}
	out := statusOf(st)
	if st.Latest != nil && st.Latest.Output.Aside != nil {
		// Its row has the same outcome and a way to the payload, once the
		// outcome is handed over.
		if p, err := a.admit.Admitter().Await(ended(r.Context()), lane.Tenant, out.Latest.Submission, engine.UntilSettled); err == nil {
			out.Latest.Output = p.Output
		}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func statusOf(st engine.Status) wire.Status {
	out := wire.Status{Conversation: st.Conversation, State: string(st.State), Epoch: st.Epoch, Queued: st.Queued, Damaged: st.Damaged}
	if run := st.Active; run != nil {
		out.Active = &wire.Active{Submission: run.Submission, Agent: run.Agent, Turn: run.Turn, Attempts: run.Attempts,
			StartedAt: run.StartedAt, Deadline: run.Deadline, Usage: run.Usage, Aborting: run.Aborting, Parked: waitOf(run.Waits)}
	}
	if st.Latest != nil {
		latest := outcome(st.Latest)
		latest.Conversation = st.Conversation
		out.Latest = &latest
	}
	return out
}

// conversations lists what there is, a page at a time, or what is active.
func (a *api) conversations(w http.ResponseWriter, r *http.Request) error {
	const op = "list"
	query := r.URL.Query()
	limit := defaultPage
	if given := query.Get("limit"); given != "" {
		var err error
		if limit, err = strconv.Atoi(given); err != nil || limit < 1 || limit > engine.MaxPage {
			return refuse(engine.KindInvalid, op, fmt.Sprintf("use a number from 1 to %d", engine.MaxPage), "limit %q is not possible", given)
		}
	}
	active, err := flag(op, query.Get("active"), "active", false)
	if err != nil {
		return err
	}
	tenant, _ := a.caller(r)
	var list []engine.Status
	out := wire.Conversations{Conversations: []wire.Status{}}
	if active {
		list, err = a.admit.Admitter().Active(r.Context(), tenant)
	} else {
		list, out.Next, err = a.admit.Admitter().Conversations(r.Context(), tenant, query.Get("cursor"), limit)
	}
	if err != nil {
		return err
	}
	for _, st := range list {
		status := statusOf(st)
		if status.Latest != nil {
			status.Latest.Output = nil // a list says how it went, not what came out
		}
		out.Conversations = append(out.Conversations, status)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func waitOf(w *core.Wait) *wire.Wait {
	if w == nil {
		return nil
	}
	on := w.On
	if on == nil {
		on = []string{}
	}
	out := &wire.Wait{Reason: w.Reason, Since: w.Since, Until: w.Until, On: on}
	for _, c := range w.Calls {
		call := wire.WaitCall{Call: c.ID, Tool: c.Tool, Args: c.Args.Inline, Operation: c.Operation}
		if c.Phase == core.Unknown {
			call.Reason = c.UnknownAs
		}
		out.Calls = append(out.Calls, call)
	}
	return out
}

// outcome is a settled run without an output that is stored aside.
func outcome(o *record.RunSettled) wire.Progress {
	return wire.Progress{Status: string(o.Status), Submission: o.Run, FinishReason: o.FinishReason, Exhausted: o.Exhausted,
		PolicyLimit: o.PolicyLimit, Output: o.Output.Inline, Error: o.Error, Usage: o.Usage, Attempts: o.Attempts, Turns: o.Turns}
}

// ended is a context that does not wait.
func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func (a *api) progress(w http.ResponseWriter, r *http.Request) error {
	const op = "await"
	query := r.URL.Query()
	until := engine.Until(query.Get("until"))
	switch until {
	case "":
		until = engine.UntilSettled
	case engine.UntilSettled, engine.UntilParked:
	default:
		return refuse(engine.KindInvalid, op, "use until=settled or until=parked", "unknown until %q", until)
	}
	ctx := ended(r.Context())
	if given := query.Get("wait"); given != "" {
		wait, err := time.ParseDuration(given)
		if err != nil || wait < 0 {
			return refuse(engine.KindInvalid, op, "use a duration such as wait=20s", "wait %q is no duration", given)
		}
		if wait > 0 {
			waiting, cancel := context.WithTimeout(r.Context(), min(wait, MaxWait))
			defer cancel()
			ctx = waiting
		}
	}
	lane := a.lane(r)
	p, err := a.admit.Admitter().Await(ctx, lane.Tenant, r.PathValue("run"), until)
	if err != nil {
		return err
	}
	if lane.Conversation != "" && p.Conversation != lane.Conversation {
		return refuse(engine.KindNotFound, op, "", "no submission %q in conversation %q", p.Submission, lane.Conversation)
	}
	out := wire.Progress{Status: p.Status, Usage: p.Usage, Attempts: p.Attempts, Turns: p.Turns, Parked: waitOf(p.Waits)}
	if p.Outcome != nil {
		out = outcome(p.Outcome)
		out.Output = p.Output
	}
	out.Submission, out.Conversation = p.Submission, p.Conversation
	writeJSON(w, http.StatusOK, out)
	return nil
}

// records streams one batch for each line. A listing that breaks off ends in a
// line that is a problem document.
func (a *api) records(w http.ResponseWriter, r *http.Request) error {
	lane := a.lane(r)
	if err := a.admit.Admitter().Exists(r.Context(), lane); err != nil {
		return err
	}
	begun, rc := false, http.NewResponseController(w)
	for b, err := range a.admit.Admitter().Records(r.Context(), lane) {
		var line []byte
		if err == nil {
			line, err = b.JSON()
		}
		if err != nil && !begun {
			return err
		}
		if err != nil {
			if line, err = encode(problem("records", err)); err != nil {
				return nil
			}
		}
		begun = beginLines(w, begun)
		_ = rc.SetWriteDeadline(time.Now().Add(a.opts.Stall)) // for each line, not for all of them
		if _, err := w.Write(append(line, '\n')); err != nil {
			return nil // the caller is gone
		}
	}
	beginLines(w, begun)
	return nil
}

func beginLines(w http.ResponseWriter, begun bool) bool {
	if !begun {
		w.Header().Set("Content-Type", wire.TypeLines)
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
	}
	return true
}

func (a *api) verify(w http.ResponseWriter, r *http.Request) error {
	v, err := a.admit.Admitter().Verify(r.Context(), a.lane(r))
	if err != nil {
		return err
	}
	if v.Violations == nil {
		v.Violations = []string{}
	}
	writeJSON(w, http.StatusOK, wire.Verification{OK: v.OK, Batches: v.Batches, Head: v.Head, FirstBad: v.FirstBad, Violations: v.Violations})
	return nil
}

func (a *api) approvals(w http.ResponseWriter, r *http.Request) error {
	tenant, _ := a.caller(r)
	pending, err := a.admit.Admitter().Approvals(r.Context(), tenant)
	if err != nil {
		return err
	}
	out := wire.Approvals{Approvals: []wire.Approval{}}
	for _, p := range pending {
		out.Approvals = append(out.Approvals, wire.Approval{ID: p.ID, Conversation: p.Conversation, Submission: p.Submission, Call: p.Call,
			Tool: p.Tool, ToolVersion: p.ToolVersion, ArgsDigest: p.ArgsDigest, Args: p.Args, RequestedAt: p.RequestedAt, ExpiresAt: p.ExpiresAt})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (a *api) agents(w http.ResponseWriter, _ *http.Request) error {
	out := wire.Agents{Agents: []wire.Agent{}}
	for _, f := range a.admit.Admitter().Agents() {
		agent := wire.Agent{Name: f.Name, Version: f.Version, Description: f.Description, Digest: f.Digest,
			Input: f.Input, Output: f.Output, Limits: f.Limits}
		for _, t := range f.Tools {
			agent.Tools = append(agent.Tools, wire.Tool(t))
		}
		out.Agents = append(out.Agents, agent)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// openapi is the description of this API.
func (a *api) openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(docs.OpenAPI) // the caller is gone
	return nil
}
