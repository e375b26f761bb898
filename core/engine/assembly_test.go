package engine_test

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/journal/sqlitejournal"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/ddbjournal/ddbtest"
	"github.com/layover-run/layover/localstack/peers"
)

// assembly is the environment variable that says over which journal the tests
// of this package run: memory unless it says "embedded".
const assembly = "LAYOVER_ASSEMBLY"

// lossy is the one that says whether the serverless assembly loses the first
// answer to every write.
const lossy = "LAYOVER_LOSSY"

// TestEmbedded runs every test of this package once more, over the journal of
// the embedded assembly. A row that a test here names for @embedded is proven
// by this run.
func TestEmbedded(t *testing.T) {
	if os.Getenv(assembly) != "" {
		t.Skip("this is that run")
	}
	again(t, "embedded")
}

// TestServerless does the same over the journal of the serverless assembly,
// with the SDK and a real peer below it. It needs `make peers`.
func TestServerless(t *testing.T) {
	if os.Getenv(assembly) != "" {
		t.Skip("this is one of those runs")
	}
	endpoint := "LAYOVER_DYNAMODB_ENDPOINT=" + peers.DynamoDB(t)
	t.Run("as it is", func(t *testing.T) {
		t.Parallel()
		again(t, "serverless", endpoint)
	})
	t.Run("every write's answer lost", func(t *testing.T) {
		t.Parallel()
		again(t, "serverless", endpoint, lossy+"=1")
	})
}

func again(t *testing.T, where string, env ...string) {
	t.Helper()
	run := exec.Command(os.Args[0], "-test.failfast", "-test.timeout=20m")
	run.Env = append(append(os.Environ(), assembly+"="+where), env...)
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Journal is the journal of an assembly in the hands of a test.
type Journal interface {
	journal.Journal
	// Boot is empty where no process holds the store by itself.
	Boot() string
	// Writes counts items, or what an assembly writes instead of some.
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
	switch os.Getenv(assembly) {
	case "embedded":
		return openEmbedded(t, t.TempDir())
	case "serverless":
		return openServerless(t, dynamoDB.NewTable(t))
	}
	return inMemory{memjournal.New()}
}

type inMemory struct{ *memjournal.Journal }

func (j inMemory) restart(*testing.T) Journal { return inMemory{j.Journal.Restart()} }

type embeddedJournal struct {
	*disturbed
	disk *sqlitejournal.Journal
	dir  string
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
	return &embeddedJournal{disturbed: &disturbed{Journal: j}, disk: j, dir: dir}
}

// comeToRest waits for what a test leaves running in its bubble: a file, unlike
// memory, must not be closed under it.
func comeToRest() {
	defer func() { _ = recover() }() // not in a bubble: nothing to wait for
	synctest.Wait()
}

func (j *embeddedJournal) Boot() string  { return j.disk.Boot() }
func (j *embeddedJournal) Writes() int64 { return j.disk.Writes() }
func (j *embeddedJournal) Close() error  { return j.disk.Close() }

func (j *embeddedJournal) Lanes(ctx context.Context, tenant, cursor string, limit int) ([]journal.Head, string, error) {
	return j.disk.Lanes(ctx, tenant, cursor, limit)
}

func (j *embeddedJournal) restart(t *testing.T) Journal {
	t.Helper()
	_ = j.Close()
	return openEmbedded(t, j.dir)
}

// dynamoDB is where the serverless assembly keeps its tables. It is reached
// from outside of the bubbles, so TestMain finds it.
var dynamoDB *ddbtest.Peer

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(assembly) != "serverless":
	case os.Getenv(lossy) != "":
		dynamoDB = ddbtest.NewLossyPeer()
	default:
		dynamoDB = ddbtest.NewPeer()
	}
	os.Exit(m.Run())
}

