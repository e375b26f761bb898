package snippets_test

import (
	"context"
	"errors"

	"github.com/layover-run/layover/core/tool"
)

type Payment struct {
	Order string `json:"order"`
	Cents int64  `json:"cents"`
}

type Receipt struct {
	ID string `json:"id"`
}

// till is a payment service that knows its operations.
type till map[string]Receipt

var payments = till{}

func (t till) Charge(_ context.Context, in Payment, operation string) (Receipt, error) {
	if _, found := t[operation]; !found {
		t[operation] = Receipt{ID: "paid-" + in.Order}
	}
	return t[operation], nil
}

func (t till) Find(_ context.Context, operation string) (Receipt, bool, error) {
	r, found := t[operation]
	return r, found, nil
}

var Charge = tool.New("charge", "Charges a card.",
	func(ctx context.Context, in Payment) (Receipt, error) {
		call, _ := tool.CallInfo(ctx)
		return payments.Charge(ctx, in, call.Operation)
	}, tool.Idempotent())

func pay(ctx context.Context, in Payment) (Receipt, error) {
	call, _ := tool.CallInfo(ctx)
	return payments.Charge(ctx, in, call.Operation)
}

var Refund = tool.New("refund", "Pays money back. Cannot be undone.", pay,
	tool.RequireApproval(),
	tool.Reconcile(func(ctx context.Context, in Payment) (Receipt, tool.Resolution, error) {
		call, _ := tool.CallInfo(ctx)
		receipt, found, err := payments.Find(ctx, call.Operation)
		if err != nil || !found {
			return Receipt{}, tool.NotHappened, err
		}
		return receipt, tool.Happened, nil
	}))

type Parcel struct {
	Customer string `json:"customer"`
}

type Booking struct {
	Number string `json:"number"`
}

type Shipment struct {
	Booking Booking `json:"booking"`
}

type (
	courierService struct{ booked int }
	mailService    struct{ told int }
)

var (
	couriers courierService
	mail     mailService
)

func (c *courierService) Book(context.Context, Parcel) (Booking, error) {
	c.booked++
	return Booking{Number: "B-1"}, nil
}

func (m *mailService) Tell(_ context.Context, customer string, _ Booking) (string, error) {
	if m.told++; m.told == 1 {
		return "", errors.New("the mail server is away")
	}
	return "told " + customer, nil
}

var Ship = tool.New("ship", "Books a courier and tells the customer.",
	func(ctx context.Context, in Parcel) (Shipment, error) {
		booking, err := tool.Step(ctx, "book", func(ctx context.Context) (Booking, error) {
			return couriers.Book(ctx, in)
		})
		if err != nil {
			return Shipment{}, err
		}
		_, err = tool.Step(ctx, "tell", func(ctx context.Context) (string, error) {
			return mail.Tell(ctx, in.Customer, booking)
		})
		return Shipment{Booking: booking}, err
	}, tool.Idempotent())

func deleteAccount(context.Context, Parcel) (Receipt, error) { return Receipt{ID: "gone"}, nil }

var Delete = tool.New("delete_account", "Deletes a customer's account.", deleteAccount,
	tool.RequireApproval(), tool.Version("2"))
