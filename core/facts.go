package core

import (
	"time"

	"github.com/layover-run/layover/core/record"
)

// Fact is something that happened outside: the end of an effect, or a signal.
// The set is closed.
type Fact interface{ fact() }

// InputDecoded ends DecodeInput.
type InputDecoded struct{ Problem string }

// InstructionsReady ends Instruct.
type InstructionsReady struct {
	Text string
	Err  *record.Error
}

// InboxRead ends ReadInbox: every entry above the cursor, and the head version
// read before the look.
type InboxRead struct {
	Entries []InboxEntry
	Version uint64
}

// InboxEntry is one inbox slot, decoded.
type InboxEntry struct {
	Slot    uint64
	By      string
	At      time.Time
	Command Command
}

// Command is what an inbox entry asks for: Submit, Decide, AbortRun, Steer,
// Resolve, Late or Unreadable.
type Command interface{ command() }

// Submit asks for a run.
type Submit struct{ Submission Submission }

// Decide answers an approval.
type Decide struct {
	Approval, ArgsDigest string
	Approve              bool
	Reason               string
}

// AbortRun asks to end a submission.
type AbortRun struct{ Submission, Reason string }

// Steer puts a message in front of the next model request of a submission's run.
type Steer struct {
	Submission, Key string
	Text            record.Value
}

// Resolve answers an unknown call.
type Resolve struct {
	Run, Call  string
	Resolution record.Resolution
	Result     record.Value
	Reason     string
}

// Late is the evidence of a fenced attempt that held a tool's result.
type Late struct {
	Run, Call, Operation string
	Outcome              record.Outcome
	Result               record.Value
	Tag                  string
	Duration             time.Duration
}

// Unreadable is an entry this build cannot act on.
type Unreadable struct{ What, Reason string }

func (Submit) command()     {}
func (Decide) command()     {}
func (AbortRun) command()   {}
func (Steer) command()      {}
func (Resolve) command()    {}
func (Late) command()       {}
func (Unreadable) command() {}

// ContextPrepared ends PrepareContext: the request is ready in the
// interpreter's hands, Digest is what the response record keeps of it.
type ContextPrepared struct {
	Digest string
	Err    *record.Error
}

// ModelEnded ends CallModel with a complete response or a failure.
type ModelEnded struct {
	Response *Response
	Failure  *ModelFailure
}

// Response is one complete, reduced model response.
type Response struct {
	Message                     record.Message
	Stop, RawStop               string
	Provider, Model, ResponseID string
	Usage                       record.Usage
	Repairs                     []record.Repair
}

// ModelFailure is why there is no response.
type ModelFailure struct {
	Class      string
	Message    string
	RetryAfter time.Duration
}

// The failure classes of a model call, as model.Class spells them, and one for
// a call that this attempt itself cancelled.
const (
	FailTransient   = "transient"
	FailRateLimited = "rate-limited"
	FailOverflow    = "context-overflow"
	FailRefused     = "refused"
	FailProtocol    = "protocol"
	FailCancelled   = "cancelled"
)

// CallsChecked ends CheckCalls: a verdict for each application call, in
// declaration order.
type CallsChecked struct{ Checks []Check }

// Check is the verdict about one call. An empty Problem means valid.
type Check struct{ Call, ArgsDigest, Problem string }

// Authorized ends Authorize. The zero answer is a no.
type Authorized struct {
	Call    string
	Allowed bool
	Reason  string        // of a denial
	Err     *record.Error // the host could not say
	// Interrupted says that the question was cut off: there is no answer.
	Interrupted bool
}

// PermitHeld ends AcquirePermit. Held is false when waiting was cut off.
type PermitHeld struct {
	Call string
	Held bool
}

// StepEnded says a step of a running handler succeeded; the handler waits
// until it is recorded.
type StepEnded struct {
	Call, Step string
	Result     record.Value
}

// ToolEnded ends StartTool.
type ToolEnded struct {
	Call     string
	Outcome  record.Outcome
	Result   record.Value
	Tag      string
	Bytes    int // original size when the result was bounded, else 0
	Defect   bool
	TimedOut bool // the tool's own time-out ended the handler
	// Leaked says that the handler ignored the end of its context and still
	// runs: whether its effect comes is open.
	Leaked bool
	// NotStarted says that the handler was certainly not entered.
	NotStarted bool
	Duration   time.Duration
}

// Reconciled ends Reconcile. An empty Resolution means the probe could not say.
type Reconciled struct {
	Call       string
	Resolution record.Resolution
	Outcome    record.Outcome
	Result     record.Value
}

// Concluded ends Conclude: the typed output, or why there is none.
type Concluded struct {
	Output record.Value
	Err    *record.Error
}

// Delayed ends Delay.
type Delayed struct{}

// Cancelled says the attempt must stop: its process is going down or its
// invocation is over.
type Cancelled struct{}

// Woken says the head moved: look at the inbox again.
type Woken struct{}

// Faulted ends the effect Of with a defect of the user function behind it.
type Faulted struct {
	Where string
	Of    Effect
}

// EventsExceeded says that a plan was not carried out because its events would
// have passed the ceiling of one attempt: the run ends instead (BP-07).
type EventsExceeded struct{ Limit int }

func (EventsExceeded) fact()    {}
func (InputDecoded) fact()      {}
func (InstructionsReady) fact() {}
func (InboxRead) fact()         {}
func (ContextPrepared) fact()   {}
func (ModelEnded) fact()        {}
func (CallsChecked) fact()      {}
func (Authorized) fact()        {}
func (PermitHeld) fact()        {}
func (StepEnded) fact()         {}
func (ToolEnded) fact()         {}
func (Reconciled) fact()        {}
func (Concluded) fact()         {}
func (Delayed) fact()           {}
func (Cancelled) fact()         {}
func (Woken) fact()             {}
func (Faulted) fact()           {}
