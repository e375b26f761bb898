package explore_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/journal/explore"
)

// control takes one rule out of the protocol.
type control uint8

const (
	none control = iota
	nc1
	nc2
	nc3
	nc4
	nc5
	nc6
	nc7
	nc8
	nc9
	nc10
	nc12
	nc13
	nc14
	nc14b
	nc15
	nc16
	nc17
	nc18
)

// rule is a rule of the protocol, by the name its controls have there.
type rule struct {
	control control
	name    string
	breaks  string // the invariant that must break without it
	in      scenario
}

var rules = []rule{
	{nc1, "NC1 park without a version check", "I4", scenario{before: "s1", clients: "d1", approval: true, attempts: 1}},
	{nc2, "NC2 version read after the inbox", "I4", scenario{before: "s1", clients: "x1", approval: true, attempts: 1}},
	{nc3, "NC3a no AttemptStarted", "L1", scenario{before: "s1", tool: true, attempts: 2, bounds: bounds{crashes: 1, early: 1, doubled: 1}}},
	{nc4, "NC4 bump before the entry", "I4", scenario{before: "s1", clients: "d1", approval: true, attempts: 1}},
	{nc5, "NC5 lane freed before the parent is told", "I7", scenario{before: "s1", parent: true, attempts: 1}},
	{nc6, "NC6 no epoch check in the fold", "I2", scenario{before: "s1", attempts: 2, bounds: bounds{early: 1, doubled: 1}}},
	{nc7, "NC7 bump moves the version only", "I4", scenario{before: "s1", clients: "d1", approval: true, attempts: 1}},
	{nc8, "NC8 settle without the version", "I4", scenario{before: "s1", clients: "s2", attempts: 1}},
	{nc9, "NC9 settle without the settled it read", "I11", scenario{before: "s1s2", attempts: 1, losing: "s", bounds: bounds{lost: 1}}},
	{nc10, "NC10 attempt id shared by deliveries", "I6", scenario{before: "s1", tool: true, attempts: 2, bounds: bounds{doubled: 1}}},
	{nc12, "NC12 a negative probe believed at once", "I6", scenario{before: "s1", tool: true, probe: true, attempts: 2, bounds: bounds{early: 1, doubled: 1}}},
	{nc13, "NC13 a refused park always goes on", "L1", scenario{before: "s1", clients: "d1", approval: true, attempts: 1, deaf: true, crashing: "c", losing: "a", bounds: bounds{crashes: 1, lost: 1}}},
	{nc14, "NC14 goes on after its terminal record: idles", "I8", scenario{before: "s1", attempts: 1}},
	{nc14b, "NC14 goes on after its terminal record: opens the next run", "I11", scenario{before: "s1", clients: "s2", attempts: 1}},
	{nc15, "NC15 an unclear terminal append is given up", "L1", scenario{before: "s1", attempts: 1, bounds: bounds{lost: 1}}},
	{nc16, "NC16 settle without the look at the queue", "I8", scenario{before: "s1", clients: "s2", attempts: 1}},
	{nc17, "NC17 a lost claim known by owner and epoch only", "I8", scenario{before: "s1", clients: "s2", attempts: 1, losing: "k", bounds: bounds{lost: 1, doubled: 1}, heavy: true}},
	{nc18, "NC18 the sweep wakes attempts only", "L2", scenario{before: "s1", deaf: true, attempts: 1}},
}

// Every rule is needed: without it the explorer finds the violation, and with
// it none in the same scenario.
func TestControls(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			sc := r.in
			sc.control = r.control
			without := explore.Search(newWorld(&sc), explore.Options{Liveness: true, States: 300_000})
			t.Logf("without the rule: %v", without)
			if without.Violation == nil || !strings.HasPrefix(without.Violation.Error(), r.breaks+":") {
				t.Errorf("without the rule %s must break", r.breaks)
			}
			if r.in.heavy && !big() || quick() {
				t.Log("with the rule: not asked within these bounds")
				return
			}
			with := explore.Search(newWorld(&r.in), explore.Options{Liveness: true, States: 3_000_000})
			t.Logf("with the rule: %v", with)
			if with.Violation != nil {
				t.Error("the rule does not help")
			}
		})
	}
}

