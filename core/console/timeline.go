package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/record"
)

// timeline is a conversation as a person reads it, folded from its events.
type timeline struct {
	Runs []*run
	Last string // id of the last event
}

type run struct {
	ID, Agent, Principal string
	State                string // running, parked, completed, failed or aborted
	Input                json.RawMessage
	InputAside           *record.Ref
	Started, Ended       time.Time
	Attempts             int
	Usage                record.Usage
	Turns                []*turn
	Output               json.RawMessage
	OutputAside          *record.Ref
	Error                *record.Error
	Exhausted            string
	Waits                *event.RunSuspended
	before               []note // until there is a turn
}

type turn struct {
	N         int
	At        time.Time
	Text      string
	TextAside []record.Ref
	Model     string
	Stop      string
	Usage     record.Usage
	Calls     []*call
	Notes     []note
	Epoch     uint64
}

// call is one call of a tool, from its declaration to its end.
type call struct {
	ID, Tool      string
	Args          json.RawMessage
	ArgsAside     *record.Ref
	State         string // declared, waiting, denied, running, unknown, succeeded or failed
	Problem       string
	Result        json.RawMessage
	ResultAside   *record.Ref
	Truncated     int
	Took          *time.Duration
	Executions    int
	Outcome       string
	Source        string
	Provider      bool // the provider runs it
	Approval      string
	DecidedAs     string
	DecidedBy     string
	DecidedReason string
}

// note is something that happened beside the calls of a turn.
type note struct {
	At   time.Time
	What string
	Text json.RawMessage
}

// add folds the next event.
func (t *timeline) add(id string, raw json.RawMessage) error {
	var e event.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		if errors.Is(err, event.ErrUnknownKind) {
			t.Last = id
			return nil // of a newer server
		}
		return err
	}
	t.Last = id
	if started, ok := e.Data.(event.RunStarted); ok {
		t.Runs = append(t.Runs, &run{ID: e.Run, Agent: e.Agent, Principal: started.Principal, State: "running", Started: e.At})
		return nil
	}
	r := t.run(e)
	r.add(e)
	return nil
}

// run finds the run of an event. One that was aborted before it began has its
// end only.
func (t *timeline) run(e event.Event) *run {
	for i := len(t.Runs) - 1; i >= 0; i-- {
		if t.Runs[i].ID == e.Run {
			return t.Runs[i]
		}
	}
	r := &run{ID: e.Run, Agent: e.Agent, Started: e.At}
	t.Runs = append(t.Runs, r)
	return r
}

func (r *run) add(e event.Event) {
	switch d := e.Data.(type) {
	case event.RunSuspended:
		r.State, r.Waits = "parked", &d
		r.callsOf(d, "running", "unknown")
	case event.RunCompleted:
		r.State, r.Ended, r.Waits, r.Attempts, r.Usage = "completed", e.At, nil, d.Attempts, d.Usage
		r.Output, r.OutputAside, r.Exhausted = d.Output, d.OutputAside, d.Exhausted
		r.sayOnce()
	case event.RunFailed:
		r.State, r.Ended, r.Waits, r.Attempts, r.Usage = "failed", e.At, nil, d.Attempts, d.Usage
		r.Error, r.Exhausted = &d.Error, d.Exhausted
	case event.RunInterrupted:
		r.State, r.Ended, r.Waits, r.Attempts, r.Usage, r.Error = "aborted", e.At, nil, d.Attempts, d.Usage, d.Error
	default:
		r.State, r.Waits = "running", nil
		r.inside(e)
	}
}

// callsOf gives the calls that a run waits to hear about another state.
func (r *run) callsOf(d event.RunSuspended, from, to string) {
	if d.Reason != "unknown" {
		return
	}
	for _, t := range r.Turns {
		for _, c := range t.Calls {
			if c.State == from && slices.Contains(d.On, c.ID) {
				c.State = to
			}
		}
	}
}

// sayOnce drops what a page would show twice: an output is most often what the
// last response said.
func (r *run) sayOnce() {
	if len(r.Turns) == 0 || len(r.Output) == 0 {
		return
	}
	last := r.last()
	var text string
	if json.Unmarshal(r.Output, &text) == nil {
		if text == last.Text {
			r.Output = nil
		}
		return
	}
	var said, out bytes.Buffer
	if json.Compact(&said, []byte(last.Text)) == nil && json.Compact(&out, r.Output) == nil && bytes.Equal(said.Bytes(), out.Bytes()) {
		last.Text = ""
	}
}

