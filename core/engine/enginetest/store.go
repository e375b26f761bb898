package enginetest

import (
	"testing"

	"github.com/layover-run/layover/core/journal"
)

// Death says what happens at a failpoint.
type Death string

const (
	// Process: everything in memory, the queue included, and the store's own
	// goroutines. Another process opens the store; wakes that waited are lost.
	Process Death = "process"
	// Invocation: the one call of a service that passed the point. Its message
	// is delivered again; the lease has to run out before others may go on.
	Invocation Death = "invocation"
	// Pause: the one call stops where it is. The others take it for dead and do
	// all the work; then it goes on as if nothing had happened.
	Pause Death = "pause"
	// Overtaken: the one call stops where it is, for no time at all by its own
	// clock. The clocks of the others are ahead, so they judge its lease too
	// early; it goes on as soon as one other attempt has done what it could.
	Overtaken Death = "overtaken"
	// Submission and Abort: nothing ends. At that instant somebody submits once
	// more, or asks to abort, and is answered; then the call goes on.
	Submission Death = "submission"
	Abort      Death = "abort"
)

// Store is one journal to sweep.
type Store struct {
	Name string
	// Points is the prefix of the names of the adapter's own failpoints.
	Points string
	Death  Death
	// New makes an empty store for one cell.
	New func(t testing.TB) Disk
	// Passes bounds how many passes of one point are cells, for a store that is
	// too slow for all of them. Defaults to all; the certificate names a bound.
	Passes int
}

// Disk is what outlives a death.
type Disk struct {
	// Open is what a process does when it starts: once for each Process that
	// dies, and once for all invocations.
	Open func() (Opened, error)
	// Remove frees what New took. Nil means that there is nothing to free.
	Remove func()
}

// Opened is a journal in the hands of one process.
type Opened struct {
	Journal journal.Journal
	// Boot is the id of the process where it holds the store alone; else empty.
	Boot string
	// Close gives the store up. After a death it is what the operating system
	// would do: it must not finish what was under way. Nil means nothing to do.
	Close func() error
}
