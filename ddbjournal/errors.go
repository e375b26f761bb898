package ddbjournal

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// StoreError is an answer of the store that is none, or none of the port's: a
// throttle, an internal error, a lost connection. What was asked may or may
// not have happened; asking again, unchanged, finds out.
type StoreError struct {
	// Code is the store's word for it, such as ThrottlingException; empty when
	// no answer came at all.
	Code string
	Err  error
}

func (e *StoreError) Error() string {
	if hint := hints[e.Code]; hint != "" {
		return fmt.Sprintf("the store did not do it (%v); %s", e.Err, hint)
	}
	return fmt.Sprintf("the store did not answer: %v", e.Err)
}

// hints say what an operator can do.
var hints = map[string]string{
	"ResourceNotFoundException":   "create the table as ddbjournal.Table defines it, or set its right name and region",
	"AccessDeniedException":       "allow GetItem, BatchGetItem, Query, PutItem and UpdateItem on the table and its index",
	"UnrecognizedClientException": "check the credentials of this function",
	"ExpiredTokenException":       "renew the credentials of this process: they have expired",
	"InvalidSignatureException":   "check the secret key, and that the clock of this machine is right to within minutes",
	"ValidationException":         "compare the table and its index with ddbjournal.Table; if they agree, report this as a defect of layover",
}

// Unwrap is the SDK's error, unless that claims a deadline: only the caller's
// own context ends an operation, and a connection that timed out has not.
func (e *StoreError) Unwrap() error {
	if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled) {
		return nil
	}
	return e.Err
}

// unanswered is err as a StoreError, or as the end of the caller's context, or
// as the one refusal that has a word in the port.
func unanswered(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%w: %v", cause, err)
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return &StoreError{Err: err}
	}
	var size *types.ItemCollectionSizeLimitExceededException
	if errors.As(err, &size) || api.ErrorCode() == "ValidationException" && strings.Contains(api.ErrorMessage(), "tem size") {
		return fmt.Errorf("%w: %v", record.ErrTooLarge, err)
	}
	return &StoreError{Code: api.ErrorCode(), Err: err}
}

// failed names the operation and the lane an error belongs to.
func failed(op string, lane journal.Lane, err error) error {
	switch {
	case err == nil:
		return nil
	case lane == (journal.Lane{}):
		return fmt.Errorf("ddbjournal: %s: %w", op, err)
	}
	return fmt.Errorf("ddbjournal: %s %s/%s: %w", op, lane.Tenant, lane.Conversation, err)
}

func failedKey(op, tenant, name string, err error) error {
	return failed(op, journal.Lane{Tenant: tenant, Conversation: name}, err)
}
