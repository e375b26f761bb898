package sqlitejournal_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/journaltest"
	"github.com/layover-run/layover/core/journal/sqlitejournal"
	"github.com/layover-run/layover/core/record"
)

// certify runs the certification. An operation is one transaction here, so
// faults stand around operations.
func certify(t *testing.T, opts ...sqlitejournal.Option) journaltest.Result {
	var dirs sync.Map // of a *journaltest.Faulty
	start := func(t *testing.T, dir string) journal.Journal {
		j := journaltest.Around(open(t, dir, opts...))
		dirs.Store(j, dir)
		return j
	}
	dirOf := func(j journal.Journal) string {
		dir, _ := dirs.Load(j)
		return dir.(string)
	}
	return journaltest.Run(t, func(t *testing.T) journal.Journal { return start(t, t.TempDir()) },
		journaltest.WithFaults(func(j journal.Journal, f journaltest.Fault) { j.(*journaltest.Faulty).SetFault(f) }),
		journaltest.WithDamage(func(t *testing.T, j journal.Journal, d journaltest.Damage) (journal.Journal, string) {
			statement, ok := damages[d]
			if !ok {
				return nil, undamaged(d)
			}
			dir := dirOf(j)
			closeJournal(t, j.(*journaltest.Faulty).Journal.(*sqlitejournal.Journal))
			db := raw(t, dir)
			var args []any
			if d == futureBatch {
				args = newerBatch(t, db)
			}
			res, err := db.Exec(statement, args...)
			check(t, err)
			if n, err := res.RowsAffected(); err != nil || n != 1 {
				t.Fatalf("%q changed %d rows, %v", statement, n, err)
			}
			return start(t, dir), ""
		}, func(t *testing.T, j journal.Journal) string { return dump(t, dirOf(j)) }))
}

// undamaged says why this store cannot show a damage.
func undamaged(d journaltest.Damage) string {
	switch {
	case d.How == journaltest.Future:
		return "rows have no version of their own: a newer store is refused when it is opened, see TestNewerStoreIsLeftAlone"
	case d.How == journaltest.Foreign:
		return "a row's tenant is its key: there is no second word that could contradict it"
	}
	return "no digest stands beside these columns; SQLite notices damaged pages, see TestDamageIsTyped"
}

// inLane is the rowid of acme's lane.
const inLane = "(SELECT id FROM heads WHERE tenant = 'acme')"

var futureBatch = journaltest.Damage{What: journaltest.StoredBatch, How: journaltest.Future}

// damages change one row of what is stored for acme.
var damages = map[journaltest.Damage]string{
	{What: journaltest.StoredHead, How: journaltest.Flipped}:    "UPDATE heads SET state = state + 64 WHERE tenant = 'acme'",
	{What: journaltest.StoredEntry, How: journaltest.Missing}:   "DELETE FROM inbox WHERE slot = 1 AND lane = " + inLane,
	{What: journaltest.StoredBatch, How: journaltest.Flipped}:   "UPDATE log SET body = CAST(replace(CAST(body AS TEXT), '\"attempt\":\"a1\"', '\"attempt\":\"a9\"') AS BLOB) WHERE slot = 2 AND lane = " + inLane,
	{What: journaltest.StoredBatch, How: journaltest.Truncated}: "UPDATE log SET body = substr(body, 1, length(body) - 1) WHERE slot = 2 AND lane = " + inLane,
	{What: journaltest.StoredBatch, How: journaltest.Missing}:   "DELETE FROM log WHERE slot = 2 AND lane = " + inLane,
	{What: journaltest.StoredBatch, How: journaltest.Foreign}:   foreignBatch,
	futureBatch: "UPDATE log SET body = ?, digest = ? WHERE slot = 2 AND lane = " + inLane,
	{What: journaltest.StoredRow, How: journaltest.Missing}:       "DELETE FROM submissions WHERE id = 's1' AND tenant = 'acme'",
	{What: journaltest.StoredRow, How: journaltest.Truncated}:     "UPDATE submissions SET parent = substr(parent, 1, length(parent) - 1) WHERE id = 's1' AND tenant = 'acme'",
	{What: journaltest.StoredPayload, How: journaltest.Flipped}:   "UPDATE payloads SET body = CAST('x' || substr(body, 2) AS BLOB) WHERE tenant = 'acme'",
	{What: journaltest.StoredPayload, How: journaltest.Truncated}: "UPDATE payloads SET body = substr(body, 1, length(body) - 1) WHERE tenant = 'acme'",
	{What: journaltest.StoredPayload, How: journaltest.Missing}:   "DELETE FROM payloads WHERE tenant = 'acme'",
}

const foreignBatch = "UPDATE log SET (batch, epoch, digest, body) = (SELECT batch, epoch, digest, body FROM log WHERE slot = 2 AND lane =" +
	" (SELECT id FROM heads WHERE tenant = 'globex')) WHERE slot = 2 AND lane = " + inLane

// newerBatch is a batch as a newer build might seal it, with its digest.
func newerBatch(t *testing.T, db *sql.DB) []any {
	t.Helper()
	var body []byte
	check(t, db.QueryRow("SELECT body FROM log WHERE slot = 2 AND lane = "+inLane).Scan(&body))
	body, found := bytes.CutSuffix(body, []byte(`"v":1}`))
	if !found {
		t.Fatalf("the batch ends with %q", body)
	}
	body = append(body, `"v":2}`...)
	return []any{body, record.Digest(body)}
}

// raw opens the store's file beside the journal.
func raw(t *testing.T, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "layover.db"))
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
	return db
}

// dump renders every row of every table.
func dump(t *testing.T, dir string) string {
	t.Helper()
	db := raw(t, dir)
	var out strings.Builder
	for _, table := range []string{"heads", "log", "inbox", "submissions", "payloads"} {
		rows, err := db.Query("SELECT * FROM " + table)
		check(t, err)
		columns, err := rows.Columns()
		check(t, err)
		for rows.Next() {
			values := make([]any, len(columns))
			into := make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			check(t, rows.Scan(into...))
			fmt.Fprintf(&out, "%s %.99q %s\n", table, values, record.Digest(fmt.Append(nil, values...)))
		}
		check(t, rows.Err())
	}
	return out.String()
}
