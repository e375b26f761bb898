package enginetest_test

import (
	"flag"
	"os"
	"testing"

	"github.com/layover-run/layover/core/engine/enginetest"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/journal/sqlitejournal"
)

var update = flag.Bool("update", false, "rewrite docs/certificates")

// memory is the journal in memory: what dies is a process, and the next one
// finds the data.
func memory() enginetest.Store {
	return enginetest.Store{Name: "memjournal", Points: "mem.", Death: enginetest.Process, New: func(testing.TB) enginetest.Disk {
		j, fresh := memjournal.New(), true
		return enginetest.Disk{Open: func() (enginetest.Opened, error) {
			if !fresh {
				j = j.Restart()
			}
			fresh = false
			return enginetest.Opened{Journal: j, Boot: j.Boot()}, nil
		}}
	}}
}

// shared is the journal in memory as many hosts would use a store: what dies is
// one invocation, and nobody can tell but by its lease.
func shared() enginetest.Store {
	return enginetest.Store{Name: "memjournal-shared", Points: "mem.", Death: enginetest.Invocation, New: func(testing.TB) enginetest.Disk {
		j := memjournal.New()
		return enginetest.Disk{Open: func() (enginetest.Opened, error) { return enginetest.Opened{Journal: j}, nil }}
	}}
}

// disturbed is the same, with something else at the failpoint than a death.
func disturbed(name string, how enginetest.Death) enginetest.Store {
	s := shared()
	s.Name, s.Death = name, how
	return s
}

func sqlite() enginetest.Store {
	return enginetest.Store{Name: "sqlitejournal", Points: "sqlite.", Death: enginetest.Process, New: func(t testing.TB) enginetest.Disk {
		// What a death leaves on the disk is the business of the tests that kill
		// processes; here the file may as well lie in memory.
		memory := "/dev/shm"
		if _, err := os.Stat(memory); err != nil {
			memory = ""
		}
		dir, err := os.MkdirTemp(memory, "sweep")
		if err != nil {
			t.Fatal(err)
		}
		return enginetest.Disk{
			Open: func() (enginetest.Opened, error) {
				j, err := sqlitejournal.Open(dir, sqlitejournal.WithReaders(1))
				if err != nil {
					return enginetest.Opened{}, err
				}
				return enginetest.Opened{Journal: j, Boot: j.Boot(), Close: j.Close}, nil
			},
			Remove: func() { _ = os.RemoveAll(dir) },
		}
	}}
}

const certificates = "../../../docs/certificates"

func sweep(t *testing.T, store enginetest.Store) {
	t.Run(store.Name, func(t *testing.T) {
		if slow { // the race detector looks at the code, not at the certificate
			store.Passes = 1
		}
		if slow && store.Points == "sqlite." {
			t.Skip("its own tests run under the race detector; a sweep of it takes a minute there")
		}
		result := enginetest.Sweep(t, store)
		if !slow {
			enginetest.Certify(t, result, certificates, *update)
		}
	})
}

// The storage protocol holds on every store: whatever dies, wherever, an
// accepted submission comes to its one outcome, and an effect that is uncertain
// never happens twice. A message that was not sent is made up for.
//
// failure: A02, A03, A18
func TestSweep(t *testing.T) {
	sweep(t, memory())
	sweep(t, shared())
	sweep(t, sqlite())
}

// An owner that is taken for dead and is only slow harms nothing when it goes
// on, wherever it was.
func TestSweepPaused(t *testing.T) {
	sweep(t, disturbed("memjournal-paused", enginetest.Pause))
	sweep(t, disturbed("memjournal-overtaken", enginetest.Overtaken))
}

// Work that is accepted at any instant whatsoever is done.
func TestSweepSubmissions(t *testing.T) {
	sweep(t, disturbed("memjournal-submissions", enginetest.Submission))
}

// An abort that is asked for at any instant ends the run, or comes too late; the
// row, the log and what the asker was told agree.
//
// failure: A31
func TestSweepAborts(t *testing.T) {
	sweep(t, disturbed("memjournal-aborts", enginetest.Abort))
}
