package sqlitejournal

import (
	"context"
	"fmt"
	"runtime"
	"testing"
)

// AwaitQueued returns once n operations wait for the writer.
func AwaitQueued(j *Journal, n int) {
	for len(j.w.queue) < n {
		runtime.Gosched()
	}
}

// LimitPages makes the store full at that many pages.
func LimitPages(t testing.TB, j *Journal, pages int) {
	t.Helper()
	err := j.do(context.Background(), func(tx *tx) error {
		return tx.fail(tx.w.c.exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages)))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Rollback ends the transaction under the writer's feet. It must be called in
// the writer's goroutine.
func Rollback(t testing.TB, j *Journal) {
	if err := j.w.c.exec("ROLLBACK"); err != nil {
		t.Error(err)
	}
}

// Pragma reads a setting of the connection that writes.
func Pragma(t testing.TB, j *Journal, name string) string {
	t.Helper()
	var value string
	err := j.do(context.Background(), func(tx *tx) error {
		s, err := tx.w.c.prepare("PRAGMA " + name)
		if err == nil {
			_, err = s.one(func(r row) { value = fmt.Sprint(r[0]) })
		}
		return tx.fail(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}
