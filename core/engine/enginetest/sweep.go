package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/failpoint"
)

// Result is what a sweep did.
type Result struct {
	V     int    `json:"v"`
	Store string `json:"store"`
	Death Death  `json:"death"`
	Cells int    `json:"cells"`
	// Passes bounds the passes of one point that were cells; 0 for all of them.
	Passes int `json:"passes,omitempty"`
	// Points are those of the engine and of the adapter.
	Points    []string         `json:"points"`
	Scenarios []ScenarioResult `json:"scenarios"`
	// NotExercised are points that no scenario passes.
	NotExercised []string `json:"notExercised"`
}

// ScenarioResult is one scenario's part of a sweep.
type ScenarioResult struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Cells int    `json:"cells"`
	// Passes counts how often the play without a death passes each point: each
	// pass is a cell.
	Passes map[string]int `json:"passes"`
}

// Sweep plays every scenario over a store: once undisturbed, and once for every
// pass of every failpoint with a death at that pass.
func Sweep(t *testing.T, store Store) Result {
	t.Helper()
	r := Result{V: 1, Store: store.Name, Death: store.Death, Passes: store.Passes, NotExercised: []string{}}
	for _, name := range failpoint.Names() {
		if strings.HasPrefix(name, "engine.") || strings.HasPrefix(name, store.Points) {
			r.Points = append(r.Points, name)
		}
	}
	passed := map[string]bool{}
	for _, s := range scenarios() {
		if s.only != "" && s.only != store.Death {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			one := sweepScenario(t, store, s, r.Points)
			r.Cells += one.Cells
			r.Scenarios = append(r.Scenarios, one)
			for point := range one.Passes {
				passed[point] = true
			}
		})
	}
	for _, name := range r.Points {
		if !passed[name] {
			r.NotExercised = append(r.NotExercised, name)
		}
	}
	return r
}

// enough failed cells say what is wrong; a scenario plays no more of them.
const enough = 5

func sweepScenario(t *testing.T, store Store, s *scenario, points []string) ScenarioResult {
	t.Helper()
	passes, _ := playCell(t, store, s, nil)
	result := ScenarioResult{Name: s.name, About: s.about, Cells: 1, Passes: passes}
	failed := 0
	for _, point := range points {
		most := passes[point]
		if store.Passes > 0 {
			most = min(most, store.Passes)
		}
		for nth := 1; nth <= most; nth++ {
			if _, ok := playCell(t, store, s, []death{{point, nth}}); !ok {
				failed++
			}
			if result.Cells++; failed == enough {
				t.Logf("%s, %s: the remaining cells are not played", store.Name, s.name)
				return result
			}
		}
	}
	return result
}

// playCell plays one cell to its end. It says how often the play passed each
// point and whether it came to its outcome.
func playCell(t *testing.T, store Store, s *scenario, deaths []death) (map[string]int, bool) {
	t.Helper()
	c, err := newCell(store, s, store.New(t), deaths...)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	err = c.play()
	if err == nil {
		err = c.outcome()
	}
	if err == nil && len(c.deaths) > 0 {
		err = fmt.Errorf("it did not happen: the play passed %v", c.passes)
	}
	err = errors.Join(err, c.end())
	if err != nil {
		t.Errorf("%s, %s, at %v: %v", store.Name, s.name, slices.Concat(c.died, c.deaths), err)
	}
	return c.passes, err == nil
}
