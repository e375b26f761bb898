package sqlitejournal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// errStrayWriter: the store changed under the process that holds its lock.
var errStrayWriter = errors.New("a head was changed by another writer")

const (
	headColumns = "epoch, owner, boot, state, version, due, lease, settled, drained"

	sqlHeadGet = "SELECT " + headColumns + ", id FROM heads WHERE tenant = ? AND conversation = ?"
	sqlEntries = "SELECT slot, kind, key, digest, ref, body, actor, at FROM inbox WHERE lane = ? AND slot > ? ORDER BY slot"
	sqlBatches = "SELECT slot, batch, epoch, digest, body FROM log WHERE lane = ? AND slot >= ? ORDER BY slot LIMIT ?"
	sqlDue     = "SELECT " + headColumns + ", tenant, conversation FROM heads WHERE due IS NOT NULL AND due <= ? ORDER BY due LIMIT ?"
	sqlLanes   = "SELECT " + headColumns + ", tenant, conversation, id FROM heads WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT ?"
	sqlSubGet  = "SELECT conversation, key, digest, agent, principal, input, reply_to, allowance, parent," +
		" admitted_at, tail, outcome, settled_at FROM submissions WHERE id = ? AND tenant = ?"
	sqlPayload = "SELECT body FROM payloads WHERE digest = ? AND tenant = ?"
)

// writerStmts are the statements of the writing connection.
type writerStmts struct {
	begin, commitStmt, rollback      *stmt
	headGet, headInsert, headUpdate  *stmt
	inboxTail, entries, entryInsert  *stmt
	entryByKey                       *stmt
	logTail, batches, logInsert      *stmt
	subGet, subInsert, subSettle     *stmt
	payloadFind, payloadInsert, lost *stmt
}

func (s *writerStmts) prepare(c *conn) error {
	return c.prepareAll(map[**stmt]string{
		&s.begin:      "BEGIN IMMEDIATE",
		&s.commitStmt: "COMMIT",
		&s.rollback:   "ROLLBACK",

		&s.headGet:    sqlHeadGet,
		&s.headInsert: "INSERT INTO heads (id, tenant, conversation, " + headColumns + ") VALUES (?,?,?, ?,?,?,?,?,?,?,?,?)",
		&s.headUpdate: "UPDATE heads SET epoch = ?, owner = ?, boot = ?, state = ?, version = ?, due = ?, lease = ?," +
			" settled = ?, drained = ? WHERE id = ? AND epoch = ? AND version = ?",
		&s.lost: "SELECT " + headColumns + ", tenant, conversation FROM heads WHERE due IS NOT NULL AND state = 2 AND boot NOT IN ('', ?)",

		&s.inboxTail:   "SELECT max(slot) FROM inbox WHERE lane = ?",
		&s.entries:     sqlEntries,
		&s.entryByKey:  "SELECT slot, kind, key, digest, ref, body, actor, at FROM inbox WHERE lane = ? AND slot > ? AND key = ? ORDER BY slot LIMIT 1",
		&s.entryInsert: "INSERT INTO inbox (lane, slot, kind, key, digest, ref, body, actor, at) VALUES (?,?,?,?,?,?,?,?,?)",

		&s.logTail:   "SELECT max(slot) FROM log WHERE lane = ?",
		&s.batches:   sqlBatches,
		&s.logInsert: "INSERT INTO log (lane, slot, batch, epoch, digest, body) VALUES (?,?,?,?,?,?)",

		&s.subGet: sqlSubGet,
		&s.subInsert: "INSERT INTO submissions (id, tenant, conversation, key, digest, agent, principal, input, reply_to," +
			" allowance, parent, admitted_at, tail) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
		&s.subSettle: "UPDATE submissions SET outcome = ?, settled_at = ? WHERE id = ? AND tenant = ? AND settled_at IS NULL",

		&s.payloadFind:   sqlPayload,
		&s.payloadInsert: "INSERT INTO payloads (digest, tenant, body) VALUES (?,?,?)",
	})
}

// states in their stored order: a state is stored as its index.
var states = []journal.State{journal.Idle, journal.Ready, journal.Running, journal.Parked}

// millis is a time as stored; the zero time is 0, stored as NULL.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

func bindHead(s *stmt, h *journal.Head) *stmt {
	state := int64(slices.Index(states, h.State))
	return s.uint(h.Epoch).text(h.Owner).text(h.Boot).int(state).uint(h.Version).
		optInt(millis(h.Due)).optInt(millis(h.Lease)).uint(h.Settled).uint(h.Drained)
}

