// Package weather is the smallest useful agent: one question, one tool, an
// answer in plain words.
package weather

import (
	"context"
	"strings"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/tool"
)

// Question is what the agent is asked.
type Question struct {
	Location string `json:"location" jsonschema:"a city, such as Florence, Italy"`
}

// Agent returns the definition.
func Agent() *agent.Definition {
	return agent.MustDefine[Question, string]("weather", agent.Config[Question]{
		Version:      "1",
		Description:  "Tells the weather of a place.",
		Instructions: agent.Text[Question]("Look at the weather of the location, then describe it in one sentence."),
		Tools:        []*tool.Tool{Weather},
		Examples:     []Question{{Location: "Florence, Italy"}},
	})
}

// Report is the weather of a place.
type Report struct {
	Location string `json:"location"`
	Celsius  int    `json:"celsius"`
	Sky      string `json:"sky"`
}

var reports = map[string]Report{
	"florence": {"Florence, Italy", 40, "clear"},
	"oslo":     {"Oslo, Norway", 3, "rain"},
	"nairobi":  {"Nairobi, Kenya", 22, "clouds"},
}

// Weather changes nothing, so it may run again at any time.
var Weather = tool.New("weather", "Gets the weather of a location.",
	func(_ context.Context, in Question) (Report, error) {
		city, _, _ := strings.Cut(in.Location, ",")
		report, ok := reports[strings.ToLower(strings.TrimSpace(city))]
		if !ok {
			return Report{}, tool.Failf("no-report", "there is no report for %s", in.Location)
		}
		return report, nil
	}, tool.Readonly())
