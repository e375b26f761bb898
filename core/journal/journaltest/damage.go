package journaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// Stored names what a damage hits, in lane {acme, c1}.
type Stored string

// The stored things. A damage of several pieces hits one in the middle.
const (
	StoredHead    Stored = "head"
	StoredEntry   Stored = "inbox entry"    // slot 2, the last one; Missing takes slot 1
	StoredBatch   Stored = "log batch"      // slot 2 of 3
	StoredRow     Stored = "submission row" // s1, with an input of 1 KB
	StoredPayload Stored = "payload"        // DamagedPayload
)

// How says what happens to stored bytes.
type How string

// The damages.
const (
	Flipped   How = "flipped"   // a bit of the body, or a word of it, is another
	Truncated How = "truncated" // the body ends early
	Missing   How = "missing"   // it, or a piece in its middle, is gone
	Foreign   How = "foreign"   // what tenant globex stores at the same place is there instead
	Future    How = "future"    // its format version is higher than this build knows
)

// Damage is one change of stored bytes.
type Damage struct {
	What Stored
	How  How
}

// DamagedPayload is the payload that StoredPayload means: of several pieces
// where a store cuts payloads.
var DamagedPayload = noise(700_000)

func payloadDigest() string { return record.Digest(DamagedPayload) }

// refusals is what a damage is answered with, and by whom.
var refusals = map[How][]error{
	Flipped:   {record.ErrCorrupt, record.ErrForeign},
	Truncated: {record.ErrCorrupt},
	Missing:   {record.ErrCorrupt, journal.ErrNotFound},
	Foreign:   {record.ErrForeign, record.ErrCorrupt},
	Future:    {journal.ErrNewer, record.ErrUnknownVersion},
}

// refusing are the checks of damaged data: every operation that needs it
// answers with a typed error, and nothing is written.
func refusing() map[string]check {
	checks := map[string]check{}
	for _, what := range []Stored{StoredHead, StoredEntry, StoredBatch, StoredRow, StoredPayload} {
		for _, how := range []How{Flipped, Truncated, Missing, Foreign, Future} {
			if what == StoredHead && how == Missing {
				continue // a lane without a head is a lane never used
			}
			d := Damage{what, how}
			checks[fmt.Sprintf("Refused/%s %s", what, how)] = func(t *testing.T, f *fixture) { f.refused(d) }
		}
	}
	return checks
}

func (f *fixture) refused(d Damage) {
	h := f.fill(f.lane)
	f.fill(journal.Lane{Tenant: "globex", Conversation: "c1"})
	damaged, why := f.damage(f.t, f.Journal, d)
	if damaged == nil {
		f.omit(why)
	}
	f.Journal = damaged
	before := f.dump(f.t, damaged)
	for op, do := range f.needing(d, h) {
		err := do()
		if err == nil {
			f.t.Errorf("%s succeeded", op)
			continue
		}
		known := false
		for _, want := range refusals[d.How] {
			known = known || errors.Is(err, want)
		}
		if !known {
			f.t.Errorf("%s: got %v, want one of %v", op, err, refusals[d.How])
		}
	}
	if d := cmp.Diff(strings.Split(before, "\n"), strings.Split(f.dump(f.t, damaged), "\n")); d != "" {
		f.t.Errorf("something was written (-before +after)\n%s", d)
	}
	if d.What == StoredHead {
		// The others are swept all the same.
		swept := func(heads []journal.Head) bool {
			return slices.ContainsFunc(heads, func(h journal.Head) bool { return h.Lane.Tenant == "globex" && h.State == journal.Running })
		}
		if heads := f.dueWhen(t0.AddDate(1, 0, 0), 10, swept); !swept(heads) {
			f.t.Errorf("due beside a %s head: %+v", d.How, heads)
		}
	}
	if d.What != StoredPayload {
		return
	}
	// Who stores it again may rely on it, or is told that it is damaged.
	if err := f.PutPayload(f.ctx, f.lane.Tenant, payloadDigest(), DamagedPayload); err == nil {
		_, err = f.Payload(f.ctx, f.lane.Tenant, payloadDigest())
		f.check(err)
	} else if journal.Unclear(err) {
		f.t.Errorf("stored again: %v", err)
	}
}

