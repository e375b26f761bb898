package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/layover-run/layover/core/record"
)

// What an operation can say besides success. Match with errors.Is. Repeating
// the same call does not change such an answer; see Unclear for the rest.
var (
	// ErrConflict: the key is taken by other content. Retrying cannot help.
	ErrConflict = errors.New("key already used with other content")
	// ErrNotClaimable: a live owner, nothing to do, or not yet due.
	ErrNotClaimable = errors.New("lane not claimable")
	// ErrRefused: the version moved. Look at the inbox again and go on.
	ErrRefused = errors.New("lane changed since the last look")
	// ErrFenced: a newer owner exists, or the lane was released. Stop.
	ErrFenced = errors.New("fenced: the lane has another owner")
	// ErrTaken: the log slot holds another batch.
	ErrTaken = errors.New("log slot taken")
	// ErrNotFound: no such row or payload.
	ErrNotFound = errors.New("not found")
	// ErrTombstone: the submission was given up before it was admitted (F9).
	ErrTombstone = errors.New("submission withdrawn")
	// ErrInUse: another process holds the store.
	ErrInUse = errors.New("data directory in use by another process")
	// ErrNewer: the store was written by a newer build.
	ErrNewer = errors.New("store written by a newer version")
	// ErrFull: no space left on the device.
	ErrFull = errors.New("no space left")
	// ErrCursor: a cursor of Lister that no page ended with.
	ErrCursor = errors.New("not a cursor")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("journal closed")
)

// answers are the errors that say something. ErrTaken and the like are answers
// of the operation, the record errors are what the stored bytes or the given
// ones are, a context's error is the caller's own.
var answers = []error{
	ErrConflict, ErrNotClaimable, ErrRefused, ErrFenced, ErrTaken, ErrNotFound, ErrTombstone, ErrInUse, ErrNewer, ErrFull, ErrCursor, ErrClosed,
	record.ErrCorrupt, record.ErrForeign, record.ErrTooLarge, record.ErrUnknownKind, record.ErrUnknownVersion, record.ErrInvalidJSON,
	context.Canceled, context.DeadlineExceeded,
}

// Unclear reports that err is no answer: what was asked may have happened or
// not, and the same call with the same arguments finds out.
func Unclear(err error) bool {
	return err != nil && !slices.ContainsFunc(answers, func(known error) bool { return errors.Is(err, known) })
}

// ConflictError is ErrConflict with the entry that was first.
type ConflictError struct{ First Entry }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: inbox slot %d by %s", ErrConflict, e.First.Slot, e.First.By)
}

// Unwrap makes it match ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// TakenError is ErrTaken with the batch that holds the slot.
type TakenError struct{ Occupant record.Sealed }

func (e *TakenError) Error() string {
	return fmt.Sprintf("%v: slot %d holds batch %s of epoch %d", ErrTaken, e.Occupant.Slot, e.Occupant.ID, e.Occupant.Epoch)
}

// Unwrap makes it match ErrTaken.
func (e *TakenError) Unwrap() error { return ErrTaken }
