package record

// The members of every persisted type, in byte order of their names. A new
// field goes to its place here and gets its tag in the struct. It has to be
// optional, because batches without it exist.

func (r *AttemptStarted) fields(c *coder) {
	text(c, "boot", &r.Boot, true)
	text(c, "definition", &r.Definition, true)
	instant(c, "until", &r.Until, true)
}

func (r *SubmissionQueued) fields(c *coder) {
	instant(c, "admittedAt", &r.AdmittedAt, false)
	text(c, "agent", &r.Agent, false)
	optSub(c, "allowance", &r.Allowance)
	number(c, "entry", &r.Entry, false)
	flag(c, "followUp", &r.FollowUp, true)
	value(c, "input", &r.Input, false)
	optSub(c, "parent", &r.Parent)
	text(c, "principal", &r.Principal, false)
	text(c, "replyTo", &r.ReplyTo, true)
	text(c, "submission", &r.Submission, false)
}

func (a *Allowance) fields(c *coder) {
	number(c, "durationNs", &a.Duration, true)
	flag(c, "join", &a.Join, true)
	number(c, "toolCalls", &a.ToolCalls, true)
	number(c, "turns", &a.Turns, true)
}

func (l *ParentLink) fields(c *coder) {
	text(c, "call", &l.Call, true)
	text(c, "conversation", &l.Conversation, true)
	number(c, "depth", &l.Depth, true)
	text(c, "run", &l.Run, true)
	number(c, "tail", &l.Tail, true)
}

// IsZero reports whether the allowance leaves the policy as it is.
func (a Allowance) IsZero() bool { return a == Allowance{} }

// IsZero reports whether there is no parent.
func (l ParentLink) IsZero() bool { return l == ParentLink{} }

func (r *RunStarted) fields(c *coder) {
	text(c, "agent", &r.Agent, false)
	text(c, "definition", &r.Definition, false)
	number(c, "durationNs", &r.Duration, false)
	text(c, "run", &r.Run, false)
	number(c, "toolCalls", &r.ToolCalls, false)
	number(c, "turns", &r.Turns, false)
}

func (r *SteeringQueued) fields(c *coder) {
	instant(c, "at", &r.At, false)
	text(c, "by", &r.By, false)
	number(c, "entry", &r.Entry, false)
	text(c, "key", &r.Key, false)
	text(c, "submission", &r.Submission, false)
	value(c, "text", &r.Text, false)
}

func (r *SteeringApplied) fields(c *coder) {
	text(c, "by", &r.By, false)
	number(c, "entry", &r.Entry, false)
	number(c, "queued", &r.Queued, true)
	value(c, "text", &r.Text, true)
}

func (r *SteeringDropped) fields(c *coder) {
	text(c, "by", &r.By, false)
	number(c, "entry", &r.Entry, false)
	text(c, "key", &r.Key, true)
	number(c, "queued", &r.Queued, true)
	text(c, "reason", &r.Reason, false)
	text(c, "submission", &r.Submission, true)
}

func (r *FollowUpApplied) fields(c *coder) {
	text(c, "submission", &r.Submission, false)
	value(c, "text", &r.Text, false)
}

func (r *ResponseRecorded) fields(c *coder) {
	objects(c, "calls", &r.Calls)
	flag(c, "constrained", &r.Constrained, true)
	text(c, "exhausted", &r.Exhausted, true)
	flag(c, "grace", &r.Grace, true)
	sub(c, "message", &r.Message)
	text(c, "model", &r.Model, false)
	objects(c, "prefix", &r.Prefix)
	text(c, "pricingVersion", &r.PricingVersion, true)
	text(c, "provider", &r.Provider, false)
	text(c, "rawStop", &r.RawStop, true)
	objects(c, "repairs", &r.Repairs)
	text(c, "request", &r.Request, true)
	text(c, "responseId", &r.ResponseID, true)
	text(c, "stop", &r.Stop, false)
	text(c, "tier", &r.Tier, true)
	number(c, "turn", &r.Turn, false)
	optSub(c, "usage", &r.Usage)
	if c.checks() {
		checkResponse(c, r)
	}
}

func (m *Message) fields(c *coder) {
	list(c, "parts", (*[]Part)(&m.Parts), false, (*coder).part)
	enum(c, "role", &m.Role, false, System, User, Assistant, Tool)
}

func (r *Repair) fields(c *coder) {
	text(c, "name", &r.Name, false)
	text(c, "raw", &r.Raw, true)
}

func (d *DeclaredCall) fields(c *coder) {
	text(c, "argsDigest", &d.ArgsDigest, false)
	enum(c, "class", &d.Class, true, Readonly, Idempotent, Uncertain)
	text(c, "id", &d.ID, false)
	text(c, "problem", &d.Problem, true)
	text(c, "tool", &d.Tool, false)
	text(c, "version", &d.Version, true)
}

