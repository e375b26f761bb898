// Package journal is the storage port: what a conversation's log, its inbox
// and its lane head need from a store, shaped by operation.
//
// Every durable step is one conditional write of one item, and the order of
// the items in an operation makes a crash between them harmless; an adapter
// may write the items of one operation together, never in another order. The
// normative table is in the storage protocol; the comment on each operation
// says what is atomic, what is idempotent and by which key, and what a lost
// answer looks like.
//
// An adapter is safe for concurrent use. Byte slices it returns belong to the
// caller; those it is given stay unchanged until it returns.
package journal

import (
	"context"
	"iter"
	"time"

	"github.com/layover-run/layover/core/record"
)

// Lane names a conversation's lane.
type Lane struct{ Tenant, Conversation string }

// State is a lane's state.
type State string

// The states of a lane. A lane without a head is idle at epoch 0.
const (
	Idle    State = "idle"
	Ready   State = "ready"
	Running State = "running"
	Parked  State = "parked"
)

// Head is the one mutable item of a conversation.
type Head struct {
	Lane    Lane
	Epoch   uint64
	Owner   string // attempt id; stays behind after a release as evidence
	Boot    string // the owner's boot id where one process holds the store
	State   State
	Version uint64    // moves with every inbox write and every release
	Due     time.Time // when a sweep looks here; zero only when idle
	Lease   time.Time // when the owner's invocation has certainly ended
	Settled uint64    // slot up to which terminal records are handed over
	Drained uint64    // inbox slot up to which the log has entries: a hint
}

// Submission is the ledger row of one accepted piece of work. Its ID is a
// function of tenant, principal, conversation and key, so that a retried
// admission finds itself.
type Submission struct {
	Lane       Lane
	ID         string
	Key        string
	Digest     string // of everything the caller sent
	Agent      string
	Principal  string
	Input      []byte // canonical JSON, any size
	ReplyTo    string
	Allowance  record.Allowance
	Parent     record.ParentLink
	AdmittedAt time.Time
	// Tail is the inbox tail read before the row was put: the entry can only
	// be above it (F15).
	Tail uint64
	// Outcome is set once the run has settled.
	Outcome *record.RunSettled
	// SettledAt is the time of the settling write.
	SettledAt time.Time
}

// EntryKind says what an inbox entry is.
type EntryKind string

// The kinds of inbox entries.
const (
	EntrySubmit      EntryKind = "submit"
	EntryDecision    EntryKind = "decision"
	EntryAbort       EntryKind = "abort"
	EntryResolve     EntryKind = "resolve"
	EntrySteer       EntryKind = "steer"
	EntryLateOutcome EntryKind = "lateOutcome"
	EntryChild       EntryKind = "child"
)

// Entry is one inbox slot: small, because every look reads it. Bodies over
// EntryLimit are payloads and Ref their digest; a submission's Ref is its ID.
type Entry struct {
	Slot   uint64
	Kind   EntryKind
	Key    string // two entries of one key are the same wish
	Digest string // of Body; tells a retry from a conflict
	Ref    string
	Body   []byte // canonical JSON
	By     string
	At     time.Time
}

// EntryLimit bounds Entry.Body in bytes.
const EntryLimit = 2 << 10

// Admission is the answer of Admit.
type Admission struct {
	Submission Submission // as stored; its Outcome is set if it has settled
	Duplicate  bool
}

// Signalled is the answer of Signal.
type Signalled struct {
	Slot      uint64
	Duplicate bool
}

// ClaimRequest asks for a lane.
type ClaimRequest struct {
	Lane  Lane
	Owner string // fresh and random for each invocation, never derived (F5)
	Boot  string
	Now   time.Time
	Lease time.Time // when this invocation has certainly ended
}

// ReleaseRequest gives a claimed lane back.
type ReleaseRequest struct {
	Lane    Lane
	Epoch   uint64
	Owner   string
	To      State // Parked, Idle, or Ready for a yield
	Due     time.Time
	Version uint64 // known before the last look; not compared for a yield
	Drained uint64
}

