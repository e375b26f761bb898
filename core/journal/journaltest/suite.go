// Package journaltest certifies a journal adapter: Run holds it to every
// promise of the port that can be checked from outside.
package journaltest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal"
)

// Option offers the suite a way into an adapter that the port does not have.
// Checks that need one which is not offered are listed as not exercised.
type Option func(*offers)

// offers is what an adapter's tests can do beyond opening a journal.
type offers struct {
	faults func(journal.Journal, Fault)
	damage func(*testing.T, journal.Journal, Damage) (damaged journal.Journal, why string)
	dump   func(*testing.T, journal.Journal) string
	lag    time.Duration
}

// Fault is asked around every single-item write of a journal: before it, when
// nothing of it has happened, and after it took effect. An error it returns is
// the answer of that write; after the write that is a lost answer. Where an
// adapter commits the items of an operation together, the operation is the
// write.
type Fault func(write string, after bool) error

// WithFaults says how to make a journal ask f around its writes, or nobody when
// f is nil.
func WithFaults(set func(j journal.Journal, f Fault)) Option {
	return func(o *offers) { o.faults = set }
}

// WithDamage says how to change stored bytes behind a journal's back. It
// returns a journal over the changed store that remembers nothing of before, or
// nil and why this store cannot show such a damage. dump renders everything
// that is stored, a line for each item.
func WithDamage(damage func(*testing.T, journal.Journal, Damage) (damaged journal.Journal, why string), dump func(*testing.T, journal.Journal) string) Option {
	return func(o *offers) { o.damage, o.dump = damage, dump }
}

// WithLag says how late Due may be: it is a hint, and an adapter may answer it
// from an index that follows the heads at a distance. A lane that is missing is
// then asked for again until the lag is over. Defaults to none: what was
// written is due at once.
func WithLag(lag time.Duration) Option { return func(o *offers) { o.lag = lag } }

// Result is what a certification did with an adapter.
type Result struct {
	Exercised []string // names of the checks that ran, sorted
	// NotExercised is what this adapter offered no way to check, sorted by name.
	NotExercised []Omission
	Failed       []string
}

// Omission is a check that did not run.
type Omission struct{ Check, Why string }

// String lists what did not run; what is not named there ran.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d checks exercised, %d failed, %d not exercised", len(r.Exercised), len(r.Failed), len(r.NotExercised))
	for _, o := range r.NotExercised {
		fmt.Fprintf(&b, "\n  not exercised: %s (%s)", o.Check, o.Why)
	}
	return b.String()
}

// check is one named test of the suite.
type check func(*testing.T, *fixture)

// Run runs the suite and prints its result. open returns an empty journal and
// arranges for its end; checks run in parallel, each on its own.
// When the journal has a method Boot() string, claims are made under that boot
// id; otherwise under none.
func Run(t *testing.T, open func(t *testing.T) journal.Journal, options ...Option) Result {
	t.Helper()
	var o offers
	for _, option := range options {
		option(&o)
	}
	checks, omitted := map[string]check{}, map[string]string{}
	for _, group := range []map[string]check{admitting, claiming, logging, releasing, reading, racing, taking, untouched, large} {
		maps.Copy(checks, group)
	}
	for _, group := range []struct {
		checks  map[string]check
		offered bool
		why     string
	}{
		{admissions(), o.faults != nil, "no WithFaults: the adapter offers no way to fail a write"},
		{losing(), o.faults != nil, "no WithFaults: the adapter offers no way to lose an answer"},
		{refusing(), o.damage != nil, "no WithDamage: the adapter offers no way to change stored bytes"},
	} {
		if group.offered {
			maps.Copy(checks, group.checks)
			continue
		}
		for name := range group.checks {
			omitted[name] = group.why
		}
	}
	return run(t, checks, omitted, func(t *testing.T) *fixture {
		f := newFixture(t, open(t))
		f.offers = o
		return f
	})
}

func run(t *testing.T, checks map[string]check, omitted map[string]string, open func(*testing.T) *fixture) (out Result) {
	t.Helper()
	var mu sync.Mutex
	t.Run("certify", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(checks)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := open(t)
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case f.omitted != "":
						omitted[name] = f.omitted
					case t.Failed():
						out.Failed = append(out.Failed, name)
					default:
						out.Exercised = append(out.Exercised, name)
					}
				}()
				checks[name](t, f)
			})
		}
	})
	for _, name := range slices.Sorted(maps.Keys(omitted)) {
		out.NotExercised = append(out.NotExercised, Omission{name, omitted[name]})
	}
	slices.Sort(out.Exercised)
	slices.Sort(out.Failed)
	t.Log(out)
	return out
}
