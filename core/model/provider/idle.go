package provider

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// ErrIdle is the cause of a call's end when nothing came for too long.
var ErrIdle = errors.New("provider: no bytes for longer than the idle timeout")

// Call is one exchange with a provider under an idle limit: it ends when the
// provider is silent for too long. The time that whoever reads the answer takes
// does not count.
type Call struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
	answer atomic.Bool // Body was called
}

// Begin starts to wait for the first byte. End must be called.
func Begin(ctx context.Context, idle time.Duration) *Call {
	c := &Call{limit: idle}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.timer = time.AfterFunc(idle, func() { c.cancel(ErrIdle) })
	return c
}

// Context is what the exchange runs under.
func (c *Call) Context() context.Context { return c.ctx }

// Idle reports whether the call ended because nothing came.
func (c *Call) Idle() bool { return context.Cause(c.ctx) == ErrIdle }

// Progress starts the wait for the first byte anew: a request that is still being
// sent is not idle. Behind the answer's head it does nothing.
func (c *Call) Progress() {
	if !c.answer.Load() {
		c.timer.Reset(c.limit)
	}
}

// Sending is the request's body, which makes Progress as it is read.
func (c *Call) Sending(r io.ReadCloser) io.ReadCloser { return sending{r, c} }

type sending struct {
	io.ReadCloser
	c *Call
}

func (s sending) Read(p []byte) (int, error) {
	s.c.Progress()
	return s.ReadCloser.Read(p)
}

// End releases what the call holds.
func (c *Call) End() {
	c.timer.Stop()
	c.cancel(nil)
}

// Body is the answer's body; the limit runs only while it is read.
func (c *Call) Body(r io.Reader) io.Reader {
	c.answer.Store(true)
	c.timer.Stop()
	return body{c, r}
}

type body struct {
	c *Call
	r io.Reader
}

func (b body) Read(p []byte) (int, error) {
	b.c.timer.Reset(b.c.limit)
	n, err := b.r.Read(p)
	b.c.timer.Stop()
	return n, err
}
