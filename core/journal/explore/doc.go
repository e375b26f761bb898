// Package explore checks a protocol by trying every interleaving of its steps.
//
// Search walks the states that a system of small state machines can reach,
// breadth first, so that the first violation it meets has a shortest trace. The
// storage protocol's actors, which move over the real steps of memjournal, are
// in this package's tests; docs/explorer.md says what they cover.
package explore
