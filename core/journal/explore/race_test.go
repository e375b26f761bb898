//go:build race

package explore_test

// underRace: the explorer has one goroutine, so the race detector can find
// nothing in it and only makes it slow.
const underRace = true
