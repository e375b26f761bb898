package agent

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/tool"
)

// Disabled switches a bound off where a field's comment allows it.
const Disabled = -1

// How many waiting steering commands, or follow-ups, one seam takes in.
const (
	// DrainOne takes in the oldest.
	DrainOne = core.DrainOne
	// DrainAll takes in everything, in order.
	DrainAll = core.DrainAll
)

// What happens when turns or tool calls run out.
const (
	// FinalAnswer asks the model once more, with tools forbidden.
	FinalAnswer = core.FinalAnswer
	// FailOnExhaustion fails the run.
	FailOnExhaustion = core.FailOnExhaustion
)

// What a response with an unknown tool or bad arguments does. In both cases
// none of its calls runs.
const (
	// ReturnInvalid tells the model what is wrong.
	ReturnInvalid = core.ReturnInvalid
	// FailInvalid fails the run.
	FailInvalid = core.FailInvalid
)

// Policy bounds one run. Zero fields mean the defaults; a submission can
// tighten limits and never widen them.
type Policy struct {
	// MaxTurns is the number of model responses; under FinalAnswer the one
	// final answer comes on top. Defaults to 12.
	MaxTurns int
	// MaxToolCalls is the number of started tool handlers, over all attempts.
	// Defaults to 24.
	MaxToolCalls int
	// MaxDuration is wall clock from the start of the run, waiting included.
	// Defaults to 24 h, or to 7 days when a tool requires approval.
	MaxDuration time.Duration
	// OnExhaustion defaults to FinalAnswer. It is about turns and tool calls;
	// a run past MaxDuration always fails.
	OnExhaustion core.Exhaustion
	// OnInvalidToolCall defaults to ReturnInvalid.
	OnInvalidToolCall core.InvalidCall
	// RepeatedFailureLimit is the number of failed calls in a row that fails
	// the run. Defaults to 3; Disabled switches the bound off.
	RepeatedFailureLimit int
	// ToolConcurrency is the number of handlers that run at once. Defaults to 4.
	ToolConcurrency int
	// Sequential runs the handlers of a run one after another: it is
	// ToolConcurrency 1, said louder.
	Sequential bool
	// GroupConcurrency bounds the handlers of a tool group (tool.Group) that one
	// run has at once. A group without an entry is bounded by ToolConcurrency.
	GroupConcurrency map[string]int
	// ModelRetries is how often one attempt asks again, within seconds, after
	// a transient failure of the provider. When they are used up the run parks
	// and asks again later, with growing pauses, until it gives up after 10
	// pauses in a row or MaxDuration ends. Defaults to 2; Disabled means none.
	ModelRetries int
	// ApprovalExpiry is how long an approval may stay unanswered. Defaults to
	// the rest of MaxDuration, beyond which it cannot go.
	ApprovalExpiry time.Duration

	// TokenBudget bounds the gross tokens of one run.
	// Not supported yet: refused unless zero.
	TokenBudget int64
	// CostBudgetMicroUSD bounds the cost of one run, in millionths of a dollar.
	// Not supported yet: refused unless zero.
	CostBudgetMicroUSD int64
	// ContextTokenLimit bounds the tokens of one request.
	// Not supported yet: refused unless zero.
	ContextTokenLimit int
	// CompletionReserveTokens are kept back for the final answer.
	// Not supported yet: refused unless zero.
	CompletionReserveTokens int
	// KeepRecentTokens are what a compaction leaves as they are.
	// Not supported yet: refused unless zero.
	KeepRecentTokens int
	// Compaction is off or summarize.
	// Not supported yet: refused unless zero.
	Compaction string
	// RunStatus shows the model what is left of its budgets.
	// Not supported yet: refused unless zero.
	RunStatus bool
	// ToolResultBounds bounds the JSON of a tool result, in bytes: over it the
	// model and the records get the result's head, tail and size. Results of
	// tools the provider executes are exempt. From tool.MinResultBound to 1 MiB.
	// Defaults to tool.DefaultResultBound.
	ToolResultBounds int
	// BudgetHook is a hard limit that code decides about.
	// Not supported yet: refused unless zero.
	BudgetHook any
	// DrainPolicy is how many waiting commands are taken in between two model
	// requests: DrainOne or DrainAll. Defaults to DrainOne.
	DrainPolicy core.Drain
	// Price is what the model's tokens cost.
	// Not supported yet: refused unless zero.
	Price any
}

// PolicyError names the field of a Policy that is refused, and why.
type PolicyError struct {
	Field  string
	Reason string
}

func (e *PolicyError) Error() string { return fmt.Sprintf("policy field %s: %s", e.Field, e.Reason) }

// The defaults, and ceilings that tell a limit from a slip of the keyboard.
const (
	defaultTurns       = 12
	defaultToolCalls   = 24
	defaultFailures    = 3
	defaultConcurrency = 4
	defaultRetries     = 2

	defaultDuration  = 24 * time.Hour
	approvalDuration = 7 * 24 * time.Hour

	maxCount       = 100_000
	maxConcurrency = 1024
	maxRetries     = 100
	maxResultBound = 1 << 20
	maxDuration    = 366 * 24 * time.Hour
)

