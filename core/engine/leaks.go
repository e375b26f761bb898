package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
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
func (l *leaks) add(attempt string, gone <-chan struct{}, posts <-chan posted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, attempt)
	go func() {
		for {
			select {
			case <-posts:
			case <-gone:
				l.remove(attempt)
				return
			}
		}
	}()
}

// remove forgets one leak of an attempt: it may have others that still live.
func (l *leaks) remove(attempt string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.attempts, attempt); i >= 0 {
		l.attempts = slices.Delete(l.attempts, i, i+1)
	}
}

func (l *leaks) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.attempts)
}

// await waits for a handler: for its result, or until it has ignored the end of
// its context for CleanupTimeout.
func (j job) await(ctx context.Context, e core.StartTool, results <-chan tool.Result) (tool.Result, bool) {
	timer := time.NewTimer(e.Timeout + j.a.cfg.CleanupTimeout)
	defer timer.Stop()
	select {
	case r := <-results:
		return r, true
	case <-timer.C:
		return tool.Result{}, false
	case <-ctx.Done():
		timer.Reset(j.a.cfg.CleanupTimeout)
	}
	select {
	case r := <-results:
		return r, true
	case <-timer.C:
		return tool.Result{}, false
	}
}

// leaked reports a handler that does not return, so that its run need not wait
// for it. If it ever does return with a result, that is handed in as evidence.
func (j job) leaked(ctx context.Context, e core.StartTool, results <-chan tool.Result, after time.Duration) core.Fact {
	a := j.a
	j.logger(e.Call).Error("a handler does not return although its context has ended", "tool", e.Tool, "after", after.Round(time.Second).String())
	gone := make(chan struct{})
	a.leaks.add(a.head.Owner, gone, nil)
	go func() {
		defer close(gone)
		r := <-results
		if r.Outcome != record.Succeeded {
			return
		}
		late := core.Late{Run: j.run, Call: e.Call, Operation: e.Operation, Outcome: r.Outcome, Tag: r.Tag}
		late.Result, _ = j.bounded(r)
		if err := signalLate(context.Background(), a.cfg, a.lane, 0, late, a.head.Owner); err != nil {
			j.logger(e.Call).Warn("late outcome not handed in; the call stays as it is", "error", err)
			return
		}
		send(context.Background(), a.cfg, queue.Attempt, a.lane, 0)
	}()
	ended := core.ToolEnded{Call: e.Call, Leaked: true, TimedOut: ctx.Err() == nil, Duration: after.Round(time.Millisecond),
		Outcome: record.Failed, Tag: tool.TagTimeout,
		Result: record.MustValue(map[string]any{"error": map[string]string{"tag": tool.TagTimeout, "message": "the tool did not end in time"}})}
	if ctx.Err() != nil {
		ended.Outcome, ended.Tag = record.Interrupted, tool.TagInterrupted
	}
	return ended
}

// inTime reports whether a handler may still start: before the invocation's own
// monotonic deadline. A process that was paused between its prepared record and
// this point must not start what others may already have decided about. A run
// in memory has no invocation that ends.
func (j job) inTime(ctx context.Context) bool {
	deadline, bounded := ctx.Deadline()
	return ctx.Err() == nil && (!bounded || time.Now().Before(deadline)) && (j.a.end.IsZero() || j.a.cfg.Now().Before(j.a.end))
}
