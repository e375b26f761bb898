package sqlitejournal_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/layover-run/layover/core/failpoint"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/sqlitejournal"
)

// A process that dies around COMMIT has written all of an operation or
// nothing, and its directory is free.
func TestKilledProcess(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		check(t, failpoint.Arm())
		admit(t, open(t, dir), lane, "s1")
		t.Fatal("still alive")
	}
	for point, admitted := range map[string]bool{
		"sqlite.admit.before": false, "sqlite.commit.before": false, "sqlite.commit.after": true, "sqlite.admit.after": true,
	} {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
			cmd.Env = append(os.Environ(), childDir+"="+dir, failpoint.Variable+"="+point)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the child ended with %v\n%s", err, out)
			}

			j := open(t, dir)
			h, entries, err := j.Inbox(t.Context(), lane, 0)
			check(t, err)
			_, err = j.Submission(t.Context(), "acme", "s1")
			if got := err == nil && len(entries) == 1 && h.Version == 1; got != admitted {
				t.Errorf("row: %v, %d entries, version %d; want admitted=%v", err, len(entries), h.Version, admitted)
			}
			admit(t, j, lane, "s1")
			if claim(t, j, lane, "a1").Epoch != 1 {
				t.Error("the lane cannot be claimed")
			}
		})
	}
}

// A commit that fails leaves nothing behind, in memory as little as on disk.
func TestFailedCommit(t *testing.T) {
	j := open(t, t.TempDir())
	admit(t, j, lane, "s1")
	before, err := j.Head(t.Context(), lane)
	check(t, err)

	failpoint.Set(func(name string) {
		if name == "sqlite.commit.before" {
			sqlitejournal.Rollback(t, j)
		}
	})
	defer failpoint.Set(nil)
	_, err = j.Claim(t.Context(), journal.ClaimRequest{Lane: lane, Owner: "a1", Boot: j.Boot(), Now: start, Lease: start.Add(time.Hour)})
	if err == nil {
		t.Fatal("the claim succeeded without its commit")
	}
	failpoint.Set(nil)

	after, err := j.Head(t.Context(), lane)
	check(t, err)
	if after != before {
		t.Errorf("head is %+v, want %+v", after, before)
	}
	if h := claim(t, j, lane, "a1"); h.Epoch != 1 {
		t.Errorf("claimed epoch %d, want 1", h.Epoch)
	}
}
