//go:build !race

package anthropic_test

// stride is how far apart the cuts are: every byte.
const stride = 1
