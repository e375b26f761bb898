package core

import (
	"time"

	"github.com/layover-run/layover/core/record"
)

// Effect is something to do outside, as data. The interpreter starts the
// effects of a plan only after the plan's records are durable. The set is
// closed; every effect ends in exactly one fact.
type Effect interface{ effect() }

// DecodeInput checks the run's input against the agent's input type. Before:
// RunStarted. Its failure is recorded in the settlement; ends in InputDecoded.
type DecodeInput struct{ Input record.Value }

// Instruct evaluates the instructions. Before: RunStarted. The result is
// recorded in the first response; ends in InstructionsReady.
type Instruct struct{ Input record.Value }

// ReadInbox looks at the inbox above After. Before: nothing, it only reads;
// recorded by the records drained from it; ends in InboxRead.
type ReadInbox struct{ After uint64 }

// PrepareContext builds the model request from the projection. Before: the
// attempt's first batch. Never recorded but for its digest; ends in
// ContextPrepared.
type PrepareContext struct{ Request Request }

// Request is what the next model call is made of, payloads still aside.
type Request struct {
	Messages []record.Message
	Input    record.Value // what InputPart stands for
	Tools    bool         // list the tools
	NoCalls  bool         // forbid their use
	Contract string
}

// CallModel streams the prepared request. Before: the attempt's first batch.
// Recorded by ResponseRecorded; ends in ModelEnded.
type CallModel struct{ Turn int }

// CheckCalls validates names and arguments of a staged response. Before:
// nothing. Recorded in the response; ends in CallsChecked.
type CheckCalls struct{ Calls []record.ToolCallPart }

// Authorize asks the host whether a call may be executed. Before:
// ResponseRecorded, and after every approval. Its answer is not recorded, but for
// a denial, by CallSettled; ends in Authorized.
type Authorize struct {
	Run        string
	Turn       int
	Input      record.Value
	Call, Tool string
	Class      record.Class
	Args       record.Value
}

// AcquirePermit waits for a place under the limits of the process. Before:
// ResponseRecorded. Recorded by CallPrepared, which comes after; ends in
// PermitHeld. The permit is given back when the handler has returned, or when
// the attempt ends.
type AcquirePermit struct{ Call, Group string }

// StartTool runs a handler. Before: CallPrepared of this attempt, in the same
// plan. Recorded by CallSettled; ends in ToolEnded, with StepEnded in between.
type StartTool struct {
	Call      string
	Tool      string
	Operation string
	Args      record.Value
	Steps     []Step
	Timeout   time.Duration
}

// AckStep lets a handler go on. Before: StepRecorded, in the same plan. It
// ends nothing.
type AckStep struct{ Call, Step string }

// StopEffects cancels every running effect; each still ends in its own fact.
type StopEffects struct{}

// Reconcile asks a tool's probe what became of a call. Before: the attempt's
// first batch. Recorded by CallResolved or CallUnknown; ends in Reconciled.
type Reconcile struct {
	Call, Tool, Operation string
	Args                  record.Value
}

// Conclude decodes the final answer. Before: nothing. Recorded in the
// settlement; ends in Concluded.
type Conclude struct{ Message record.Message }

// Delay waits before the model is asked again. Ends in Delayed.
type Delay struct{ For time.Duration }

func (DecodeInput) effect()    {}
func (Instruct) effect()       {}
func (ReadInbox) effect()      {}
func (PrepareContext) effect() {}
func (CallModel) effect()      {}
func (CheckCalls) effect()     {}
func (Authorize) effect()      {}
func (AcquirePermit) effect()  {}
func (StartTool) effect()      {}
func (AckStep) effect()        {}
func (StopEffects) effect()    {}
func (Reconcile) effect()      {}
func (Conclude) effect()       {}
func (Delay) effect()          {}

// Plan is what to persist first, what may be started then, and what to do
// after that.
type Plan struct {
	// Steps labels which of the nineteen steps this plan carries out.
	Steps []string
	// Append is one batch. Empty means nothing is written.
	Append record.Records
	// Then starts after Append is confirmed.
	Then []Effect
	// Rest is obeyed only when Append is empty: after an append, ask again.
	Rest Rest
}

// Rest says how the attempt goes on once a plan is carried out.
type Rest struct {
	Kind RestKind
	// Reason and Due belong to Park; Due zero means idle.
	Reason string
	Due    time.Time
	// Version is the head version known before the last look, for Park.
	Version uint64
	// Wake is when to ask again without a fact; zero means only with one.
	Wake time.Time
}

// RestKind is the closed set of rests.
type RestKind string

// The rests.
const (
	RestWait  RestKind = "wait"  // for the next fact
	RestPark  RestKind = "park"  // release the lane until Due, or idle
	RestYield RestKind = "yield" // release the lane and wake it at once
	RestDone  RestKind = "done"  // a terminal record waits to be handed over
)

// The kinds of run errors, as a settlement names them.
const (
	ApprovalExpired     = "ApprovalExpiredError"
	ApprovalDenied      = "ApprovalDeniedError"
	AuthorizationDenied = "AgentToolAuthorizationDenied"
	AuthorizationFailed = "AgentToolAuthorizationError"
	ToolAborted         = "ToolAbortedError"
	Defect              = "Defect"
	InputError          = "InputError"
	InstructionsError   = "InstructionsError"
	OutputError         = "OutputError"
	ModelProtocolError  = "ModelProtocolError"
	ModelRefused        = "ModelRefusedError"
	ModelStopped        = "ModelStoppedError"
	ModelUnavailable    = "ModelUnavailableError"
	ContextOverflow     = "ContextOverflowError"
	InvalidToolCall     = "InvalidToolCallError"
	AttemptLimit        = "AttemptLimitError"
)

// NotEntered is the source of a resolution about a handler that was certainly
// not entered: its invocation ended between the record and the start.
const NotEntered = "engine"

// The budget dimensions.
const (
	DimTurns     = "turns"
	DimToolCalls = "tool-calls"
	DimDuration  = "duration"
	DimFailures  = "repeated-failures"
)
