package ddbjournal_test

import (
	"testing"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/journaltest"
	"github.com/layover-run/layover/localstack/peers"
)

func TestJournal(t *testing.T) {
	peers.DynamoDB(t)
	journaltest.Run(t, func(t *testing.T) journal.Journal { return open(t) })
}
