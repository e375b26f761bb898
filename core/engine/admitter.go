package engine

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// MaxInput is the largest input of a submission, in bytes of its canonical
// form: what one queue message can carry.
const MaxInput = 1 << 20

// Admitter accepts work and commands and answers questions about them. It
// knows agents through a manifest only.
type Admitter struct {
	cfg      Config
	manifest Manifest
	inputs   map[string]*tool.Schema
}

// NewAdmitter compiles the input schemas of the manifest.
func NewAdmitter(cfg Config, m Manifest) (*Admitter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Admitter{cfg: cfg, manifest: m, inputs: map[string]*tool.Schema{}}
	for _, f := range m {
		if a.inputs[f.Name], err = tool.CompileSchema(f.Input); err != nil {
			return nil, fmt.Errorf("engine: manifest of agent %q: input schema: %w", f.Name, err)
		}
	}
	return a, nil
}

// Agents lists what this deployment can be asked to run.
func (a *Admitter) Agents() Manifest { return a.manifest }

// SubmitRequest asks for a run.
type SubmitRequest struct {
	Tenant    string
	Principal string
	Agent     string
	Key       string // idempotency key; minted when empty
	// Conversation is minted when empty, as a function of tenant, principal and
	// key: the same request again does not open a second one.
	Conversation string
	Input        json.RawMessage
	ReplyTo      string
	Allowance    AllowanceRequest

	join bool // a follow-up
}

// AllowanceRequest tightens an agent's policy for one submission. Numbers are
// floored and at least 1; what is not finite is ignored (RUN-021).
type AllowanceRequest struct {
	Turns     *float64 `json:"turns,omitempty"`
	ToolCalls *float64 `json:"toolCalls,omitempty"`
	// Seconds of wall clock.
	Seconds *float64 `json:"seconds,omitempty"`
}

// Receipt is what a caller gets once the work is durable.
type Receipt struct {
	Submission   string
	Conversation string
	Duplicate    bool
	At           time.Time
}

// Submit makes a submission durable and wakes its lane. Repeating it with the
// same key is answered with the first receipt; the same key with other content
// is KindConflict; a conversation where core.MaxWaiting submissions wait already
// is KindFull.
func (a *Admitter) Submit(ctx context.Context, r SubmitRequest) (Receipt, error) {
	return a.submit(ctx, "submit", r)
}

func (a *Admitter) submit(ctx context.Context, op string, r SubmitRequest) (Receipt, error) {
	s, err := a.submission(op, r)
	if err != nil {
		return Receipt{}, err
	}
	if r.Conversation != "" { // a minted one has nobody else
		if _, err := untilClear(ctx, func() error { return a.room(ctx, op, s) }); err != nil {
			return Receipt{}, AsError(op, err)
		}
	}
	now := a.cfg.Now()
	s.AdmittedAt = record.Time(now)
	fpAdmitBefore.Hit()
	var admitted journal.Admission
	tries, err := untilClear(ctx, func() (err error) { admitted, err = a.cfg.Journal.Admit(ctx, s, now, a.cfg.Grace); return err })
	if errors.Is(err, journal.ErrConflict) {
		return Receipt{}, &Error{Kind: KindConflict, Op: op, Err: err,
			Message: fmt.Sprintf("key %q was already used in conversation %q for another submission", s.Key, s.Lane.Conversation),
			Hint:    "repeat the first submission exactly, or use another key"}
	}
	if err != nil {
		return Receipt{}, AsError(op, err)
	}
	fpAdmitAfter.Hit()
	if admitted.Submission.Outcome == nil {
		send(ctx, a.cfg, queue.Attempt, s.Lane, 0)
	}
	// A second try that finds its own first one is no duplicate.
	own := tries > 1 && admitted.Submission.AdmittedAt.Equal(s.AdmittedAt)
	return Receipt{Submission: s.ID, Conversation: s.Lane.Conversation, Duplicate: admitted.Duplicate && !own,
		At: admitted.Submission.AdmittedAt}, nil
}

