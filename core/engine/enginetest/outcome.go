package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/layover-run/layover/core/record"
)

// verify holds what is stored to every rule, wherever the conversation stands.
func (c *cell) verify() error {
	if c.reader.Exists(context.Background(), c.lane()) != nil {
		return nil // nothing was accepted yet
	}
	v, err := c.reader.Verify(context.Background(), c.lane())
	if err == nil && !v.OK {
		err = fmt.Errorf("check: %s", strings.Join(v.Violations, "; "))
	}
	return err
}

// outcome holds a conversation at rest to what its scenario wants.
func (c *cell) outcome() error {
	errs := []error{c.verify()}
	order, err := c.order()
	if errs = append(errs, err); len(order) != len(c.accepted) {
		errs = append(errs, fmt.Errorf("%d runs ended of %d submissions", len(order), len(c.accepted)))
	}
	for n, id := range order {
		// The answers of a scenario go to whoever comes first.
		wants := c.scenario.want
		if n >= max(c.scenario.submissions, 1) {
			wants = want{status: record.StatusCompleted}
		}
		row, err := c.opened.Journal.Submission(context.Background(), tenant, id)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("run %d: %w", n+1, err))
		case row.Outcome == nil:
			errs = append(errs, fmt.Errorf("run %d has no outcome, and the lane rests", n+1))
		case c.store.Death == Abort && row.Outcome.Status == record.StatusAborted:
			errs = append(errs, c.agrees())
		default:
			errs = append(errs, wants.compare(n+1, row.Outcome))
		}
	}
	errs = append(errs, c.world.hold(c.scenario.want.effects, c.store.Death != Abort, len(c.died), c.classes()))
	return errors.Join(errs...)
}

// order lists the runs as the log ended them.
func (c *cell) order() (runs []string, err error) {
	for b, err := range c.reader.Records(context.Background(), c.lane()) {
		if err != nil {
			return nil, err
		}
		for _, r := range b.Records {
			if s, ok := r.(record.RunSettled); ok {
				runs = append(runs, s.Run)
			}
		}
	}
	return runs, nil
}

// agrees holds an aborted run to what whoever asked for it was told.
func (c *cell) agrees() error {
	if c.arrived != nil && c.scenario.during == nil {
		return fmt.Errorf("a run was aborted, and who asked was told: %w", c.arrived)
	}
	return nil
}

func (w want) compare(n int, got *record.RunSettled) error {
	kind := ""
	if got.Error != nil {
		kind = got.Error.Kind
	}
	if got.Status != w.status || kind != w.kind {
		return fmt.Errorf("run %d is %s %q, want %s %q: %+v", n, got.Status, kind, w.status, w.kind, got.Error)
	}
	return nil
}

// classes says which tools may have an effect again after a death.
func (c *cell) classes() map[string]record.Class {
	classes := map[string]record.Class{}
	if c.scenario.tools != nil {
		for _, t := range c.scenario.tools(c) {
			classes[t.Facts().Name] = t.Facts().Class
		}
	}
	return classes
}

// hold counts the effects. An uncertain one happens once; another at most once
// more for each death.
func (w *world) hold(want map[string]int, all bool, deaths int, classes map[string]record.Class) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, wrong := range w.wrong {
		errs = append(errs, errors.New(wrong))
	}
	for name, class := range classes {
		if got := len(w.effects[name]); got > want[name] || all && got < want[name] {
			errs = append(errs, fmt.Errorf("%d operations of %s had their effect, want %d", got, name, want[name]))
		}
		limit := 1 + deaths
		if class == record.Uncertain {
			limit = 1
		}
		for operation, times := range w.effects[name] {
			if times > limit {
				errs = append(errs, fmt.Errorf("operation %s of the %s tool %s had its effect %d times", operation, class, name, times))
			}
		}
	}
	for step, times := range w.steps {
		if times > 1+deaths {
			errs = append(errs, fmt.Errorf("step %s ran %d times", step, times))
		}
	}
	return errors.Join(errs...)
}
