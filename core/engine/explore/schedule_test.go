package explore_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// play runs one schedule to its end and says what went wrong.
func play(t *testing.T, sc scenario, script []int) (offered []int, trace []string, wrong string) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sc, script)
		for wrong == "" && w.s.next() {
			synctest.Wait()
			if wrong = w.check(); wrong == "" && len(w.s.offered) > enough {
				wrong = "L2: it goes on for ever"
			}
		}
		if wrong == "" {
			wrong = w.checkEnd()
		}
		w.end()
		offered, trace = w.s.offered, w.s.trace
	})
	return offered, trace, wrong
}

// enough is far more steps than any story needs.
const enough = 600

// schedule is the usual course with a few other choices.
type schedule struct {
	script []int
	others int
}

// every plays all schedules with up to so many choices that are not the usual
// one. It stops at the first that goes wrong.
func every(t *testing.T, sc scenario, others int) (schedules, steps int, told string) {
	todo := []schedule{{}}
	for len(todo) > 0 {
		s := todo[0]
		todo = todo[1:]
		offered, trace, wrong := play(t, sc, s.script)
		schedules, steps = schedules+1, steps+len(offered)
		if wrong != "" {
			return schedules, steps, tell(s.script, trace, wrong)
		}
		if s.others == others {
			continue
		}
		for at := len(s.script); at < len(offered); at++ {
			for choice := 1; choice < offered[at]; choice++ {
				script := append(append(make([]int, 0, at+1), s.script...), make([]int, at-len(s.script)+1)...)
				script[at] = choice
				todo = append(todo, schedule{script, s.others + 1})
			}
		}
	}
	return schedules, steps, ""
}

func tell(script []int, trace []string, wrong string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nschedule %v", wrong, script)
	for i, what := range trace {
		mark := " "
		if i < len(script) && script[i] != 0 {
			mark = "*"
		}
		fmt.Fprintf(&b, "\n%3d %s %s", i+1, mark, what)
	}
	return b.String()
}

var scenarios = []scenario{
	{name: "plain", pauses: 1, deep: true},
	{name: "early lease", ahead: true, pauses: 1},
	{name: "crash", crashes: 1, deep: true},
	{name: "lost answers", losses: 1},
	{name: "approval", approval: true, pauses: 1},
	{name: "approval, crash", approval: true, crashes: 1},
	{name: "approval, lost answers", approval: true, losses: 1},
	{name: "abort", approval: true, abort: true},
	{name: "two submissions", second: true, crashes: 1},
}

// The engine itself, not a model of it: under every schedule within the bound
// no invariant breaks and the run comes to its one outcome.
func TestEngine(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			others := 1
			if sc.deep && !testing.Short() && !underRace {
				others++
			}
			if os.Getenv("LAYOVER_EXPLORE") == "big" {
				others++
			}
			began := time.Now()
			schedules, steps, told := every(t, sc, others)
			t.Logf("%d schedules with up to %d unusual choices, %d steps in %v", schedules, others, steps, time.Since(began).Round(time.Millisecond))
			if told != "" {
				t.Error(told)
			}
		})
	}
}

// The explorer sees what it should see: a rule of the journal taken away from
// the engine breaks the invariant that the protocol names.
func TestControls(t *testing.T) {
	for _, r := range []struct {
		name, breaks string
		sc           scenario
	}{
		{"NC1 park without a version check", "I4", scenario{approval: true, abort: true, control: parkBlindly}},
		{"NC2 version read after the inbox", "I4", scenario{approval: true, abort: true, control: lookFirst}},
		{"NC8 settle without the version", "I4", scenario{second: true, control: freeBlindly}},
	} {
		t.Run(r.name, func(t *testing.T) {
			schedules, steps, told := every(t, r.sc, 2)
			t.Logf("%d schedules, %d steps: %s", schedules, steps, told)
			if !strings.HasPrefix(told, r.breaks+":") {
				t.Errorf("%s must break", r.breaks)
			}
		})
	}
}
