package sqsqueue_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
)

// strict refuses what SQS itself would refuse and a queue in its place may take:
// its rules are the message quotas of the service's developer guide and the
// constraints of its API reference. It stands in every client of these tests.
func strict(o *sqs.Options) {
	check := middleware.InitializeMiddlewareFunc("strict", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		if why := refused(in.Parameters); why != "" {
			return middleware.InitializeOutput{}, middleware.Metadata{}, &smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "SQS would refuse this: " + why}
		}
		return next.HandleInitialize(ctx, in)
	})
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error { return stack.Initialize.Add(check, middleware.Before) })
}

// refused says why the service would not take a request; empty if it would.
func refused(request any) string {
	switch r := request.(type) {
	case *sqs.SendMessageInput:
		e := types.SendMessageBatchRequestEntry{MessageBody: r.MessageBody, DelaySeconds: r.DelaySeconds, MessageAttributes: r.MessageAttributes,
			MessageGroupId: r.MessageGroupId, MessageDeduplicationId: r.MessageDeduplicationId}
		_, why := badMessage(*r.QueueUrl, e)
		return why
	case *sqs.SendMessageBatchInput:
		return badBatch(*r.QueueUrl, r.Entries)
	case *sqs.ReceiveMessageInput:
		if r.WaitTimeSeconds < 0 || r.WaitTimeSeconds > 20 || r.MaxNumberOfMessages < 1 || r.MaxNumberOfMessages > 10 {
			return fmt.Sprintf("a receive of %d messages in %d s", r.MaxNumberOfMessages, r.WaitTimeSeconds)
		}
	case *sqs.CreateQueueInput:
		if s := r.Attributes["VisibilityTimeout"]; s != "" {
			if n, err := strconv.Atoi(s); err != nil || n < 0 || n > 12*60*60 {
				return "a visibility timeout of " + s
			}
		}
	}
	return ""
}

const mebibyte = 1 << 20

var batchID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

func badBatch(url string, entries []types.SendMessageBatchRequestEntry) string {
	if len(entries) < 1 || len(entries) > 10 {
		return fmt.Sprintf("%d entries in a batch", len(entries))
	}
	var ids []string
	total := 0
	for _, e := range entries {
		if id := aws.ToString(e.Id); !batchID.MatchString(id) || slices.Contains(ids, id) {
			return fmt.Sprintf("entry id %q is used twice, or no id", id)
		}
		ids = append(ids, *e.Id)
		size, why := badMessage(url, e)
		if why != "" {
			return why
		}
		total += size
	}
	if total > mebibyte {
		return fmt.Sprintf("a batch of %d bytes", total)
	}
	return ""
}

var messageID = regexp.MustCompile(`^[!-~]{1,128}$`) // letters, digits and punctuation

func badMessage(url string, e types.SendMessageBatchRequestEntry) (size int, why string) {
	body, ordered := aws.ToString(e.MessageBody), strings.HasSuffix(url, ".fifo")
	size = len(body)
	for name, a := range e.MessageAttributes {
		value := aws.ToString(a.StringValue)
		size += len(name) + len(*a.DataType) + len(value)
		if value == "" || strings.ContainsFunc(value, notXML) || !batchID.MatchString(name) {
			return size, fmt.Sprintf("attribute %s is %q", name, value)
		}
	}
	switch {
	case body == "" || size > mebibyte:
		return size, fmt.Sprintf("a message of %d bytes", size)
	case strings.ContainsFunc(body, notXML):
		return size, "a body with characters that are not XML's"
	case e.DelaySeconds < 0 || e.DelaySeconds > 900 || ordered && e.DelaySeconds != 0:
		return size, fmt.Sprintf("a delay of %d s", e.DelaySeconds)
	case e.MessageGroupId == nil && ordered || e.MessageGroupId != nil && !messageID.MatchString(*e.MessageGroupId):
		return size, fmt.Sprintf("message group %q", aws.ToString(e.MessageGroupId))
	case ordered != (e.MessageDeduplicationId != nil) || ordered && !messageID.MatchString(*e.MessageDeduplicationId):
		return size, fmt.Sprintf("deduplication id %q", aws.ToString(e.MessageDeduplicationId))
	}
	return size, ""
}