// resolve fills in the defaults and lists every refused field.
func (p Policy) resolve(approvals bool) (core.Policy, []error) {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, &PolicyError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	for _, field := range p.unsupported() {
		refuse(field, "not supported yet")
	}
	count := func(field string, value, otherwise, ceiling int, canDisable bool) int {
		switch {
		case value == 0:
			return otherwise
		case value == Disabled && canDisable:
			return 0
		case value < 0:
			refuse(field, "%d is negative", value)
		case value > ceiling:
			refuse(field, "%d is over %d", value, ceiling)
		}
		return value
	}
	duration := func(field string, value, otherwise time.Duration) time.Duration {
		switch {
		case value == 0:
			return otherwise
		case value < 0:
			refuse(field, "%s is negative", value)
		case value > maxDuration:
			refuse(field, "%s is over %s", value, maxDuration)
		default:
			return value
		}
		return 0 // nothing to compare others with
	}
	lifetime := defaultDuration
	if approvals {
		lifetime = approvalDuration
	}
	out := core.Policy{
		MaxTurns:             count("MaxTurns", p.MaxTurns, defaultTurns, maxCount, false),
		MaxToolCalls:         count("MaxToolCalls", p.MaxToolCalls, defaultToolCalls, maxCount, false),
		MaxDuration:          duration("MaxDuration", p.MaxDuration, lifetime),
		OnExhaustion:         p.OnExhaustion,
		OnInvalidCall:        p.OnInvalidToolCall,
		RepeatedFailureLimit: count("RepeatedFailureLimit", p.RepeatedFailureLimit, defaultFailures, maxCount, true),
		ToolConcurrency:      count("ToolConcurrency", p.ToolConcurrency, defaultConcurrency, maxConcurrency, false),
		ModelRetries:         count("ModelRetries", p.ModelRetries, defaultRetries, maxRetries, true),
		ApprovalExpiry:       duration("ApprovalExpiry", p.ApprovalExpiry, 0),
		Drain:                p.DrainPolicy,
		ResultBound:          count("ToolResultBounds", p.ToolResultBounds, tool.DefaultResultBound, maxResultBound, false),
		Groups:               maps.Clone(p.GroupConcurrency),
	}
	if out.ResultBound >= 0 && out.ResultBound < tool.MinResultBound {
		refuse("ToolResultBounds", "%d is below %d", out.ResultBound, tool.MinResultBound)
	}
	if p.Sequential {
		if p.ToolConcurrency > 1 {
			refuse("Sequential", "it contradicts ToolConcurrency %d", p.ToolConcurrency)
		}
		out.ToolConcurrency = 1
	}
	for _, group := range slices.Sorted(maps.Keys(p.GroupConcurrency)) {
		if n := p.GroupConcurrency[group]; n <= 0 || n > maxConcurrency {
			refuse("GroupConcurrency", "%d for group %q: from 1 to %d", n, group, maxConcurrency)
		}
	}
	out.OnExhaustion = either(refuse, "OnExhaustion", out.OnExhaustion, FinalAnswer, FailOnExhaustion)
	out.Drain = either(refuse, "DrainPolicy", out.Drain, DrainOne, DrainAll)
	out.OnInvalidCall = either(refuse, "OnInvalidToolCall", out.OnInvalidCall, ReturnInvalid, FailInvalid)
	if out.MaxDuration > 0 && out.ApprovalExpiry > out.MaxDuration {
		refuse("ApprovalExpiry", "%s is beyond MaxDuration (%s): the run would be over before", out.ApprovalExpiry, out.MaxDuration)
	}
	return out, errs
}

// either is a choice of two, the first of which is the default.
func either[T ~string](refuse func(field, format string, args ...any), field string, value, first, second T) T {
	switch value {
	case "":
		return first
	case first, second:
	default:
		refuse(field, "%q is neither %q nor %q", value, first, second)
	}
	return value
}

// unsupported names the fields in use that no stage of the engine honours yet:
// a limit that is silently not kept would be worse than none.
func (p Policy) unsupported() []string {
	var fields []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"TokenBudget", p.TokenBudget != 0},
		{"CostBudgetMicroUSD", p.CostBudgetMicroUSD != 0},
		{"ContextTokenLimit", p.ContextTokenLimit != 0},
		{"CompletionReserveTokens", p.CompletionReserveTokens != 0},
		{"KeepRecentTokens", p.KeepRecentTokens != 0},
		{"Compaction", p.Compaction != ""},
		{"RunStatus", p.RunStatus},
		{"BudgetHook", p.BudgetHook != nil},
		{"Price", p.Price != nil},
	} {
		if f.set {
			fields = append(fields, f.name)
		}
	}
	return fields
}
