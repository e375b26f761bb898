package journaltest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var logging = map[string]check{
	"Append/ReadsBackInOrder": func(t *testing.T, f *fixture) {
		f.admit("s1")
		want := []record.Sealed{f.append(1, "b1"), f.append(2, "b2"), f.append(3, "b3")}
		f.equal(f.log(0), want)
		f.equal(f.log(1), want)
		f.equal(f.log(3), want[2:])
		f.equal(f.log(4), []record.Sealed(nil))
	},
	"Append/ToALaneWithoutHead": func(t *testing.T, f *fixture) {
		want := []record.Sealed{f.append(1, "b1"), f.append(2, "b2")}
		f.equal(f.log(1), want)
		f.equal(f.head(), journal.Head{Lane: f.lane, State: journal.Idle})
		f.equal(f.admit("s1").Duplicate, false)
		f.equal(f.log(1), want)
	},
	"Append/LostAnswerIsSuccess": func(t *testing.T, f *fixture) {
		first := f.append(1, "b1")
		f.append(2, "b2")
		f.append(1, "b1")
		f.append(2, "b2")
		f.equal(f.log(1)[0], first)
		f.equal(len(f.log(1)), 2)
	},
	"Append/OtherBatchIsTaken": func(t *testing.T, f *fixture) {
		first := f.append(1, "b1")
		f.append(2, "b2")
		for name, b := range map[string]record.Sealed{
			"other id":     f.batch(1, "rival"),
			"other digest": {Slot: 1, ID: "b1", Epoch: 1, Digest: "other", Body: []byte("other")},
		} {
			err := f.Append(f.ctx, f.lane, b)
			f.want(err, journal.ErrTaken)
			var taken *journal.TakenError
			if !errors.As(err, &taken) {
				t.Fatalf("%s: %T is no TakenError", name, err)
			}
			f.equal(taken.Occupant, first)
		}
		f.equal(len(f.log(1)), 2)
	},
	"Append/RefusesAGap": func(t *testing.T, f *fixture) {
		for _, slot := range []uint64{0, 2} {
			err := f.Append(f.ctx, f.lane, f.batch(slot, "b"))
			if err == nil || errors.Is(err, journal.ErrTaken) {
				t.Fatalf("slot %d of an empty log: got %v", slot, err)
			}
		}
		f.append(1, "b1")
		if f.Append(f.ctx, f.lane, f.batch(3, "b3")) == nil {
			t.Fatal("slot 3 behind slot 1 was accepted")
		}
		f.equal(len(f.log(1)), 1)
	},
	"Append/KeepsTheCallersBytesApart": func(t *testing.T, f *fixture) {
		b := f.append(1, "b1")
		b.Body[0] = 'x'
		got := f.log(1)[0]
		f.equal(got, f.batch(1, "b1"))
		got.Body[0] = 'y'
		f.equal(f.log(1)[0], f.batch(1, "b1"))
	},
	"Read/ALongLogIsComplete": func(t *testing.T, f *fixture) {
		const slots = 300
		for slot := uint64(1); slot <= slots; slot++ {
			f.append(slot, fmt.Sprint("b", slot))
		}
		for _, from := range []uint64{1, 2, 64, 65, 150, slots} {
			got := f.log(from)
			f.equal(uint64(len(got)), slots-from+1)
			for i, b := range got {
				f.equal(b.Slot, from+uint64(i))
			}
		}
	},
	"Read/StopsWhenTold": func(t *testing.T, f *fixture) {
		f.append(1, "b1")
		f.append(2, "b2")
		for b, err := range f.Read(f.ctx, f.lane, 1) {
			f.check(err)
			f.equal(b.Slot, uint64(1))
			break
		}
	},
	"Read/MayUseTheJournalMeanwhile": func(t *testing.T, f *fixture) {
		f.append(1, "b1")
		f.append(2, "b2")
		for b, err := range f.Read(f.ctx, f.lane, 1) {
			f.check(err)
			f.append(b.Slot, fmt.Sprint("b", b.Slot))
			f.equal(len(f.log(1)), 2)
		}
	},
	"Payload/RoundTrip": func(t *testing.T, f *fixture) {
		body := []byte("large")
		digest := record.Digest(body)
		f.check(f.PutPayload(f.ctx, "acme", digest, body))
		f.check(f.PutPayload(f.ctx, "acme", digest, body))
		body[0] = 'x'
		got, err := f.Payload(f.ctx, "acme", digest)
		f.check(err)
		f.equal(string(got), "large")
		_, err = f.Payload(f.ctx, "globex", digest)
		f.want(err, journal.ErrNotFound)
	},
	"Payload/Empty": func(t *testing.T, f *fixture) {
		f.check(f.PutPayload(f.ctx, "acme", record.Digest(nil), nil))
		got, err := f.Payload(f.ctx, "acme", record.Digest(nil))
		f.check(err)
		f.equal(len(got), 0)
	},
	"Payload/RefusesAnotherDigest": func(t *testing.T, f *fixture) {
		f.want(f.PutPayload(f.ctx, "acme", record.Digest([]byte("a")), []byte("b")), record.ErrCorrupt)
	},
}
