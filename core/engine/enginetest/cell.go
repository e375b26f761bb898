package enginetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/failpoint"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/tool"
)

// cell is one play of a scenario, with its deaths.
type cell struct {
	store    Store
	scenario *scenario
	disk     Disk
	opened   Opened
	registry *engine.Registry
	queue    *memqueue.Queue
	reader   *engine.Admitter // reads past every death
	world    *world

	current   atomic.Pointer[life] // whose pass of a failpoint it is
	attempt   atomic.Pointer[life] // of the attempt at work
	process   *life                // where the process is what dies
	zombie    *life                // frozen, to go on when all is done
	ends      <-chan error         // its call
	overtaken bool                 // another attempt worked while it was frozen
	hastened  bool                 // the operator acted meanwhile
	swept     bool                 // the next wake is from a sweep
	asking    sync.RWMutex         // held while a request is answered
	started   chan struct{}        // an endless handler runs

	mu     sync.Mutex
	now    time.Time
	ids    int
	deaths []death
	died   []death
	passes map[string]int // since the last death of the scenario itself

	requests []*request // not answered yet, in order
	accepted []string   // submissions
	arrived  error      // how the request was answered that came at the failpoint
	asked    map[string]bool
}

type input struct {
	N int `json:"n"`
}

// newCell makes the world of one cell. Its deaths come one after another, each
// counted from the one before.
func newCell(store Store, s *scenario, disk Disk, deaths ...death) (*cell, error) {
	c := &cell{store: store, scenario: s, disk: disk, queue: memqueue.New(), started: make(chan struct{}),
		now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), passes: map[string]int{}, asked: map[string]bool{}}
	c.world = newWorld(c)
	if s.first.point != "" {
		c.deaths = append(c.deaths, s.first)
	}
	c.deaths = append(c.deaths, deaths...)
	for n := range max(s.submissions, 1) {
		c.accepted = append(c.accepted, "")
		c.requests = append(c.requests, submit(c, n+1))
	}
	var tools []*tool.Tool
	if s.tools != nil {
		tools = s.tools(c)
	}
	def, err := agent.Define[input, string](name, agent.Config[input]{Instructions: agent.Text[input]("Do it."), Policy: s.policy, Tools: tools})
	if err != nil {
		return nil, err
	}
	c.registry, err = engine.NewRegistry(0, def.Bind(provider{c}).Engine())
	if err != nil {
		return nil, err
	}
	return c, c.open()
}

// open is the start of a process.
func (c *cell) open() (err error) {
	if c.opened, err = c.disk.Open(); err != nil {
		return err
	}
	c.reader, err = engine.NewAdmitter(c.config(), c.registry.Manifest())
	return err
}

func (c *cell) lane() journal.Lane { return journal.Lane{Tenant: tenant, Conversation: conversation} }

// worker is the life of the attempt at work; its handlers ask for it.
func (c *cell) worker() *life { return c.attempt.Load() }

func (c *cell) newID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids++
	return fmt.Sprintf("id-%04d", c.ids)
}

// hit is a pass of a failpoint: perhaps the last thing its life does.
func (c *cell) hit(point string) {
	l := c.current.Load()
	if l == nil {
		return
	}
	l.alive()
	c.mu.Lock()
	c.passes[point]++
	now := len(c.deaths) > 0 && c.deaths[0] == death{point, c.passes[point]}
	if now {
		c.died, c.deaths = append(c.died, c.deaths[0]), c.deaths[1:]
		if len(c.died) == 1 && c.scenario.first.point != "" {
			c.passes = map[string]int{}
		}
	}
	kill := c.store.Death == Process || c.store.Death == Invocation || len(c.died) == 1 && c.scenario.first.point != ""
	if point == c.scenario.last && l.revived() {
		c.died = append(c.died, death{point, c.passes[point]})
		now, kill = true, true
	}
	c.mu.Unlock()
	switch {
	case now && kill:
		l.die()
		runtime.Goexit()
	case now:
		if c.store.Death == Overtaken {
			at := c.clock()
			l.late.Store(&at)
		}
		close(l.icy)
		<-l.thaw
	}
}

// life is the one that a call of a service belongs to.
func (c *cell) life() (*life, error) {
	if c.store.Death != Process {
		return c.begin()
	}
	if c.process == nil {
		var err error
		if c.process, err = c.begin(); err != nil {
			return nil, err
		}
	}
	return c.process, nil
}

const steps = 150 // of a play: far more than any needs

var errRestless = errors.New("the conversation does not come to rest")

// play drives the conversation until it rests with everything done. What drives
// it are requests repeated until they are answered, wakes that are delivered,
// and a sweep a minute.
func (c *cell) play() error {
	failpoint.Set(c.hit)
	defer failpoint.Set(nil)
	for range steps {
		done, err := c.step()
		if done || err != nil {
			return err
		}
	}
	return errRestless
}

