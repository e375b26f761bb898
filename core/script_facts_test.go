package core_test

import (
	"fmt"
	"strings"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// fact parses one fact line.
//
//	inbox [v=N] [ENTRY [; ENTRY…]]   submit ID INPUT | followup ID INPUT | steer SUBMISSION TEXT | approve ID | deny ID | abort SUBMISSION | resolve CALL RESOLUTION [RESULT] | late CALL OPERATION RESULT
//	decoded [PROBLEM] · instructions TEXT · prepared · woken · cancelled · delayed
//	model text TEXT | model calls ID:TOOL[:ARGS]… | model fail CLASS [retry=D] | model stop REASON
//	model ends STOP [WORD | ID:TOOL | !ID:TOOL | ?ID:TOOL]…   ! and ? the provider executed, ? failed
//	authorized CALL yes|no|error|cut [REASON] · permit CALL [no]
//	checked [ID=PROBLEM] · tool CALL OUTCOME [RESULT] · step CALL NAME RESULT
//	reconciled CALL RESOLUTION [RESULT] · concluded JSON | concluded error · exceeded LIMIT
func (p *play) fact(line string) core.Fact {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "inbox":
		return p.inbox(rest)
	case "decoded":
		return core.InputDecoded{Problem: rest}
	case "instructions":
		if rest == "error" {
			return core.InstructionsReady{Err: &record.Error{Kind: core.InstructionsError, Message: "could not be evaluated"}}
		}
		return core.InstructionsReady{Text: rest}
	case "prepared":
		return core.ContextPrepared{Digest: "req"}
	case "woken":
		return core.Woken{}
	case "cancelled":
		return core.Cancelled{}
	case "delayed":
		return core.Delayed{}
	case "authorized":
		f := append(strings.Fields(rest), "")
		a := core.Authorized{Call: f[0], Allowed: f[1] == "yes", Interrupted: f[1] == "cut", Reason: f[2]}
		if f[1] == "error" {
			a.Err = &record.Error{Kind: core.AuthorizationFailed, Message: "could not say"}
		}
		return a
	case "permit":
		call, no, _ := strings.Cut(rest, " ")
		return core.PermitHeld{Call: call, Held: no == ""}
	case "model":
		return p.model(rest)
	case "checked":
		return p.checked(rest)
	case "tool":
		call, how, _ := strings.Cut(rest, " ")
		outcome, result, _ := strings.Cut(how, " ")
		return toolEnded(call, outcome, result)
	case "step":
		f := strings.Fields(rest)
		return core.StepEnded{Call: f[0], Step: f[1], Result: p.value(f[2])}
	case "reconciled":
		f := strings.Fields(rest)
		r := core.Reconciled{Call: f[0]}
		if len(f) > 1 {
			r.Resolution = record.Resolution(f[1])
		}
		if len(f) > 2 {
			r.Outcome, r.Result = record.Succeeded, p.value(f[2])
		}
		return r
	case "concluded":
		if rest == "error" {
			return core.Concluded{Err: &record.Error{Kind: core.OutputError, Message: "not an output"}}
		}
		return core.Concluded{Output: p.value(rest)}
	case "exceeded":
		return core.EventsExceeded{Limit: int(mustUint(p.t, rest))}
	case "faulted":
		return core.Faulted{Where: "Instruct", Of: core.Instruct{}}
	}
	p.t.Fatalf("fact %q", line)
	return nil
}

func toolEnded(call, outcome, result string) core.ToolEnded {
	if result == "" {
		result = "null"
	}
	e := core.ToolEnded{Call: call, Outcome: record.Outcome(outcome), Result: record.MustValue(jsonRaw(result))}
	switch outcome {
	case "defect":
		e.Outcome, e.Defect, e.Tag = record.Infrastructure, true, core.Defect
	case "timeout":
		e.Outcome, e.TimedOut, e.Tag = record.Failed, true, "timeout"
	case "not-started":
		e.Outcome, e.NotStarted = record.Interrupted, true
	case "leaked":
		e.Outcome, e.TimedOut, e.Leaked, e.Tag = record.Failed, true, true, "Timeout"
	case "failure", "typed-failure":
		e.Tag = "Oops"
	case "infrastructure":
		e.Tag = "ResultEncoding"
	case "mock-defect":
		e.Outcome, e.Tag = record.Failed, core.Defect
	}
	return e
}