// submission validates a request and gives it its identity.
func (a *Admitter) submission(op string, r SubmitRequest) (journal.Submission, error) {
	none := journal.Submission{}
	facts, ok := a.manifest.Agent(r.Agent)
	if !ok {
		return none, refuse(KindInvalid, op, "the agents here are: "+a.names(), "unknown agent %q", r.Agent)
	}
	if r.Key == "" {
		r.Key = a.cfg.NewID()
	}
	if r.Conversation == "" {
		r.Conversation = mintConversation(r.Tenant, r.Principal, r.Key)
	}
	for _, id := range []struct{ what, value string }{
		{"tenant", r.Tenant}, {"principal", r.Principal}, {"conversation", r.Conversation}, {"key", r.Key},
	} {
		if err := checkID(op, id.what, id.value); err != nil {
			return none, err
		}
	}
	if len(r.ReplyTo) > 256 {
		return none, refuse(KindInvalid, op, "", "replyTo is longer than 256 bytes")
	}
	if len(r.Input) > MaxInput {
		return none, refuse(KindTooLarge, op, "store large content elsewhere and submit a reference to it", "the input has %d bytes; the limit is %d", len(r.Input), MaxInput)
	}
	if len(r.Input) == 0 {
		return none, refuse(KindInvalid, op, "`layover agents` shows the input schema with an example", "the input is missing")
	}
	input, err := record.Canonical(r.Input)
	if err != nil {
		return none, &Error{Kind: KindInvalid, Op: op, Err: err, Message: "the input is not valid: " + err.Error(), Hint: "send one JSON value in UTF-8"}
	}
	if len(input) > MaxInput {
		return none, refuse(KindTooLarge, op, "store large content elsewhere and submit a reference to it", "the input has %d bytes in canonical form; the limit is %d", len(input), MaxInput)
	}
	if err := a.inputs[facts.Name].Check(input); err != nil {
		return none, &Error{Kind: KindInvalid, Op: op, Err: err, Message: "the input does not fit agent " + facts.Name + ": " + err.Error(),
			Hint: "`layover agents` shows the input schema with an example"}
	}
	s := journal.Submission{
		Lane: journal.Lane{Tenant: r.Tenant, Conversation: r.Conversation},
		ID:   submissionID(r.Tenant, r.Principal, r.Conversation, r.Key), Key: r.Key,
		Agent: r.Agent, Principal: r.Principal, Input: input, ReplyTo: r.ReplyTo, Allowance: r.Allowance.normal(),
	}
	s.Allowance.Join = r.join
	s.Digest = contentDigest(s)
	return s, nil
}

func (a *Admitter) names() string {
	names := make([]string, 0, len(a.manifest))
	for _, f := range a.manifest {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

func (r AllowanceRequest) normal() record.Allowance {
	count := func(f *float64) int {
		if f == nil || math.IsNaN(*f) || math.IsInf(*f, 0) {
			return 0
		}
		return int(max(1, min(math.Floor(*f), 1<<30)))
	}
	out := record.Allowance{Turns: count(r.Turns), ToolCalls: count(r.ToolCalls)}
	if s := r.Seconds; s != nil && !math.IsNaN(*s) && !math.IsInf(*s, 0) {
		out.Duration = time.Duration(max(1, min(*s, 1<<30)) * float64(time.Second))
	}
	return out
}

// submissionID is a function of what a retry repeats, so that a retried
// admission finds itself.
func submissionID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return "s_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:16]))
}

func contentDigest(s journal.Submission) string {
	body, err := json.Marshal(struct {
		Agent     string           `json:"agent"`
		Input     json.RawMessage  `json:"input"`
		ReplyTo   string           `json:"replyTo"`
		Allowance record.Allowance `json:"allowance"`
	}{s.Agent, s.Input, s.ReplyTo, s.Allowance})
	if err != nil {
		panic(fmt.Sprintf("engine: submission does not encode: %v", err))
	}
	return record.Digest(body)
}

// checkID accepts any printable text of 1 to 256 bytes.
func checkID(op, what, id string) error {
	switch {
	case id == "":
		return refuse(KindInvalid, op, "", "the %s is empty", what)
	case len(id) > 256:
		return refuse(KindInvalid, op, "", "the %s is longer than 256 bytes", what)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }):
		return refuse(KindInvalid, op, "", "the %s holds characters that cannot be printed", what)
	}
	return nil
}

// mintConversation names a new conversation as a function of who asks with
// which key, so that a redelivered message does not open a second one.
func mintConversation(tenant, principal, key string) string {
	return "c_" + strings.TrimPrefix(submissionID(tenant, principal, "", key), "s_")
}