func (c *cell) step() (done bool, err error) {
	switch {
	case c.overtaken && c.zombie != nil:
		if r := c.haste(); r != nil {
			c.overtaken, c.requests = false, append(c.requests, r)
			return false, nil
		}
		c.revive()
		return false, nil
	case len(c.requests) > 0:
		fate, err := c.ask(c.requests[0])
		if fate != answered {
			return false, errors.Join(err, c.bury(nil))
		}
		return false, err
	case c.queue.Len(queue.Attempt) > 0:
		return false, c.deliver(queue.Attempt)
	case c.queue.Len(queue.Settle) > 0:
		return false, c.deliver(queue.Settle)
	}
	head, err := c.opened.Journal.Head(context.Background(), c.lane())
	if err != nil {
		return false, err
	}
	// All that was asked for is acknowledged and all that was sent is delivered.
	if err := c.verify(); err != nil {
		return false, err
	}
	if c.scenario.operator != nil {
		if r := c.scenario.operator(c); r != nil {
			c.requests = append(c.requests, r)
			return false, nil
		}
	}
	switch {
	case head.State != journal.Idle:
		return false, c.sweep(head)
	case c.zombie != nil:
		c.revive()
		return false, nil
	}
	return true, nil
}

// haste is what a hasty operator asks for before a frozen call goes on.
func (c *cell) haste() *request {
	if !c.scenario.hasty || c.hastened {
		return nil
	}
	r := c.scenario.operator(c)
	c.hastened = r != nil
	return r
}

// ask sends one request. Unless it is answered it stays, to be sent again.
func (c *cell) ask(r *request) (fate, error) {
	l, err := c.life()
	if err != nil {
		return answered, err
	}
	if c.asking.TryLock() { // else it arrives while another one is being answered
		defer c.asking.Unlock()
	}
	fate, err := c.call(l, nil, func(ctx context.Context) error { return r.do(ctx, l.admitter) })
	if fate != answered {
		return fate, err
	}
	if !r.answered(err) {
		return fate, fmt.Errorf("%s: %w", r.name, err)
	}
	c.requests = slices.DeleteFunc(c.requests, func(other *request) bool { return other == r })
	return fate, nil
}

// deliver hands one wake to its service.
func (c *cell) deliver(kind queue.Kind) error {
	d, err := c.queue.Receive(context.Background(), kind)
	if err != nil {
		return err
	}
	if c.scenario.deaf && !c.swept {
		return nil // the wake is lost
	}
	c.swept = false
	l, err := c.life()
	if err != nil {
		return err
	}
	if kind == queue.Settle {
		return c.serve(l, &d, nil, func(ctx context.Context) error {
			_, err := l.settler.Settle(ctx, d.Wake.Lane())
			return err
		})
	}
	for b, err := range c.reader.Records(context.Background(), c.lane()) {
		if err != nil {
			return err
		}
		c.world.read(b)
	}
	c.attempt.Store(l)
	return c.serve(l, &d, c.started, func(ctx context.Context) error {
		ended, err := l.attempter.Attempt(ctx, d.Wake.Lane())
		c.overtaken = c.store.Death == Overtaken && ended != engine.NotClaimed && c.zombie != nil
		if ended == engine.FencedOff {
			err = errors.New("an attempt was fenced off, and nobody else was at work")
		}
		return err
	})
}

// serve is one call of a service, and clears away what dies in it.
func (c *cell) serve(l *life, d *memqueue.Delivery, started <-chan struct{}, do func(ctx context.Context) error) error {
	fate, err := c.call(l, started, do)
	if fate == answered {
		return err
	}
	return errors.Join(err, c.bury(d), c.verify())
}

// sweep lets a minute pass, or as long as nothing is due, and sweeps.
func (c *cell) sweep(head journal.Head) error {
	c.pass(time.Minute)
	due, err := c.opened.Journal.Due(context.Background(), c.clock(), 1)
	if err != nil {
		return err
	}
	if wait := head.Due.Sub(c.clock()); len(due) == 0 && wait > 0 {
		c.pass(wait)
	}
	l, err := c.life()
	if err != nil {
		return err
	}
	c.swept = true
	return c.serve(l, nil, nil, func(ctx context.Context) error {
		_, err := l.settler.Sweep(ctx, 10)
		return err
	})
}

// bury clears away what died. A process takes its queue with it and another one
// opens the store; the message of an invocation is delivered again.
func (c *cell) bury(d *memqueue.Delivery) error {
	if c.zombie == nil && !buried() {
		return errors.New("something of what died still runs")
	}
	c.current.Store(nil)
	if c.store.Death != Process {
		if d != nil {
			c.queue.Return(*d, 0)
		}
		return nil
	}
	c.process, c.queue = nil, memqueue.New()
	if err := c.close(); err != nil {
		return err
	}
	return c.open()
}

// revive lets a frozen call go on, in a world that has long gone on without it,
// until it ends in whatever way.
func (c *cell) revive() {
	c.current.Store(c.zombie)
	c.attempt.Store(c.zombie)
	close(c.zombie.thaw)
	select {
	case err := <-c.ends:
		// In whatever way: it cannot do any harm. But being overtaken is no defect.
		if err != nil && strings.Contains(err.Error(), "defect") {
			c.world.complain("a call that was paused: %v", err)
		}
	case <-time.After(patience):
		c.world.complain("a call that was paused does not end")
	}
	c.zombie = nil
	c.current.Store(nil)
}

func (c *cell) close() error {
	if c.opened.Close == nil {
		return nil
	}
	return c.opened.Close()
}

// end closes the store of a cell.
func (c *cell) end() error {
	err := c.close()
	if c.disk.Remove != nil {
		c.disk.Remove()
	}
	return err
}
