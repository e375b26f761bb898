package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// errRestart says an older attempt's batch was found where this attempt's first
// one should go: fold again from the start.
var errRestart = errors.New("engine: log moved before the attempt started")

// fold reads a whole log into a state. Nothing may be written behind a log
// that does not fold.
func fold(ctx context.Context, j journal.Journal, lane journal.Lane, each ...func(record.Batch) error) (*core.State, error) {
	s := &core.State{}
	for sealed, err := range j.Read(ctx, lane, 1) {
		if err != nil {
			return nil, fmt.Errorf("engine: read log of %s: %w", lane.Conversation, err)
		}
		if err := foldSealed(s, lane, sealed, each...); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func foldSealed(s *core.State, lane journal.Lane, sealed record.Sealed, each ...func(record.Batch) error) error {
	b, err := record.Open(sealed, lane.Tenant, lane.Conversation)
	if err != nil {
		return fmt.Errorf("engine: log of %s: %w", lane.Conversation, err)
	}
	if err := core.Fold(s, b); err != nil {
		return fmt.Errorf("engine: log of %s: %w: %w", lane.Conversation, record.ErrCorrupt, err)
	}
	for _, also := range each {
		if err := also(b); err != nil {
			return fmt.Errorf("engine: log of %s: %w: %w", lane.Conversation, record.ErrCorrupt, err)
		}
	}
	return nil
}

// append makes one batch durable and folds it. Until the slot holds these very
// bytes or another batch is seen there, nothing else happens (F7).
func (a *attempt) append(ctx context.Context, whole record.Records) error {
	records, err := record.Outsize(whole, func(digest string, body []byte) error {
		a.payloads.keep(digest, body)
		storing, cancel := context.WithTimeout(ctx, a.cfg.CleanupTimeout)
		defer cancel()
		return untilDone(storing, func() error { return a.cfg.Journal.PutPayload(storing, a.lane.Tenant, digest, body) })
	})
	if err != nil {
		return fmt.Errorf("engine: store payload of %s: %w", a.lane.Conversation, err)
	}
	b := record.Batch{
		Tenant: a.lane.Tenant, Conversation: a.lane.Conversation, Slot: a.state.Slot + 1, ID: a.cfg.NewID(),
		Epoch: a.head.Epoch, Attempt: a.head.Owner, Prev: a.state.Digest, At: a.planned, Records: records,
	}
	sealed, err := record.Seal(&b)
	if err != nil {
		return fmt.Errorf("engine: %s: %w", a.lane.Conversation, err)
	}
	fpAppendBefore.Hit()
	if err := a.appendUntilClear(ctx, sealed); err != nil {
		return err
	}
	fpAppendAfter.Hit()
	if err := core.Fold(a.state, b); err != nil {
		return fmt.Errorf("engine: own batch does not fold: %w", err)
	}
	if a.cfg.OnBatch != nil {
		a.cfg.OnBatch(a.lane, b)
	}
	b.Records = whole // events hold every value as it was before it was put aside
	return a.out.recorded(b)
}

// appendUntilClear repeats the same bytes until the slot's content is known.
func (a *attempt) appendUntilClear(ctx context.Context, sealed record.Sealed) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CleanupTimeout)
	defer cancel()
	err := repeat(ctx, except(journal.ErrTaken, journal.ErrClosed), func() error { return a.cfg.Journal.Append(ctx, a.lane, sealed) })
	var taken *journal.TakenError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &taken):
		return a.lost(taken.Occupant)
	}
	a.unclear = true
	return fmt.Errorf("engine: append to %s stayed unclear: %w", a.lane.Conversation, err)
}

// lost says what another batch in our slot means.
func (a *attempt) lost(occupant record.Sealed) error {
	switch {
	case occupant.Epoch > a.head.Epoch:
		return journal.ErrFenced
	case occupant.Epoch < a.head.Epoch && a.state.Epoch < a.head.Epoch:
		return errRestart
	}
	return fmt.Errorf("engine: slot %d of %s holds batch %s of epoch %d, written by this very attempt or behind its fence: a defect",
		occupant.Slot, a.lane.Conversation, occupant.ID, occupant.Epoch)
}

// payloads are the values this attempt has in its hands, by digest.
type payloads struct {
	mu   sync.Mutex
	held map[string][]byte
}

func (p *payloads) keep(digest string, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = map[string][]byte{}
	}
	p.held[digest] = body
}

func (p *payloads) get(digest string) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, ok := p.held[digest]
	return body, ok
}

// payload reads bytes stored aside, for as long as it takes a store that is
// away for a moment to come back.
func (a *attempt) payload(ctx context.Context, ref record.Ref) ([]byte, error) {
	body, ok := a.payloads.get(ref.SHA256)
	if ok {
		return body, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.CleanupTimeout)
	defer cancel()
	err := untilDone(ctx, func() (err error) { body, err = a.cfg.Journal.Payload(ctx, a.lane.Tenant, ref.SHA256); return err })
	if err != nil {
		return nil, fmt.Errorf("engine: payload %s: %w", ref.SHA256, err)
	}
	a.payloads.keep(ref.SHA256, body)
	return body, nil
}

// resolve brings a value that is aside back inline. Its error means that the
// payload is damaged or missing; a store that does not answer ends the attempt.
func (j job) resolve(ctx context.Context, v record.Value) (record.Value, error) {
	if v.Aside == nil {
		return v, nil
	}
	body, err := j.a.payload(ctx, *v.Aside)
	if err != nil && !gone(err) {
		panic(storeAway{err})
	}
	return record.Value{Inline: body}, err
}
