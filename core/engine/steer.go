package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// MaxSteering is the largest steering message, in bytes of text (D-24).
const MaxSteering = 256 << 10

// SteerRequest puts a message in front of the next model request of a run.
type SteerRequest struct {
	Tenant, Principal string
	Conversation      string
	Submission        string // empty means the active one, or the next to start
	Key               string // idempotency key; minted when empty
	Text              string
}

// SteerReceipt is what a caller gets once the command is durable.
type SteerReceipt struct {
	Conversation string
	Submission   string
	Key          string
	Duplicate    bool
	At           time.Time
}

// Steer records a steering command and wakes its lane. It never becomes a run of
// its own: what became of it is the answer of Steering. Repeating it with the
// same key is answered with the first receipt; the same key with another text is
// KindConflict, a run that has ended KindSettled, and more than core.MaxWaiting
// commands that wait KindFull.
func (a *Admitter) Steer(ctx context.Context, r SteerRequest) (SteerReceipt, error) {
	const op = "steer"
	if r.Key == "" {
		r.Key = a.cfg.NewID()
	}
	for _, id := range []struct{ what, value string }{{"principal", r.Principal}, {"conversation", r.Conversation}, {"key", r.Key}} {
		if err := checkID(op, id.what, id.value); err != nil {
			return SteerReceipt{}, err
		}
	}
	switch {
	case r.Text == "":
		return SteerReceipt{}, refuse(KindInvalid, op, "say what the model should be told", "the text is empty")
	case len(r.Text) > MaxSteering:
		return SteerReceipt{}, refuse(KindTooLarge, op, "store large content elsewhere and send a reference to it", "the text has %d bytes; the limit is %d", len(r.Text), MaxSteering)
	case !utf8.ValidString(r.Text):
		return SteerReceipt{}, refuse(KindInvalid, op, "", "the text is not valid UTF-8")
	}
	lane := journal.Lane{Tenant: r.Tenant, Conversation: r.Conversation}
	known, err := a.steered(ctx, lane, r.Principal, r.Key)
	if err != nil {
		return SteerReceipt{}, AsError(op, err)
	}
	receipt := SteerReceipt{Conversation: r.Conversation, Submission: known.submission, Key: r.Key, Duplicate: true, At: known.at}
	if known.found {
		if !known.says(r.Text) {
			return SteerReceipt{}, conflictingKey(op, r.Key, r.Conversation)
		}
		return receipt, nil
	}
	target, err := known.target(op, r)
	if err != nil {
		return SteerReceipt{}, err
	}
	if known.waiting >= core.MaxWaiting {
		return SteerReceipt{}, refuse(KindFull, op, "send it again when some of them were taken in", "%d commands wait in conversation %q already", known.waiting, r.Conversation)
	}
	e, err := entry(ctx, a.cfg, lane, journal.EntrySteer, "steer "+r.Principal+"\n"+r.Key, r.Principal, steerBody{Submission: target, Key: r.Key, Text: r.Text})
	if err != nil {
		return SteerReceipt{}, AsError(op, err)
	}
	first, err := a.signal(ctx, lane, e, known.state.Cursor)
	if errors.Is(err, journal.ErrConflict) {
		return SteerReceipt{}, conflictingKey(op, r.Key, r.Conversation)
	}
	if err != nil {
		return SteerReceipt{}, AsError(op, err)
	}
	receipt.Submission, receipt.Duplicate, receipt.At = target, first.Duplicate, e.At
	return receipt, nil
}

func conflictingKey(op, key, conversation string) *Error {
	return refuse(KindConflict, op, "repeat the first command exactly, or use another key",
		"key %q was already used in conversation %q for another text", key, conversation)
}

// Steered says what became of a steering command.
type Steered string

// The states of a steering command. The last two are final (D-23).
const (
	SteerQueued       Steered = "queued"
	SteerApplied      Steered = "applied"
	SteerNotDelivered Steered = "not-delivered"
)

// SteerOutcome is where a steering command stands.
type SteerOutcome struct {
	Status Steered
	Turn   int    // the turn whose request it is in front of, when applied
	Reason string // when not delivered
}

// Steering tells what became of the command a principal sent with a key.
func (a *Admitter) Steering(ctx context.Context, lane journal.Lane, principal, key string) (SteerOutcome, error) {
	known, err := a.steered(ctx, lane, principal, key)
	if err != nil {
		return SteerOutcome{}, AsError("steering", err)
	}
	if !known.found {
		return SteerOutcome{}, refuse(KindNotFound, "steering", "", "no steering with key %q in conversation %q", key, lane.Conversation)
	}
	return known.outcome, nil
}