func (r *ApprovalRequested) fields(c *coder) {
	text(c, "approval", &r.Approval, false)
	text(c, "argsDigest", &r.ArgsDigest, false)
	text(c, "call", &r.Call, false)
	instant(c, "expiresAt", &r.ExpiresAt, true)
	text(c, "tool", &r.Tool, false)
	text(c, "version", &r.Version, true)
}

func (r *ApprovalResolved) fields(c *coder) {
	text(c, "approval", &r.Approval, false)
	instant(c, "at", &r.At, false)
	text(c, "by", &r.By, true)
	text(c, "call", &r.Call, false)
	enum(c, "decision", &r.Decision, false, Approved, Denied, Expired)
	number(c, "entry", &r.Entry, true)
	text(c, "reason", &r.Reason, true)
}

func (r *CallPrepared) fields(c *coder) {
	text(c, "call", &r.Call, false)
	text(c, "operation", &r.Operation, false)
}

func (r *CallSettled) fields(c *coder) {
	text(c, "call", &r.Call, false)
	number(c, "durationNs", &r.Duration, true)
	number(c, "entry", &r.Entry, true)
	enum(c, "outcome", &r.Outcome, false, Succeeded, Failed, Aborted, Infrastructure, DeniedCall, Interrupted)
	value(c, "result", &r.Result, false)
	text(c, "source", &r.Source, true)
	text(c, "synthetic", &r.Synthetic, true)
	text(c, "tag", &r.Tag, true)
	number(c, "truncated", &r.Truncated, true)
}

func (r *CallWaiting) fields(c *coder) {
	text(c, "call", &r.Call, false)
	text(c, "childConversation", &r.ChildConversation, false)
	text(c, "childSubmission", &r.ChildSubmission, false)
}

func (r *CallUnknown) fields(c *coder) {
	text(c, "call", &r.Call, false)
	text(c, "reason", &r.Reason, false)
}

func (r *CallResolved) fields(c *coder) {
	text(c, "by", &r.By, true)
	text(c, "call", &r.Call, false)
	number(c, "entry", &r.Entry, true)
	text(c, "reason", &r.Reason, true)
	enum(c, "resolution", &r.Resolution, false, Happened, NotHappened, SafeToRetry)
	text(c, "source", &r.Source, false)
}

func (r *StepRecorded) fields(c *coder) {
	text(c, "call", &r.Call, false)
	value(c, "result", &r.Result, false)
	text(c, "step", &r.Step, false)
}

func (r *ChildLinked) fields(c *coder) {
	text(c, "agent", &r.Agent, false)
	text(c, "call", &r.Call, false)
	text(c, "conversation", &r.Conversation, false)
	text(c, "submission", &r.Submission, false)
}

func (r *ChildSettled) fields(c *coder) {
	text(c, "call", &r.Call, false)
	number(c, "entry", &r.Entry, false)
	ptr(c, "error", &r.Error)
	value(c, "output", &r.Output, true)
	enum(c, "status", &r.Status, false, StatusCompleted, StatusFailed, StatusAborted)
	text(c, "submission", &r.Submission, false)
	optSub(c, "usage", &r.Usage)
}

func (r *BudgetReserved) fields(c *coder) {
	sub(c, "allowance", &r.Allowance)
	text(c, "call", &r.Call, false)
	number(c, "microUSD", &r.MicroUSD, true)
	number(c, "tokens", &r.Tokens, true)
}

func (r *BudgetReleased) fields(c *coder) { text(c, "call", &r.Call, false) }

func (r *BudgetAnswered) fields(c *coder) {
	flag(c, "allowed", &r.Allowed, false)
	text(c, "reason", &r.Reason, true)
	number(c, "turn", &r.Turn, false)
}

func (r *BudgetWarned) fields(c *coder) {
	text(c, "dimension", &r.Dimension, false)
	number(c, "limit", &r.Limit, false)
	number(c, "used", &r.Used, false)
}

func (r *CompactionCreated) fields(c *coder) {
	text(c, "compaction", &r.Compaction, false)
	number(c, "coversThrough", &r.CoversThrough, false)
	value(c, "summary", &r.Summary, true)
	optSub(c, "usage", &r.Usage)
}

func (r *BackoffScheduled) fields(c *coder) {
	text(c, "class", &r.Class, false)
	text(c, "message", &r.Message, true)
	number(c, "retries", &r.Retries, false)
	instant(c, "until", &r.Until, false)
}

func (r *RunHeld) fields(c *coder) {
	text(c, "detail", &r.Detail, true)
	text(c, "reason", &r.Reason, false)
	instant(c, "until", &r.Until, true)
}

func (r *RunReleased) fields(c *coder) {
	text(c, "by", &r.By, true)
	number(c, "entry", &r.Entry, true)
	text(c, "reason", &r.Reason, true)
}

