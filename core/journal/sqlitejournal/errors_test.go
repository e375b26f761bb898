package sqlitejournal

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// A disk that is full says so in two ways: as SQLite's code, which
// TestAFullDiskFailsOnlyWhatDoesNotFit sees, and as the system's, where the
// directory or the lock file cannot be written.
func TestClassify(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "lock", Err: syscall.ENOSPC}
	for _, c := range []struct {
		err, want error
	}{
		{full, journal.ErrFull},
		{fmt.Errorf("lock: %w", full), journal.ErrFull},
		{&fs.PathError{Op: "open", Path: "lock", Err: syscall.EACCES}, fs.ErrPermission},
		{record.ErrCorrupt, record.ErrCorrupt},
	} {
		got := failed("open", journal.Lane{}, c.err)
		if !errors.Is(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
		if c.want != journal.ErrFull && errors.Is(got, journal.ErrFull) {
			t.Errorf("%v is no full disk", c.err)
		}
	}
	if failed("open", journal.Lane{}, nil) != nil {
		t.Error("nothing failed")
	}
}
