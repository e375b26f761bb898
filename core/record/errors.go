package record

import (
	"errors"
	"fmt"
)

// The ways in which persisted bytes can be refused. Match them with errors.Is.
var (
	// ErrUnknownVersion: written by a newer build. Nothing may be appended
	// behind it; upgrade this build.
	ErrUnknownVersion = errors.New("unknown format version")
	// ErrUnknownKind: a record kind, part type, field, or value of a closed set
	// that this build does not know.
	ErrUnknownKind = errors.New("unknown record kind or field")
	// ErrCorrupt: bytes that are damaged, truncated, not what their digest says,
	// or nothing that Seal writes. From Seal: a record that breaks a rule of the
	// format, which is a defect of its writer.
	ErrCorrupt = errors.New("corrupt batch")
	// ErrForeign: a batch of another tenant, conversation or slot.
	ErrForeign = errors.New("batch of another conversation")
	// ErrTooLarge: over a bound of this package; large values belong aside.
	ErrTooLarge = errors.New("batch over its size limit")
	// ErrInvalidJSON: not JSON, or JSON outside the canonical subset
	// (duplicate keys, invalid UTF-8, lone surrogates, nesting over MaxDepth).
	ErrInvalidJSON = errors.New("invalid JSON")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
