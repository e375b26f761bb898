// Package tool turns a typed Go function into a tool a model can call.
//
//	lookUp := tool.New("look_up_order", "Finds an order by its id.",
//		func(ctx context.Context, in struct{ OrderID string `json:"orderId"` }) (Order, error) { … },
//		tool.Readonly())
//
// The handler only ever receives arguments that passed the schema derived from
// its input type. What its result means for the run is one table (Result).
// Nothing here retries: whether a call may run again is decided by its
// execution class and by what is recorded, never by an error.
package tool
