package functions

import (
	"context"
	"log/slog"

	"github.com/aws/aws-lambda-go/events"

	"github.com/layover-run/layover/core/engine"
)

// AdmitOptions configures the admit function.
type AdmitOptions struct {
	// Tenant is used for messages without a tenant attribute. Defaults to
	// "local".
	Tenant string
	// Log gets a line for each refused message. Defaults to slog.Default.
	Log *slog.Logger
}

// Admit is the admit function: it validates ingress messages and makes them
// durable.
type Admit struct {
	admitter *engine.Admitter
	opts     AdmitOptions
}

// NewAdmit makes the function around an admitter.
func NewAdmit(a *engine.Admitter, o AdmitOptions) *Admit {
	if o.Tenant == "" {
		o.Tenant = "local"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Admit{admitter: a, opts: o}
}

// Admitter is the service behind the function.
func (f *Admit) Admitter() *engine.Admitter { return f.admitter }

// MessageResult is what became of one message.
type MessageResult struct {
	MessageID string
	Type      string
	Receipt   *engine.Receipt // of a submission
	Err       *engine.Error
}

// Handle takes a batch of ingress messages. Each is admitted on its own: a
// message that fails is reported as a batch item failure, its neighbours are
// not affected. What can never succeed is reported too, so that it ends in the
// dead-letter queue where somebody sees it.
func (f *Admit) Handle(ctx context.Context, ev events.SQSEvent) (events.SQSEventResponse, error) {
	var failures batchFailures
	for _, r := range f.Process(ctx, ev) {
		if r.Err != nil {
			failures.add(r.MessageID)
			f.opts.Log.Warn("message refused", "message", r.MessageID, "kind", string(r.Err.Kind), "why", r.Err.Message)
		}
	}
	return failures.response(), nil
}

// Process is Handle with the result of every message.
func (f *Admit) Process(ctx context.Context, ev events.SQSEvent) []MessageResult {
	results := make([]MessageResult, 0, len(ev.Records))
	for _, m := range ev.Records {
		results = append(results, f.message(ctx, m))
	}
	return results
}

func (f *Admit) message(ctx context.Context, sqs events.SQSMessage) MessageResult {
	result := MessageResult{MessageID: sqs.MessageId}
	m, err := parseMessage(sqs.Body)
	if err != nil {
		result.Err = err
		return result
	}
	result.Type = m.Type
	tenant, principal := f.opts.Tenant, sqs.Attributes["SenderId"]
	if t, ok := sqs.MessageAttributes["tenant"]; ok && t.StringValue != nil {
		tenant = *t.StringValue
	}
	if principal == "" {
		principal = "anonymous"
	}
	switch m.Type {
	case "submit":
		receipt, err := f.admitter.Submit(ctx, engine.SubmitRequest{
			Tenant: tenant, Principal: principal, Agent: m.Agent, Conversation: m.Conversation, Key: m.keyOr(sqs.MessageId), Input: m.Input,
			ReplyTo: m.ReplyTo, Allowance: m.Allowance,
		})
		if err != nil {
			result.Err = engine.AsError("submit", err)
			return result
		}
		result.Receipt = &receipt
	case "abort":
		if _, err := f.admitter.RequestAbort(ctx, engine.AbortRequest{
			Tenant: tenant, Principal: principal, Conversation: m.Conversation, Submission: m.Submission, Reason: m.Reason,
		}); err != nil {
			result.Err = engine.AsError("abort", err)
		}
	case "steer":
		if _, err := f.admitter.Steer(ctx, engine.SteerRequest{
			Tenant: tenant, Principal: principal, Conversation: m.Conversation, Submission: m.Submission, Key: m.keyOr(sqs.MessageId), Text: m.Text,
		}); err != nil {
			result.Err = engine.AsError("steer", err)
		}
	case "followUp":
		receipt, err := f.admitter.FollowUp(ctx, engine.FollowUpRequest{
			Tenant: tenant, Principal: principal, Conversation: m.Conversation, Agent: m.Agent, Key: m.keyOr(sqs.MessageId), Input: m.Input, ReplyTo: m.ReplyTo,
		})
		if err != nil {
			result.Err = engine.AsError("followUp", err)
			return result
		}
		result.Receipt = &receipt
	}
	return result
}

// batchFailures collects the messages to be delivered again.
type batchFailures []events.SQSBatchItemFailure

func (b *batchFailures) add(id string) {
	*b = append(*b, events.SQSBatchItemFailure{ItemIdentifier: id})
}

func (b batchFailures) response() events.SQSEventResponse {
	return events.SQSEventResponse{BatchItemFailures: b}
}
