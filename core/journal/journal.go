// Package journal is the storage port: what a conversation's log, its inbox
// and its lane head need from a store, shaped by operation.
//
// Every durable step is one conditional write of one item, and the order of
// the items in an operation makes a crash between them harmless; an adapter
// may write the items of one operation together, never in another order. The
// normative table is in the storage protocol (docs/spec/protocol.md); the
// comment on each operation says what is atomic, what is idempotent and by
// which key, what a lost answer looks like, which errors are answers, and who
// may call again.
//
// Answers and silence. An error that matches one of this package's or of
// package record's, or a context's, is an answer. Everything else is unclear
// (see Unclear): the operation may have happened, wholly or up to any of its
// items. Every operation may be repeated with the same arguments by whoever
// called it, any number of times, and then completes what an earlier try
// began; nobody else needs to do it. A context that ends during a call leaves
// it as unclear as a lost connection does; one that has ended before it means
// that nothing was written.
//
// Reads are strongly consistent and complete, but for Due, which is a hint.
// What is stored by a newer build, damaged, or another conversation's is
// refused by the operation that needs it, before it writes anything:
// ErrNewer or record.ErrUnknownVersion, record.ErrCorrupt, record.ErrForeign.
// What a store has no second word for cannot be noticed there; the
// certification in journaltest lists it for each adapter. A batch is checked
// against its own digest by record.Open, which every reader of the log calls
// before it writes behind it.
//
// Never: delete a slot or a head while the conversation lives (F13), reuse an
// attempt id or a batch id (F5), write a head from a sweep, decide by a clock
// who owns a lane.
//
// An adapter is safe for concurrent use. Byte slices it returns belong to the
// caller; those it is given stay unchanged until it returns. Times have the
// precision of record.Time.
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
	// Drained is the inbox slot up to which the log has entries. It is a hint
	// that rides on writes made anyway; the log is the truth.
	Drained uint64
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
	// Admit accepts a submission.
	//
	// Items in order, each atomic by itself: large input as payloads; the row
	// (condition: not exists), which keeps the inbox tail read before it; the
	// inbox entry, whose key and ref are the submission's ID (condition: slot
	// empty, own key not found above the row's tail, F15); the bump of the head.
	//
	// The bump: an idle or parked lane, or one never used, becomes ready and due
	// at now+grace with its version raised; a ready or running lane has its
	// version raised, and a ready one that was due later is due at now+grace
	// (F2). A spare bump harms nothing.
	//
	// Idempotent by tenant and ID. The same digest is Duplicate and finishes
	// what an earlier try began, the bump included unless the log has the entry
	// already; a row that has settled answers its Outcome and writes nothing.
	// Another digest is ErrConflict. A row that was withdrawn is ErrTombstone
	// (F9). Too large for the store is record.ErrTooLarge.
	//
	// A lost answer looks like Duplicate to the next try of the same call; the
	// caller knows its own by having tried before. Whoever submits may retry,
	// for as long as rows of settled work are kept. When it returns nil the work
	// is durable and its lane is due: grace bounds how long a lost wake may stay
	// unnoticed.
	Admit(ctx context.Context, s Submission, now time.Time, grace time.Duration) (Admission, error)

	// Signal puts a command into the inbox.
	//
	// Items in order: the entry into the next slot (condition: empty, and no
	// entry of the same key above after); the bump, as in Admit. The entry is
	// not acknowledged before its bump, so an entry without one is consumed
	// with the next, or by its writer's retry.
	//
	// Idempotent by Entry.Key among the entries above after, which is a slot
	// that exists, or 0: the same digest is Duplicate; another digest is
	// *ConflictError holding the entry that was first. The slot decides who was
	// first, and whoever hears of an entry, a duplicate and a loser too, may
	// rely on the lane being due. A Body over EntryLimit is record.ErrTooLarge.
	//
	// A lost answer looks like Duplicate to the next try. The writer may retry:
	// a client, a redelivered settlement, a sweep.
	Signal(ctx context.Context, lane Lane, e Entry, after uint64, now time.Time, grace time.Duration) (Signalled, error)

	// Claim makes Owner the owner of a lane under the next epoch.
	//
	// One item, the head (condition: epoch, state and lease as read), when it is
	// ready, or running with its lease over or its boot gone, or parked with its
	// due time passed (F12). Otherwise ErrNotClaimable: leave. Owner is fresh
	// and random for each invocation (F5), and neither it nor Lease may be
	// missing: a running lane is due when its lease ends.
	//
	// Idempotent by Owner while it runs. A lost answer is resolved by reading:
	// the claim is mine only if owner, epoch and running all match (F4), so a
	// claim that was released meanwhile is ErrNotClaimable. The same invocation
	// may retry. The answer is the head as claimed: its Version and Settled are
	// what the first Park starts from. Until the owner's first batch is
	// confirmed it writes no head and starts no effect.
	Claim(ctx context.Context, r ClaimRequest) (Head, error)

	// Append writes one batch into the next slot of the log.
	//
	// One item (condition: the slot is empty, and the slot before it is not).
	// Idempotent by slot, id and digest: finding these there is success, which
	// is also what a lost answer looks like. Any other occupant is *TakenError;
	// of a higher epoch it is the fence, of a lower one true history to fold, of
	// the same one a defect of the caller. The condition alone is no fence (F1):
	// whoever reads a higher epoch than its own, in any batch, stops.
	//
	// An error that is no answer leaves the slot unclear: the owner repeats the
	// same bytes and writes, sends and starts nothing else until that is
	// resolved (F7). The slot before being empty is an error of the caller's
	// that no retry cures.
	Append(ctx context.Context, lane Lane, b record.Sealed) error

	// Read yields the log from a slot on (0 is 1), in slot order, every page of
	// it; a slot missing in between is record.ErrCorrupt. An error is the last
	// pair. The journal may be used while it is ranged over. Anybody may retry.
	Read(ctx context.Context, lane Lane, from uint64) iter.Seq2[record.Sealed, error]

	// Inbox reads the head and then, after it, every entry above after: a
	// version known before the look is what a park compares. A slot missing in
	// between is record.ErrCorrupt.
	Inbox(ctx context.Context, lane Lane, after uint64) (Head, []Entry, error)

	// Park releases a claimed lane: to parked, to idle, or to ready (a yield).
	//
	// One item, the head (condition: this epoch and owner, running; to parked or
	// idle also the version known before the last look at the inbox). Owner and
	// Boot stay behind as evidence. A lane that is not idle needs a Due.
	//
	// ErrRefused: it is still mine and an entry arrived; take the version of
	// the next look and go on. ErrFenced: it has another owner, or was released,
	// perhaps by this very call whose answer was lost: stop, append nothing
	// (F6). An adapter that can tell its own lost answer returns nil instead.
	// The owner repeats an unclear release until it has an answer, and does
	// nothing else meanwhile.
	Park(ctx context.Context, r ReleaseRequest) error

	// Finish hands terminal records over and frees the lane.
	//
	// Items in order: each submission row (condition: not settled; an outcome
	// that is there stays), then the head (condition: settled as read; to idle
	// also the version read before the look, to ready at any version, so that a
	// flood of commands cannot starve it, F3). Settled moves last, so a crash in
	// between leaves the lane due and the whole is repeated.
	//
	// Idempotent by Settled: a head there, or beyond, is success, which is also
	// what a lost answer looks like. ErrRefused: look again. A run without a row
	// is record.ErrCorrupt. Settle, its redeliveries and any sweep may retry, at
	// the same time too.
	Finish(ctx context.Context, r FinishRequest) error

	// Due lists lanes whose due time has passed at until, oldest first, at most
	// limit of them. Every lane that is not idle has a due time. The answer is a
	// hint: a lane may be missing for a while, and what is listed may have moved
	// on. Read the head before acting on it; two sweeps at once are harmless. A
	// lane whose head cannot be read is listed with its name alone and keeps none
	// of the others back: reading it says what is wrong.
	Due(ctx context.Context, until time.Time, limit int) ([]Head, error)

	// Watch returns the head once its epoch, state, version or settled differ
	// from seen, or ctx's error. How soon is the adapter's: at once in one
	// process, within its polling interval elsewhere. Changes in between are not
	// told one by one.
	Watch(ctx context.Context, lane Lane, seen Head) (Head, error)

	// Head reads the head; a lane never used is an idle head at epoch 0.
	Head(ctx context.Context, lane Lane) (Head, error)

	// Submission reads a ledger row by tenant and ID, or ErrNotFound.
	Submission(ctx context.Context, tenant, id string) (Submission, error)

	// PutPayload stores bytes of any size aside under their digest, before the
	// record or entry that refers to them. Idempotent by tenant and digest, and
	// complete when it returns nil, whatever an earlier try left behind. Bytes
	// with another digest, or others under it, are record.ErrCorrupt.
	PutPayload(ctx context.Context, tenant, digest string, body []byte) error

	// Payload reads bytes stored aside and checks them against their digest:
	// ErrNotFound, or record.ErrCorrupt, also when only a part of them is there.
	Payload(ctx context.Context, tenant, digest string) ([]byte, error)
}
