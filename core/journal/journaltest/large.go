package journaltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// noise is n bytes that do not compress, the same each time.
func noise(n int) []byte {
	out := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(out)
	return out
}

// jsonOf is a JSON string of n bytes that do not compress well.
func jsonOf(n int) []byte {
	const digits = "0123456789abcdef"
	out := noise(n)
	for i, b := range out {
		out[i] = digits[b&15]
	}
	out[0], out[n-1] = '"', '"'
	return out
}

// large are the checks of what does not fit one item or one page of a store.
var large = func() map[string]check {
	checks := map[string]check{
		"Large/ASubmissionOfOneMiB": func(t *testing.T, f *fixture) {
			s := f.submission("s1")
			s.Input = jsonOf(1 << 20)
			a, err := f.Admit(f.ctx, s, t0, grace)
			f.check(err)
			got, err := f.Submission(f.ctx, "acme", "s1")
			f.check(err)
			again, err := f.Admit(f.ctx, s, t0, grace)
			f.check(err)
			f.equal(again.Duplicate, true)
			for _, stored := range []journal.Submission{a.Submission, got, again.Submission} {
				if !bytes.Equal(stored.Input, s.Input) {
					t.Fatalf("%d bytes came back, %d went in", len(stored.Input), len(s.Input))
				}
			}
		},
		"Large/ABatchAtItsLimit": func(t *testing.T, f *fixture) {
			b := f.batch(1, "b1")
			b.Body = jsonOf(record.BatchLimit)
			b.Digest = record.Digest(b.Body)
			f.check(f.Append(f.ctx, f.lane, b))
			f.check(f.Append(f.ctx, f.lane, b))
			f.equal(f.log(1), []record.Sealed{b})
		},
		"Large/AnEntryAtItsLimit": func(t *testing.T, f *fixture) {
			e := f.steer("k")
			e.Body = jsonOf(journal.EntryLimit)
			_, err := f.Signal(f.ctx, f.lane, e, 0, t0, grace)
			f.check(err)
			f.equal(string(f.inbox(0)[0].Body), string(e.Body))
		},
		"Large/AnOutcome": func(t *testing.T, f *fixture) {
			f.admit("s1")
			h := f.claim("a1", t0)
			f.append(1, "b1")
			r := f.finish(h, "s1", 1)
			r.Outcomes[0].Output = record.Value{Inline: json.RawMessage(jsonOf(300_000))}
			f.check(f.Finish(f.ctx, r))
			s, err := f.Submission(f.ctx, "acme", "s1")
			f.check(err)
			f.equal(s.Outcome.Output.Digest(), r.Outcomes[0].Output.Digest())
			f.equal(f.head().State, journal.Idle)
		},
		"Page/ALogOverOneMB": func(t *testing.T, f *fixture) {
			body := jsonOf(200_000)
			const slots = 9
			for slot := uint64(1); slot <= slots; slot++ {
				b := f.batch(slot, fmt.Sprint("b", slot))
				b.Body = body
				f.check(f.Append(f.ctx, f.lane, b))
			}
			for _, from := range []uint64{1, 2, slots} {
				log := f.log(from)
				f.equal(uint64(len(log)), slots-from+1)
				for i, b := range log {
					if b.Slot != from+uint64(i) || !bytes.Equal(b.Body, body) {
						t.Fatalf("slot %d came back as slot %d with %d bytes", from+uint64(i), b.Slot, len(b.Body))
					}
				}
			}
		},
		"Page/AnInboxOverOneMB": func(t *testing.T, f *fixture) {
			const entries = 600
			body := jsonOf(journal.EntryLimit)
			for i := range uint64(entries) {
				e := f.steer(fmt.Sprint("k", i))
				e.Body = body
				s, err := f.Signal(f.ctx, f.lane, e, i, t0, grace)
				f.check(err)
				f.equal(s.Slot, i+1)
			}
			f.equal(len(f.keys()), entries)
			// The first key is found again below more than a page.
			s, err := f.Signal(f.ctx, f.lane, func() journal.Entry { e := f.steer("k0"); e.Body = body; return e }(), 0, t0, grace)
			f.check(err)
			f.equal(s, journal.Signalled{Slot: 1, Duplicate: true})
		},
		"Payload/CutOffWriterIsRepaired": func(t *testing.T, f *fixture) {
			if f.faults == nil {
				f.omit("no WithFaults: the adapter offers no way to fail a write")
			}
			body := noise(1 << 20)
			for n := 1; ; n++ {
				body[0] = byte(n)
				digest := record.Digest(body)
				fired := f.count(func(_ string, write int, after bool) bool { return !after && write >= n })
				err := f.PutPayload(f.ctx, "acme", digest, body)
				f.faults(f.Journal, nil)
				if *fired == 0 {
					f.check(err)
					return
				}
				if err == nil {
					t.Fatalf("the payload is acknowledged without its write %d", n)
				}
				f.check(f.PutPayload(f.ctx, "acme", digest, body))
				got, err := f.Payload(f.ctx, "acme", digest)
				f.check(err)
				f.equal(record.Digest(got), digest)
			}
		},
	}
	for name, size := range map[string]int{"300KB": 300 << 10, "1MiB": 1 << 20, "5MiB": 5 << 20} {
		checks["Payload/"+name] = func(t *testing.T, f *fixture) {
			for kind, body := range map[string][]byte{"noise": noise(size), "zeros": make([]byte, size)} {
				digest := record.Digest(body)
				f.check(f.PutPayload(f.ctx, "acme", digest, body))
				f.check(f.PutPayload(f.ctx, "acme", digest, body))
				got, err := f.Payload(f.ctx, "acme", digest)
				f.check(err)
				if !bytes.Equal(got, body) {
					t.Fatalf("%s: %d bytes came back, %d went in", kind, len(got), len(body))
				}
			}
		}
	}
	return checks
}()
