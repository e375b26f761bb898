// Package event is what a run shows of itself: RunEvents, a public and
// versioned view of its records.
//
// Canonical events are a pure projection of the log (see Projector): the same
// log gives the same events everywhere, and their sequence numbers rise by one
// within a run, across attempts. Live events (deltas, progress) have no record:
// they carry the sequence of the last canonical event, a number below it and
// the epoch, are marked provisional, and a newer attempt retracts them.
package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Version is the version of the envelope this build writes and reads.
const Version = 1

// The ways in which a stored event can be refused. Match them with errors.Is.
var (
	ErrUnknownVersion = errors.New("unknown event version")
	ErrUnknownKind    = errors.New("unknown event kind")
)

// Event is one thing that happened to a run.
type Event struct {
	Run          string
	Conversation string
	Agent        string
	Sequence     uint64 // from 1, without gaps among the canonical events of a run
	Sub          uint64 // orders live events of one sequence; 0 for canonical ones
	Epoch        uint64
	At           time.Time // of the batch
	Turn         int       // 0 for events that belong to no turn
	Call         string    // empty for events that belong to no call
	Provisional  bool
	Data         Data
}

// Data is the payload, one type for each kind. The set is closed.
type Data interface{ Kind() Kind }

// envelope is an event as JSON.
type envelope struct {
	V            int             `json:"v"`
	Kind         Kind            `json:"kind"`
	Run          string          `json:"run"`
	Conversation string          `json:"conversation"`
	Agent        string          `json:"agent"`
	Sequence     uint64          `json:"sequence"`
	Sub          uint64          `json:"sub,omitempty"`
	Epoch        uint64          `json:"epoch"`
	At           time.Time       `json:"at"`
	Turn         int             `json:"turn,omitempty"`
	Call         string          `json:"call,omitempty"`
	Provisional  bool            `json:"provisional,omitempty"`
	Data         json.RawMessage `json:"data"`
}

// MarshalJSON writes the envelope with its kind and version.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.Data == nil {
		return nil, errors.New("event: an event without data")
	}
	data, err := encode(e.Data)
	if err != nil {
		return nil, err
	}
	return encode(envelope{V: Version, Kind: e.Data.Kind(), Run: e.Run, Conversation: e.Conversation, Agent: e.Agent,
		Sequence: e.Sequence, Sub: e.Sub, Epoch: e.Epoch, At: e.At, Turn: e.Turn, Call: e.Call, Provisional: e.Provisional, Data: data})
}

// UnmarshalJSON refuses versions and kinds this build does not know.
func (e *Event) UnmarshalJSON(b []byte) error {
	var in envelope
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if in.V != Version {
		return fmt.Errorf("%w: v%d; this build reads v%d", ErrUnknownVersion, in.V, Version)
	}
	decode, ok := decoders[in.Kind]
	if !ok {
		return fmt.Errorf("%w: %q", ErrUnknownKind, in.Kind)
	}
	data, err := decode(in.Data)
	if err != nil {
		return fmt.Errorf("event: %s: %w", in.Kind, err)
	}
	*e = Event{Run: in.Run, Conversation: in.Conversation, Agent: in.Agent, Sequence: in.Sequence, Sub: in.Sub, Epoch: in.Epoch,
		At: in.At, Turn: in.Turn, Call: in.Call, Provisional: in.Provisional, Data: data}
	return nil
}

// encode is JSON without HTML escapes.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
