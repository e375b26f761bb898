package core

import (
	"time"

	"github.com/layover-run/layover/core/record"
)

// Spec is an agent definition as plain data: everything the transitions need
// to know about it. User functions live outside, in the interpreter's hooks.
// A Spec is immutable once a run uses it.
type Spec struct {
	Agent string
	// Version is the author's version of the definition.
	Version string
	// Digest pins the definition: runs record it when they start.
	Digest string
	Policy Policy
	// Tools in the order the author gave them; names are unique.
	Tools []ToolSpec
	// ProviderTools names the tools the provider may execute itself.
	ProviderTools []string
	// Contract is the output contract the model is shown; empty for free text.
	Contract string
}

// Policy holds the limits of a definition, defaults filled in. Durations are
// wall clock.
type Policy struct {
	MaxTurns             int           // model responses of one run
	MaxToolCalls         int           // started handlers of one run, across attempts
	MaxDuration          time.Duration // of the logical run, from RunStarted
	OnExhaustion         Exhaustion
	OnInvalidCall        InvalidCall
	RepeatedFailureLimit int // consecutive failed calls; 0 disables the bound
	ToolConcurrency      int // handlers of one run at once
	ModelRetries         int // transient failures asked again in one attempt
	ApprovalExpiry       time.Duration
	Drain                Drain // steering and follow-ups taken in at one seam
	// ResultBound is the size of a tool result's JSON, in bytes, over which the
	// model and the records get its head and tail (RUN-022).
	ResultBound int
	// Groups bounds the handlers of a tool group that one run has at once; a
	// group without an entry is bounded by ToolConcurrency alone.
	Groups map[string]int
}

// Exhaustion says what happens when turns or tool calls run out.
type Exhaustion string

// The exhaustion policies.
const (
	FinalAnswer      Exhaustion = "final-answer"
	FailOnExhaustion Exhaustion = "fail"
)

// InvalidCall says what a batch with an unknown tool or bad arguments does.
type InvalidCall string

// The policies for invalid calls (D-52).
const (
	ReturnInvalid InvalidCall = "return"
	FailInvalid   InvalidCall = "fail"
)

// ToolSpec is the facts of one tool.
type ToolSpec struct {
	Name       string
	Version    string
	Class      record.Class
	Approval   bool          // a person decides about every call
	DenyFails  bool          // a denial fails the run instead of the call
	Sequential bool          // never beside another handler of the run
	Group      string        // shares a limit with the tools of the same group
	Timeout    time.Duration // of one handler execution
	Probe      bool          // has a reconcile probe
}

// Tool finds a tool by name.
func (s *Spec) Tool(name string) (ToolSpec, bool) {
	for _, t := range s.Tools {
		if t.Name == name {
			return t, true
		}
	}
	return ToolSpec{}, false
}

// Clock is time as an argument: the only time the transitions know.
type Clock struct {
	Now time.Time
	// InvocationEnd is when this attempt must be over; zero means no end.
	InvocationEnd time.Time
	// LongestInvocation bounds how long any attempt of this assembly can live,
	// clock skew included (F8); zero means only Exclusive certifies a death.
	LongestInvocation time.Duration
}
