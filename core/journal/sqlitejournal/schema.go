package sqlitejournal

import (
	"errors"
	"fmt"
	"os"

	"github.com/layover-run/layover/core/journal"
)

// schemaVersion is the user_version this build writes and reads.
const schemaVersion = 1

// schema. The head's rowid stands for its lane in the other tables: a small
// number that rises with time keeps the rows of lanes in use close together.
// Tables with bodies are written at their end and found by a narrow unique
// index, so lanes that append at the same time share pages. Times are unix
// milliseconds; NULL is the zero time.
const schema = `
CREATE TABLE heads (
	id           INTEGER PRIMARY KEY,
	tenant       TEXT NOT NULL,
	conversation TEXT NOT NULL,
	epoch        INTEGER NOT NULL,
	owner        TEXT NOT NULL,
	boot         TEXT NOT NULL,
	state        INTEGER NOT NULL, -- 0 idle, 1 ready, 2 running, 3 parked
	version      INTEGER NOT NULL,
	due          INTEGER,
	lease        INTEGER,
	settled      INTEGER NOT NULL,
	drained      INTEGER NOT NULL,
	UNIQUE (tenant, conversation)
);
CREATE INDEX heads_due ON heads (due) WHERE due IS NOT NULL;

CREATE TABLE log (
	seq    INTEGER PRIMARY KEY,
	lane   INTEGER NOT NULL,
	slot   INTEGER NOT NULL,
	batch  TEXT NOT NULL,
	epoch  INTEGER NOT NULL,
	digest TEXT NOT NULL,
	body   BLOB,
	UNIQUE (lane, slot)
);

CREATE TABLE inbox (
	lane   INTEGER NOT NULL,
	slot   INTEGER NOT NULL,
	kind   TEXT NOT NULL,
	key    TEXT NOT NULL,
	digest TEXT NOT NULL,
	ref    TEXT NOT NULL,
	body   BLOB,
	actor  TEXT NOT NULL,
	at     INTEGER,
	PRIMARY KEY (lane, slot)
) WITHOUT ROWID;

CREATE TABLE submissions (
	seq          INTEGER PRIMARY KEY,
	id           TEXT NOT NULL,
	tenant       TEXT NOT NULL,
	conversation TEXT NOT NULL,
	key          TEXT NOT NULL,
	digest       TEXT NOT NULL,
	agent        TEXT NOT NULL,
	principal    TEXT NOT NULL,
	input        BLOB,
	reply_to     TEXT NOT NULL,
	allowance    BLOB, -- JSON, NULL when empty
	parent       BLOB, -- JSON, NULL when empty
	admitted_at  INTEGER,
	tail         INTEGER NOT NULL,
	outcome      BLOB, -- JSON
	settled_at   INTEGER,
	UNIQUE (id, tenant)
);

CREATE TABLE payloads (
	seq    INTEGER PRIMARY KEY,
	digest TEXT NOT NULL,
	tenant TEXT NOT NULL,
	body   BLOB,
	UNIQUE (digest, tenant)
);
`

// probe refuses a store of a newer build before anything of it is touched: a
// read-only connection neither writes nor checkpoints.
func probe(path string) error {
	switch _, err := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	c, err := openConn(path, true)
	if err != nil {
		return err
	}
	defer c.close()
	return checkVersion(c)
}

func checkVersion(c *conn) error {
	version, err := c.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	if version > schemaVersion {
		return fmt.Errorf("%w: schema %d, this build knows %d", journal.ErrNewer, version, schemaVersion)
	}
	return nil
}

// migrate brings the schema to schemaVersion, in one transaction.
func migrate(c *conn) error {
	version, err := c.number("PRAGMA user_version")
	if err != nil || version == schemaVersion {
		return err
	}
	err = c.exec(fmt.Sprintf("BEGIN IMMEDIATE; %s PRAGMA user_version = %d; COMMIT", schema, schemaVersion))
	if err != nil {
		_ = c.exec("ROLLBACK")
	}
	return err
}