func (p *play) value(s string) record.Value {
	v, err := record.JSONValue([]byte(s))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

func (p *play) inbox(rest string) core.Fact {
	read := core.InboxRead{Version: 1}
	if v, after, ok := strings.Cut(rest, " "); strings.HasPrefix(v, "v=") {
		read.Version = mustUint(p.t, v[2:])
		if rest = ""; ok {
			rest = after
		}
	}
	for part := range strings.SplitSeq(rest, ";") {
		f := strings.Fields(part)
		if len(f) == 0 {
			continue
		}
		p.slot++
		e := core.InboxEntry{Slot: p.slot, By: "kim", At: p.now}
		switch f[0] {
		case "submit":
			id, agent, other := strings.Cut(f[1], "@")
			if !other {
				agent = "a"
			}
			e.Command = core.Submit{Submission: core.Submission{ID: id, Agent: agent, Principal: "kim", Input: p.value(f[2]), AdmittedAt: p.now}}
		case "followup":
			e.Command = core.Submit{Submission: core.Submission{ID: f[1], Agent: "a", Principal: "kim", Input: p.value(f[2]), FollowUp: true, AdmittedAt: p.now}}
		case "steer":
			e.Command = core.Steer{Submission: f[1], Key: fmt.Sprint("k", p.slot), Text: record.TextValue(strings.Join(f[2:], " "))}
		case "approve", "deny":
			d := core.Decide{Approval: f[1], Approve: f[0] == "approve"}
			if len(f) > 2 {
				d.ArgsDigest = f[2]
			}
			e.Command = d
		case "abort":
			e.Command = core.AbortRun{Submission: f[1], Reason: "enough"}
		case "resolve":
			id, run, _ := strings.Cut(f[1], "@")
			r := core.Resolve{Call: id, Run: run, Resolution: record.Resolution(f[2])}
			if len(f) > 3 {
				r.Result = p.value(f[3])
			}
			e.Command = r
		case "late":
			id, run, other := strings.Cut(f[1], "@")
			if !other {
				run = p.state.Run.ID
			}
			e.Command = core.Late{Run: run, Call: id, Operation: f[2], Outcome: record.Succeeded, Result: p.value(f[3])}
		default:
			p.t.Fatalf("inbox entry %q", part)
		}
		read.Entries = append(read.Entries, e)
	}
	return read
}

func (p *play) model(rest string) core.Fact {
	word, rest, _ := strings.Cut(rest, " ")
	in, out := int64(10), int64(2)
	resp := &core.Response{Usage: record.Usage{InputTokens: &in, OutputTokens: &out}, Stop: "stop", RawStop: "end_turn", Provider: "test", Model: "m"}
	switch word {
	case "text":
		resp.Message = record.TextMessage(record.Assistant, rest)
	case "stop":
		resp.Stop, resp.Message = rest, record.TextMessage(record.Assistant, "half an ans")
	case "calls":
		resp.Stop, resp.Message = "tool-calls", record.Message{Role: record.Assistant}
		for f := range strings.FieldsSeq(rest) {
			parts := strings.SplitN(f, ":", 3)
			args := "{}"
			if len(parts) == 3 {
				args = parts[2]
			}
			resp.Message.Parts = append(resp.Message.Parts, record.ToolCallPart{ID: parts[0], Tool: parts[1], Args: p.value(args)})
		}
	case "ends":
		stop, rest, _ := strings.Cut(rest, " ")
		resp.Stop, resp.Message = stop, p.mixed(rest)
	case "fail":
		f := strings.Fields(rest)
		failure := &core.ModelFailure{Class: f[0], Message: "it said no"}
		if len(f) > 1 {
			failure.RetryAfter = mustDuration(p.t, strings.TrimPrefix(f[1], "retry="))
		}
		return core.ModelEnded{Failure: failure}
	default:
		p.t.Fatalf("model %q", word)
	}
	p.last = resp
	return core.ModelEnded{Response: resp}
}

// mixed is a message of text words, calls ID:TOOL, and calls the provider executed,
// !ID:TOOL with a result, ?ID:TOOL with a failure, ~ID:TOOL with neither yet, and
// =ID:TOOL for the result of one before.
func (p *play) mixed(line string) record.Message {
	m := record.Message{Role: record.Assistant}
	for f := range strings.FieldsSeq(line) {
		id, tool, call := strings.Cut(strings.TrimLeft(f, "!?~="), ":")
		executed := strings.IndexByte("!?~=", f[0]) >= 0
		if !call {
			m.Parts = append(m.Parts, record.TextPart{Text: record.TextValue(f)})
			continue
		}
		if f[0] != '=' {
			m.Parts = append(m.Parts, record.ToolCallPart{ID: id, Tool: tool, Args: p.value("{}"), ProviderExecuted: executed})
		}
		if executed && f[0] != '~' {
			m.Parts = append(m.Parts, record.ToolResultPart{Call: id, Tool: tool, Result: p.value("1"), Failed: f[0] == '?', ProviderExecuted: true})
		}
	}
	return m
}

// checked gives every call of the last response a verdict.
func (p *play) checked(rest string) core.Fact {
	id, problem, _ := strings.Cut(rest, "=")
	var f core.CallsChecked
	for _, c := range p.last.Message.Calls() {
		if c.ProviderExecuted {
			continue
		}
		check := core.Check{Call: c.ID, ArgsDigest: "digest-" + c.ID}
		if c.ID == id {
			check.Problem = problem
		}
		f.Checks = append(f.Checks, check)
	}
	return f
}

type jsonRaw string

func (j jsonRaw) MarshalJSON() ([]byte, error) { return []byte(j), nil }
