// Package refund is an agent that pays money back, which nobody wants to
// happen twice: its one effect needs a person's approval, is never repeated on
// a guess, and can be looked up after a crash.
package refund

import (
	"context"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/tool"
)

// Request is what the agent is asked.
type Request struct {
	OrderID string `json:"orderId" jsonschema:"the order, such as A-1001"`
	Reason  string `json:"reason" jsonschema:"why the customer wants the money back"`
}

// Answer is what it decided.
type Answer struct {
	Refunded bool   `json:"refunded"`
	OrderID  string `json:"orderId"`
	RefundID string `json:"refundId,omitempty"`
	Summary  string `json:"summary"`
}

// Agent returns the definition.
func Agent() *agent.Definition {
	return agent.MustDefine[Request, Answer]("refund", agent.Config[Request]{
		Version:     "1",
		Description: "Looks an order up and refunds it once a person approved.",
		Instructions: agent.Text[Request]("Look the order up. If it exists and the reason is plausible, " +
			"refund what is refundable, once. Then say what happened."),
		Tools:    []*tool.Tool{LookUpOrder, IssueRefund},
		Examples: []Request{{OrderID: "A-1001", Reason: "arrived broken"}},
	})
}

// Order is one line of the shop's books.
type Order struct {
	OrderID    string     `json:"orderId"`
	Customer   string     `json:"customer"`
	Item       string     `json:"item"`
	Currency   string     `json:"currency"`
	TotalCents int64      `json:"totalCents"`
	Refundable Refundable `json:"refundable"`
}

// Refundable is what may be paid back at most.
type Refundable struct {
	AmountCents int64 `json:"amountCents"`
}

var orders = map[string]Order{
	"A-1001": {"A-1001", "C-204", "kettle", "EUR", 4900, Refundable{4900}},
	"A-1002": {"A-1002", "C-311", "lamp, opened", "EUR", 12900, Refundable{9900}},
	"A-1003": {"A-1003", "C-087", "desk", "EUR", 45900, Refundable{45900}},
}

// OrderQuery is the parameter of look_up_order.
type OrderQuery struct {
	OrderID string `json:"orderId" jsonschema:"the order, such as A-1001"`
}

// LookUpOrder changes nothing, so it may run again at any time.
var LookUpOrder = tool.New("look_up_order", "Finds an order: item, customer, total, and what may be refunded.",
	func(_ context.Context, in OrderQuery) (Order, error) {
		order, ok := orders[in.OrderID]
		if !ok {
			return Order{}, tool.Failf("order-not-found", "there is no order %s", in.OrderID)
		}
		return order, nil
	}, tool.Readonly())

// RefundOrder is the parameters of issue_refund.
type RefundOrder struct {
	OrderID     string `json:"orderId"`
	AmountCents int64  `json:"amountCents" jsonschema:"at most the refundable amount of the order"`
}

// Refund is a refund that was paid.
type Refund struct {
	Refunded    bool   `json:"refunded"`
	RefundID    string `json:"refundId"`
	OrderID     string `json:"orderId"`
	AmountCents int64  `json:"amountCents"`
}

// IssueRefund pays. It is uncertain, which is the default: if a crash leaves
// it open whether it paid, the probe looks into the ledger instead of paying
// again.
var IssueRefund = tool.New("issue_refund", "Pays money back for an order. Cannot be undone.",
	func(ctx context.Context, in RefundOrder) (Refund, error) {
		if limit := orders[in.OrderID].Refundable.AmountCents; in.AmountCents <= 0 || in.AmountCents > limit {
			return Refund{}, tool.Failf("amount-refused", "between 1 and %d cents can be refunded for order %s", limit, in.OrderID)
		}
		call, _ := tool.CallInfo(ctx)
		e := entry{Operation: call.Operation, OrderID: in.OrderID, AmountCents: in.AmountCents, At: time.Now().UTC()}
		if err := e.append(); err != nil {
			return Refund{}, err
		}
		return e.refund(), nil
	},
	tool.RequireApproval(),
	tool.Reconcile(func(ctx context.Context, _ RefundOrder) (Refund, tool.Resolution, error) {
		call, _ := tool.CallInfo(ctx)
		e, found, err := findEntry(call.Operation)
		if err != nil || !found {
			return Refund{}, tool.NotHappened, err
		}
		return e.refund(), tool.Happened, nil
	}))