// headOf reads headColumns.
func headOf(r row, lane journal.Lane) (journal.Head, error) {
	state := r.int(3)
	if state < 0 || state >= int64(len(states)) {
		return journal.Head{}, fmt.Errorf("%w: lane state %d", record.ErrCorrupt, state)
	}
	return journal.Head{
		Lane: lane, Epoch: r.uint(0), Owner: r.text(1), Boot: r.text(2), State: states[state], Version: r.uint(4),
		Due: fromMillis(r.int(5)), Lease: fromMillis(r.int(6)), Settled: r.uint(7), Drained: r.uint(8),
	}, nil
}

// loadHead reads a head and its rowid, 0 if there is none.
func loadHead(get *stmt, key journal.Lane) (h journal.Head, id int64, err error) {
	h = journal.Head{Lane: key, State: journal.Idle}
	var bad error
	_, err = get.text(key.Tenant).text(key.Conversation).one(func(r row) {
		h, bad = headOf(r, key)
		id = r.int(9)
	})
	return h, id, errors.Join(err, bad)
}

// loadHeads reads headColumns, tenant, conversation. Of a head that does not
// decode it has the lane alone: whoever acts on it reads it and is told.
func loadHeads(s *stmt) ([]journal.Head, error) {
	var heads []journal.Head
	err := s.each(func(r row) bool {
		lane := journal.Lane{Tenant: r.text(9), Conversation: r.text(10)}
		h, err := headOf(r, lane)
		if err != nil {
			h = journal.Head{Lane: lane}
		}
		heads = append(heads, h)
		return true
	})
	return heads, err
}

func entryOf(r row) journal.Entry {
	return journal.Entry{
		Slot: r.uint(0), Kind: journal.EntryKind(r.text(1)), Key: r.text(2), Digest: r.text(3), Ref: r.text(4),
		Body: r.blob(5), By: r.text(6), At: fromMillis(r.int(7)),
	}
}

// loadEntries reads the entries of a lane above a slot.
func loadEntries(s *stmt, lane int64, after uint64) (entries []journal.Entry, err error) {
	err = s.int(lane).uint(after).each(func(r row) bool {
		entries = append(entries, entryOf(r))
		return true
	})
	for i, e := range entries {
		if e.Slot != after+1+uint64(i) {
			return nil, fmt.Errorf("%w: inbox slot %d is missing", record.ErrCorrupt, after+1+uint64(i))
		}
	}
	return entries, err
}

// pageBytes ends a page of the log early.
const pageBytes = 1 << 20

// loadBatches reads a page of the log from a slot on.
func loadBatches(s *stmt, lane int64, from uint64, limit int64) (page []record.Sealed, err error) {
	size := 0
	err = s.int(lane).uint(from).int(limit).each(func(r row) bool {
		b := record.Sealed{Slot: r.uint(0), ID: r.text(1), Epoch: r.uint(2), Digest: r.text(3), Body: r.blob(4)}
		page = append(page, b)
		size += len(b.Body)
		return size < pageBytes
	})
	for i, b := range page {
		if b.Slot != from+uint64(i) {
			return nil, fmt.Errorf("%w: log slot %d is missing", record.ErrCorrupt, from+uint64(i))
		}
	}
	return page, err
}

// loadSub reads a submission row, nil if there is none.
func loadSub(get *stmt, key subKey) (*subRow, error) {
	var out *subRow
	var bad error
	_, err := get.text(key.id).text(key.tenant).one(func(r row) {
		s := journal.Submission{
			Lane: journal.Lane{Tenant: key.tenant, Conversation: r.text(0)}, ID: key.id, Key: r.text(1), Digest: r.text(2),
			Agent: r.text(3), Principal: r.text(4), Input: r.blob(5), ReplyTo: r.text(6),
			AdmittedAt: fromMillis(r.int(9)), Tail: r.uint(10), SettledAt: fromMillis(r.int(12)),
		}
		bad = errors.Join(decodeOptional(r.blob(7), &s.Allowance), decodeOptional(r.blob(8), &s.Parent))
		out = &subRow{sub: s, outcome: r.blob(11)}
	})
	return out, errors.Join(err, bad)
}

// submission is the row as a caller gets it, sharing nothing.
func (r *subRow) submission() (journal.Submission, error) {
	s := r.sub
	s.Input = bytes.Clone(s.Input)
	if r.outcome != nil {
		s.Outcome = new(record.RunSettled)
		if err := decodeOptional(r.outcome, s.Outcome); err != nil {
			return journal.Submission{}, err
		}
	}
	return s, nil
}

// encode writes JSON without HTML escaping, so that canonical values inside
// keep their bytes.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// encodeOptional is encode, with the zero value as nothing.
func encodeOptional[T comparable](v T) ([]byte, error) {
	var zero T
	if v == zero {
		return nil, nil
	}
	return encode(v)
}

func decodeOptional(b []byte, into any) error {
	if len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: submission row: %w", record.ErrCorrupt, err)
	}
	return nil
}
