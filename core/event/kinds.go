package event

import (
	"encoding/json"
	"time"

	"github.com/layover-run/layover/core/record"
)

// Kind names an event kind.
type Kind string

// The kinds (D-13). The last four end the trace of an attempt; over a whole
// run there is one RunCompleted, RunFailed or RunInterrupted, and any number of
// RunSuspended before it.
const (
	KindRunStarted          Kind = "RunStarted"
	KindTurnStarted         Kind = "TurnStarted"
	KindTextDelta           Kind = "TextDelta"
	KindReasoningDelta      Kind = "ReasoningDelta"
	KindResponseCompleted   Kind = "ResponseCompleted"
	KindToolCallDeclared    Kind = "ToolCallDeclared"
	KindToolCallStarted     Kind = "ToolCallStarted"
	KindToolCallProgress    Kind = "ToolCallProgress"
	KindToolCallSucceeded   Kind = "ToolCallSucceeded"
	KindToolCallFailed      Kind = "ToolCallFailed"
	KindApprovalRequested   Kind = "ApprovalRequested"
	KindApprovalResolved    Kind = "ApprovalResolved"
	KindSteeringApplied     Kind = "SteeringApplied"
	KindFollowUpApplied     Kind = "FollowUpApplied"
	KindContextCompacted    Kind = "ContextCompacted"
	KindBudgetWarning       Kind = "BudgetWarning"
	KindSubagentRequested   Kind = "SubagentRequested"
	KindSubagentStarted     Kind = "SubagentStarted"
	KindSubagentProgress    Kind = "SubagentProgress"
	KindSubagentCompleted   Kind = "SubagentCompleted"
	KindSubagentFailed      Kind = "SubagentFailed"
	KindSubagentInterrupted Kind = "SubagentInterrupted"
	KindSubagentJoined      Kind = "SubagentJoined"
	KindRunCompleted        Kind = "RunCompleted"
	KindRunFailed           Kind = "RunFailed"
	KindRunInterrupted      Kind = "RunInterrupted"
	KindRunSuspended        Kind = "RunSuspended"
)

// Values are JSON as it is. One that is stored aside is named in the field
// ending in Aside instead: a projection reads nothing.

// RunStarted says that work on a submission begins.
type RunStarted struct {
	Principal  string    `json:"principal"`
	Definition string    `json:"definition"` // digest of the pinned definition
	Deadline   time.Time `json:"deadline"`
	MaxTurns   int       `json:"maxTurns"`
	MaxCalls   int       `json:"maxToolCalls"`
}

// TurnStarted opens a turn; as a canonical event it comes with its response.
type TurnStarted struct{}

// TextDelta is a piece of visible text on its way.
type TextDelta struct {
	Index int    `json:"index"`
	Text  string `json:"text"`
}

// ReasoningDelta is a piece of reasoning on its way.
type ReasoningDelta struct {
	Index int    `json:"index"`
	Text  string `json:"text"`
}

// ResponseCompleted is a whole model response.
type ResponseCompleted struct {
	Text        string       `json:"text"`
	TextAside   []record.Ref `json:"textAside,omitempty"`
	Stop        string       `json:"stop"`
	Provider    string       `json:"provider"`
	Model       string       `json:"model"`
	Usage       record.Usage `json:"usage,omitzero"`
	Constrained bool         `json:"constrained,omitempty"`
	Grace       bool         `json:"grace,omitempty"`
	Exhausted   string       `json:"exhausted,omitempty"`
}

// ToolCallDeclared is a call as the model asked for it. Nothing has run.
type ToolCallDeclared struct {
	Tool             string          `json:"tool"`
	Args             json.RawMessage `json:"args,omitempty"`
	ArgsAside        *record.Ref     `json:"argsAside,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted"`
	// Problem says why no handler will run.
	Problem string `json:"problem,omitempty"`
}

// ToolCallStarted says that a handler may have started.
type ToolCallStarted struct {
	Tool      string `json:"tool"`
	Operation string `json:"operation"`
	Execution int    `json:"execution"` // from 1; more after a lost attempt
}

// ToolCallProgress is a handler's word about a call that still runs.
type ToolCallProgress struct {
	Tool             string `json:"tool"`
	Message          string `json:"message"`
	ProviderExecuted bool   `json:"providerExecuted"`
}

