// Package engine is the interpreter: the only place that runs effects. It asks
// package core what to do, makes the answer durable through the journal, and
// runs models, tools and timers as the plan says.
//
// Three services share it. The Admitter accepts work and commands, the
// Attempter works on a lane for as long as one invocation lives, the Settler
// hands outcomes over and sweeps due lanes.
package engine
