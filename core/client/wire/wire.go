// Package wire is the HTTP API as JSON: one type for each body, shared by the
// server and its Go client. Fields may be added; none is renamed or reused.
package wire

import (
	"encoding/json"
	"time"

	"github.com/layover-run/layover/core/record"
)

// Version is the "v" of the API.
const Version = 1

// Headers that say who asks. A server without authentication believes them.
const (
	HeaderTenant    = "Layover-Tenant"
	HeaderPrincipal = "Layover-Principal"
	// HeaderBoot names the opening of a data directory that is meant: another
	// server at the same address refuses the request.
	HeaderBoot = "Layover-Boot"
)

// Media types of answers.
const (
	TypeJSON    = "application/json"
	TypeLines   = "application/x-ndjson"
	TypeEvents  = "text/event-stream"
	TypeProblem = "application/problem+json"
)

// What a stream of events says besides events: the event field of SSE.
const (
	EventProblem = "problem" // the stream ends here; the data is a Problem
	EventGap     = "gap"     // events before it are not in this stream; the data is a Gap
)

// Gap says that a stream does not have every event since the last one: read
// the conversations themselves.
type Gap struct {
	Gap bool `json:"gap"`
}

// Submit asks for a run.
type Submit struct {
	Agent     string          `json:"agent"`
	Key       string          `json:"key,omitempty"` // idempotency key; minted when empty
	Input     json.RawMessage `json:"input"`
	ReplyTo   string          `json:"replyTo,omitempty"`
	Allowance Allowance       `json:"allowance,omitzero"`
}

// Allowance tightens the agent's limits for one submission.
type Allowance struct {
	Turns     *float64 `json:"turns,omitempty"`
	ToolCalls *float64 `json:"toolCalls,omitempty"`
	Seconds   *float64 `json:"seconds,omitempty"`
}

// What a receipt can be.
const (
	Accepted  = "accepted"
	Duplicate = "duplicate"
)

// Submitted says that the work is durable.
type Submitted struct {
	V            int       `json:"v"`
	Submission   string    `json:"submission"`
	Conversation string    `json:"conversation"`
	Receipt      string    `json:"receipt"` // accepted or duplicate
	At           time.Time `json:"at"`
}

// Where a submission can stand, besides the terminal statuses of package record.
const (
	StatusQueued  = "queued"
	StatusRunning = "running"
	StatusParked  = "parked"
)

// Progress is where a submission stands.
type Progress struct {
	Status       string          `json:"status"` // completed, failed, aborted, parked, running or queued
	Submission   string          `json:"submission"`
	Conversation string          `json:"conversation"`
	FinishReason string          `json:"finishReason,omitempty"`
	Exhausted    string          `json:"exhausted,omitempty"`
	PolicyLimit  string          `json:"policyLimit,omitempty"`
	Output       json.RawMessage `json:"output,omitempty"`
	Error        *record.Error   `json:"error,omitempty"`
	Parked       *Wait           `json:"parked,omitempty"`
	Usage        record.Usage    `json:"usage"`
	Attempts     int             `json:"attempts"`
	Turns        int             `json:"turns"`
}

// Settled reports whether the submission has its outcome.
func (p Progress) Settled() bool {
	switch record.Status(p.Status) {
	case record.StatusCompleted, record.StatusFailed, record.StatusAborted:
		return true
	}
	return false
}

// Wait is what a parked run waits for.
type Wait struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"`
	On     []string  `json:"on"` // approval or call ids, or a text
	// Calls are the open calls behind an approval or an unknown outcome.
	Calls []WaitCall `json:"calls,omitempty"`
}

// WaitCall is one call a run waits for.
type WaitCall struct {
	Call      string          `json:"call"`
	Tool      string          `json:"tool"`
	Args      json.RawMessage `json:"args,omitempty"`      // absent when they are large
	Operation string          `json:"operation,omitempty"` // key of an effect that may have happened
	Reason    string          `json:"reason,omitempty"`    // why its outcome is unknown
}

// Status is a conversation.
type Status struct {
	Conversation string    `json:"conversation"`
	State        string    `json:"state"` // idle, ready, running or parked
	Epoch        uint64    `json:"epoch"`
	Active       *Active   `json:"active,omitempty"`
	Queued       int       `json:"queued"`
	Latest       *Progress `json:"latest,omitempty"` // the last submission that ended
	// Damaged says, in a list, that the conversation's log does not read.
	Damaged bool `json:"damaged,omitempty"`
}

// Conversations is a page of conversations, the one opened last first; or
// the active ones, what is due first, 200 at most. In a list no run has its
// output.
type Conversations struct {
	Conversations []Status `json:"conversations"`
	Next          string   `json:"next,omitempty"` // cursor of the next page
}

// Active is the run that has the lane.
type Active struct {
	Submission string       `json:"submission"`
	Agent      string       `json:"agent"`
	Turn       int          `json:"turn"`
	Attempts   int          `json:"attempts"`
	StartedAt  time.Time    `json:"startedAt"`
	Deadline   time.Time    `json:"deadline"`
	Usage      record.Usage `json:"usage"`
	Aborting   bool         `json:"aborting,omitempty"`
	Parked     *Wait        `json:"parked,omitempty"`
}