func (r *AbortRequested) fields(c *coder) {
	text(c, "by", &r.By, false)
	number(c, "entry", &r.Entry, false)
	text(c, "reason", &r.Reason, true)
	text(c, "submission", &r.Submission, false)
}

func (r *EntryIgnored) fields(c *coder) {
	number(c, "entry", &r.Entry, false)
	text(c, "reason", &r.Reason, false)
	text(c, "what", &r.What, false)
}

func (r *RunSettled) fields(c *coder) {
	number(c, "attempts", &r.Attempts, false)
	value(c, "disposition", &r.Disposition, true)
	ptr(c, "error", &r.Error)
	text(c, "exhausted", &r.Exhausted, true)
	text(c, "finishReason", &r.FinishReason, true)
	text(c, "host", &r.Host, true)
	names(c, "joined", &r.Joined)
	value(c, "output", &r.Output, true)
	text(c, "policyLimit", &r.PolicyLimit, true)
	names(c, "queued", &r.Queued)
	text(c, "run", &r.Run, false)
	enum(c, "status", &r.Status, false, StatusCompleted, StatusFailed, StatusAborted)
	number(c, "turns", &r.Turns, false)
	optSub(c, "usage", &r.Usage)
	if c.checks() {
		checkSettled(c, r)
	}
}

func (e *Error) fields(c *coder) {
	text(c, "hint", &e.Hint, true)
	text(c, "kind", &e.Kind, false)
	text(c, "limit", &e.Limit, true)
	text(c, "message", &e.Message, false)
}

func (u *Usage) fields(c *coder) {
	count(c, "cacheReadTokens", &u.CacheReadTokens)
	count(c, "cacheWriteTokens", &u.CacheWriteTokens)
	count(c, "costMicroUSD", &u.CostMicroUSD)
	count(c, "inputTokens", &u.InputTokens)
	count(c, "outputTokens", &u.OutputTokens)
	rawJSON(c, "raw", &u.Raw)
	count(c, "reasoningTokens", &u.ReasoningTokens)
	if c.checks() {
		u.check(c)
	}
}

func (v *Value) fields(c *coder) {
	ptr(c, "aside", &v.Aside)
	rawJSON(c, "inline", &v.Inline)
	if c.checks() && v.Aside != nil && v.Inline != nil {
		c.fail(corrupt("a value both inline and aside"))
	}
}

func (r *Ref) fields(c *coder) {
	text(c, "sha256", &r.SHA256, false)
	number(c, "size", &r.Size, false)
	if c.checks() && (!isDigest(r.SHA256) || r.Size < 0) {
		c.fail(corrupt("a malformed payload reference"))
	}
}

func (p *TextPart) fields(c *coder) {
	opaque(c, &p.Opaque)
	text(c, "provider", &p.Provider, true)
	value(c, "text", &p.Text, false)
}

func (p *ReasoningPart) fields(c *coder) {
	opaque(c, &p.Opaque)
	text(c, "provider", &p.Provider, true)
	value(c, "text", &p.Text, true)
}

func (p *ToolCallPart) fields(c *coder) {
	value(c, "args", &p.Args, false)
	text(c, "id", &p.ID, false)
	opaque(c, &p.Opaque)
	text(c, "provider", &p.Provider, true)
	flag(c, "providerExecuted", &p.ProviderExecuted, true)
	text(c, "tool", &p.Tool, false)
}

func (p *ToolResultPart) fields(c *coder) {
	text(c, "call", &p.Call, false)
	flag(c, "failed", &p.Failed, true)
	opaque(c, &p.Opaque)
	text(c, "provider", &p.Provider, true)
	flag(c, "providerExecuted", &p.ProviderExecuted, true)
	value(c, "result", &p.Result, false)
	text(c, "tool", &p.Tool, false)
}

// opaque walks the bytes a provider needs back.
func opaque(c *coder, p *Value) {
	value(c, "opaque", p, true)
	if c.checks() {
		if _, err := p.Bytes(); err != nil {
			c.fail(err)
		}
	}
}

func (p *MediaPart) fields(c *coder) {
	sub(c, "content", &p.Content)
	text(c, "mediaType", &p.MediaType, false)
	text(c, "name", &p.Name, true)
}

func (*InputPart) fields(*coder) {}

func (e *envelope) fields(c *coder) {
	instant(c, "at", &e.At, false)
	text(c, "attempt", &e.Attempt, false)
	text(c, "batch", &e.ID, false)
	text(c, "conversation", &e.Conversation, false)
	if c.mode == encoding { // shown to outsiders, never stored
		text(c, "digest", &e.shown, true)
	}
	number(c, "epoch", &e.Epoch, false)
	text(c, "prev", &e.Prev, false)
	list(c, "records", (*[]Record)(&e.Records), false, (*coder).record)
	number(c, "slot", &e.Slot, false)
	text(c, "tenant", &e.Tenant, false)
	number(c, "v", &e.V, false)
}
