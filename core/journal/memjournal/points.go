package memjournal

import "github.com/layover-run/layover/core/failpoint"

// points are where a process may die: around every single-item write. They are
// passed outside the lock.
var points = register(map[string][]Item{
	"admit": {Row, Inbox, Head}, "signal": {Inbox, Head}, "claim": {Head}, "append": {Batch},
	"park": {Head}, "finish": {Outcome, Head}, "payload": {Payload},
})

func register(writes map[string][]Item) map[Write]failpoint.Point {
	points := map[Write]failpoint.Point{}
	for op, items := range writes {
		for _, item := range items {
			name := "mem." + op + "." + string(item)
			points[Write{Op: op, Item: item}] = failpoint.New(name + ".before")
			points[Write{Op: op, Item: item, After: true}] = failpoint.New(name + ".after")
		}
	}
	return points
}
