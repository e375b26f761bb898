package sqlitejournal

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"modernc.org/sqlite"
)

// conn is one SQLite connection, used by one goroutine at a time. It stands on
// the driver interfaces without database/sql above them: a connection here has
// one owner and a fixed set of statements, so a pool's locks, its argument
// conversion and its goroutine per cancellable query would be pure cost.
type conn struct {
	c     driver.Conn
	stmts []*stmt
}

// openConn opens path with the pragmas given as name=value.
func openConn(path string, readonly bool, pragmas ...string) (*conn, error) {
	query := url.Values{"_error_rc": {"1"}}
	if readonly {
		query.Set("mode", "ro")
	}
	for _, p := range pragmas {
		query.Add("_pragma", p)
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
	c, err := new(sqlite.Driver).Open(dsn.String())
	if err != nil {
		return nil, err
	}
	return &conn{c: c}, nil
}

// close closes the statements first: SQLite keeps a connection open, and its
// write-ahead log in place, as long as one of its statements lives.
func (c *conn) close() error {
	for _, s := range c.stmts {
		_ = s.s.Close()
	}
	return c.c.Close()
}

// exec runs SQL without arguments.
func (c *conn) exec(sql string) error {
	_, err := c.c.(driver.ExecerContext).ExecContext(context.Background(), sql, nil)
	return err
}

// number answers a query of one integer. It is for opening a store: the
// statement stays with the connection.
func (c *conn) number(sql string) (int64, error) {
	s, err := c.prepare(sql)
	if err != nil {
		return 0, err
	}
	var n int64
	_, err = s.one(func(r row) { n = r.int(0) })
	return n, err
}

func (c *conn) prepare(sql string) (*stmt, error) {
	s, err := c.c.Prepare(sql)
	if err != nil {
		return nil, fmt.Errorf("%w in %q", err, sql)
	}
	params := strings.Count(sql, "?")
	st := &stmt{s: s, args: make([]driver.NamedValue, params)}
	for i := range st.args {
		st.args[i].Ordinal = i + 1
	}
	c.stmts = append(c.stmts, st)
	return st, nil
}

// prepareAll fills statements from their SQL.
func (c *conn) prepareAll(into map[**stmt]string) error {
	for to, sql := range into {
		s, err := c.prepare(sql)
		if err != nil {
			return err
		}
		*to = s
	}
	return nil
}

// stmt is a prepared statement with its arguments, bound in order.
type stmt struct {
	s     driver.Stmt
	args  []driver.NamedValue
	bound int
	dest  []driver.Value
}

func (s *stmt) bind(v driver.Value) *stmt {
	s.args[s.bound].Value = v
	s.bound++
	return s
}

func (s *stmt) text(v string) *stmt { return s.bind(v) }
func (s *stmt) int(v int64) *stmt   { return s.bind(v) }
func (s *stmt) uint(v uint64) *stmt { return s.bind(int64(v)) }

// blob binds bytes; empty is NULL.
func (s *stmt) blob(v []byte) *stmt {
	if len(v) == 0 {
		return s.bind(nil)
	}
	return s.bind(v)
}

// optInt binds an integer; zero is NULL.
func (s *stmt) optInt(v int64) *stmt {
	if v == 0 {
		return s.bind(nil)
	}
	return s.bind(v)
}

// take returns the arguments for one execution.
func (s *stmt) take() ([]driver.NamedValue, error) {
	if s.bound != len(s.args) {
		return nil, fmt.Errorf("%d of %d arguments bound", s.bound, len(s.args))
	}
	s.bound = 0
	return s.args, nil
}

// drop lets go of the bound values, which may be large.
func (s *stmt) drop() {
	for i := range s.args {
		s.args[i].Value = nil
	}
}

// exec runs the statement and returns the number of rows it changed.
func (s *stmt) exec() (int64, error) {
	args, err := s.take()
	if err != nil {
		return 0, err
	}
	defer s.drop()
	res, err := s.s.(driver.StmtExecContext).ExecContext(context.Background(), args)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// each runs the query and calls f for every row until it returns false. The
// row is valid during the call only; text and blobs taken from it are copies.
func (s *stmt) each(f func(row) bool) (err error) {
	args, err := s.take()
	if err != nil {
		return err
	}
	defer s.drop()
	rows, err := s.s.(driver.StmtQueryContext).QueryContext(context.Background(), args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if s.dest == nil {
		s.dest = make([]driver.Value, len(rows.Columns()))
	}
	for {
		switch err := rows.Next(s.dest); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if !f(row(s.dest)) {
			return nil
		}
	}
}

// one is each for at most one row; found tells whether there was one.
func (s *stmt) one(f func(row)) (found bool, err error) {
	err = s.each(func(r row) bool {
		found = true
		f(r)
		return false
	})
	return found, err
}

// row reads columns; NULL, and a value of another type, read as zero.
type row []driver.Value

func (r row) int(i int) int64   { n, _ := r[i].(int64); return n }
func (r row) uint(i int) uint64 { return uint64(r.int(i)) }
func (r row) text(i int) string { s, _ := r[i].(string); return s }
func (r row) blob(i int) []byte { b, _ := r[i].([]byte); return b }
