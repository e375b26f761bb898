package agent_test

import (
	"context"
	"fmt"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

type Question struct {
	City string `json:"city" jsonschema:"the city to go to"`
}

type Advice struct {
	Coat   bool   `json:"coat"`
	Reason string `json:"reason,omitempty"`
}

type Weather struct {
	Celsius int `json:"celsius"`
}

var getWeather = tool.New("get_weather", "Tells the weather of a city.",
	func(context.Context, Question) (Weather, error) { return Weather{Celsius: 3}, nil }, tool.Readonly())

// A definition is played against a script, without anything the engine
// promises, to see whether its parts fit.
func ExampleDefine() {
	definition, err := agent.Define[Question, Advice]("advice", agent.Config[Question]{
		Description:  "Says whether to take a coat.",
		Instructions: agent.Text[Question]("Look at the weather, then say whether to take a coat."),
		Tools:        []*tool.Tool{getWeather},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	e := definition.Engine()
	fmt.Println("input: ", string(e.Facts.Input))
	fmt.Println("output:", string(e.Facts.Output))

	script := modeltest.Script(
		modeltest.Calls(modeltest.Call{Tool: "get_weather", Args: `{"city":"Oslo"}`}),
		modeltest.Text(`{"coat":true}`))
	req := model.Request{
		Messages: []record.Message{record.TextMessage(record.User, `{"city":"Oslo"}`)},
		Tools:    []model.Tool{getWeather.ForModel()},
	}
	messages, err := modeltest.Play(context.Background(), script, req, func(c record.ToolCallPart) (record.Value, bool) {
		r := getWeather.Invoke(context.Background(), tool.Call{ID: c.ID, Args: c.Args.Inline})
		fmt.Println("tool:  ", string(r.Value))
		return record.Value{Inline: r.Value}, r.Outcome != record.Succeeded
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := e.Hooks.Conclude(modeltest.FinalText(messages))
	fmt.Println("answer:", string(answer), err)
	// Output:
	// input:  {"additionalProperties":false,"examples":[{"city":"example"}],"properties":{"city":{"description":"the city to go to","type":"string"}},"required":["city"],"type":"object"}
	// output: {"additionalProperties":false,"properties":{"coat":{"type":"boolean"},"reason":{"type":"string"}},"required":["coat"],"type":"object"}
	// tool:   {"celsius":3}
	// answer: {"coat":true} <nil>
}