// notXML is the complement of the characters of XML 1.0.
func notXML(r rune) bool {
	switch {
	case r == '\t', r == '\n', r == '\r', ' ' <= r && r <= 0xD7FF, 0xE000 <= r && r < 0xFFFD, r >= 0x10000:
		return false
	}
	return true // U+FFFD too: ranging over a string yields it for bytes that are no UTF-8
}

// Each rule of strict refuses what breaks it, and takes the same without that.
func TestStrictRefuses(t *testing.T) {
	message := func(change func(*sqs.SendMessageInput)) *sqs.SendMessageInput {
		in := &sqs.SendMessageInput{QueueUrl: aws.String(attemptURL), MessageBody: aws.String("{}"), MessageGroupId: aws.String("acme"), DelaySeconds: 900}
		change(in)
		return in
	}
	ordered := func(change func(*sqs.SendMessageInput)) *sqs.SendMessageInput {
		return message(func(in *sqs.SendMessageInput) {
			in.QueueUrl, in.DelaySeconds, in.MessageDeduplicationId = aws.String(fifoURL), 0, aws.String("id")
			change(in)
		})
	}
	batch := func(body int, ids ...string) *sqs.SendMessageBatchInput {
		in := &sqs.SendMessageBatchInput{QueueUrl: aws.String(attemptURL)}
		for _, id := range ids {
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: &id, MessageBody: aws.String(strings.Repeat("x", body))})
		}
		return in
	}
	attribute := func(v string) map[string]types.MessageAttributeValue {
		return map[string]types.MessageAttributeValue{"id": {DataType: aws.String("String"), StringValue: &v}}
	}
	for _, tt := range []struct {
		want    string
		request any
	}{
		{"a message of 0 bytes", message(func(in *sqs.SendMessageInput) { in.MessageBody = nil })},
		{"a message of 1048577 bytes", message(func(in *sqs.SendMessageInput) { in.MessageBody = aws.String(strings.Repeat("x", mebibyte+1)) })},
		{"not XML's", message(func(in *sqs.SendMessageInput) { in.MessageBody = aws.String("\x00") })},
		{"not XML's", message(func(in *sqs.SendMessageInput) { in.MessageBody = aws.String("\uFFFF") })},
		{"a delay of 901 s", message(func(in *sqs.SendMessageInput) { in.DelaySeconds = 901 })},
		{"a delay of 1 s", ordered(func(in *sqs.SendMessageInput) { in.DelaySeconds = 1 })},
		{"message group", message(func(in *sqs.SendMessageInput) { in.MessageGroupId = aws.String("a b") })},
		{"message group", ordered(func(in *sqs.SendMessageInput) { in.MessageGroupId = nil })},
		{"deduplication id", message(func(in *sqs.SendMessageInput) { in.MessageDeduplicationId = aws.String("id") })},
		{"deduplication id", ordered(func(in *sqs.SendMessageInput) { in.MessageDeduplicationId = nil })},
		{"attribute id", message(func(in *sqs.SendMessageInput) { in.MessageAttributes = attribute("") })},
		{"0 entries", batch(1)},
		{"11 entries", batch(1, strings.Split("abcdefghijk", "")...)},
		{"used twice", batch(1, "a", "b", "a")},
		{"no id", batch(1, "a/b")},
		{"a batch of 1048578 bytes", batch(mebibyte/2+1, "a", "b")},
		{"in 21 s", &sqs.ReceiveMessageInput{MaxNumberOfMessages: 1, WaitTimeSeconds: 21}},
		{"of 11 messages", &sqs.ReceiveMessageInput{MaxNumberOfMessages: 11}},
		{"43201", &sqs.CreateQueueInput{Attributes: map[string]string{"VisibilityTimeout": "43201"}}},
		{"", message(func(in *sqs.SendMessageInput) { in.MessageAttributes = attribute("id") })},
		{"", ordered(func(*sqs.SendMessageInput) {})},
		{"", batch(mebibyte/2, "a", "b")},
		{"", &sqs.ReceiveMessageInput{MaxNumberOfMessages: 10, WaitTimeSeconds: 20}},
	} {
		if why := refused(tt.request); (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
			t.Errorf("refused for %q, want %q", why, tt.want)
		}
	}
}
