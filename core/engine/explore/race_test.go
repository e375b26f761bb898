//go:build race

package explore_test

// underRace: the detector makes every schedule some ten times slower.
const underRace = true
