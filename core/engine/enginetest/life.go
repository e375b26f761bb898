package enginetest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/record"
)

// life is what dies at once: a process, or one invocation. After its death none
// of its goroutines reaches the journal, the queue, or a failpoint any more;
// while it is frozen they wait there.
type life struct {
	cell *cell
	over context.Context
	die  context.CancelFunc
	icy  chan struct{} // closed when it freezes
	thaw chan struct{} // closed when it may go on

	admitter  *engine.Admitter
	attempter *engine.Attempter
	settler   *engine.Settler
}

// dead waits while the life is frozen, and says whether it is over.
func (l *life) dead() bool {
	if l.frozen() {
		<-l.thaw
	}
	return l.over.Err() != nil
}

func (l *life) frozen() bool {
	select {
	case <-l.icy:
		return true
	default:
		return false
	}
}

// alive ends the calling goroutine when its life is over.
func (l *life) alive() {
	if l.dead() {
		runtime.Goexit()
	}
}

// within runs one operation of a port for a life.
func within[T any](l *life, ctx context.Context, do func(ctx context.Context) (T, error)) (T, error) {
	l.alive()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.over, cancel)()
	v, err := do(ctx)
	l.alive()
	return v, err
}

// begin assembles the three services for a new life.
func (c *cell) begin() (*life, error) {
	l := &life{cell: c, icy: make(chan struct{}), thaw: make(chan struct{})}
	l.over, l.die = context.WithCancel(context.Background())
	cfg := c.config()
	cfg.Now = func() time.Time { l.alive(); return c.clock() }
	cfg.Journal, cfg.Queue = &mortal{life: l, in: c.opened.Journal}, &mortalQueue{life: l, in: c.queue}
	var err error
	if l.admitter, err = engine.NewAdmitter(cfg, c.registry.Manifest()); err != nil {
		return nil, err
	}
	if l.attempter, err = engine.NewAttempter(cfg, c.registry); err != nil {
		return nil, err
	}
	l.settler, err = engine.NewSettler(cfg)
	return l, err
}

// config is that of every service of a cell, without its ports.
func (c *cell) config() engine.Config {
	return engine.Config{
		Journal: c.opened.Journal, Queue: memqueue.New(), Boot: c.opened.Boot, Now: c.clock, NewID: c.newID,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), OnBatch: c.world.recorded,
	}
}

// spawn runs a call of a service on a goroutine of its own, for a life to end.
// Its context ends with the life, so that a loop that waits looks at the clock,
// and goes.
func (c *cell) spawn(l *life, call func(ctx context.Context)) (done <-chan struct{}) {
	c.current.Store(l)
	over := make(chan struct{})
	go func() {
		defer close(over)
		call(l.over)
	}()
	return over
}

// gone waits until a call is over, or frozen, and says whether it ended before
// it was answered.
func (c *cell) gone(l *life, done <-chan struct{}) bool {
	select {
	case <-done:
		return l.dead()
	case <-l.icy:
		c.zombie, c.ends = l, done
		return true
	}
}

// revived says that a life was frozen and goes on: what others did meanwhile it
// cannot know.
func (l *life) revived() bool {
	select {
	case <-l.thaw:
		return true
	default:
		return false
	}
}

// buried waits until nothing of a dead life runs any more: no goroutine that
// the engine started is left.
func buried() bool {
	stacks := make([]byte, 1<<18)
	for try := range 20_000 {
		n := runtime.Stack(stacks, true)
		if !bytes.Contains(stacks[:n], []byte("/core/engine.")) {
			return true
		}
		if runtime.Gosched(); try > 20 {
			time.Sleep(50 * time.Microsecond)
		}
	}
	return false
}

// clock is the clock of everybody in a cell.
func (c *cell) clock() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// pass moves the clock.
func (c *cell) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = record.Time(c.now.Add(d))
}
