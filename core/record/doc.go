// Package record is the persisted vocabulary of Layover: what the log of a
// conversation is made of, byte for byte.
//
// A conversation is one log of batches, numbered from 1 without gaps. A batch
// holds one or more records, is written atomically into one slot, and names
// the digest of the batch before it. Everything else the product knows about a
// conversation is a fold over its batches.
//
// The format is for good: fields are added, never renamed or reused, golden
// files hold every kind, and whatever this build does not know (a format
// version, a record kind, a record version, a field, a value of a closed set)
// is refused with a typed error before anything is written behind it. A batch
// is written in one way only: Open accepts exactly the bytes Seal writes.
//
// The package is pure: standard library only, no clock, no randomness, no I/O.
package record
