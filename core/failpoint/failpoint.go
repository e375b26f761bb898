// Package failpoint names the places where a process may die, so that tests
// can kill it there. A point costs one atomic load when nothing is armed.
//
// Points stand before and after every durable write and send, and at the start
// and end of every effect. LAYOVER_FAILPOINT=name or name:nth makes the process
// kill itself with SIGKILL at the nth time (default first) it passes the point.
package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Variable is the environment variable that arms a point.
const Variable = "LAYOVER_FAILPOINT"

var (
	mu    sync.Mutex
	names []string
	hook  atomic.Pointer[func(name string)]
)

// Point is one registered place.
type Point string

// New registers a point; names are unique across the program.
func New(name string) Point {
	mu.Lock()
	defer mu.Unlock()
	if slices.Contains(names, name) {
		panic("failpoint: " + name + " registered twice")
	}
	names = append(names, name)
	return Point(name)
}

// Hit is called where the process may die.
func (p Point) Hit() {
	if f := hook.Load(); f != nil {
		(*f)(string(p))
	}
}

// Names lists every registered point, sorted.
func Names() []string {
	mu.Lock()
	defer mu.Unlock()
	return slices.Sorted(slices.Values(names))
}

// Set installs f for every point that is passed, or removes it when f is nil.
func Set(f func(name string)) {
	if f == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&f)
}

// Arm reads LAYOVER_FAILPOINT and arms the point it names. An unknown name or
// a malformed count is an error that lists what would do.
func Arm() error {
	spec := os.Getenv(Variable)
	if spec == "" {
		return nil
	}
	name, nth, counted := strings.Cut(spec, ":")
	want := int64(1)
	if counted {
		n, err := strconv.ParseInt(nth, 10, 64)
		if err != nil || n < 1 {
			return fmt.Errorf("%s=%s: the count after : must be a positive number", Variable, spec)
		}
		want = n
	}
	if !slices.Contains(Names(), name) {
		return fmt.Errorf("%s=%s: no such failpoint; `layover dev --list-failpoints` lists them", Variable, spec)
	}
	var seen atomic.Int64
	Set(func(at string) {
		if at == name && seen.Add(1) == want {
			kill()
		}
	})
	return nil
}

// kill ends the process as a power cut would: no deferred call runs.
func kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
