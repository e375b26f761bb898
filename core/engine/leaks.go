package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

// leaks remembers attempts of this process whose handlers ignore the end of
// their context. Such a handler may still have its effect, so a "did not
// happen" about its call does not count while it lives, whatever the clock
// says (F8, D-26).
type leaks struct {
	mu       sync.Mutex
	attempts []string
}

// add remembers an attempt until gone is closed, and takes the facts nobody
// waits for any more.
func (l *leaks) add(attempt string, gone <-chan struct{}, facts <-chan core.Fact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, attempt)
	go func() {
		for {
			select {
			case <-facts:
			case <-gone:
				l.remove(attempt)
				return
			}
		}
	}()
}

func (l *leaks) remove(attempt string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = slices.DeleteFunc(l.attempts, func(id string) bool { return id == attempt })
}

func (l *leaks) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.attempts)
}

// inTime reports whether a handler may still start: before the invocation's own
// monotonic deadline. A process that was paused between its prepared record and
// this point must not start what others may already have decided about.
func inTime(ctx context.Context) bool {
	deadline, bounded := ctx.Deadline()
	return ctx.Err() == nil && (!bounded || time.Now().Before(deadline))
}

var notStarted = record.MustValue(map[string]any{"error": map[string]string{"tag": "Interrupted", "message": "the tool was not started in time"}})
