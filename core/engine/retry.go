package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/layover-run/layover/core/journal"
)

// unclear says whether repeating an operation may change its answer.
func unclear(err error) bool {
	if refused := (*Error)(nil); errors.As(err, &refused) {
		return false // an answer of our own
	}
	return journal.Unclear(err)
}

// untilDone repeats do while its answer is unclear, until ctx ends: for what an
// attempt cannot go on without.
func untilDone(ctx context.Context, do func() error) error { return repeat(ctx, unclear, do) }

// repeat does it again, ever less often, as long as its answer asks for that
// and ctx has not ended.
func repeat(ctx context.Context, again func(error) bool, do func() error) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := do()
		if !again(err) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// except asks for another try after every error but those named: for a write
// of which nothing else may follow before its answer is known (F7).
func except(known ...error) func(error) bool {
	return func(err error) bool {
		return err != nil && !slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
	}
}

// unclearTries is how often an operation is tried whose answer did not come.
// Every operation of the port may be repeated with the same arguments.
const unclearTries = 4

// untilClear repeats do while its answer is unclear, and says how often it ran.
func untilClear(ctx context.Context, do func() error) (tries int, err error) {
	for wait := 5 * time.Millisecond; ; wait *= 4 {
		tries++
		if err = do(); !unclear(err) || tries == unclearTries {
			return tries, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return tries, err
		}
	}
}
