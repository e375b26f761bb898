package enginetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
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
	icy  chan struct{}             // closed when it freezes
	thaw chan struct{}             // closed when it may go on
	late atomic.Pointer[time.Time] // its clock, where those of the others are ahead

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

// clock is what the life takes for the time.
func (l *life) clock() time.Time {
	l.alive()
	if late := l.late.Load(); late != nil {
		return *late
	}
	return l.cell.clock()
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
	cfg.Now = l.clock
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

// fate is how a call ended.
type fate int

const (
	answered fate = iota
	died
	froze
)

// patience is how long a call may take, in real time. It ends only what hangs:
// a machine that is busy may take a thousand times as long as usual.
const patience = 2 * time.Minute

// call runs one call of a service for a life. Its context ends with the life, so
// that a loop that waits looks at the clock, and goes. While it runs a person may
// hear from a handler that started, or something may arrive at the failpoint.
func (c *cell) call(l *life, started <-chan struct{}, do func(ctx context.Context) error) (fate, error) {
	outer := c.current.Load()
	c.current.Store(l)
	answer := make(chan error, 1)
	go func() {
		defer close(answer)
		answer <- do(l.over)
	}()
	for icy := l.icy; ; {
		select {
		case err, ok := <-answer:
			if !ok {
				if outer != nil { // else it stays, for those of its goroutines that still run
					c.current.Store(outer)
				}
				return died, nil
			}
			c.current.Store(outer)
			return answered, err
		case <-icy:
			if c.store.Death == Pause || c.store.Death == Overtaken {
				c.zombie, c.ends = l, answer
				c.current.Store(outer)
				return froze, nil
			}
			if err := c.arrive(); err != nil {
				return answered, err
			}
			close(l.thaw)
			icy = nil
		case <-started:
			if err := c.insist(c.scenario.during(c), l); err != nil {
				return answered, err
			}
		case <-time.After(patience):
			l.die()
			return answered, errors.New("a call does not end")
		}
	}
}

// insist sends a request until it is answered, or the process is gone.
func (c *cell) insist(r *request, beside *life) error {
	c.requests = append(c.requests, r)
	for slices.Contains(c.requests, r) && beside.over.Err() == nil {
		if _, err := c.ask(r); err != nil {
			return err
		}
	}
	return nil
}

// arrive is what somebody else asks for at the very instant of a failpoint.
func (c *cell) arrive() error {
	r := abortOf(c.accepted[0])
	if c.store.Death == Submission {
		c.accepted = append(c.accepted, "")
		r = submit(c, len(c.accepted))
	}
	r.done = append(r.done, engine.KindNotFound)
	do := r.do
	r.do = func(ctx context.Context, a *engine.Admitter) error {
		c.arrived = do(ctx, a)
		return c.arrived
	}
	over := c.ended()
	c.requests = append(c.requests, r)
	_, err := c.ask(r)
	if err == nil && over && c.store.Death == Abort && c.arrived == nil {
		err = errors.New("an abort was accepted although every run had its outcome")
	}
	return err
}

// ended reports whether everything accepted has its outcome in its row.
func (c *cell) ended() bool {
	for _, id := range c.accepted {
		row, err := c.opened.Journal.Submission(context.Background(), tenant, id)
		if err != nil || row.Outcome == nil {
			return false
		}
	}
	return true
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
	for try, until := 0, time.Now().Add(patience); time.Now().Before(until); try++ {
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