// steeringLog is what a conversation knows about one steering command.
type steeringLog struct {
	state   *core.State
	entries []journal.Entry // not drained yet
	waiting int             // steering commands without an answer

	found      bool
	slot       uint64
	submission string
	text       *record.Value // nil when only the fact is known
	at         time.Time
	outcome    SteerOutcome
}

// steered folds a log and follows one command through it.
func (a *Admitter) steered(ctx context.Context, lane journal.Lane, principal, key string) (*steeringLog, error) {
	head, entries, err := a.cfg.Journal.Inbox(ctx, lane, 0)
	if err != nil {
		return nil, err
	}
	if head.Version == 0 {
		return nil, refuse(KindNotFound, "steer", "`layover submit` starts a conversation", "no conversation %q", lane.Conversation)
	}
	k := &steeringLog{state: &core.State{}}
	for sealed, err := range a.cfg.Journal.Read(ctx, lane, 1) {
		if err != nil {
			return nil, err
		}
		if err := foldSealed(k.state, lane, sealed, func(b record.Batch) error {
			for _, r := range b.Records {
				k.follow(b, r, principal, key)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	k.waiting = len(k.state.Steering)
	for _, e := range entries {
		if e.Slot <= k.state.Cursor {
			continue
		}
		k.entries = append(k.entries, e)
		if e.Kind == journal.EntrySteer {
			k.waiting++
			k.undrained(ctx, a, lane, e, principal, key)
		}
	}
	return k, nil
}

func (k *steeringLog) follow(b record.Batch, r record.Record, principal, key string) {
	switch r := r.(type) {
	case record.SteeringQueued:
		if r.By == principal && r.Key == key {
			text := r.Text
			k.found, k.slot, k.submission, k.text, k.at = true, r.Entry, r.Submission, &text, r.At
			k.outcome = SteerOutcome{Status: SteerQueued}
		}
	case record.SteeringApplied:
		if k.found && r.Queued == k.slot && k.state.Run != nil {
			k.outcome = SteerOutcome{Status: SteerApplied, Turn: k.state.Run.Turn + 1}
		}
	case record.SteeringDropped:
		switch {
		case k.found && r.Queued != 0 && r.Queued == k.slot:
		case r.Queued == 0 && r.By == principal && r.Key == key:
			k.found, k.submission, k.at = true, r.Submission, b.At
		default:
			return
		}
		k.outcome = SteerOutcome{Status: SteerNotDelivered, Reason: r.Reason}
	}
}

// undrained recognises the command in the inbox; a body that cannot be read
// leaves it to the inbox's own rule for keys.
func (k *steeringLog) undrained(ctx context.Context, a *Admitter, lane journal.Lane, e journal.Entry, principal, key string) {
	body := e.Body
	if e.Ref != "" {
		var err error
		if body, err = a.cfg.Journal.Payload(ctx, lane.Tenant, e.Ref); err != nil {
			return
		}
	}
	var b steerBody
	if e.By != principal || json.Unmarshal(body, &b) != nil || b.Key != key {
		return
	}
	text := record.TextValue(b.Text)
	k.found, k.submission, k.text, k.at, k.outcome = true, b.Submission, &text, e.At, SteerOutcome{Status: SteerQueued}
}

// says compares a text with the one the command was first sent with.
func (k *steeringLog) says(text string) bool {
	v := record.TextValue(text)
	switch {
	case k.text == nil:
		return true
	case k.text.Aside != nil:
		return k.text.Aside.SHA256 == record.Digest(v.Inline)
	}
	return string(k.text.Inline) == string(v.Inline)
}

// target is the submission a command is for: the active one, or the next.
func (k *steeringLog) target(op string, r SteerRequest) (string, error) {
	var open []string
	if k.state.Run != nil {
		open = append(append(open, k.state.Run.ID), k.state.Run.Joined...)
	}
	for _, q := range k.state.Queue {
		open = append(open, q.ID)
	}
	for _, e := range k.entries {
		if e.Kind == journal.EntrySubmit {
			open = append(open, e.Ref)
		}
	}
	for _, id := range open {
		if r.Submission == "" || r.Submission == id {
			return id, nil
		}
	}
	if r.Submission == "" {
		return "", refuse(KindSettled, op, "`layover follow-up` or `layover submit` starts another run", "nothing runs in conversation %q", r.Conversation)
	}
	return "", refuse(KindSettled, op, "`layover follow-up` or `layover submit` starts another run", "submission %q does not run in conversation %q", r.Submission, r.Conversation)
}
