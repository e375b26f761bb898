package sqlitejournal_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/journal/sqlitejournal"
	"github.com/layover-run/layover/core/record"
)

// Whatever the sequence of operations and restarts, SQLite answers as memory
// does, with the rows in memory, out of it, and partly in it.
func TestAnswersAsMemoryDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &twins{T: rt, dir: t.TempDir(), mem: memjournal.New(), now: start, slots: make(map[journal.Lane]uint64)}
		m.cache = pick(rt, "cache", 64<<20, 4000, 0)
		m.open()
		defer func() { check(t, m.sql.Close()) }()
		rt.Repeat(map[string]func(*rapid.T){
			"admit": m.admit, "signal": m.signal, "claim": m.claim, "append": m.append, "park": m.park,
			"finish": m.finish, "restart": m.restart, "read": m.read, "": m.compare,
		})
		m.read(rt)
	})
}

// twins is one history on two journals.
type twins struct {
	*rapid.T
	dir   string
	cache int
	sql   *sqlitejournal.Journal
	mem   *memjournal.Journal
	now   time.Time
	slots map[journal.Lane]uint64
}

func (m *twins) open() {
	var err error
	m.sql, err = sqlitejournal.Open(m.dir, sqlitejournal.WithCache(m.cache), sqlitejournal.WithReaders(1))
	if err != nil {
		m.Fatal(err)
	}
}

func (m *twins) both() []journal.Journal { return []journal.Journal{m.sql, m.mem} }

// same fails unless the two answers, boot ids aside, are one.
func (m *twins) same(answers []any, errs []error) {
	m.Helper()
	if d := cmp.Diff(answers[1], answers[0], cmpopts.EquateEmpty(), cmpopts.IgnoreFields(journal.Head{}, "Boot")); d != "" {
		m.Fatalf("(-memory +sqlite)\n%s", d)
	}
	for _, kind := range []error{
		journal.ErrConflict, journal.ErrNotClaimable, journal.ErrRefused, journal.ErrFenced, journal.ErrTaken, journal.ErrNotFound, record.ErrCorrupt,
	} {
		if errors.Is(errs[0], kind) != errors.Is(errs[1], kind) {
			m.Fatalf("sqlite answers %v, memory %v", errs[0], errs[1])
		}
	}
	if (errs[0] == nil) != (errs[1] == nil) {
		m.Fatalf("sqlite answers %v, memory %v", errs[0], errs[1])
	}
}

// do runs one operation on both.
func (m *twins) do(f func(journal.Journal) (any, error)) {
	m.Helper()
	var answers []any
	var errs []error
	for _, j := range m.both() {
		a, err := f(j)
		answers, errs = append(answers, a), append(errs, err)
	}
	m.same(answers, errs)
}

// put is do for what puts an inbox entry. Memory bumps the head also where it
// finds the entry, because its writer may have died before the bump; SQLite
// writes both in one transaction and has no use for that, so it is undone.
func (m *twins) put(f func(journal.Journal) (answer any, duplicate bool, err error)) {
	m.Helper()
	before := m.mem.Clone()
	m.do(func(j journal.Journal) (any, error) {
		a, duplicate, err := f(j)
		if j == journal.Journal(m.mem) && (duplicate || errors.Is(err, journal.ErrConflict)) {
			m.mem = before
		}
		return a, err
	})
}

func pick[V any](t *rapid.T, label string, values ...V) V {
	return rapid.SampledFrom(values).Draw(t, label)
}

func (m *twins) lane(t *rapid.T) journal.Lane {
	return pick(t, "lane", journal.Lane{Tenant: "acme", Conversation: "c1"}, journal.Lane{Tenant: "acme", Conversation: "c2"})
}

func (m *twins) admit(t *rapid.T) {
	lane := m.lane(t)
	s := journal.Submission{Lane: lane, ID: lane.Conversation + pick(t, "id", "s1", "s2"), Digest: pick(t, "digest", "d1", "d1", "d2"), AdmittedAt: m.now}
	m.put(func(j journal.Journal) (any, bool, error) {
		a, err := j.Admit(m.Context(), s, m.now, time.Second)
		return a, a.Duplicate, err
	})
}

func (m *twins) signal(t *rapid.T) {
	lane, after := m.lane(t), rapid.Uint64Range(0, 5).Draw(t, "after")
	e := journal.Entry{Kind: journal.EntrySteer, Key: pick(t, "key", "k1", "k2", "k3"), Digest: pick(t, "digest", "d1", "d1", "d2"), Body: []byte("body")}
	m.put(func(j journal.Journal) (any, bool, error) {
		a, err := j.Signal(m.Context(), lane, e, after, m.now, time.Second)
		return a, a.Duplicate, err
	})
}

