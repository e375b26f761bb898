// Package core is the pure heart of Layover: records are folded into a State,
// and Next answers with the records to append and the effects to start, as
// data. Recovery is the same question asked with an empty Desk.
//
// The package imports the standard library and core/record only. It reads no
// clock, draws no randomness, starts no goroutine and does no I/O; a test holds
// that. The loop that runs effects is core/engine.
package core
