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
	for n, id := range c.accepted {
		row, err := c.opened.Journal.Submission(context.Background(), tenant, id)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("submission %d: %w", n+1, err))
		case row.Outcome == nil:
			errs = append(errs, fmt.Errorf("submission %d has no outcome, and the lane rests", n+1))
		default:
			errs = append(errs, c.scenario.want.compare(n+1, row.Outcome))
		}
	}
	errs = append(errs, c.world.hold(c.scenario.want.effects, len(c.died), c.classes()))
	return errors.Join(errs...)
}

func (w want) compare(n int, got *record.RunSettled) error {
	kind := ""
	if got.Error != nil {
		kind = got.Error.Kind
	}
	if got.Status != w.status || kind != w.kind {
		return fmt.Errorf("submission %d is %s %q, want %s %q: %+v", n, got.Status, kind, w.status, w.kind, got.Error)
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
func (w *world) hold(want map[string]int, deaths int, classes map[string]record.Class) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, wrong := range w.wrong {
		errs = append(errs, errors.New(wrong))
	}
	for name, class := range classes {
		if got := len(w.effects[name]); got != want[name] {
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
