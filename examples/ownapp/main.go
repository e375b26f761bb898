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

type Question struct {
	City string `json:"city"`
}

type Weather struct {
	Sky     string `json:"sky"`
	Celsius int    `json:"celsius"`
}

func getWeather(_ context.Context, in Question) (Weather, error) {
	return Weather{Sky: "clear over " + in.City, Celsius: 21}, nil
}

func main() {
	cli.Main(agent.MustDefine[Question, string]("weather", agent.Config[Question]{
		Description:  "Says what to wear.",
		Instructions: agent.Text[Question]("Look at the weather of the city, then say what to wear."),
		Tools:        []*tool.Tool{tool.New("get_weather", "Tells the weather of a city.", getWeather, tool.Readonly())},
		Examples:     []Question{{City: "Turin"}},
	}))
}