func (r *run) inside(e event.Event) {
	switch d := e.Data.(type) {
	case event.TurnStarted:
		r.Turns = append(r.Turns, &turn{N: e.Turn, At: e.At, Epoch: e.Epoch, Notes: r.before})
		r.before = nil
	case event.ResponseCompleted:
		t := r.last()
		t.Text, t.TextAside, t.Model, t.Stop, t.Usage = d.Text, d.TextAside, strings.TrimLeft(d.Provider+" "+d.Model, " "), d.Stop, d.Usage
		r.Usage = r.Usage.Add(d.Usage)
	case event.SteeringApplied:
		r.note(e.At, "steered by "+d.By, d.Text)
	case event.FollowUpApplied:
		r.note(e.At, "a follow-up joined", d.Text)
	case event.ContextCompacted:
		r.note(e.At, "earlier history was condensed", nil)
	case event.BudgetWarning:
		r.note(e.At, fmt.Sprintf("%d of %d %s are used", d.Used, d.Limit, d.Dimension), nil)
	default:
		r.callEvent(e)
	}
}

func (r *run) callEvent(e event.Event) {
	c := r.leftOpen(e)
	if c == nil {
		c = r.call(e.Call)
	}
	switch d := e.Data.(type) {
	case event.ToolCallDeclared:
		c.Tool, c.Args, c.ArgsAside, c.Provider, c.Problem = d.Tool, d.Args, d.ArgsAside, d.ProviderExecuted, d.Problem
		if c.State = "declared"; d.Problem != "" {
			c.State = "failed"
		}
	case event.ApprovalRequested:
		c.State, c.Approval = "waiting", d.Approval
	case event.ApprovalResolved:
		c.State, c.DecidedAs, c.DecidedBy, c.DecidedReason = "declared", string(d.Decision), d.By, d.Reason
		if d.Decision != record.Approved {
			c.State = "denied"
		}
	case event.ToolCallStarted:
		c.State, c.Executions = "running", d.Execution
	case event.ToolCallSucceeded:
		c.State, c.Result, c.ResultAside, c.Truncated, c.Source = "succeeded", d.Result, d.ResultAside, d.Truncated, d.Source
		c.took(d.DurationMs)
	case event.ToolCallFailed:
		if c.State != "denied" {
			c.State = "failed"
		}
		c.Result, c.ResultAside, c.Source, c.Outcome = d.Result, d.ResultAside, d.Source, string(d.Outcome)
		c.took(d.DurationMs)
	}
}

func (c *call) took(ms *int64) {
	if ms != nil {
		d := time.Duration(*ms) * time.Millisecond
		c.Took = &d
	}
}

// last is the turn that is under way.
func (r *run) last() *turn {
	if len(r.Turns) == 0 {
		r.Turns = append(r.Turns, &turn{})
	}
	return r.Turns[len(r.Turns)-1]
}

func (r *run) note(at time.Time, what string, text json.RawMessage) {
	n := note{At: at, What: what, Text: text}
	if len(r.Turns) == 0 {
		r.before = append(r.before, n)
		return
	}
	t := r.last()
	t.Notes = append(t.Notes, n)
}

// leftOpen is the call of an earlier turn that an event answers: the provider may
// leave one of its own open, and bring its result with a later response.
func (r *run) leftOpen(e event.Event) *call {
	switch d := e.Data.(type) {
	case event.ToolCallSucceeded:
		if !d.ProviderExecuted {
			return nil
		}
	case event.ToolCallFailed:
		if !d.ProviderExecuted {
			return nil
		}
	default:
		return nil
	}
	for _, t := range slices.Backward(r.Turns) {
		for _, c := range t.Calls {
			if c.ID == e.Call && c.Provider && c.State == "declared" {
				return c
			}
		}
	}
	return nil
}

func (r *run) call(id string) *call {
	t := r.last()
	for _, c := range t.Calls {
		if c.ID == id {
			return c
		}
	}
	c := &call{ID: id}
	if id != "" {
		t.Calls = append(t.Calls, c)
	}
	return c
}

// Notes that came before any turn.
func (r *run) Before() []note { return r.before }

// Took is how long a settled run lasted, waiting included.
func (r *run) Took() time.Duration {
	if r.Ended.IsZero() {
		return 0
	}
	return r.Ended.Sub(r.Started)
}
