package ddbjournal_test

import (
	"flag"
	"testing"
	"time"

	"github.com/layover-run/layover/core/engine/enginetest"
	"github.com/layover-run/layover/ddbjournal"
)

var update = flag.Bool("update", false, "rewrite docs/certificates/sweep-ddbjournal")

// The storage protocol on DynamoDB: what dies is one invocation, at every
// failpoint of every scenario, those between the items of an operation included.
//
// failure: A02, A03
func TestSweep(t *testing.T) {
	c := client(t, transport, 3)
	result := enginetest.Sweep(t, enginetest.Store{Name: "ddbjournal", Points: "ddb.", Death: enginetest.Invocation,
		New: func(t testing.TB) enginetest.Disk {
			table := newTable(t, c)
			return enginetest.Disk{Open: func() (enginetest.Opened, error) {
				j, err := ddbjournal.New(c, ddbjournal.Config{Table: table, Watch: 2 * time.Millisecond})
				return enginetest.Opened{Journal: j}, err
			}}
		}})
	enginetest.Certify(t, result, "../docs/certificates", *update)
}
