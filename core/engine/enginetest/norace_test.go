//go:build !race

package enginetest_test

const slow = false
