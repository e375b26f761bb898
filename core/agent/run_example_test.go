package agent_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/tool"
)

var adviser = agent.MustDefine[Question, Advice]("adviser", agent.Config[Question]{
	Instructions: agent.Text[Question]("Look at the weather, then say whether to take a coat."),
	Tools:        []*tool.Tool{getWeather},
})

// advising is a model that looks at the weather and then answers.
func advising() *modeltest.Model {
	return modeltest.Script(
		modeltest.Calls(modeltest.Call{Tool: "get_weather", Args: `{"city":"Oslo"}`}),
		modeltest.Text(`{"coat":true,"reason":"3 degrees"}`))
}

// conformance: EV-01
func ExampleRun() {
	result, err := agent.Run[Advice](context.Background(), adviser.Bind(advising()), Question{City: "Oslo"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Output.Coat, result.Output.Reason)
	fmt.Println(result.State, result.FinishReason, "after", result.Turns, "turns")
	// Output:
	// true 3 degrees
	// completed model-stop after 2 turns
}

// conformance: EV-01
func ExampleRun_failure() {
	_, err := agent.Run[Advice](context.Background(), adviser.Bind(modeltest.Script(modeltest.Text("no coat"))), Question{City: "Oslo"})
	// The set of failures is closed.
	var (
		failed      *agent.RunError
		interrupted *agent.InterruptedError
		suspended   *agent.SuspendedError
		broken      *agent.DefectError
	)
	switch {
	case errors.As(err, &failed):
		fmt.Println("failed:", failed.Kind)
	case errors.As(err, &interrupted):
		fmt.Println("somebody ended it")
	case errors.As(err, &suspended):
		fmt.Println("it waits for", suspended.On)
	case errors.As(err, &broken):
		fmt.Printf("code broke: %v\n%s", broken.Value, broken.Stack)
	}
	// Output: failed: OutputError
}

// conformance: EV-01
func ExampleStream() {
	var shown event.Display
	for e, err := range agent.Stream(context.Background(), adviser.Bind(advising()), Question{City: "Oslo"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		shown.Add(e)
		switch d := e.Data.(type) {
		case event.ToolCallStarted:
			fmt.Println("calls", d.Tool)
		case event.ToolCallSucceeded:
			fmt.Println("gets ", string(d.Result))
		case event.TextDelta:
			fmt.Println("says ", shown.Pending())
		}
	}
	// Output:
	// calls get_weather
	// gets  {"celsius":3}
	// says  {"coat":true,"reason":"3 degrees"}
}

// A started run is watched by anybody and nobody, and asks in this process.
func ExampleStart() {
	pay := tool.New("pay", "Pays.", func(_ context.Context, in Question) (string, error) { return "paid in " + in.City, nil }, tool.RequireApproval())
	payer := agent.MustDefine[Question, string]("payer", agent.Config[Question]{Instructions: agent.Text[Question]("Pay."), Tools: []*tool.Tool{pay}})
	script := modeltest.Script(modeltest.Calls(modeltest.Call{Tool: "pay", Args: Question{City: "Oslo"}}), modeltest.Text("Done."))

	ctx := context.Background()
	run, err := agent.Start[string](ctx, payer.Bind(script), Question{City: "Oslo"}, agent.ApprovalWait(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	for e := range run.Events(ctx) {
		if ask, ok := e.Data.(event.ApprovalRequested); ok {
			fmt.Println("may", ask.Tool, "run with", string(ask.Args))
			if err := run.Approve(ctx, ask.Approval, "ada", "as agreed"); err != nil {
				fmt.Println(err)
			}
		}
	}
	result, err := run.Await(ctx)
	fmt.Println(result.Output, err, run.State())
	// Output:
	// may pay run with {"city":"Oslo"}
	// Done. <nil> completed
}

// A stream that ends in a defect can say so in its events too.
func ExampleWithTerminalDefectEvent() {
	broken := adviser.Bind(panicking{})
	for e, err := range agent.WithTerminalDefectEvent(agent.Stream(context.Background(), broken, Question{City: "Oslo"}, agent.Log(quiet))) {
		if err != nil {
			var defect *agent.DefectError
			fmt.Println(errors.As(err, &defect), defect.Value)
			break
		}
		if failed, ok := e.Data.(event.RunFailed); ok {
			fmt.Println(failed.Error.Kind, "-", failed.Error.Message)
		}
	}
	// Output:
	// Defect - a defect in the model adapter: panic with a value of type string
	// true a secret
}

type panicking struct{}

func (panicking) Stream(context.Context, *model.Request, func(model.Part) error) error {
	panic("a secret")
}
