// Package functions holds the handlers of the three functions: admit takes
// ingress messages, attempt works on lanes, settle hands outcomes over and
// sweeps. They take and answer the event types of AWS Lambda; what runs behind
// them is core/engine.
//
// Delivery is at least once and unordered: every handler may see a message
// twice, late, or together with itself.
package functions
