package enginetest

import (
	"strings"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// scenario is one story of a conversation, with what must have come of it
// however often its processes die.
type scenario struct {
	name, about string
	policy      agent.Policy
	tools       func(c *cell) []*tool.Tool
	answers     []answer
	submissions int  // 1 unless set
	deaf        bool // no wake arrives but those of a sweep
	// first is a death that belongs to the story: the sweep's deaths come after
	// it.
	first death
	// only is the one kind of store that plays the story; all of them unless set.
	only Death
	// last is a point where whoever was frozen and goes on dies, if it comes by.
	last string
	// hasty lets the operator act while somebody is frozen, once, before that one
	// goes on.
	hasty bool
	// operator is asked when everything rests: what a person does next.
	operator func(c *cell) *request
	// during is what a person asks for while an endless handler runs.
	during func(c *cell) *request
	want   want
}

// want is the outcome of a scenario.
type want struct {
	status record.Status // of every submission
	kind   string        // of the error
	// effects is how many operations of each tool had their effect.
	effects map[string]int
}

// death is the nth pass of a failpoint.
type death struct {
	point string
	nth   int
}

// scenarios is every story of the sweep.
func scenarios() []*scenario {
	one := func(name string) answer { return calls(call{tool: name}) }
	pay := func(options ...tool.Option) func(c *cell) []*tool.Tool {
		return func(c *cell) []*tool.Tool { return []*tool.Tool{c.effect("pay", options...)} }
	}
	completed := func(effects map[string]int) want { return want{status: record.StatusCompleted, effects: effects} }
	return []*scenario{
		{
			name: "plain", about: "One readonly call, then the answer.",
			tools:   func(c *cell) []*tool.Tool { return []*tool.Tool{c.effect("look", tool.Readonly())} },
			answers: []answer{one("look"), text("done")}, want: completed(map[string]int{"look": 1}),
		}, {
			name: "parallel tools", about: "Three calls of one response run together and end one after another.",
			tools: func(c *cell) []*tool.Tool {
				return []*tool.Tool{c.effect("look", tool.Readonly()), c.effect("put", tool.Idempotent())}
			},
			answers: []answer{calls(call{tool: "put"}, call{"look", args{After: callID(1, 1)}}, call{"put", args{After: callID(1, 2)}}), text("done")},
			want:    completed(map[string]int{"put": 2, "look": 1}),
		}, {
			name: "uncertain tool", about: "An effect nobody can look up: lost, it waits for an operator, who tells the truth.",
			tools: pay(), answers: []answer{one("pay"), text("done")}, operator: resolve, want: completed(map[string]int{"pay": 1}),
		}, {
			name: "uncertain tool with a probe", about: "The same, and a probe can look the effect up.",
			tools:   func(c *cell) []*tool.Tool { return []*tool.Tool{c.effect("pay", c.truth())} },
			answers: []answer{one("pay"), text("done")}, operator: resolve, want: completed(map[string]int{"pay": 1}),
		}, {
			name: "lost, then probed", about: "The result of the effect is lost once; the sweep's death comes during the recovery.",
			tools:   func(c *cell) []*tool.Tool { return []*tool.Tool{c.effect("pay", c.truth())} },
			answers: []answer{one("pay"), text("done")}, first: death{"engine.tool.end", 1}, operator: resolve, want: completed(map[string]int{"pay": 1}),
		}, {
			name: "not begun, then resolved", about: "The handler was prepared and never entered; an operator says so; the sweep's death comes during the recovery.",
			tools: pay(), answers: []answer{one("pay"), text("done")}, first: death{"engine.tool.start", 1}, operator: resolve,
			want: completed(map[string]int{"pay": 1}),
		}, {
			name: "probed while it lives", about: "The one that stood still has its effect when a probe has just seen none, and dies before it can tell.",
			only:    Overtaken,
			tools:   func(c *cell) []*tool.Tool { return []*tool.Tool{c.effect("pay", c.truth())} },
			answers: []answer{one("pay"), text("done")}, last: "engine.tool.end", operator: resolve, want: completed(map[string]int{"pay": 1}),
		}, {
			name: "answered while it lives", about: "An operator says that nothing happened, which is true, and then the one that stood still goes on.",
			only: Overtaken, hasty: true,
			tools: pay(), answers: []answer{one("pay"), text("done")}, operator: resolve, want: completed(map[string]int{"pay": 1}),
		}, {
			name: "steps", about: "A handler of three recorded steps.",
			tools:   func(c *cell) []*tool.Tool { return []*tool.Tool{c.stepper("ship", tool.Idempotent())} },
			answers: []answer{one("ship"), text("done")}, want: completed(map[string]int{"ship": 1}),
		}, {
			name: "approval given", about: "A person allows an uncertain call.",
			tools: pay(tool.RequireApproval()), answers: []answer{one("pay"), text("done")}, operator: first(decide(true), resolve),
			want: completed(map[string]int{"pay": 1}),
		}, {
			name: "approval denied", about: "A person refuses it; the model goes on without.",
			tools: pay(tool.RequireApproval()), answers: []answer{one("pay"), text("done")}, operator: decide(false), want: completed(nil),
		}, {
			name: "approval expired", about: "Nobody decides.",
			policy: agent.Policy{ApprovalExpiry: 2 * time.Hour},
			tools:  pay(tool.RequireApproval()), answers: []answer{one("pay"), text("done")},
			want: want{status: record.StatusFailed, kind: core.ApprovalExpired},
		}, {
			name: "abort", about: "A person ends a run whose handler would not end by itself.",
			tools:   func(c *cell) []*tool.Tool { return []*tool.Tool{c.endless("watch", tool.Readonly())} },
			answers: []answer{one("watch")}, during: abort,
			want: want{status: record.StatusAborted, kind: "Aborted", effects: map[string]int{"watch": 1}},
		}, {
			name: "yield", about: "Seven calls of four minutes each, in attempts of fifteen.",
			tools: func(c *cell) []*tool.Tool {
				return []*tool.Tool{c.effect("dig", tool.Idempotent(), tool.Timeout(5*time.Minute))}
			},
			answers: append(repeat(7, calls(call{"dig", args{Minutes: 4}})), text("done")), want: completed(map[string]int{"dig": 7}),
		}, {
			name: "two submissions", about: "The second waits in the lane for the first.",
			tools:   func(c *cell) []*tool.Tool { return []*tool.Tool{c.effect("look", tool.Readonly())} },
			answers: []answer{one("look"), text("first"), one("look"), text("second")}, submissions: 2, want: completed(map[string]int{"look": 2}),
		}, {
			name: "no wake arrives", about: "Every wake is lost but those of the sweep.",
			tools:   func(c *cell) []*tool.Tool { return []*tool.Tool{c.effect("look", tool.Readonly())} },
			answers: []answer{one("look"), text("done")}, deaf: true, want: completed(map[string]int{"look": 1}),
		}, {
			name: "large answer", about: "An answer that does not fit a batch is stored beside it.",
			answers: []answer{text(strings.Repeat("long ", 20_000))}, want: completed(nil),
		},
	}
}

func repeat(n int, a answer) (all []answer) {
	for range n {
		all = append(all, a)
	}
	return all
}

// first asks several people in turn.
func first(people ...func(c *cell) *request) func(c *cell) *request {
	return func(c *cell) *request {
		for _, person := range people {
			if r := person(c); r != nil {
				return r
			}
		}
		return nil
	}
}
