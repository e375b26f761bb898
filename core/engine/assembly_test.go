package engine_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/journal/sqlitejournal"
	"github.com/layover-run/layover/core/record"
)

// assembly is the environment variable that says over which journal the tests
// of this package run: memory unless it says "embedded".
const assembly = "LAYOVER_ASSEMBLY"

// TestEmbedded runs every test of this package once more, over the journal of
// the embedded assembly. A row that a test here names for @embedded is proven
// by this run.
func TestEmbedded(t *testing.T) {
	if os.Getenv(assembly) != "" {
		t.Skip("this is that run")
	}
	again := exec.Command(os.Args[0], "-test.failfast", "-test.timeout=5m")
	again.Env = append(os.Environ(), assembly+"=embedded")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Journal is the journal of an assembly in the hands of a test.
type Journal interface {
	journal.Journal
	Boot() string
	Writes() int64
	Close() error
	// SetFault is as that of memjournal.
	SetFault(f func(op string, after bool) error)
	// restart is the same data in a new process.
	restart(t *testing.T) Journal
}

// newJournal makes an empty one. It is closed with the test.
func newJournal(t *testing.T) Journal {
	t.Helper()
	if os.Getenv(assembly) == "embedded" {
		return openEmbedded(t, t.TempDir())
	}
	return inMemory{memjournal.New()}
}

type inMemory struct{ *memjournal.Journal }

func (j inMemory) restart(*testing.T) Journal { return inMemory{j.Journal.Restart()} }

// embeddedJournal is SQLite with faults of whole operations: what happens inside
// them is one transaction.
type embeddedJournal struct {
	*sqlitejournal.Journal
	dir   string
	fault func(op string, after bool) error
}

func openEmbedded(t *testing.T, dir string) *embeddedJournal {
	t.Helper()
	j, err := sqlitejournal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		comeToRest()
		_ = j.Close()
	})
	return &embeddedJournal{Journal: j, dir: dir}
}

// comeToRest waits for what a test leaves running in its bubble: a file, unlike
// memory, must not be closed under it.
func comeToRest() {
	defer func() { _ = recover() }() // not in a bubble: nothing to wait for
	synctest.Wait()
}

func (j *embeddedJournal) restart(t *testing.T) Journal {
	t.Helper()
	_ = j.Close()
	return openEmbedded(t, j.dir)
}

func (j *embeddedJournal) SetFault(f func(op string, after bool) error) { j.fault = f }

func faulted[T any](j *embeddedJournal, op string, do func() (T, error)) (answer T, err error) {
	if j.fault != nil {
		if err := j.fault(op, false); err != nil {
			return answer, err
		}
	}
	if answer, err = do(); err == nil && j.fault != nil {
		err = j.fault(op, true)
	}
	return answer, err
}

func faultedWrite(j *embeddedJournal, op string, do func() error) error {
	_, err := faulted(j, op, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (j *embeddedJournal) Admit(ctx context.Context, s journal.Submission, now time.Time, grace time.Duration) (journal.Admission, error) {
	return faulted(j, "admit", func() (journal.Admission, error) { return j.Journal.Admit(ctx, s, now, grace) })
}

func (j *embeddedJournal) Signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (journal.Signalled, error) {
	return faulted(j, "signal", func() (journal.Signalled, error) { return j.Journal.Signal(ctx, lane, e, after, now, grace) })
}

func (j *embeddedJournal) Claim(ctx context.Context, r journal.ClaimRequest) (journal.Head, error) {
	return faulted(j, "claim", func() (journal.Head, error) { return j.Journal.Claim(ctx, r) })
}

func (j *embeddedJournal) Append(ctx context.Context, lane journal.Lane, b record.Sealed) error {
	return faultedWrite(j, "append", func() error { return j.Journal.Append(ctx, lane, b) })
}

func (j *embeddedJournal) Park(ctx context.Context, r journal.ReleaseRequest) error {
	return faultedWrite(j, "park", func() error { return j.Journal.Park(ctx, r) })
}

func (j *embeddedJournal) Finish(ctx context.Context, r journal.FinishRequest) error {
	return faultedWrite(j, "finish", func() error { return j.Journal.Finish(ctx, r) })
}

func (j *embeddedJournal) PutPayload(ctx context.Context, tenant, digest string, body []byte) error {
	return faultedWrite(j, "payload", func() error { return j.Journal.PutPayload(ctx, tenant, digest, body) })
}
