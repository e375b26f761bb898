package modeltest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
)

// The script looks at the first request and calls a tool, then fails once, then
// answers.
func ExampleScript() {
	m := modeltest.Script(
		modeltest.Check(func(req *model.Request) error {
			if len(req.Messages) == 0 {
				return errors.New("nobody asked anything")
			}
			return nil
		}),
		modeltest.Calls(modeltest.Call{Tool: "look_up_order", Args: map[string]string{"orderId": "A-1001"}}),
		modeltest.Fail(&model.Error{Class: model.Transient, Message: "the provider is down"}),
		modeltest.Text("The order is on its way."),
	)
	req := &model.Request{Messages: []record.Message{record.TextMessage(record.User, "Where is A-1001?")}}
	for m.Left() > 0 {
		response, err := modeltest.Ask(context.Background(), m, req)
		if err != nil {
			fmt.Println(err)
			continue
		}
		for _, c := range response.Message.Calls() {
			fmt.Println(c.ID, c.Tool, string(c.Args.Inline))
		}
		if text := modeltest.FinalText([]record.Message{response.Message}); text != "" {
			fmt.Println(text)
		}
	}
	// Output:
	// call-1-1 look_up_order {"orderId":"A-1001"}
	// model: transient: the provider is down
	// The order is on its way.
}
