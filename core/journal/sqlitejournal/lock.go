package sqlitejournal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/layover-run/layover/core/journal"
)

// lockDir takes the directory for this process. The kernel drops the lock when
// the process ends, however it ends, so a lock that is held has a live holder:
// that is what makes a boot id other than ours proof of a dead process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s%s", journal.ErrInUse, dir, holder(f))
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if err := writePid(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// unlock gives the directory back. Closing alone would not do while a child
// process is being started: until its exec it shares the file.
func unlock(f *os.File) error {
	// The process id goes first: nobody is to signal a stranger who gets it later.
	return errors.Join(f.Truncate(0), syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

func writePid(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder is ", held by process N" when the lock file says so.
func holder(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(", held by process %d", pid)
}
