// Package snippets holds the code of the pages in docs, so that it compiles
// and runs: a test compares the pages with it, line for line.
package snippets
