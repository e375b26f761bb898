package record

import "time"

// What happens to the calls of a response, from the question to the result.

// ApprovalRequested asks a person about one exact call.
type ApprovalRequested struct {
	Approval   string    `json:"approval"`
	Call       string    `json:"call"`
	Tool       string    `json:"tool"`
	Version    string    `json:"version,omitempty"`
	ArgsDigest string    `json:"argsDigest"`
	ExpiresAt  time.Time `json:"expiresAt,omitzero"`
}

// Decision is the end of an approval.
type Decision string

// The decisions.
const (
	Approved Decision = "approved"
	Denied   Decision = "denied"
	Expired  Decision = "expired"
)

// ApprovalResolved is the first decision about an approval, in inbox order.
type ApprovalResolved struct {
	Entry    uint64    `json:"entry,omitempty"`
	Approval string    `json:"approval"`
	Call     string    `json:"call"`
	Decision Decision  `json:"decision"`
	By       string    `json:"by,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	At       time.Time `json:"at"`
}

// CallPrepared says that a handler may have started: it is durable before the
// handler starts, in the invocation that wrote it.
type CallPrepared struct {
	Call string `json:"call"`
	// Operation is the runtime-minted key of the effect: the same for every
	// execution of one call.
	Operation string `json:"operation"`
}

// Outcome is the terminal class of a call.
type Outcome string

// The terminal classes of a call (CLS-01).
const (
	Succeeded      Outcome = "success"
	Failed         Outcome = "failure"        // returned to the model
	Aborted        Outcome = "typed-failure"  // fails the run
	Infrastructure Outcome = "infrastructure" // the engine's machinery failed
	DeniedCall     Outcome = "denied"
	Interrupted    Outcome = "interrupted"
)

// CallSettled is the one terminal record of a call, with the result the model
// will see.
type CallSettled struct {
	Call    string  `json:"call"`
	Outcome Outcome `json:"outcome"`
	Result  Value   `json:"result"`
	// Tag is the bounded name of a failure.
	Tag string `json:"tag,omitempty"`
	// Synthetic marks a result made by the engine: no handler ran for it.
	Synthetic string `json:"synthetic,omitempty"`
	// Truncated is the original size of a result over its bound.
	Truncated int `json:"truncated,omitempty"`
	// Source says who knows: empty for the handler, else probe, operator, late.
	Source   string        `json:"source,omitempty"`
	Entry    uint64        `json:"entry,omitempty"`
	Duration time.Duration `json:"durationNs,omitempty"`
}

// Reasons of a synthetic result.
const (
	OverBudget   = "over-budget"
	InvalidBatch = "invalid-batch"
	NotApproved  = "denied"
	RunEnding    = "run-ending"
	// NotAuthorized: the host denied the call.
	NotAuthorized = "unauthorized"
)

// CallWaiting says a delegated call waits for its child run.
type CallWaiting struct {
	Call              string `json:"call"`
	ChildConversation string `json:"childConversation"`
	ChildSubmission   string `json:"childSubmission"`
}

// CallUnknown says that a prepared call has no known outcome.
type CallUnknown struct {
	Call string `json:"call"`
	// Reason says why: lost with its attempt, or a defect in its handler. A
	// defect is never probed or run again without an operator (RET-05).
	Reason string `json:"reason"`
}

// Reasons of an unknown outcome.
const (
	LostOutcome    = "lost"
	DefectOutcome  = "defect"
	TimeoutOutcome = "timeout"
)

// Resolution answers an unknown call.
type Resolution string

// The resolutions.
const (
	Happened    Resolution = "happened"
	NotHappened Resolution = "notHappened"
	SafeToRetry Resolution = "safeToRetry"
)

// CallResolved answers an unknown call from its probe or from an operator. A
// negative answer lets the call be prepared once more.
type CallResolved struct {
	Entry      uint64     `json:"entry,omitempty"`
	Call       string     `json:"call"`
	Resolution Resolution `json:"resolution"`
	Source     string     `json:"source"` // probe or operator
	By         string     `json:"by,omitempty"`
	Reason     string     `json:"reason,omitempty"`
}

// StepRecorded is the success of one named step inside a handler; the step's
// body never runs again for this call.
type StepRecorded struct {
	Call   string `json:"call"`
	Step   string `json:"step"`
	Result Value  `json:"result"`
}

// ChildLinked says a child run was admitted for a call.
type ChildLinked struct {
	Call         string `json:"call"`
	Conversation string `json:"conversation"`
	Submission   string `json:"submission"`
	Agent        string `json:"agent"`
}

// ChildSettled joins the outcome of a child run.
type ChildSettled struct {
	Entry      uint64 `json:"entry"`
	Call       string `json:"call"`
	Submission string `json:"submission"`
	Status     Status `json:"status"`
	Output     Value  `json:"output,omitzero"`
	Error      *Error `json:"error,omitempty"`
	Usage      Usage  `json:"usage,omitzero"`
}

// BudgetReserved sets part of the run's budget aside for a child.
type BudgetReserved struct {
	Call      string    `json:"call"`
	Allowance Allowance `json:"allowance"`
	Tokens    int64     `json:"tokens,omitempty"`
	MicroUSD  int64     `json:"microUSD,omitempty"`
}

// BudgetReleased gives a reservation back, once.
type BudgetReleased struct {
	Call string `json:"call"`
}
