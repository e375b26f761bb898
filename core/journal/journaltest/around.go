package journaltest

import (
	"context"
	"sync"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Around puts faults around a journal's operations, for an adapter that
// commits all items of an operation together: there an operation happens or it
// does not, and only its answer can be lost. Use it in open, and
// (*Faulty).SetFault with WithFaults.
func Around(j journal.Journal) *Faulty { return &Faulty{Journal: j} }

// Faulty is a journal with faults around its operations.
type Faulty struct {
	journal.Journal
	mu    sync.Mutex
	fault Fault
}

// SetFault installs f, or nothing when f is nil.
func (j *Faulty) SetFault(f Fault) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fault = f
}

// Boot is the boot id of the journal inside, if it has one.
func (j *Faulty) Boot() string {
	if b, ok := j.Journal.(interface{ Boot() string }); ok {
		return b.Boot()
	}
	return ""
}

func (j *Faulty) ask(write string, after bool) error {
	j.mu.Lock()
	f := j.fault
	j.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(write, after)
}

// around runs an operation that writes, between its faults. An operation that
// was refused wrote nothing.
func (j *Faulty) around(write string, do func() error) error {
	if err := j.ask(write, false); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return j.ask(write, true)
}

// Admit implements journal.Journal.
func (j *Faulty) Admit(ctx context.Context, s journal.Submission, now time.Time, grace time.Duration) (a journal.Admission, err error) {
	err = j.around("admit", func() error { a, err = j.Journal.Admit(ctx, s, now, grace); return err })
	return a, err
}

// Signal implements journal.Journal.
func (j *Faulty) Signal(ctx context.Context, lane journal.Lane, e journal.Entry, after uint64, now time.Time, grace time.Duration) (s journal.Signalled, err error) {
	err = j.around("signal", func() error { s, err = j.Journal.Signal(ctx, lane, e, after, now, grace); return err })
	return s, err
}

// Claim implements journal.Journal.
func (j *Faulty) Claim(ctx context.Context, r journal.ClaimRequest) (h journal.Head, err error) {
	err = j.around("claim", func() error { h, err = j.Journal.Claim(ctx, r); return err })
	return h, err
}

// Append implements journal.Journal.
func (j *Faulty) Append(ctx context.Context, lane journal.Lane, b record.Sealed) error {
	return j.around("append", func() error { return j.Journal.Append(ctx, lane, b) })
}

// Park implements journal.Journal.
func (j *Faulty) Park(ctx context.Context, r journal.ReleaseRequest) error {
	return j.around("park", func() error { return j.Journal.Park(ctx, r) })
}

// Finish implements journal.Journal.
func (j *Faulty) Finish(ctx context.Context, r journal.FinishRequest) error {
	return j.around("finish", func() error { return j.Journal.Finish(ctx, r) })
}

// PutPayload implements journal.Journal.
func (j *Faulty) PutPayload(ctx context.Context, tenant, digest string, body []byte) error {
	return j.around("payload", func() error { return j.Journal.PutPayload(ctx, tenant, digest, body) })
}