// needing are the operations that read what is damaged.
func (f *fixture) needing(d Damage, h journal.Head) map[string]func() error {
	read := func() error {
		for b, err := range f.Read(f.ctx, f.lane, 1) {
			if err == nil {
				_, err = record.Open(b, f.lane.Tenant, f.lane.Conversation)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	inbox := func() error { _, _, err := f.Inbox(f.ctx, f.lane, 0); return err }
	signal := func() error { _, err := f.Signal(f.ctx, f.lane, f.steer("new"), 0, t0, grace); return err }
	admit := func(id string) func() error {
		return func() error { _, err := f.Admit(f.ctx, f.wide(f.lane, id), t0, grace); return err }
	}
	row := func() error { _, err := f.Submission(f.ctx, f.lane.Tenant, "s1"); return err }
	switch d.What {
	case StoredHead:
		return map[string]func() error{
			"head":   func() error { _, err := f.Head(f.ctx, f.lane); return err },
			"claim":  func() error { _, err := f.Claim(f.ctx, f.request("a2", t0.Add(lease))); return err },
			"park":   func() error { return f.Park(f.ctx, f.release(h, journal.Parked, t0.Add(time.Hour))) },
			"finish": func() error { return f.Finish(f.ctx, f.finish(h, "s1", 3)) },
			"inbox":  inbox, "signal": signal, "admit": admit("s2"),
		}
	case StoredEntry:
		if d.How == Missing {
			return map[string]func() error{"inbox": inbox}
		}
		return map[string]func() error{"inbox": inbox, "signal": signal, "admit": admit("s2")}
	case StoredBatch:
		return map[string]func() error{"read": read}
	case StoredRow:
		if d.How == Missing {
			return map[string]func() error{"submission": row, "finish": func() error { return f.Finish(f.ctx, f.finish(h, "s1", 3)) }}
		}
		return map[string]func() error{"submission": row, "admit again": admit("s1")}
	}
	return map[string]func() error{"payload": func() error { _, err := f.Payload(f.ctx, f.lane.Tenant, payloadDigest()); return err }}
}

// wide is a submission whose input is large enough to be worth compressing.
func (f *fixture) wide(lane journal.Lane, id string) journal.Submission {
	s := f.submission(id)
	s.Lane, s.Input = lane, jsonOf(1100)
	return s
}

// fill brings a lane to where every stored thing is there, and its head runs.
func (f *fixture) fill(lane journal.Lane) journal.Head {
	f.t.Helper()
	_, err := f.Admit(f.ctx, f.wide(lane, "s1"), t0, grace)
	f.check(err)
	e := f.steer("k")
	e.Body = jsonOf(journal.EntryLimit)
	_, err = f.Signal(f.ctx, lane, e, 0, t0, grace)
	f.check(err)
	r := f.request("a1", t0)
	r.Lane = lane
	h, err := f.Claim(f.ctx, r)
	f.check(err)
	prev := ""
	for slot := uint64(1); slot <= 3; slot++ {
		b := record.Batch{Tenant: lane.Tenant, Conversation: lane.Conversation, Slot: slot, ID: fmt.Sprint("b", slot), Epoch: 1, Attempt: "a1",
			Prev: prev, At: t0, Records: record.Records{record.AttemptStarted{}, record.RunReleased{Reason: string(jsonOf(2000))}}}
		sealed, err := record.Seal(&b)
		f.check(err)
		prev = sealed.Digest
		f.check(f.Append(f.ctx, lane, sealed))
	}
	f.check(f.PutPayload(f.ctx, lane.Tenant, payloadDigest(), DamagedPayload))
	return h
}

// ended is a context that is over, and its error.
func (f *fixture) ended() (context.Context, error) {
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	return ctx, ctx.Err()
}