func (m *twins) claim(t *rapid.T) {
	lane, owner := m.lane(t), pick(t, "owner", "a1", "a2")
	lease := m.now.Add(pick(t, "lease", time.Second, time.Minute))
	boots := map[journal.Journal]string{m.sql: m.sql.Boot(), m.mem: m.mem.Boot()}
	m.do(func(j journal.Journal) (any, error) {
		return j.Claim(m.Context(), journal.ClaimRequest{Lane: lane, Owner: owner, Boot: boots[j], Now: m.now, Lease: lease})
	})
	m.now = m.now.Add(pick(t, "pass", 0, time.Second))
}

func (m *twins) append(t *rapid.T) {
	lane := m.lane(t)
	slot := rapid.Uint64Range(m.slots[lane], m.slots[lane]+2).Draw(t, "slot")
	b := record.Sealed{Slot: slot, ID: fmt.Sprint(slot, pick(t, "id", "a", "b")), Epoch: 1, Digest: "d", Body: []byte("body")}
	m.slots[lane] = max(m.slots[lane], min(slot, m.slots[lane]+1))
	m.do(func(j journal.Journal) (any, error) { return nil, j.Append(m.Context(), lane, b) })
}

// head reads the head that a release or a finish starts from, or an older one.
func (m *twins) head(t *rapid.T, lane journal.Lane) journal.Head {
	h, err := m.mem.Head(m.Context(), lane)
	check(t, err)
	if h.Version > 0 && pick(t, "stale", false, false, true) {
		h.Version--
	}
	return h
}

func (m *twins) park(t *rapid.T) {
	lane := m.lane(t)
	h := m.head(t, lane)
	r := journal.ReleaseRequest{
		Lane: lane, Epoch: h.Epoch, Owner: pick(t, "owner", h.Owner, h.Owner, "a1"), To: pick(t, "to", journal.Idle, journal.Parked, journal.Ready),
		Due: m.now.Add(time.Second), Version: h.Version, Drained: rapid.Uint64Range(0, 3).Draw(t, "drained"),
	}
	m.do(func(j journal.Journal) (any, error) { return nil, j.Park(m.Context(), r) })
}

func (m *twins) finish(t *rapid.T) {
	lane := m.lane(t)
	h := m.head(t, lane)
	r := journal.FinishRequest{
		Lane: lane, At: m.now, Was: h.Settled, Settled: h.Settled + rapid.Uint64Range(0, 1).Draw(t, "settled"),
		Outcomes: []record.RunSettled{{Run: lane.Conversation + pick(t, "run", "s1", "s2"), Status: record.StatusCompleted}},
		Version:  h.Version, To: pick(t, "to", journal.Idle, journal.Ready), Due: m.now.Add(time.Second),
	}
	m.do(func(j journal.Journal) (any, error) { return nil, j.Finish(m.Context(), r) })
}

func (m *twins) restart(t *rapid.T) {
	check(t, m.sql.Close())
	m.open()
	m.mem = m.mem.Restart()
}

var conversations = []string{"c1", "c2"}

// compare reads what every operation may have changed.
func (m *twins) compare(*rapid.T) {
	for _, conversation := range conversations {
		lane := journal.Lane{Tenant: "acme", Conversation: conversation}
		m.do(func(j journal.Journal) (any, error) { return j.Head(m.Context(), lane) })
	}
}

// read reads everything else.
func (m *twins) read(t *rapid.T) {
	after := rapid.Uint64Range(0, 3).Draw(t, "after")
	for _, conversation := range conversations {
		lane := journal.Lane{Tenant: "acme", Conversation: conversation}
		m.do(func(j journal.Journal) (any, error) {
			h, entries, err := j.Inbox(m.Context(), lane, after)
			return []any{h, entries}, err
		})
		m.do(func(j journal.Journal) (any, error) { return readLog(m.Context(), j, lane, after) })
		for _, id := range []string{"s1", "s2"} {
			m.do(func(j journal.Journal) (any, error) { return j.Submission(m.Context(), "acme", conversation+id) })
		}
	}
	m.do(func(j journal.Journal) (any, error) {
		heads, err := j.Due(m.Context(), m.now, 10)
		due := make(map[journal.Lane]journal.Head)
		for _, h := range heads {
			due[h.Lane] = h
		}
		return due, err
	})
}

func readLog(ctx context.Context, j journal.Journal, lane journal.Lane, from uint64) ([]record.Sealed, error) {
	var log []record.Sealed
	for b, err := range j.Read(ctx, lane, from) {
		if err != nil {
			return nil, err
		}
		log = append(log, b)
	}
	return log, nil
}