// quick says that seconds matter more than bounds.
func quick() bool { return testing.Short() || underRace }

// big says that the larger bounds are wanted, which take minutes.
func big() bool { return os.Getenv("LAYOVER_EXPLORE") == "big" }

// scenarios hold with every rule in place. Those that are heavy take minutes
// and run among the big bounds.
var scenarios = []scenario{
	{name: "one submission", clients: "s1", attempts: 2, bounds: bounds{crashes: 1, lost: 1}},
	{name: "early lease", before: "s1", attempts: 2, bounds: bounds{crashes: 1, lost: 1, early: 1, doubled: 1}},
	{name: "messages", before: "s1", attempts: 2, bounds: bounds{crashes: 1, doubled: 1, drops: 1, yields: 1}},
	{name: "two submissions", before: "s1", clients: "s2", attempts: 2},
	{name: "queue", before: "s1s2", attempts: 2, bounds: bounds{crashes: 1, lost: 1}},
	{name: "approval", before: "s1", clients: "d1", approval: true, attempts: 2, bounds: bounds{crashes: 1, drops: 1}},
	{name: "approval, answers lost", before: "s1", clients: "d1", approval: true, attempts: 2, bounds: bounds{lost: 1}},
	{name: "abort", before: "s1", clients: "x1", attempts: 1, bounds: bounds{crashes: 1}},
	{name: "approval and abort", before: "s1", clients: "d1x1", approval: true, attempts: 1},
	{name: "uncertain tool", before: "s1", tool: true, attempts: 2, bounds: bounds{crashes: 1, early: 1, doubled: 1}},
	{name: "uncertain tool, answers lost", before: "s1", tool: true, attempts: 2, bounds: bounds{lost: 1, early: 1}},
	{name: "tool with a probe", before: "s1", tool: true, probe: true, attempts: 2, bounds: bounds{early: 1, doubled: 1}},
	{name: "child", before: "s1", parent: true, attempts: 1, bounds: bounds{crashes: 1, lost: 1}},
	{name: "settle never hears", before: "s1", deaf: true, attempts: 2, bounds: bounds{crashes: 2, lost: 1}},

	{name: "two admitters", clients: "s1s2", attempts: 1, bounds: bounds{crashes: 1}, heavy: true},
	{name: "two submissions, crashes", before: "s1", clients: "s2", attempts: 2, bounds: bounds{crashes: 1}, heavy: true},
	{name: "two submissions, answers lost", before: "s1", clients: "s2", attempts: 2, bounds: bounds{lost: 1}, heavy: true},
	{name: "approval, both", before: "s1", clients: "d1", approval: true, attempts: 2, bounds: bounds{crashes: 1, lost: 1}, heavy: true},
	{name: "abort, two attempts", before: "s1", clients: "x1", attempts: 2, bounds: bounds{crashes: 1, lost: 1}, heavy: true},
	{name: "tool with an abort", before: "s1", clients: "x1", tool: true, attempts: 2, bounds: bounds{crashes: 1, early: 1}, heavy: true},
	{name: "uncertain tool, both", before: "s1", tool: true, attempts: 2, bounds: bounds{crashes: 1, lost: 1, early: 1, doubled: 1}, heavy: true},
	{name: "tool with a probe, crashes", before: "s1", tool: true, probe: true, attempts: 2, bounds: bounds{crashes: 1, early: 1, doubled: 1}, heavy: true},
	{name: "child, two attempts", before: "s1", parent: true, attempts: 2, bounds: bounds{crashes: 1, lost: 1, drops: 1}, heavy: true},
}

func TestScenarios(t *testing.T) {
	total := 0
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			if sc.heavy && !big() {
				t.Skip("only with LAYOVER_EXPLORE=big")
			}
			if quick() {
				sc.bounds.lost, sc.bounds.crashes = 0, 0
			}
			began := time.Now()
			r := explore.Search(newWorld(&sc), explore.Options{Liveness: true, States: 8_000_000})
			t.Logf("%v in %v", r, time.Since(began).Round(time.Millisecond))
			if r.Violation != nil {
				t.Error("a rule of the protocol is not enough, or a step breaks it")
			}
			total += r.States
		})
	}
	t.Logf("%d states in all", total)
}
