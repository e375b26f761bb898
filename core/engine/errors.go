package engine

import (
	"errors"
	"fmt"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// ErrorKind says what a caller can do about an error.
type ErrorKind string

// The kinds. They are part of the outside surface.
const (
	KindInvalid     ErrorKind = "invalid"     // the request itself is wrong
	KindTooLarge    ErrorKind = "too-large"   // over a size limit
	KindNotFound    ErrorKind = "not-found"   // no such thing
	KindConflict    ErrorKind = "conflict"    // the key was used for something else
	KindDecided     ErrorKind = "decided"     // somebody decided first
	KindExpired     ErrorKind = "expired"     // too late
	KindSettled     ErrorKind = "settled"     // the run has ended
	KindFull        ErrorKind = "full"        // too much waits already: try again later
	KindUnsupported ErrorKind = "unsupported" // not in this version
	KindUnavailable ErrorKind = "unavailable" // the store did not answer: try again
	KindCorrupt     ErrorKind = "corrupt"     // stored data is damaged
	KindInternal    ErrorKind = "internal"    // a defect
)

// Error is what the services answer: what failed, of which kind, and what the
// caller can do next. Its text holds no secret.
type Error struct {
	Kind    ErrorKind
	Op      string // what was asked, such as "submit"
	Message string
	Hint    string
	Err     error
}

func (e *Error) Error() string { return e.Op + ": " + e.Message }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(kind ErrorKind, op, hint, format string, args ...any) *Error {
	return &Error{Kind: kind, Op: op, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

// AsError gives any error the services return its kind.
func AsError(op string, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	wrap := func(kind ErrorKind, hint string) *Error {
		return &Error{Kind: kind, Op: op, Message: err.Error(), Hint: hint, Err: err}
	}
	switch {
	case errors.Is(err, journal.ErrNotFound):
		return wrap(KindNotFound, "")
	case errors.Is(err, journal.ErrConflict), errors.Is(err, journal.ErrTombstone):
		return wrap(KindConflict, "use another idempotency key")
	case errors.Is(err, record.ErrUnknownVersion), errors.Is(err, record.ErrUnknownKind), errors.Is(err, journal.ErrNewer):
		return wrap(KindCorrupt, "the data was written by a newer version: upgrade this build")
	case errors.Is(err, record.ErrCorrupt), errors.Is(err, record.ErrForeign):
		return wrap(KindCorrupt, "run `layover verify` on the conversation and restore it from a backup")
	case errors.Is(err, journal.ErrFull):
		return wrap(KindUnavailable, "free some disk space")
	}
	return wrap(KindUnavailable, "try again; the request is safe to repeat")
}
