package model

import (
	"errors"
	"fmt"
	"time"
)

// Class says what may be done about a failed model call.
type Class string

// The failure classes.
const (
	Transient       Class = "transient"        // may be asked again
	RateLimited     Class = "rate-limited"     // may be asked again, after RetryAfter
	ContextOverflow Class = "context-overflow" // the request is too long
	Refused         Class = "refused"          // credentials, permissions, request shape
	Protocol        Class = "protocol"         // the provider broke the protocol
)

// Error is a failed model call.
type Error struct {
	Class      Class
	Message    string        // bounded, without secrets
	RetryAfter time.Duration // as the provider asked; 0 if it did not
	Err        error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("model: %s: %s: %v", e.Class, e.Message, e.Err)
	}
	return fmt.Sprintf("model: %s: %s", e.Class, e.Message)
}

// Unwrap is the provider's own error.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf classifies any error of a model call: unknown errors are transient,
// because nothing was recorded yet and asking again is safe.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Transient
}

func protocol(format string, args ...any) error {
	return &Error{Class: Protocol, Message: fmt.Sprintf(format, args...)}
}
