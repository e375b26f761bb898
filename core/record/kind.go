package record

// Record is one canonical fact. The set is closed: every kind is declared in
// this package, and Open refuses any other.
type Record interface{ Kind() Kind }

// Kind names a record kind, as persisted.
type Kind string

// The persisted kinds.
const (
	KindAttemptStarted    Kind = "attemptStarted"
	KindSubmissionQueued  Kind = "submissionQueued"
	KindRunStarted        Kind = "runStarted"
	KindSteeringQueued    Kind = "steeringQueued"
	KindSteeringApplied   Kind = "steeringApplied"
	KindSteeringDropped   Kind = "steeringDropped"
	KindFollowUpApplied   Kind = "followUpApplied"
	KindResponseRecorded  Kind = "responseRecorded"
	KindApprovalRequested Kind = "approvalRequested"
	KindApprovalResolved  Kind = "approvalResolved"
	KindCallPrepared      Kind = "callPrepared"
	KindCallSettled       Kind = "callSettled"
	KindCallWaiting       Kind = "callWaiting"
	KindCallUnknown       Kind = "callUnknown"
	KindCallResolved      Kind = "callResolved"
	KindStepRecorded      Kind = "stepRecorded"
	KindChildLinked       Kind = "childLinked"
	KindChildSettled      Kind = "childSettled"
	KindBudgetReserved    Kind = "budgetReserved"
	KindBudgetReleased    Kind = "budgetReleased"
	KindBudgetAnswered    Kind = "budgetAnswered"
	KindBudgetWarned      Kind = "budgetWarned"
	KindCompactionCreated Kind = "compactionCreated"
	KindBackoffScheduled  Kind = "backoffScheduled"
	KindRunHeld           Kind = "runHeld"
	KindRunReleased       Kind = "runReleased"
	KindAbortRequested    Kind = "abortRequested"
	KindEntryIgnored      Kind = "entryIgnored"
	KindRunSettled        Kind = "runSettled"
)

func (AttemptStarted) Kind() Kind    { return KindAttemptStarted }
func (SubmissionQueued) Kind() Kind  { return KindSubmissionQueued }
func (RunStarted) Kind() Kind        { return KindRunStarted }
func (SteeringQueued) Kind() Kind    { return KindSteeringQueued }
func (SteeringApplied) Kind() Kind   { return KindSteeringApplied }
func (SteeringDropped) Kind() Kind   { return KindSteeringDropped }
func (FollowUpApplied) Kind() Kind   { return KindFollowUpApplied }
func (ResponseRecorded) Kind() Kind  { return KindResponseRecorded }
func (ApprovalRequested) Kind() Kind { return KindApprovalRequested }
func (ApprovalResolved) Kind() Kind  { return KindApprovalResolved }
func (CallPrepared) Kind() Kind      { return KindCallPrepared }
func (CallSettled) Kind() Kind       { return KindCallSettled }
func (CallWaiting) Kind() Kind       { return KindCallWaiting }
func (CallUnknown) Kind() Kind       { return KindCallUnknown }
func (CallResolved) Kind() Kind      { return KindCallResolved }
func (StepRecorded) Kind() Kind      { return KindStepRecorded }
func (ChildLinked) Kind() Kind       { return KindChildLinked }
func (ChildSettled) Kind() Kind      { return KindChildSettled }
func (BudgetReserved) Kind() Kind    { return KindBudgetReserved }
func (BudgetReleased) Kind() Kind    { return KindBudgetReleased }
func (BudgetAnswered) Kind() Kind    { return KindBudgetAnswered }
func (BudgetWarned) Kind() Kind      { return KindBudgetWarned }
func (CompactionCreated) Kind() Kind { return KindCompactionCreated }
func (BackoffScheduled) Kind() Kind  { return KindBackoffScheduled }
func (RunHeld) Kind() Kind           { return KindRunHeld }
func (RunReleased) Kind() Kind       { return KindRunReleased }
func (AbortRequested) Kind() Kind    { return KindAbortRequested }
func (EntryIgnored) Kind() Kind      { return KindEntryIgnored }
func (RunSettled) Kind() Kind        { return KindRunSettled }

// Drained is the inbox slot a record consumes, 0 for none.
func Drained(r Record) uint64 {
	switch r := r.(type) {
	case SubmissionQueued:
		return r.Entry
	case SteeringQueued:
		return r.Entry
	case SteeringApplied:
		return r.Entry
	case SteeringDropped:
		return r.Entry
	case ApprovalResolved:
		return r.Entry
	case CallSettled:
		return r.Entry
	case CallResolved:
		return r.Entry
	case ChildSettled:
		return r.Entry
	case RunReleased:
		return r.Entry
	case AbortRequested:
		return r.Entry
	case EntryIgnored:
		return r.Entry
	}
	return 0
}
