package record

import "time"

// Fields named Entry hold the inbox slot a record was drained from: 0 means
// the record does not come from the inbox.

// AttemptStarted is the first record of every attempt. Whoever reads it with a
// higher epoch than its own is fenced (protocol F1).
type AttemptStarted struct {
	// Boot identifies the process that runs the attempt where one process
	// holds the store exclusively; empty elsewhere.
	Boot string `json:"boot,omitempty"`
	// Until is when the invocation ends at the latest; zero means no end.
	Until time.Time `json:"until,omitzero"`
	// Definition is the digest of the definition this attempt works with.
	Definition string `json:"definition,omitempty"`
}

// SubmissionQueued moves one admitted submission from the inbox into the log.
type SubmissionQueued struct {
	Entry      uint64     `json:"entry"`
	Submission string     `json:"submission"`
	Agent      string     `json:"agent"`
	Input      Value      `json:"input"`
	Principal  string     `json:"principal"`
	ReplyTo    string     `json:"replyTo,omitempty"`
	Allowance  Allowance  `json:"allowance,omitzero"`
	FollowUp   bool       `json:"followUp,omitempty"`
	Parent     ParentLink `json:"parent,omitzero"`
	AdmittedAt time.Time  `json:"admittedAt"`
}

// Allowance tightens an agent's policy for one submission; zero fields leave
// the policy as it is.
type Allowance struct {
	Turns     int           `json:"turns,omitempty"`
	ToolCalls int           `json:"toolCalls,omitempty"`
	Duration  time.Duration `json:"durationNs,omitempty"`
	// Join lets the submission join a run that would otherwise end, instead of
	// waiting for a run of its own: it is a follow-up.
	Join bool `json:"join,omitempty"`
}

// ParentLink is the lineage of a delegated child run.
type ParentLink struct {
	Conversation string `json:"conversation,omitempty"`
	Run          string `json:"run,omitempty"`
	Call         string `json:"call,omitempty"`
	Depth        int    `json:"depth,omitempty"`
	// Tail is the parent's inbox tail read before the child was admitted (F15).
	Tail uint64 `json:"tail,omitempty"`
}

// RunStarted starts the run's clock: its batch's time is the logical start,
// Duration the admitted allowance (RUN-030).
type RunStarted struct {
	Run        string        `json:"run"`
	Agent      string        `json:"agent"`
	Definition string        `json:"definition"` // digest of the pinned definition
	Duration   time.Duration `json:"durationNs"`
	Turns      int           `json:"turns"`     // effective limit
	ToolCalls  int           `json:"toolCalls"` // effective limit
}

// SteeringQueued moves one steering command from the inbox into the log, where
// it waits for the next seam of its submission's run.
type SteeringQueued struct {
	Entry      uint64    `json:"entry"`
	Submission string    `json:"submission"`
	Key        string    `json:"key"`
	By         string    `json:"by"`
	Text       Value     `json:"text"`
	At         time.Time `json:"at"`
}

// SteeringApplied puts one steering command in front of the next model request.
// Queued is the inbox slot under which it was queued; its text is there.
type SteeringApplied struct {
	Entry  uint64 `json:"entry"`
	By     string `json:"by"`
	Text   Value  `json:"text,omitzero"`
	Queued uint64 `json:"queued,omitempty"`
}

