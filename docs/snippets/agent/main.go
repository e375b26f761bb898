// Command agent is the program of docs/writing-an-agent.md.
package main

import (
	"context"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/cli"
	"github.com/layover-run/layover/core/tool"
)

type Ticket struct {
	Product string `json:"product" jsonschema:"the product, such as checkout"`
	Message string `json:"message" jsonschema:"what the customer wrote"`
}

type Urgency string

func (Urgency) Enum() []string { return []string{"now", "today", "later"} }

type Verdict struct {
	Urgency Urgency `json:"urgency"`
	Summary string  `json:"summary" jsonschema:"one sentence for the team"`
}

var Triage = agent.MustDefine[Ticket, Verdict]("triage", agent.Config[Ticket]{
	Description:  "Says how urgent a support ticket is.",
	Instructions: agent.Text[Ticket]("Look up the open incidents of the product, then judge the ticket."),
	Tools:        []*tool.Tool{SearchIncidents},
	Policy:       agent.Policy{MaxTurns: 6, MaxDuration: time.Hour},
	Examples:     []Ticket{{Product: "checkout", Message: "Paying fails with error 502."}},
})

type IncidentQuery struct {
	Product string `json:"product"`
}

type Incidents struct {
	Open []string `json:"open"`
}

var SearchIncidents = tool.New("search_incidents", "Lists the open incidents of a product.",
	func(_ context.Context, in IncidentQuery) (Incidents, error) {
		open, ok := incidents[in.Product]
		if !ok {
			return Incidents{}, tool.Failf("no-such-product", "there is no product %q", in.Product)
		}
		return Incidents{Open: open}, nil
	}, tool.Readonly())

var incidents = map[string][]string{"checkout": {"card payments fail"}, "search": {}}

func main() {
	cli.Main(Triage)
}
