package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Run is one submission of a Host.
type Run struct {
	h    *Host
	lane journal.Lane
	id   string
}

// ID is the submission's id.
func (r *Run) ID() string { return r.id }

// Conversation is where the run belongs.
func (r *Run) Conversation() string { return r.lane.Conversation }

// Progress is where the run stands.
func (r *Run) Progress() engine.Progress {
	r.h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // say how it is now
	p, err := r.h.admitter.Await(ctx, tenant, r.id, engine.UntilSettled)
	r.h.must("progress", err)
	return p
}

// describe says how a run ended or what it waits for, for messages.
func describe(p engine.Progress) string {
	switch {
	case p.Outcome != nil && p.Outcome.Error != nil:
		err := p.Outcome.Error
		text := p.Status + " with " + err.Kind + ": " + err.Message
		if err.Hint != "" {
			text += " (" + err.Hint + ")"
		}
		return text
	case p.Waits != nil:
		return p.Status + ", waiting for " + string(p.Waits.Reason)
	}
	return p.Status
}

// Completed requires that the run completed, and decodes its output into out
// unless that is nil.
func (r *Run) Completed(out any) {
	r.h.t.Helper()
	p := r.Progress()
	if p.Status != "completed" {
		r.h.t.Fatalf("agenttest: the run is %s; it should have completed\n%s", describe(p), r.story())
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(p.Output, out); err != nil {
		r.h.t.Fatalf("agenttest: the output %s does not decode: %v", p.Output, err)
	}
}

// Failed requires that the run failed with an error of this kind.
func (r *Run) Failed(kind string) {
	r.h.t.Helper()
	if p := r.Progress(); p.Status != "failed" || p.Outcome.Error == nil || p.Outcome.Error.Kind != kind {
		r.h.t.Fatalf("agenttest: the run is %s; it should have failed with %s\n%s", describe(p), kind, r.story())
	}
}

// Aborted requires that the run was aborted.
func (r *Run) Aborted() {
	r.h.t.Helper()
	if p := r.Progress(); p.Status != "aborted" {
		r.h.t.Fatalf("agenttest: the run is %s; it should have been aborted\n%s", describe(p), r.story())
	}
}

// Parked requires that the run waits for this: approval, unknown, backoff, held
// and the other park reasons.
func (r *Run) Parked(reason string) {
	r.h.t.Helper()
	if p := r.Progress(); p.Waits == nil || string(p.Waits.Reason) != reason {
		r.h.t.Fatalf("agenttest: the run is %s; it should wait for %s\n%s", describe(p), reason, r.story())
	}
}

// Approve says yes to the oldest pending call of this tool and works on.
func (r *Run) Approve(tool string) {
	r.h.t.Helper()
	r.decide(tool, true, "")
}

// Deny says no to the oldest pending call of this tool and works on.
func (r *Run) Deny(tool, reason string) {
	r.h.t.Helper()
	r.decide(tool, false, reason)
}

func (r *Run) decide(tool string, yes bool, reason string) {
	r.h.t.Helper()
	all, err := r.h.admitter.Approvals(context.Background(), tenant)
	r.h.must("approvals", err)
	for _, a := range all {
		if a.Submission != r.id || a.Tool != tool {
			continue
		}
		again := r.h.decided[a.ID] // before a crash that may have hit it
		r.h.decided[a.ID] = true
		_, err := r.h.admitter.Decide(context.Background(), engine.DecisionRequest{Tenant: tenant, Principal: principal,
			Approval: a.ID, Approve: yes, Reason: reason, ArgsDigest: a.ArgsDigest})
		if err != nil && r.h.Killed() {
			return
		}
		var refused *engine.Error
		if again && errors.As(err, &refused) && refused.Kind == engine.KindDecided {
			err = nil
		}
		r.h.must("decide about "+tool, err)
		r.h.Work()
		return
	}
	r.h.t.Fatalf("agenttest: no call of %s waits for approval; the run is %s", tool, describe(r.Progress()))
}

// Abort asks to end the run and works on.
func (r *Run) Abort(reason string) {
	r.h.t.Helper()
	_, err := r.h.admitter.RequestAbort(context.Background(), engine.AbortRequest{Tenant: tenant, Principal: principal,
		Conversation: r.lane.Conversation, Submission: r.id, Reason: reason})
	r.h.must("abort", err)
	r.h.Work()
}

// Resolve answers, as an operator, what became of the call of this tool whose
// outcome is unknown, and works on. result is what a call that happened returned.
func (r *Run) Resolve(tool string, resolution record.Resolution, result any) {
	r.h.t.Helper()
	req := engine.ResolveRequest{Tenant: tenant, Principal: principal, Conversation: r.lane.Conversation, Resolution: resolution}
	if resolution == record.Happened {
		raw, err := json.Marshal(result)
		r.h.must("result", err)
		req.Result = raw
	}
	state := r.state()
	if state.Run != nil {
		for _, c := range state.Run.Calls {
			if c.Tool == tool && c.Phase == core.Unknown {
				req.Call = c.ID
				r.h.must("resolve "+tool, r.h.admitter.Resolve(context.Background(), req))
				r.h.Work()
				return
			}
		}
	}
	r.h.t.Fatalf("agenttest: no call of %s has an unknown outcome; the run is %s", tool, describe(r.Progress()))
}

// Records are the facts the conversation's log holds, in order.
func (r *Run) Records() []record.Record {
	r.h.t.Helper()
	var all []record.Record
	for b, err := range r.h.admitter.Records(context.Background(), r.lane) {
		r.h.must("records", err)
		all = append(all, b.Records...)
	}
	return all
}

func (r *Run) state() *core.State {
	r.h.t.Helper()
	s := &core.State{}
	for b, err := range r.h.admitter.Records(context.Background(), r.lane) {
		r.h.must("records", err)
		r.h.must("fold", core.Fold(s, b))
	}
	return s
}

// Messages are what this run added to the conversation, every payload inline:
// its instructions and input, each response, and the results behind it.
func (r *Run) Messages() []record.Message {
	r.h.t.Helper()
	row, err := r.h.journal.Submission(context.Background(), tenant, r.id)
	r.h.must("submission", err)
	var out []record.Message
	for _, e := range r.state().History {
		if e.Run != r.id {
			continue
		}
		msg, err := record.MapMessage(e.Message, func(v record.Value) (record.Value, error) {
			if v.Aside == nil {
				return v, nil
			}
			body, err := r.h.journal.Payload(context.Background(), tenant, v.Aside.SHA256)
			return record.Value{Inline: body}, err
		})
		r.h.must("message", err)
		for i, p := range msg.Parts {
			if _, ok := p.(record.InputPart); ok {
				msg.Parts = append(record.Parts(nil), msg.Parts...)
				msg.Parts[i] = record.TextPart{Text: record.Value{Inline: row.Input}}
			}
		}
		out = append(out, msg)
	}
	return out
}

// Transcript renders the run's messages, one part on a line, without the
// instructions:
//
//	user: {"city":"Oslo"}
//	assistant: get_weather {"city":"Oslo"}
//	tool: get_weather {"celsius":3}
//	assistant: Take a coat.
//
// Reasoning is left out; a failed result has "failed" in front.
func (r *Run) Transcript() string {
	r.h.t.Helper()
	var out strings.Builder
	line := func(role record.Role, text ...string) {
		out.WriteString(string(role) + ": " + strings.Join(text, " ") + "\n")
	}
	for _, m := range r.Messages() {
		if m.Role == record.System {
			continue
		}
		for _, p := range m.Parts {
			switch p := p.(type) {
			case record.TextPart:
				line(m.Role, p.Text.Text())
			case record.ToolCallPart:
				line(m.Role, p.Tool, string(p.Args.Inline))
			case record.ToolResultPart:
				if p.Failed {
					line(m.Role, p.Tool, "failed", string(p.Result.Inline))
				} else {
					line(m.Role, p.Tool, string(p.Result.Inline))
				}
			case record.MediaPart:
				line(m.Role, "["+p.MediaType+"]")
			}
		}
	}
	return out.String()
}

// story is the transcript for messages, with what went wrong on the way.
func (r *Run) story() string {
	r.h.t.Helper()
	var out strings.Builder
	out.WriteString(r.Transcript())
	for _, e := range r.h.UserErrors() {
		if e.Run == r.id || e.Run == "" && e.Conversation == r.lane.Conversation {
			fmt.Fprintf(&out, "error in %s: %v\n", e.Where, e.Err)
		}
	}
	return out.String()
}

// Said requires the transcript to be this. Leading and trailing space of both,
// and indentation, do not count.
func (r *Run) Said(want string) {
	r.h.t.Helper()
	got, wanted := unindented(r.Transcript()), unindented(want)
	if !slices.Equal(got, wanted) {
		r.h.t.Fatalf("agenttest: the transcript is not what it should be (- should be there, + is there)\n%s", difference(wanted, got))
	}
}

func unindented(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// difference is b line for line, with those that only one of the two has marked.
func difference(a, b []string) string {
	common := make([][]int, len(a)+1) // lines that the rests of a and b share in order
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var out strings.Builder
	for len(a) > 0 || len(b) > 0 {
		i, j := len(common)-1-len(a), len(common[0])-1-len(b)
		switch {
		case len(a) > 0 && len(b) > 0 && a[0] == b[0]:
			out.WriteString("  " + a[0] + "\n")
			a, b = a[1:], b[1:]
		case len(b) == 0 || len(a) > 0 && common[i+1][j] >= common[i][j+1]:
			out.WriteString("- " + a[0] + "\n")
			a = a[1:]
		default:
			out.WriteString("+ " + b[0] + "\n")
			b = b[1:]
		}
	}
	return out.String()
}