// Batch is one line of a conversation's records.
type Batch struct {
	Slot    uint64            `json:"slot"`
	Batch   string            `json:"batch"`
	Epoch   uint64            `json:"epoch"`
	Attempt string            `json:"attempt"`
	Prev    string            `json:"prev"`
	Digest  string            `json:"digest"`
	At      time.Time         `json:"at"`
	Records []json.RawMessage `json:"records"`
}

// Verification is what a check of a conversation's log found.
type Verification struct {
	OK         bool     `json:"ok"`
	Batches    int      `json:"batches"`
	Head       string   `json:"head"`
	FirstBad   uint64   `json:"firstBad,omitempty"`
	Violations []string `json:"violations"`
}

// Abort asks to end a submission; none named means the active one.
type Abort struct {
	Submission string `json:"submission,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// Aborting says that the wish to end a submission is durable. How it ends is
// its outcome.
type Aborting struct {
	Conversation string `json:"conversation"`
	Submission   string `json:"submission"`
	By           string `json:"by"`
}

// Steer tells a run something before its next model request.
type Steer struct {
	Text       string `json:"text"`
	Submission string `json:"submission,omitempty"` // empty means the active one, or the next to start
	Key        string `json:"key,omitempty"`        // idempotency key; minted when empty
}

// Steering says that a steering command is durable.
type Steering struct {
	Conversation string    `json:"conversation"`
	Submission   string    `json:"submission"`
	Key          string    `json:"key"`
	Receipt      string    `json:"receipt"` // accepted or duplicate
	By           string    `json:"by"`
	At           time.Time `json:"at"`
}

// FollowUp is work that joins the active run where that would end, or else
// gets a run of its own. Its receipt is a Submitted.
type FollowUp struct {
	Input   json.RawMessage `json:"input"`
	Agent   string          `json:"agent,omitempty"` // empty means that of the newest submission
	Key     string          `json:"key,omitempty"`   // idempotency key; minted when empty
	ReplyTo string          `json:"replyTo,omitempty"`
}

// Resolve says what became of a call whose outcome is unknown.
type Resolve struct {
	Call       string            `json:"call"`
	Resolution record.Resolution `json:"resolution"` // happened, notHappened or safeToRetry
	Result     json.RawMessage   `json:"result,omitempty"`
	Reason     string            `json:"reason,omitempty"`
}

// Resolved says that the answer is durable.
type Resolved struct {
	Conversation string            `json:"conversation"`
	Call         string            `json:"call"`
	Resolution   record.Resolution `json:"resolution"`
	By           string            `json:"by"`
}

// Approval is one pending question.
type Approval struct {
	ID           string          `json:"id"`
	Conversation string          `json:"conversation"`
	Submission   string          `json:"submission"`
	Call         string          `json:"call"`
	Tool         string          `json:"tool"`
	ToolVersion  string          `json:"toolVersion"`
	ArgsDigest   string          `json:"argsDigest"`
	Args         json.RawMessage `json:"args"`
	RequestedAt  time.Time       `json:"requestedAt"`
	ExpiresAt    time.Time       `json:"expiresAt,omitzero"`
}

// Approvals is every pending question of a tenant, oldest first.
type Approvals struct {
	Approvals []Approval `json:"approvals"`
}

// What a Decide can say.
const (
	Approve = "approve"
	Deny    = "deny"
)

// Decide answers an approval.
type Decide struct {
	Decision string `json:"decision"` // approve or deny
	Reason   string `json:"reason,omitempty"`
	// ArgsDigest binds the decision to the arguments that were seen.
	ArgsDigest string `json:"argsDigest,omitempty"`
}

// Decision is a recorded answer.
type Decision struct {
	ID       string          `json:"id"`
	Decision record.Decision `json:"decision"`
	By       string          `json:"by"`
	At       time.Time       `json:"at"`
}

// Agent is what a deployment can be asked to run.
type Agent struct {
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	Description string            `json:"description"`
	Digest      string            `json:"digest,omitempty"`
	Input       json.RawMessage   `json:"input"` // JSON Schema with at least one example
	Output      json.RawMessage   `json:"output,omitempty"`
	Tools       []Tool            `json:"tools,omitempty"`
	Limits      map[string]string `json:"limits,omitempty"`
}

// Tool is one tool of an agent.
type Tool struct {
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	Class    string `json:"class"`
	Approval bool   `json:"approval,omitempty"`
}

// Agents is every agent of a deployment.
type Agents struct {
	Agents []Agent `json:"agents"`
}

// BatchResponse says which messages of a queue event were not taken.
type BatchResponse struct {
	Failures []BatchFailure `json:"batchItemFailures"`
}

// BatchFailure names a message to be delivered again.
type BatchFailure struct {
	Message string `json:"itemIdentifier"`
}

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Kind   string `json:"kind"` // what a caller can do about it
	Op     string `json:"op"`   // what was asked
	Hint   string `json:"hint,omitempty"`
}

// KindUnauthorized is the kind of requests without the token of the server.
const KindUnauthorized = "unauthorized"

// KindForbidden is the kind of requests that were not made by who may make
// them; the other kinds are those of package engine.
const KindForbidden = "forbidden"

// KindMisdirected is the kind of requests that meant another server.
const KindMisdirected = "misdirected"
