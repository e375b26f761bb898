package tool

import (
	"context"
	"fmt"
)

// MaxProgress is the longest progress message, in bytes; the rest is cut off.
const MaxProgress = 1 << 10

// Progress tells whoever watches the run how far a handler is. The message is
// shown while the call runs and recorded nowhere: it may be lost, and a slow
// watcher may hold the handler up in a run in memory. Outside a handler, and
// once it has returned, Progress does nothing.
func Progress(ctx context.Context, format string, args ...any) {
	x := executionOf(ctx)
	if x == nil || !x.steps || x.call.Progress == nil || x.over() {
		return
	}
	x.call.Progress(ctx, bounded(fmt.Sprintf(format, args...), MaxProgress))
}

func (x *execution) over() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closed
}