// serverlessJournal is DynamoDB in the hands of one process of many: nothing
// certifies that another one is dead, so Boot is empty.
type serverlessJournal struct {
	*disturbed
	process *ddbtest.Journal
	table   *ddbtest.Table
}

func openServerless(t *testing.T, table *ddbtest.Table) *serverlessJournal {
	t.Helper()
	j := table.Open(t)
	return &serverlessJournal{disturbed: &disturbed{Journal: j}, process: j, table: table}
}

func (j *serverlessJournal) Boot() string  { return "" }
func (j *serverlessJournal) Writes() int64 { return j.table.Writes() }
func (j *serverlessJournal) Close() error  { return j.process.Close() }

func (j *serverlessJournal) restart(t *testing.T) Journal {
	t.Helper()
	_ = j.Close()
	return openServerless(t, j.table)
}

// loseItems breaks the way to the store around the single items of operations,
// where an assembly writes them one by one: f is asked before and after each.
func loseItems(t *testing.T, j Journal, f func() error) {
	t.Helper()
	switch j := j.(type) {
	case inMemory:
		j.SetWriteFault(nil)
		if f != nil {
			j.SetWriteFault(func(memjournal.Write) error { return f() })
		}
	case *serverlessJournal:
		j.process.SetWriteFault(nil)
		if f != nil {
			j.process.SetWriteFault(func(string, bool) error { return f() })
		}
	default:
		t.Fatalf("%T writes no single items", j)
	}
}

// hearing is how late a watched head may be told: one process hears at once,
// others look every two seconds.
func hearing() time.Duration {
	if os.Getenv(assembly) == "serverless" {
		return 2 * time.Second
	}
	return 0
}

// disturbed is a journal with faults of whole operations. What goes wrong between
// the items of one is the certification's and the sweep's.
type disturbed struct {
	journal.Journal
	mu    sync.Mutex
	fault func(op string, after bool) error
}

func (j *disturbed) SetFault(f func(op string, after bool) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fault = f
}

func (j *disturbed) asked(op string, after bool) error {
	j.mu.Lock()
	f := j.fault
	j.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(op, after)
}

func faulted[T any](j *disturbed, op string, do func() (T, error)) (answer T, err error) {
	if err := j.asked(op, false); err != nil {
		return answer, err
	}
	if answer, err = do(); err == nil {
		err = j.asked(op, true)
	}
	return answer, err
}

func faultedWrite(j *disturbed, op string, do func() error) error {
	_, err := faulted(j, op, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (j *disturbed) Admit(ctx context.Context, s journal.Submission, now time.Time, grace time.Duration) (journal.Admission, error) {
	return faulted(j, "admit", func() (journal.Admission, error) { return j.Journal.Admit(ctx, s, now, grace) })
}

func (j *disturbed) Signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (journal.Signalled, error) {
	return faulted(j, "signal", func() (journal.Signalled, error) { return j.Journal.Signal(ctx, lane, e, after, now, grace) })
}

func (j *disturbed) Claim(ctx context.Context, r journal.ClaimRequest) (journal.Head, error) {
	return faulted(j, "claim", func() (journal.Head, error) { return j.Journal.Claim(ctx, r) })
}

func (j *disturbed) Append(ctx context.Context, lane journal.Lane, b record.Sealed) error {
	return faultedWrite(j, "append", func() error { return j.Journal.Append(ctx, lane, b) })
}

func (j *disturbed) Park(ctx context.Context, r journal.ReleaseRequest) error {
	return faultedWrite(j, "park", func() error { return j.Journal.Park(ctx, r) })
}

func (j *disturbed) Finish(ctx context.Context, r journal.FinishRequest) error {
	return faultedWrite(j, "finish", func() error { return j.Journal.Finish(ctx, r) })
}

func (j *disturbed) PutPayload(ctx context.Context, tenant, digest string, body []byte) error {
	return faultedWrite(j, "payload", func() error { return j.Journal.PutPayload(ctx, tenant, digest, body) })
}