// FinishRequest hands terminal records over and frees the lane.
type FinishRequest struct {
	Lane     Lane
	Outcomes []record.RunSettled // settled submission rows, in log order
	At       time.Time
	Was      uint64 // head.settled as read
	Settled  uint64 // slot of the terminal record
	Version  uint64 // head version read before the look; compared for Idle only
	To       State  // Idle, or Ready when work waits
	Due      time.Time
	Drained  uint64
}

// Journal is the storage port.
type Journal interface {
	// Admit accepts a submission: its row (condition: not exists), its inbox
	// entry (condition: slot empty, own key not found above the stored tail),
	// the bump of the head. Idempotent by Submission.ID: the same digest is
	// Duplicate and finishes what an earlier try began; another digest is
	// ErrConflict. After an error the caller may retry with the same row.
	// When it returns nil the work is durable and its lane is due. grace is
	// how long a lost wake may stay unnoticed.
	Admit(ctx context.Context, s Submission, now time.Time, grace time.Duration) (Admission, error)

	// Signal puts a command into the inbox and bumps the head. Idempotent by
	// Entry.Key among the entries above after: the same digest is Duplicate,
	// another is *ConflictError holding the entry that was first.
	Signal(ctx context.Context, lane Lane, e Entry, after uint64, now time.Time, grace time.Duration) (Signalled, error)

	// Claim raises the epoch when the lane is ready, or running with its
	// lease over (or its boot gone), or parked with its due time passed.
	// Otherwise ErrNotClaimable. A lost answer is resolved inside: the claim
	// is mine only if owner, epoch and running all match (F4).
	Claim(ctx context.Context, r ClaimRequest) (Head, error)

	// Append writes one batch into the next, empty slot. Finding the same id
	// and digest there is success; any other occupant is *TakenError. An
	// error that is neither leaves the slot unclear: repeat the same bytes
	// and do nothing else until it is resolved (F7).
	Append(ctx context.Context, lane Lane, b record.Sealed) error

	// Read yields the log from a slot on, strongly consistent and complete.
	Read(ctx context.Context, lane Lane, from uint64) iter.Seq2[record.Sealed, error]

	// Inbox reads the head and then, after it, every entry above after.
	Inbox(ctx context.Context, lane Lane, after uint64) (Head, []Entry, error)

	// Park releases a claimed lane: to parked or idle only while the version
	// is still the given one, to ready (a yield) at any version. ErrRefused:
	// still mine, look again and go on. ErrFenced: it is not mine any more,
	// or the release took effect earlier: stop, append nothing (F6).
	Park(ctx context.Context, r ReleaseRequest) error

	// Finish settles the submission rows and then frees the lane; settled
	// moves last. Idempotent by Settled: a head already there is success.
	// ErrRefused: the version moved, look again.
	Finish(ctx context.Context, r FinishRequest) error

	// Due lists lanes whose due time has passed at until, oldest first, at
	// most limit of them. Every lane that is not idle has a due time. The
	// answer is a hint: read the head before acting on it.
	Due(ctx context.Context, until time.Time, limit int) ([]Head, error)

	// Watch returns the head once it differs from seen, or ctx's error.
	Watch(ctx context.Context, lane Lane, seen Head) (Head, error)

	// Head reads the head; a lane never used is an idle head at epoch 0.
	Head(ctx context.Context, lane Lane) (Head, error)

	// Submission reads a ledger row by tenant and ID, or ErrNotFound.
	Submission(ctx context.Context, tenant, id string) (Submission, error)

	// PutPayload stores bytes aside under their digest; repeating it is free.
	PutPayload(ctx context.Context, tenant, digest string, body []byte) error

	// Payload reads bytes stored aside and checks them against their digest:
	// ErrNotFound, or record.ErrCorrupt.
	Payload(ctx context.Context, tenant, digest string) ([]byte, error)
}
