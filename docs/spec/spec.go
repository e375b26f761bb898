// Package spec is the normative text behind the tests: conformance.md has one
// row for everything a test proves, failures.md the public failures the product
// keeps out, and protocol.md the order and condition of every durable write.
package spec