// ToolCallSucceeded is the end of a call that did what was asked.
type ToolCallSucceeded struct {
	Tool             string          `json:"tool"`
	Result           json.RawMessage `json:"result,omitempty"`
	ResultAside      *record.Ref     `json:"resultAside,omitempty"`
	Truncated        int             `json:"truncated,omitempty"` // original size
	Source           string          `json:"source,omitempty"`    // probe, operator or late
	DurationMs       *int64          `json:"durationMs,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted"`
}

// ToolCallFailed is any other end of a call.
type ToolCallFailed struct {
	Tool             string          `json:"tool"`
	Outcome          record.Outcome  `json:"outcome"`
	Tag              string          `json:"tag,omitempty"`
	Result           json.RawMessage `json:"result,omitempty"`
	ResultAside      *record.Ref     `json:"resultAside,omitempty"`
	Source           string          `json:"source,omitempty"`
	ExecutionStarted bool            `json:"executionStarted"`
	DurationMs       *int64          `json:"durationMs,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted"`
}

// ApprovalRequested asks a person about one exact call.
type ApprovalRequested struct {
	Approval    string          `json:"approval"`
	Tool        string          `json:"tool"`
	ToolVersion string          `json:"toolVersion,omitempty"`
	Args        json.RawMessage `json:"args,omitempty"`
	ArgsAside   *record.Ref     `json:"argsAside,omitempty"`
	ArgsDigest  string          `json:"argsDigest"`
	ExpiresAt   time.Time       `json:"expiresAt,omitzero"`
}

// ApprovalResolved is the first decision about an approval.
type ApprovalResolved struct {
	Approval string          `json:"approval"`
	Tool     string          `json:"tool"`
	Decision record.Decision `json:"decision"`
	By       string          `json:"by,omitempty"`
	Reason   string          `json:"reason,omitempty"`
}

// SteeringApplied put a message in front of the next model request.
type SteeringApplied struct {
	By        string          `json:"by"`
	Text      json.RawMessage `json:"text,omitempty"`
	TextAside *record.Ref     `json:"textAside,omitempty"`
}

// FollowUpApplied joined a queued submission to the run.
type FollowUpApplied struct {
	Submission string          `json:"submission"`
	Text       json.RawMessage `json:"text,omitempty"`
	TextAside  *record.Ref     `json:"textAside,omitempty"`
}

// ContextCompacted condensed earlier history.
type ContextCompacted struct {
	Compaction    string       `json:"compaction"`
	CoversThrough uint64       `json:"coversThrough"`
	Usage         record.Usage `json:"usage,omitzero"`
}

// BudgetWarning says a budget passed 80 %.
type BudgetWarning struct {
	Dimension string `json:"dimension"`
	Used      int64  `json:"used"`
	Limit     int64  `json:"limit"`
}

// Child names the run a call was delegated to.
type Child struct {
	Conversation string `json:"childConversation"`
	Run          string `json:"childRun"`
	Agent        string `json:"childAgent"`
	Depth        int    `json:"depth,omitempty"`
	Message      string `json:"message,omitempty"`
}

// The life of a child run, on its parent's trace.
type (
	SubagentRequested   struct{ Child }
	SubagentStarted     struct{ Child }
	SubagentProgress    struct{ Child }
	SubagentCompleted   struct{ Child }
	SubagentFailed      struct{ Child }
	SubagentInterrupted struct{ Child }
	SubagentJoined      struct{ Child }
)

// RunCompleted ends a run with an output.
type RunCompleted struct {
	FinishReason string          `json:"finishReason"`
	Exhausted    string          `json:"exhausted,omitempty"`
	Output       json.RawMessage `json:"output,omitempty"`
	OutputAside  *record.Ref     `json:"outputAside,omitempty"`
	Disposition  json.RawMessage `json:"runDisposition,omitempty"`
	Usage        record.Usage    `json:"usage,omitzero"`
	Attempts     int             `json:"attempts"`
	Turns        int             `json:"turns"`
}

// RunFailed ends a run with an error.
type RunFailed struct {
	Error       record.Error `json:"error"`
	Exhausted   string       `json:"exhausted,omitempty"`
	PolicyLimit string       `json:"policyLimit,omitempty"`
	Usage       record.Usage `json:"usage,omitzero"`
	Attempts    int          `json:"attempts"`
	Turns       int          `json:"turns"`
}

// RunInterrupted ends a run that somebody aborted.
type RunInterrupted struct {
	Error    *record.Error `json:"error,omitempty"`
	Usage    record.Usage  `json:"usage,omitzero"`
	Attempts int           `json:"attempts"`
	Turns    int           `json:"turns"`
}

