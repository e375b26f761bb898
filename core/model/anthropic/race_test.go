//go:build race

package anthropic_test

// stride is how far apart the cuts are: the race detector makes each ten times
// as dear and has nothing to find between them.
const stride = 13
