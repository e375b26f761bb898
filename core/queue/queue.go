// Package queue is the wake port. A wake is a hint "look at this lane": it may
// be lost, doubled, late or out of order, and nothing durable depends on it.
//
// What an adapter promises is little, so that every queue can keep it:
//
//   - A wake that Send took is delivered at least once, unless the queue loses
//     it. Losing one costs time, never work: the due time on the lane's head
//     repairs it within a sweep.
//   - It is not delivered before its delay is over, as the queue's clock sees
//     it. A delay longer than MaxDelay may be cut to MaxDelay: a wake that comes
//     early finds a lane that is not due and is gone.
//   - A wake that is sent after a delivery was taken is delivered after it, even
//     if they are equal: the receiver may have looked before what the second one
//     tells of. Wakes that are equal and both wait may be delivered as one.
//   - Order is not promised, nor that a delivery is the only one.
//
// What receives is not part of the port, because on Lambda it is not part of
// the program. Where it is, a delivery that is not acknowledged comes again
// once it was hidden for the visibility timeout, it knows how often it was
// received, and after a limit it ends among the dead letters. Package queuetest
// certifies both sides.
package queue

import (
	"context"
	"errors"
	"time"

	"github.com/layover-run/layover/core/journal"
)

// Kind says which function a wake is for.
type Kind string

// The kinds of wakes.
const (
	Attempt Kind = "attempt"
	Settle  Kind = "settle"
)

// Version is the version of the wake message this build writes and reads.
const Version = 1

// MaxDelay is the longest delay a caller may rely on. Whoever has to wait
// longer writes a due time on the head.
const MaxDelay = 15 * time.Minute

// Wake is the message. It carries no epoch: decisions come from the head.
type Wake struct {
	V            int    `json:"v"`
	Kind         Kind   `json:"kind"`
	Tenant       string `json:"tenant"`
	Conversation string `json:"conversation"`
}

// Lane is the lane the wake points at.
func (w Wake) Lane() journal.Lane {
	return journal.Lane{Tenant: w.Tenant, Conversation: w.Conversation}
}

// For makes a wake for a lane.
func For(kind Kind, lane journal.Lane) Wake {
	return Wake{V: Version, Kind: kind, Tenant: lane.Tenant, Conversation: lane.Conversation}
}

// Queue sends wakes. It is safe for concurrent use.
//
// Send returns once the queue has the wake. An error means that it may or may
// not arrive; an adapter repeats what is worth repeating itself, and a caller
// never does: it logs the loss and leaves it to the due time. A delay of zero
// or less is none.
type Queue interface {
	Send(ctx context.Context, w Wake, delay time.Duration) error
}

// Batch is what a queue may offer besides Send, where many wakes at once are
// cheaper: each of them is sent as by Send, and the error joins those of the
// wakes that may be lost.
type Batch interface {
	SendAll(ctx context.Context, wakes []Wake) error
}

// SendAll sends many wakes without delay, in batches where the queue has them.
// A wake that fails does not keep the others back.
func SendAll(ctx context.Context, q Queue, wakes []Wake) error {
	if b, ok := q.(Batch); ok {
		return b.SendAll(ctx, wakes)
	}
	var errs []error
	for _, w := range wakes {
		errs = append(errs, q.Send(ctx, w, 0))
	}
	return errors.Join(errs...)
}
