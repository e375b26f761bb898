// Package triage is an agent that only reads: it looks at a support ticket and
// says how urgent it is and who should take it.
package triage

import (
	"context"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/tool"
)

// Ticket is what the agent is asked.
type Ticket struct {
	TicketID   string `json:"ticketId"`
	CustomerID string `json:"customerId" jsonschema:"the customer, such as C-7"`
	Product    string `json:"product" jsonschema:"the product, such as checkout"`
	Message    string `json:"message" jsonschema:"what the customer wrote"`
}

// Priority has four values. Because it lists them, the schema does too.
type Priority string

// Enum makes the schema list the values.
func (Priority) Enum() []string { return []string{"p1", "p2", "p3", "p4"} }

// Verdict is the agent's answer.
type Verdict struct {
	Priority Priority `json:"priority" jsonschema:"p1 is the most urgent"`
	Team     string   `json:"team"`
	Summary  string   `json:"summary" jsonschema:"one sentence for the team"`
}

// Agent returns the definition.
func Agent() *agent.Definition {
	return agent.MustDefine[Ticket, Verdict]("triage", agent.Config[Ticket]{
		Version:     "1",
		Description: "Gives a support ticket a priority and a team.",
		Instructions: agent.Text[Ticket]("Look up the customer and the open incidents of the product. " +
			"A ticket about an open incident gets that incident's priority and team; " +
			"any other gets the priority and team of the customer's plan."),
		Tools: []*tool.Tool{LookUpCustomer, SearchIncidents},
		Examples: []Ticket{{
			TicketID: "T-1", CustomerID: "C-7", Product: "checkout", Message: "Paying fails with error 502.",
		}},
	})
}

// Customer is what is known about a customer.
type Customer struct {
	CustomerID string   `json:"customerId"`
	Name       string   `json:"name"`
	Plan       string   `json:"plan"`
	Priority   Priority `json:"priority"`
	Team       string   `json:"team"`
}

var customers = map[string]Customer{
	"C-7": {"C-7", "Customer 7", "enterprise", "p2", "key accounts"},
	"C-8": {"C-8", "Customer 8", "starter", "p4", "support"},
}

// CustomerQuery is the parameter of look_up_customer.
type CustomerQuery struct {
	CustomerID string `json:"customerId" jsonschema:"the customer, such as C-7"`
}

// LookUpCustomer finds a customer.
var LookUpCustomer = tool.New("look_up_customer", "Finds a customer: name, plan, and the plan's priority and team.",
	func(_ context.Context, in CustomerQuery) (Customer, error) {
		customer, ok := customers[in.CustomerID]
		if !ok {
			return Customer{}, tool.Failf("customer-not-found", "there is no customer %s", in.CustomerID)
		}
		return customer, nil
	}, tool.Readonly())

// Incident is something that is broken right now.
type Incident struct {
	Title    string   `json:"title"`
	Priority Priority `json:"priority"`
	Team     string   `json:"team"`
}

// Incidents is the result of search_incidents.
type Incidents struct {
	Incidents []Incident `json:"incidents"`
}

var incidents = map[string][]Incident{
	"checkout": {{"card payments fail", "p1", "payments"}},
	"search":   {{"results are slow", "p3", "search"}},
}

// IncidentQuery is the parameter of search_incidents.
type IncidentQuery struct {
	Product string `json:"product" jsonschema:"the product, such as checkout"`
}

// SearchIncidents finds what is broken.
var SearchIncidents = tool.New("search_incidents", "Lists the open incidents of a product, the most urgent first.",
	func(_ context.Context, in IncidentQuery) (Incidents, error) {
		return Incidents{Incidents: incidents[in.Product]}, nil
	}, tool.Readonly())