// SteeringDropped answers a steering command that reached no request: one that
// was queued, or one straight from the inbox.
type SteeringDropped struct {
	Entry  uint64 `json:"entry"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	Queued uint64 `json:"queued,omitempty"`
	// Submission and Key name a command straight from the inbox.
	Submission string `json:"submission,omitempty"`
	Key        string `json:"key,omitempty"`
}

// FollowUpApplied joins a queued follow-up submission to the running run. Text
// is that submission's input.
type FollowUpApplied struct {
	Submission string `json:"submission"`
	Text       Value  `json:"text"`
}

// ResponseRecorded is one complete model response with everything decided
// about it before it was written.
type ResponseRecorded struct {
	Turn int `json:"turn"`
	// Prefix holds the messages this run's instructions and input contributed;
	// only a run's first response has them, and only that run's own requests
	// show them (RUN-033).
	Prefix  []Message      `json:"prefix,omitempty"`
	Message Message        `json:"message"`
	Calls   []DeclaredCall `json:"calls,omitempty"`
	Stop    string         `json:"stop"`
	RawStop string         `json:"rawStop,omitempty"`
	// Model identity and the provider's own id of the response.
	Provider       string `json:"provider"`
	Model          string `json:"model"`
	Tier           string `json:"tier,omitempty"`
	PricingVersion string `json:"pricingVersion,omitempty"`
	ResponseID     string `json:"responseId,omitempty"`
	Usage          Usage  `json:"usage,omitzero"`
	// Request is the digest of the prepared request; the request itself is a
	// projection and never stored.
	Request string `json:"request,omitempty"`
	// Constrained marks a response asked for with tool use forbidden.
	Constrained bool `json:"constrained,omitempty"`
	// Grace marks the one turn past an exhausted budget.
	Grace bool `json:"grace,omitempty"`
	// Exhausted names the budget that this response's calls would exceed.
	Exhausted string `json:"exhausted,omitempty"`
	// Repairs lists what the provider's adapter normalised (D-60).
	Repairs []Repair `json:"repairs,omitempty"`
}

// Repair is one recorded normalisation of a provider's answer.
type Repair struct {
	Name string `json:"name"`
	Raw  string `json:"raw,omitempty"`
}

// DeclaredCall pins what an application call of a response was resolved to.
type DeclaredCall struct {
	ID         string `json:"id"`
	Tool       string `json:"tool"`
	Version    string `json:"version,omitempty"`
	Class      Class  `json:"class,omitempty"`
	ArgsDigest string `json:"argsDigest"`
	// Problem says why the call is invalid; such a batch runs no handler.
	Problem string `json:"problem,omitempty"`
}

// Class is a tool's execution class: what may be done with a call whose
// outcome is not known.
type Class string

// The execution classes.
const (
	Readonly   Class = "readonly"   // run again freely
	Idempotent Class = "idempotent" // run again with the same operation id
	Uncertain  Class = "uncertain"  // never run again on a guess
)

// BudgetAnswered is what a host's budget hook decided.
type BudgetAnswered struct {
	Turn    int    `json:"turn"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`
}

// BudgetWarned says a budget passed 80 %, once per dimension.
type BudgetWarned struct {
	Dimension string `json:"dimension"`
	Used      int64  `json:"used"`
	Limit     int64  `json:"limit"`
}

// CompactionCreated condenses earlier history without erasing it.
type CompactionCreated struct {
	Compaction    string `json:"compaction"`
	CoversThrough uint64 `json:"coversThrough"`
	Summary       Value  `json:"summary,omitzero"`
	Usage         Usage  `json:"usage,omitzero"`
}

// BackoffScheduled says the run waits before it asks the model again.
type BackoffScheduled struct {
	Until   time.Time `json:"until"`
	Retries int       `json:"retries"`
	Class   string    `json:"class"`
	Message string    `json:"message,omitempty"`
}

// RunHeld says the run waits for an operator or another build.
type RunHeld struct {
	Reason string    `json:"reason"`
	Detail string    `json:"detail,omitempty"`
	Until  time.Time `json:"until,omitzero"`
}

// RunReleased ends a hold.
type RunReleased struct {
	Entry  uint64 `json:"entry,omitempty"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// AbortRequested is a durable wish to end a submission; it is remembered even
// when its submission has not been seen yet (F14b).
type AbortRequested struct {
	Entry      uint64 `json:"entry"`
	Submission string `json:"submission"`
	By         string `json:"by"`
	Reason     string `json:"reason,omitempty"`
}

// EntryIgnored consumes an inbox entry that has no effect (F14d).
type EntryIgnored struct {
	Entry  uint64 `json:"entry"`
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// Status is how a run ended.
type Status string

// The terminal statuses.
const (
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed"
	StatusAborted   Status = "aborted"
)

// Finish reasons of a completed run.
const (
	ModelStop       = "model-stop"
	BudgetExhausted = "budget-exhausted"
	CompletionTool  = "completion-tool"
)

// RunSettled is the one terminal record of a run.
type RunSettled struct {
	Run          string `json:"run"`
	Status       Status `json:"status"`
	FinishReason string `json:"finishReason,omitempty"`
	Exhausted    string `json:"exhausted,omitempty"`
	PolicyLimit  string `json:"policyLimit,omitempty"`
	Output       Value  `json:"output,omitzero"`
	Disposition  Value  `json:"disposition,omitzero"`
	Error        *Error `json:"error,omitempty"`
	Usage        Usage  `json:"usage,omitzero"`
	Attempts     int    `json:"attempts"`
	Turns        int    `json:"turns"`
	// Queued names the submissions that still wait in the log (F16).
	Queued []string `json:"queued,omitempty"`
	// Joined names the follow-ups that settle with this run.
	Joined []string `json:"joined,omitempty"`
	// Host is the run a follow-up joined: on the settled row of that follow-up,
	// never in a log. The numbers are on the host's row alone (D-50).
	Host string `json:"host,omitempty"`
}

// Error is a failure as a caller sees it: no secret, no foreign text.
type Error struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Limit names the budget of a PolicyError.
	Limit string `json:"limit,omitempty"`
}