// RunSuspended ends an attempt's trace: the run waits, and goes on later.
type RunSuspended struct {
	Reason string    `json:"reason"` // approval, unknown, backoff or held
	On     []string  `json:"on"`     // approval or call ids, or what is missing
	Tools  []string  `json:"tools,omitempty"`
	Until  time.Time `json:"until,omitzero"`
}

func (RunStarted) Kind() Kind          { return KindRunStarted }
func (TurnStarted) Kind() Kind         { return KindTurnStarted }
func (TextDelta) Kind() Kind           { return KindTextDelta }
func (ReasoningDelta) Kind() Kind      { return KindReasoningDelta }
func (ResponseCompleted) Kind() Kind   { return KindResponseCompleted }
func (ToolCallDeclared) Kind() Kind    { return KindToolCallDeclared }
func (ToolCallStarted) Kind() Kind     { return KindToolCallStarted }
func (ToolCallProgress) Kind() Kind    { return KindToolCallProgress }
func (ToolCallSucceeded) Kind() Kind   { return KindToolCallSucceeded }
func (ToolCallFailed) Kind() Kind      { return KindToolCallFailed }
func (ApprovalRequested) Kind() Kind   { return KindApprovalRequested }
func (ApprovalResolved) Kind() Kind    { return KindApprovalResolved }
func (SteeringApplied) Kind() Kind     { return KindSteeringApplied }
func (FollowUpApplied) Kind() Kind     { return KindFollowUpApplied }
func (ContextCompacted) Kind() Kind    { return KindContextCompacted }
func (BudgetWarning) Kind() Kind       { return KindBudgetWarning }
func (SubagentRequested) Kind() Kind   { return KindSubagentRequested }
func (SubagentStarted) Kind() Kind     { return KindSubagentStarted }
func (SubagentProgress) Kind() Kind    { return KindSubagentProgress }
func (SubagentCompleted) Kind() Kind   { return KindSubagentCompleted }
func (SubagentFailed) Kind() Kind      { return KindSubagentFailed }
func (SubagentInterrupted) Kind() Kind { return KindSubagentInterrupted }
func (SubagentJoined) Kind() Kind      { return KindSubagentJoined }
func (RunCompleted) Kind() Kind        { return KindRunCompleted }
func (RunFailed) Kind() Kind           { return KindRunFailed }
func (RunInterrupted) Kind() Kind      { return KindRunInterrupted }
func (RunSuspended) Kind() Kind        { return KindRunSuspended }

var decoders = map[Kind]func(json.RawMessage) (Data, error){
	KindRunStarted:          decode[RunStarted],
	KindTurnStarted:         decode[TurnStarted],
	KindTextDelta:           decode[TextDelta],
	KindReasoningDelta:      decode[ReasoningDelta],
	KindResponseCompleted:   decode[ResponseCompleted],
	KindToolCallDeclared:    decode[ToolCallDeclared],
	KindToolCallStarted:     decode[ToolCallStarted],
	KindToolCallProgress:    decode[ToolCallProgress],
	KindToolCallSucceeded:   decode[ToolCallSucceeded],
	KindToolCallFailed:      decode[ToolCallFailed],
	KindApprovalRequested:   decode[ApprovalRequested],
	KindApprovalResolved:    decode[ApprovalResolved],
	KindSteeringApplied:     decode[SteeringApplied],
	KindFollowUpApplied:     decode[FollowUpApplied],
	KindContextCompacted:    decode[ContextCompacted],
	KindBudgetWarning:       decode[BudgetWarning],
	KindSubagentRequested:   decode[SubagentRequested],
	KindSubagentStarted:     decode[SubagentStarted],
	KindSubagentProgress:    decode[SubagentProgress],
	KindSubagentCompleted:   decode[SubagentCompleted],
	KindSubagentFailed:      decode[SubagentFailed],
	KindSubagentInterrupted: decode[SubagentInterrupted],
	KindSubagentJoined:      decode[SubagentJoined],
	KindRunCompleted:        decode[RunCompleted],
	KindRunFailed:           decode[RunFailed],
	KindRunInterrupted:      decode[RunInterrupted],
	KindRunSuspended:        decode[RunSuspended],
}

// decode ignores fields a later build added.
func decode[D Data](raw json.RawMessage) (Data, error) {
	var d D
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, err
	}
	return d, nil
}
