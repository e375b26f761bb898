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

func sqlite() enginetest.Store {
	return enginetest.Store{Name: "sqlitejournal", Points: "sqlite.", Death: enginetest.Process, New: func(t testing.TB) enginetest.Disk {
		dir, err := os.MkdirTemp("", "sweep")
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

func show(t *testing.T, r enginetest.Result) {
	t.Log(r.Store, r.Cells, r.NotExercised)
	for _, s := range r.Scenarios {
		t.Log(s.Name, s.Cells)
	}
}
func TestMemory(t *testing.T) { show(t, enginetest.Sweep(t, memory())) }
func TestShared(t *testing.T) { show(t, enginetest.Sweep(t, shared())) }
func TestSqlite(t *testing.T) { show(t, enginetest.Sweep(t, sqlite())) }
