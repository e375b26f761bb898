// Package engine is the interpreter: the only place that runs effects. It asks
// package core what to do, makes the answer durable through the journal, and
// runs models, tools and timers as the plan says.
//
// Three services share it. The Admitter accepts work and commands, the
// Attempter works on a lane for as long as one invocation lives, the Settler
// hands outcomes over and sweeps due lanes. The Runner is the ephemeral
// assembly: the same attempts on a journal in memory.
//
// Events are told by an attempt's outlet: canonical ones are the projection of
// its batches, live ones stand behind the last of those. Where they go is a
// sink's business, and backpressure lives there alone. A durable process shares
// a Feed between its attempts and its readers (Admitter.Events), which never
// makes a run wait; the Runner's consumer does, and the store of a started run
// keeps its trace for any number of observers.
package engine
