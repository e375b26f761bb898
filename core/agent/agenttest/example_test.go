package agenttest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/agent/agenttest"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/tool"
)

// Door is what the agent is asked.
type Door struct {
	Door string `json:"door"`
}

// Opened is what open_door answers.
type Opened struct {
	Opened string `json:"opened"`
}

// doors is an agent whose one tool needs a person.
func doors(opened *[]string, options ...tool.Option) *agent.Definition {
	open := tool.New("open_door", "Opens a door.", func(_ context.Context, in Door) (Opened, error) {
		*opened = append(*opened, in.Door)
		return Opened{Opened: in.Door}, nil
	}, append([]tool.Option{tool.RequireApproval()}, options...)...)
	return agent.MustDefine[Door, string]("doors", agent.Config[Door]{
		Instructions: agent.Text[Door]("Open the door if that is allowed."),
		Tools:        []*tool.Tool{open},
	})
}

var north = modeltest.Calls(modeltest.Call{Tool: "open_door", Args: Door{Door: "north"}})

// A run parks for a person, and goes on once that person decided. In a test, t
// stands where agenttest.Panics{} does here.
func Example() {
	var opened []string
	h := agenttest.New(agenttest.Panics{}, doors(&opened), north, modeltest.Text("The door is open."))

	run := h.Run(Door{Door: "north"})
	run.Parked("approval")
	run.Approve("open_door")
	run.Completed(nil)
	run.Said(`
		user: {"door":"north"}
		assistant: open_door {"door":"north"}
		tool: open_door {"opened":"north"}
		assistant: The door is open.`)
	fmt.Println(opened)
	// Output:
	// [north]
}

// The clock moves on when it is told to: nobody answers for a week, and the
// approval expires.
func ExampleHost_Advance() {
	var opened []string
	h := agenttest.New(agenttest.Panics{}, doors(&opened), north, modeltest.Text("Nobody answered."))

	run := h.Run(Door{Door: "north"})
	run.Parked("approval")
	h.Advance(7 * 24 * time.Hour)
	fmt.Println(run.Progress().Status, opened)
	// Output:
	// failed []
}

// The process dies at every durable write of the run, in front of it and behind
// it; whatever the crash hit, the door opens once and the run completes.
func ExampleHost_Kill() {
	deaths := 0
	for after, n := false, 1; ; n++ {
		var opened []string
		d := doors(&opened, tool.Reconcile(func(_ context.Context, in Door) (Opened, tool.Resolution, error) {
			if len(opened) == 0 {
				return Opened{}, tool.NotHappened, nil
			}
			return Opened{Opened: opened[0]}, tool.Happened, nil
		}))
		h := agenttest.Bind(agenttest.Panics{}, d.Bind(modeltest.Turns(north, modeltest.Text("Open."))))
		scene := func() *agenttest.Run {
			run := h.Run(Door{Door: "north"}, agenttest.In("c"), agenttest.Key("k"))
			if run != nil && run.Progress().Waits != nil {
				run.Approve("open_door")
			}
			return run
		}
		h.Kill(n, after)
		run := scene()
		if !h.Killed() {
			if after {
				break
			}
			after, n = true, 0
			continue
		}
		deaths++
		h.Restart()
		h.Work()
		run = scene()
		run.Completed(nil)
		h.Verify()
		if len(opened) != 1 {
			fmt.Println("killed at write", n, "the door opened", len(opened), "times")
		}
	}
	fmt.Println(deaths > 10)
	// Output:
	// true
}
