// Package queue is the wake port. A wake is a hint "look at this lane": it may
// be lost, doubled, late or out of order, and nothing durable depends on it.
package queue

import (
	"context"
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

// Queue sends wakes. An error means the wake may or may not arrive; the lane's
// due time repairs a loss, so a caller never retries for safety. Delay is at
// most 15 minutes.
type Queue interface {
	Send(ctx context.Context, w Wake, delay time.Duration) error
}
