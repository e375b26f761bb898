package enginetest

import (
	"context"
	"iter"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
)

// mortal is a journal in the hands of one life.
type mortal struct {
	life *life
	in   journal.Journal
}

var _ journal.Journal = (*mortal)(nil)

func (m *mortal) Admit(ctx context.Context, s journal.Submission, now time.Time, grace time.Duration) (journal.Admission, error) {
	return within(m.life, ctx, func(ctx context.Context) (journal.Admission, error) { return m.in.Admit(ctx, s, now, grace) })
}

func (m *mortal) Signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (journal.Signalled, error) {
	return within(m.life, ctx, func(ctx context.Context) (journal.Signalled, error) {
		return m.in.Signal(ctx, lane, e, after, now, grace)
	})
}

func (m *mortal) Claim(ctx context.Context, r journal.ClaimRequest) (journal.Head, error) {
	return within(m.life, ctx, func(ctx context.Context) (journal.Head, error) { return m.in.Claim(ctx, r) })
}

func (m *mortal) Append(ctx context.Context, lane journal.Lane, b record.Sealed) error {
	return m.only(ctx, func(ctx context.Context) error { return m.in.Append(ctx, lane, b) })
}

func (m *mortal) Read(ctx context.Context, lane journal.Lane, from uint64) iter.Seq2[record.Sealed, error] {
	return func(yield func(record.Sealed, error) bool) {
		m.life.alive()
		defer m.life.alive()
		for b, err := range m.in.Read(ctx, lane, from) {
			if !yield(b, err) {
				return
			}
		}
	}
}

type looked struct {
	head    journal.Head
	entries []journal.Entry
}

func (m *mortal) Inbox(ctx context.Context, lane journal.Lane, after uint64) (journal.Head, []journal.Entry, error) {
	look, err := within(m.life, ctx, func(ctx context.Context) (look looked, err error) {
		look.head, look.entries, err = m.in.Inbox(ctx, lane, after)
		return look, err
	})
	return look.head, look.entries, err
}

func (m *mortal) Park(ctx context.Context, r journal.ReleaseRequest) error {
	return m.only(ctx, func(ctx context.Context) error { return m.in.Park(ctx, r) })
}

func (m *mortal) Finish(ctx context.Context, r journal.FinishRequest) error {
	return m.only(ctx, func(ctx context.Context) error { return m.in.Finish(ctx, r) })
}

func (m *mortal) Due(ctx context.Context, until time.Time, limit int) ([]journal.Head, error) {
	return within(m.life, ctx, func(ctx context.Context) ([]journal.Head, error) { return m.in.Due(ctx, until, limit) })
}

// Watch tells nothing before the request that made it move is answered: so a
// scenario has one order of events, and one life at a time that acts.
func (m *mortal) Watch(ctx context.Context, lane journal.Lane, seen journal.Head) (journal.Head, error) {
	return within(m.life, ctx, func(ctx context.Context) (journal.Head, error) {
		head, err := m.in.Watch(ctx, lane, seen)
		m.life.cell.asking.RLock()
		defer m.life.cell.asking.RUnlock()
		return head, err
	})
}

func (m *mortal) Head(ctx context.Context, lane journal.Lane) (journal.Head, error) {
	return within(m.life, ctx, func(ctx context.Context) (journal.Head, error) { return m.in.Head(ctx, lane) })
}

func (m *mortal) Submission(ctx context.Context, tenant, id string) (journal.Submission, error) {
	return within(m.life, ctx, func(ctx context.Context) (journal.Submission, error) { return m.in.Submission(ctx, tenant, id) })
}

func (m *mortal) PutPayload(ctx context.Context, tenant, digest string, body []byte) error {
	return m.only(ctx, func(ctx context.Context) error { return m.in.PutPayload(ctx, tenant, digest, body) })
}

func (m *mortal) Payload(ctx context.Context, tenant, digest string) ([]byte, error) {
	return within(m.life, ctx, func(ctx context.Context) ([]byte, error) { return m.in.Payload(ctx, tenant, digest) })
}

func (m *mortal) only(ctx context.Context, do func(ctx context.Context) error) error {
	_, err := within(m.life, ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

// mortalQueue is the queue in the hands of one life.
type mortalQueue struct {
	life *life
	in   queue.Queue
}

func (q *mortalQueue) Send(ctx context.Context, w queue.Wake, delay time.Duration) error {
	_, err := within(q.life, ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, q.in.Send(ctx, w, delay) })
	return err
}
