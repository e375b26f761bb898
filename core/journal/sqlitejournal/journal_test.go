package sqlitejournal_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/failpoint"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/sqlitejournal"
	"github.com/layover-run/layover/core/record"
)

var (
	lane  = journal.Lane{Tenant: "acme", Conversation: "c1"}
	start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func TestJournal(t *testing.T) {
	certify(t)
}

// Without memory every answer comes from the tables.
func TestJournalWithoutCache(t *testing.T) {
	certify(t, sqlitejournal.WithCache(0), sqlitejournal.WithReaders(1))
}

func open(t testing.TB, dir string, opts ...sqlitejournal.Option) *sqlitejournal.Journal {
	t.Helper()
	j, err := sqlitejournal.Open(dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeJournal(t, j) })
	return j
}

func closeJournal(t testing.TB, j *sqlitejournal.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func check(t interface {
	Helper()
	Fatal(...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRunTakesTwelveWrites(t *testing.T) {
	j := open(t, t.TempDir())
	check(t, runW(j, lane, []byte(`{"a batch":"of some length, at least a hundred bytes, so that the input has its hundred bytes too; and some"}`)))
	if got := j.Writes(); got != 12 {
		t.Errorf("%d writes, want 12", got)
	}
}

// What "committed" means here: the write-ahead log is synced at every commit.
func TestDurabilitySettings(t *testing.T) {
	j := open(t, t.TempDir())
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} {
		if got := sqlitejournal.Pragma(t, j, pragma); got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	_, err := sqlitejournal.Open(dir)
	refusedBy(t, dir, err)
}

func refusedBy(t *testing.T, dir string, err error) {
	t.Helper()
	if !errors.Is(err, journal.ErrInUse) {
		t.Fatalf("got %v, want ErrInUse", err)
	}
	for _, part := range []string{dir, fmt.Sprintf("process %d", os.Getpid())} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// childDir tells the test binary to be the other process.
const childDir = "SQLITEJOURNAL_TEST_DIR"

func TestSecondProcessIsRefused(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		_, err := sqlitejournal.Open(dir)
		refused := errors.Is(err, journal.ErrInUse)
		fmt.Printf("refused=%v %v\n", refused, err)
		return
	}
	dir := t.TempDir()
	j := open(t, dir)
	if out := inChild(t, dir); !strings.Contains(out, "refused=true") || !strings.Contains(out, fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("while held, the child says %s", out)
	}
	closeJournal(t, j)
	if out := inChild(t, dir); !strings.Contains(out, "refused=false") {
		t.Errorf("once released, the child says %s", out)
	}
}

func inChild(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecondProcessIsRefused$")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	return string(out)
}

func TestNewerStoreIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	closeJournal(t, open(t, dir))
	path := filepath.Join(dir, "layover.db")
	db, err := sql.Open("sqlite", path)
	check(t, err)
	_, err = db.Exec("PRAGMA user_version = 99")
	check(t, err)
	check(t, db.Close())
	before, err := os.ReadFile(path)
	check(t, err)

	if _, err := sqlitejournal.Open(dir); !errors.Is(err, journal.ErrNewer) {
		t.Fatalf("got %v, want ErrNewer", err)
	}
	after, err := os.ReadFile(path)
	check(t, err)
	if string(before) != string(after) {
		t.Error("the file was changed")
	}
}

// The newer version may still be in the write-ahead log only.
func TestNewerStoreIsLeftAloneAfterACrash(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	closeJournal(t, open(t, from))
	db, err := sql.Open("sqlite", filepath.Join(from, "layover.db"))
	check(t, err)
	defer db.Close()
	_, err = db.Exec("PRAGMA user_version = 99")
	check(t, err)
	before := make(map[string]string)
	for _, name := range []string{"layover.db", "layover.db-wal"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		before[name] = string(b)
	}
	if _, err := sqlitejournal.Open(dir); !errors.Is(err, journal.ErrNewer) {
		t.Fatalf("got %v, want ErrNewer", err)
	}
	for name, want := range before {
		b, err := os.ReadFile(filepath.Join(dir, name))
		check(t, err)
		if string(b) != want {
			t.Errorf("%s was changed", name)
		}
	}
}

func TestReopenKeepsDataAndFreesRunningLanes(t *testing.T) {
	dir := t.TempDir()
	old := open(t, dir)
	admit(t, old, lane, "s1")
	held := claim(t, old, lane, "a1")
	batch := record.Sealed{Slot: 1, ID: "b1", Epoch: 1, Digest: "d", Body: []byte("body")}
	check(t, old.Append(t.Context(), lane, batch))
	body := []byte("large")
	check(t, old.PutPayload(t.Context(), "acme", record.Digest(body), body))
	closeJournal(t, old)

	j := open(t, dir)
	if j.Boot() == old.Boot() {
		t.Fatal("the boot id did not change")
	}
	due, err := j.Due(t.Context(), start, 10)
	check(t, err)
	if len(due) != 1 || due[0] != held {
		t.Fatalf("due after the restart: %+v, want %+v", due, held)
	}
	for b, err := range j.Read(t.Context(), lane, 1) {
		check(t, err)
		if b.ID != "b1" || string(b.Body) != "body" {
			t.Errorf("the log holds %+v", b)
		}
	}
	got, err := j.Payload(t.Context(), "acme", record.Digest(body))
	check(t, err)
	if string(got) != "large" {
		t.Errorf("payload %q", got)
	}
	if h := claim(t, j, lane, "a2"); h.Epoch != 2 || h.Boot != j.Boot() {
		t.Errorf("claimed %+v", h)
	}
	due, err = j.Due(t.Context(), start, 10)
	check(t, err)
	if len(due) != 0 {
		t.Errorf("still due: %+v", due)
	}
	// A lane made after the restart gets rows of its own.
	other := journal.Lane{Tenant: "acme", Conversation: "c2"}
	admit(t, j, other, "s2")
	for b := range j.Read(t.Context(), other, 1) {
		t.Errorf("the new lane's log holds %+v", b)
	}
}

func admit(t testing.TB, j *sqlitejournal.Journal, lane journal.Lane, id string) {
	t.Helper()
	_, err := j.Admit(t.Context(), journal.Submission{Lane: lane, ID: id, Digest: "d"}, start, time.Minute)
	check(t, err)
}

func claim(t testing.TB, j *sqlitejournal.Journal, lane journal.Lane, owner string) journal.Head {
	t.Helper()
	h, err := j.Claim(t.Context(), journal.ClaimRequest{Lane: lane, Owner: owner, Boot: j.Boot(), Now: start, Lease: start.Add(time.Hour)})
	check(t, err)
	return h
}

func TestDamageIsTyped(t *testing.T) {
	damages := map[string]func([]byte){
		"no database": func(b []byte) { copy(b, "not a database at all") },
		"bad pages": func(b []byte) {
			for i := 4096; i < len(b); i++ {
				b[i] = 0xff
			}
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			admit(t, j, lane, "s1")
			closeJournal(t, j)
			path := filepath.Join(dir, "layover.db")
			b, err := os.ReadFile(path)
			check(t, err)
			damage(b)
			check(t, os.WriteFile(path, b, 0o600))

			j, err = sqlitejournal.Open(dir)
			if err == nil {
				defer j.Close()
				_, err = j.Head(t.Context(), lane)
			}
			if !errors.Is(err, record.ErrCorrupt) {
				t.Fatalf("got %v, want ErrCorrupt", err)
			}
		})
	}
}

func TestDamagedPayloadIsTyped(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	digest := record.Digest([]byte("large"))
	check(t, j.PutPayload(t.Context(), "acme", digest, []byte("large")))
	closeJournal(t, j)
	db, err := sql.Open("sqlite", filepath.Join(dir, "layover.db"))
	check(t, err)
	_, err = db.Exec("UPDATE payloads SET body = 'lerge'")
	check(t, err)
	check(t, db.Close())
	if _, err := open(t, dir).Payload(t.Context(), "acme", digest); !errors.Is(err, record.ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt", err)
	}
}

func TestClosed(t *testing.T) {
	j := open(t, t.TempDir())
	admit(t, j, lane, "s1")
	seen, err := j.Head(t.Context(), lane)
	check(t, err)
	watching := make(chan error)
	go func() {
		_, err := j.Watch(t.Context(), lane, seen)
		watching <- err
	}()
	closeJournal(t, j)
	closeJournal(t, j)

	errs := map[string]error{"watch": <-watching}
	ctx := t.Context()
	_, errs["head"] = j.Head(ctx, lane)
	_, errs["submission"] = j.Submission(ctx, "acme", "s1")
	_, errs["payload"] = j.Payload(ctx, "acme", "d")
	_, errs["due"] = j.Due(ctx, start, 1)
	_, _, errs["inbox"] = j.Inbox(ctx, lane, 0)
	_, errs["claim"] = j.Claim(ctx, journal.ClaimRequest{Lane: lane, Owner: "a", Lease: start})
	for _, err := range j.Read(ctx, lane, 1) {
		errs["read"] = err
	}
	for op, err := range errs {
		if !errors.Is(err, journal.ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", op, err)
		}
	}
}

// While one commit is held up, everything else waits for the next one.
func TestGroupCommit(t *testing.T) {
	j := open(t, t.TempDir())
	var mu sync.Mutex
	commits := 0
	held, release := make(chan struct{}), make(chan struct{})
	failpoint.Set(func(name string) {
		if name != "sqlite.commit.before" {
			return
		}
		mu.Lock()
		commits++
		first := commits == 1
		mu.Unlock()
		if first {
			close(held)
			<-release
		}
	})
	defer failpoint.Set(nil)

	const callers = 200
	var wg sync.WaitGroup
	errs := make([]error, callers)
	signal := func(i int) {
		e := journal.Entry{Kind: journal.EntrySteer, Key: fmt.Sprint(i), Digest: "d"}
		_, errs[i] = j.Signal(context.Background(), lane, e, 0, start, time.Minute)
	}
	wg.Go(func() { signal(0) })
	<-held
	for i := 1; i < callers; i++ {
		wg.Go(func() { signal(i) })
	}
	sqlitejournal.AwaitQueued(j, callers-1)
	close(release)
	wg.Wait()
	check(t, errors.Join(errs...))
	if commits != 2 {
		t.Errorf("%d commits for %d operations, want 2", commits, callers)
	}
	if h, _ := j.Head(t.Context(), lane); h.Version != callers {
		t.Errorf("version %d, want %d", h.Version, callers)
	}
}

// An operation that breaks the transaction fails alone.
func TestAFullDiskFailsOnlyWhatDoesNotFit(t *testing.T) {
	j := open(t, t.TempDir())
	admit(t, j, lane, "s1")
	sqlitejournal.LimitPages(t, j, 64)
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	failpoint.Set(func(name string) {
		if name == "sqlite.commit.before" {
			once.Do(func() { close(held); <-release })
		}
	})
	defer failpoint.Set(nil)

	var wg sync.WaitGroup
	var full, fits error
	wg.Go(func() { admit(t, j, lane, "s2") })
	<-held
	large := make([]byte, 1<<20)
	wg.Go(func() { full = j.PutPayload(context.Background(), "acme", record.Digest(large), large) })
	wg.Go(func() {
		fits = j.Append(context.Background(), lane, record.Sealed{Slot: 1, ID: "b1", Epoch: 1, Digest: "d", Body: []byte("small")})
	})
	sqlitejournal.AwaitQueued(j, 2)
	close(release)
	wg.Wait()

	if !errors.Is(full, journal.ErrFull) {
		t.Errorf("large payload: got %v, want ErrFull", full)
	}
	check(t, fits)
	// Memory and tables still agree.
	h, entries, err := j.Inbox(t.Context(), lane, 0)
	check(t, err)
	if len(entries) != 2 || h.Version != 2 {
		t.Errorf("version %d with %d entries, want 2 and 2", h.Version, len(entries))
	}
	if claim(t, j, lane, "a1").Epoch != 1 {
		t.Error("the lane cannot be claimed")
	}
}

func TestFailpointsCoverEveryWrite(t *testing.T) {
	j := open(t, t.TempDir())
	var mu sync.Mutex
	passed := make(map[string]bool)
	failpoint.Set(func(name string) {
		mu.Lock()
		defer mu.Unlock()
		passed[name] = true
	})
	defer failpoint.Set(nil)
	check(t, runW(j, lane, make([]byte, 200)))
	_, err := j.Signal(t.Context(), lane, journal.Entry{Kind: journal.EntrySteer, Key: "k"}, 0, start, time.Minute)
	check(t, err)
	h := claim(t, j, lane, "a2")
	check(t, j.Park(t.Context(), journal.ReleaseRequest{Lane: lane, Epoch: h.Epoch, Owner: "a2", To: journal.Idle, Version: h.Version}))
	check(t, j.PutPayload(t.Context(), "acme", record.Digest(nil), nil))

	mu.Lock()
	defer mu.Unlock()
	for _, name := range failpoint.Names() {
		if strings.HasPrefix(name, "sqlite.") && !passed[name] {
			t.Errorf("%s was not passed", name)
		}
	}
	if len(passed) != 16 {
		t.Errorf("%d points passed, want 16: %v", len(passed), passed)
	}
}
