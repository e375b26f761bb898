// Command ownapp is a program with one agent of its own. It needs nothing
// else: the command line, the server and the store come with cli.Main.
//
//	go run . dev
package main

import (
	"context"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/cli"
	"github.com/layover-run/layover/core/tool"
)

// Question is what the agent is asked.
type Question struct {
	City string `json:"city" jsonschema:"a city, such as Turin"`
}

// Weather is what the tool knows about a city.
type Weather struct {
	City    string `json:"city"`
	Sky     string `json:"sky"`
	Celsius int    `json:"celsius"`
}

// Advice is the agent's answer.
type Advice struct {
	City string `json:"city"`
	Sky  string `json:"sky"`
	Text string `json:"text" jsonschema:"what to wear, in one sentence"`
}

var getWeather = tool.New("get_weather", "Tells the weather of a city.",
	func(_ context.Context, in Question) (Weather, error) {
		return Weather{City: in.City, Sky: "clear", Celsius: 21}, nil
	}, tool.Readonly())

func main() {
	cli.Main(agent.MustDefine[Question, Advice]("weather", agent.Config[Question]{
		Description:  "Says what to wear.",
		Instructions: agent.Text[Question]("Look at the weather of the city, then say what to wear."),
		Tools:        []*tool.Tool{getWeather},
		Examples:     []Question{{City: "Turin"}},
	}))
}
