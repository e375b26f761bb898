// Package enginetest proves the storage protocol over a journal by sweeping it:
// a scenario is played once for every pass of every failpoint, each time with a
// death at that very instant, and then driven on by nothing but redelivery,
// retried requests and the sweep. Every cell has to come to the outcome of its
// scenario and to leave a conversation in which core.CheckConversation finds
// nothing; effects in the outside world are counted.
//
// An adapter takes part with a Store:
//
//	func TestSweep(t *testing.T) {
//		result := enginetest.Sweep(t, enginetest.Store{Name: "myjournal", Points: "my.", Death: enginetest.Invocation, New: open})
//		enginetest.Certify(t, result, "../docs/certificates", *update)
//	}
//
// A sweep arms failpoints, which the whole process shares: no other test may
// pass one beside it.
package enginetest
