package tool_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/layover-run/layover/core/tool"
)

type OrderQuery struct {
	OrderID string `json:"orderId" jsonschema:"the order, such as A-1001"`
}

type Order struct {
	OrderID    string `json:"orderId"`
	TotalCents int64  `json:"totalCents"`
}

func ExampleNew() {
	lookUp := tool.New("look_up_order", "Finds an order by its id.",
		func(_ context.Context, in OrderQuery) (Order, error) {
			if in.OrderID != "A-1001" {
				return Order{}, tool.Failf("order-not-found", "there is no order %s", in.OrderID)
			}
			return Order{OrderID: in.OrderID, TotalCents: 4900}, nil
		},
		tool.Readonly())
	if err := lookUp.Err(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(lookUp.Facts().Schema))
	for _, args := range []string{`{"orderId":"A-1001"}`, `{"orderId":"A-9"}`, `{"order":"A-1001"}`} {
		r := lookUp.Invoke(context.Background(), tool.Call{Args: json.RawMessage(args)})
		fmt.Println(r.Outcome, string(r.Value))
	}
	// Output:
	// {"additionalProperties":false,"properties":{"orderId":{"description":"the order, such as A-1001","type":"string"}},"required":["orderId"],"type":"object"}
	// success {"orderId":"A-1001","totalCents":4900}
	// failure {"error":{"message":"there is no order A-9","tag":"order-not-found"}}
	// failure {"error":{"message":"missing property 'orderId'; /order: unknown property","tag":"InvalidArguments"}}
}

type Transfer struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Cents int64  `json:"cents"`
}

type Receipt struct {
	ID string `json:"id"`
}

// bank stands for a service that keeps what it did under the caller's key.
var bank = map[string]Receipt{}

// A probe finds out, after a crash, what became of a call that may have
// started. The handler gave the bank the call's operation key, so the probe can
// look the transfer up by it.
func ExampleReconcile() {
	transfer := tool.New("transfer_money", "Transfers money. Cannot be undone.",
		func(ctx context.Context, in Transfer) (Receipt, error) {
			call, _ := tool.CallInfo(ctx)
			bank[call.Operation] = Receipt{ID: "receipt-1"}
			return bank[call.Operation], nil
		},
		tool.Reconcile(func(ctx context.Context, _ Transfer) (Receipt, tool.Resolution, error) {
			call, _ := tool.CallInfo(ctx)
			if receipt, found := bank[call.Operation]; found {
				return receipt, tool.Happened, nil
			}
			return Receipt{}, tool.NotHappened, nil
		}))

	call := tool.Call{Operation: "op-1", Args: json.RawMessage(`{"from":"a","to":"b","cents":100}`)}
	_, before, err := transfer.Reconcile(context.Background(), call)
	fmt.Println(before, err)
	transfer.Invoke(context.Background(), call)
	result, after, err := transfer.Reconcile(context.Background(), call)
	fmt.Println(after, string(result.Value), err)
	// Output:
	// notHappened <nil>
	// happened {"id":"receipt-1"} <nil>
}

// A handler with two effects remembers each, so that one that crashed between
// them does not repeat the first.
func ExampleStep() {
	book := tool.New("book_trip", "Books a flight and a hotel.",
		func(ctx context.Context, _ struct{}) ([]string, error) {
			flight, err := tool.Step(ctx, "flight", func(context.Context) (string, error) { return "LY 12", nil })
			if err != nil {
				return nil, err
			}
			hotel, err := tool.Step(ctx, "hotel", func(context.Context) (string, error) { return "Ritz", nil })
			return []string{flight, hotel}, err
		}, tool.Idempotent())
	fmt.Println(string(book.Invoke(context.Background(), tool.Call{Args: json.RawMessage(`{}`)}).Value))
	// Output: ["LY 12","Ritz"]
}
