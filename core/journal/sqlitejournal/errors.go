package sqlitejournal

import (
	"errors"
	"fmt"
	"syscall"

	"modernc.org/sqlite"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Primary SQLite result codes; the low byte of an extended one.
const (
	codeIOErr   = 10
	codeCorrupt = 11
	codeFull    = 13
	codeNotADB  = 26
)

// primary is the primary SQLite result code of err, 0 for none.
func primary(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// classify gives a storage error the type callers decide by.
func classify(err error) error {
	switch code := primary(err); {
	case err == nil:
		return nil
	case code == codeFull, errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: %w", journal.ErrFull, err)
	case code == codeCorrupt, code == codeNotADB:
		return fmt.Errorf("%w: %w", record.ErrCorrupt, err)
	}
	return err
}

// failed names the operation and the lane an error belongs to.
func failed(op string, lane journal.Lane, err error) error {
	if err == nil {
		return nil
	}
	if lane == (journal.Lane{}) {
		return fmt.Errorf("sqlitejournal: %s: %w", op, classify(err))
	}
	return fmt.Errorf("sqlitejournal: %s %s/%s: %w", op, lane.Tenant, lane.Conversation, classify(err))
}

func failedKey(op, tenant, key string, err error) error {
	return failed(op, journal.Lane{Tenant: tenant, Conversation: key}, err)
}
