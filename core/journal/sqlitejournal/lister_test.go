package sqlitejournal_test

import (
	"testing"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/journaltest"
)

func TestLister(t *testing.T) {
	journaltest.RunLister(t, func(t *testing.T) journal.Journal { return open(t, t.TempDir()) })
}
