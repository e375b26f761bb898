package memjournal_test

import (
	"testing"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/journaltest"
	"github.com/layover-run/layover/core/journal/memjournal"
)

func TestLister(t *testing.T) {
	journaltest.RunLister(t, func(*testing.T) journal.Journal { return memjournal.New() })
}
