package functions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/record"
)

// MaxBody is the largest message body, in bytes: what a queue carries.
const MaxBody = 1 << 20

// MessageVersion is the version of the ingress message.
const MessageVersion = 1

// Message is the ingress message: the body of a queue message.
type Message struct {
	V            int                     `json:"v"`
	Type         string                  `json:"type"`
	Agent        string                  `json:"agent,omitempty"`
	Conversation string                  `json:"conversation,omitempty"`
	Key          string                  `json:"key,omitempty"`
	Input        json.RawMessage         `json:"input,omitempty"`
	ReplyTo      string                  `json:"replyTo,omitempty"`
	Allowance    engine.AllowanceRequest `json:"allowance,omitzero"`
	Submission   string                  `json:"submission,omitempty"`
	Text         string                  `json:"text,omitempty"`
	Reason       string                  `json:"reason,omitempty"`
}

// keyOr is the idempotency key: without one, a redelivery of the message is the
// same wish.
func (m Message) keyOr(messageID string) string {
	if m.Key == "" {
		return messageID
	}
	return m.Key
}

// fieldsOf names the fields each message type may have besides v, type and
// conversation.
var fieldsOf = map[string][]string{
	"submit":   {"agent", "key", "input", "replyTo", "allowance"},
	"steer":    {"submission", "key", "text"},
	"followUp": {"agent", "key", "input", "replyTo"},
	"abort":    {"submission", "reason"},
}

var allowanceFields = []string{"turns", "toolCalls", "seconds"}

// parseMessage refuses everything the surface does not describe, by name.
func parseMessage(body string) (Message, *engine.Error) {
	refuse := func(hint, format string, args ...any) (Message, *engine.Error) {
		return Message{}, &engine.Error{Kind: engine.KindInvalid, Op: "admit", Hint: hint, Message: fmt.Sprintf(format, args...)}
	}
	if len(body) > MaxBody {
		return Message{}, &engine.Error{Kind: engine.KindTooLarge, Op: "admit", Hint: "store large content elsewhere and submit a reference to it",
			Message: fmt.Sprintf("the message has %d bytes; the limit is %d", len(body), MaxBody)}
	}
	if !utf8.ValidString(body) {
		return refuse("send UTF-8", "the message is not valid UTF-8")
	}
	canonical, err := record.Canonical([]byte(body))
	if err != nil {
		return refuse("send one JSON object", "the message is malformed: %v", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &fields); err != nil || fields == nil {
		return refuse("send one JSON object", "the message is not a JSON object")
	}
	var m Message
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return refuse("the message fields are listed in the documentation of the ingress message", "%s", decodeProblem(err))
	}
	if m.V != MessageVersion {
		return refuse("this build reads version 1", `field "v": version %d is not known`, m.V)
	}
	allowed, ok := fieldsOf[m.Type]
	if !ok {
		switch m.Type {
		case "approve", "deny", "resolve":
			return refuse("use the HTTP API or the CLI", `field "type": %q is not taken from a queue, because a message cannot prove who sends it`, m.Type)
		}
		return refuse("the types are submit, steer, followUp and abort", `field "type": unknown type %q`, m.Type)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "v" && name != "type" && name != "conversation" && !slices.Contains(allowed, name) {
			return refuse("", "field %q does not belong in a %s message", name, m.Type)
		}
	}
	if name := strayAllowance(fields["allowance"]); name != "" {
		return refuse("the fields are: "+strings.Join(allowanceFields, ", "), "unknown field %q in the allowance", name)
	}
	return m, nil
}

// strayAllowance finds a field of an allowance that is not spelled as the
// surface has it: encoding/json matches names without case.
func strayAllowance(raw json.RawMessage) string {
	var fields map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &fields) != nil {
		return "" // absent, or refused by its type
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(allowanceFields, name) {
			return name
		}
	}
	return ""
}

// decodeProblem says what is wrong with a field in the words of the message,
// not of this program.
func decodeProblem(err error) string {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		a := "a"
		if strings.HasPrefix(mismatch.Value, "a") || strings.HasPrefix(mismatch.Value, "o") { // array, object
			a = "an"
		}
		return fmt.Sprintf("field %q: %s %s does not fit here", mismatch.Field, a, mismatch.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
