package anthropic

import (
	"encoding/json"
	"errors"
)

// What a later version of the API may send.

// misshapen reports whether JSON cannot be what it says it is. Of what a type
// that is not known has in it, nothing is known.
func misshapen(err error, known bool) bool {
	var kind *json.UnmarshalTypeError
	return err != nil && (known || !errors.As(err, &kind))
}

// strange takes a delta that nobody here knows. Beside text or reasoning, or in a
// block that is itself unknown, it takes nothing from what the model said; but a
// block that lacks a part of itself does not go back. Anywhere else it may be a
// part of a call.
func (s *stream) strange(b *block, d delta) error {
	known := deltas[d.Type]
	if s.m.cfg.Compat.RefuseUnknown || known || b.kind != "text" && b.kind != "thinking" && b.unknown == nil {
		return broke("a delta of type %q in a block of type %q", short(d.Type), short(b.kind))
	}
	if !b.partial {
		s.repair("unknown-delta", b.kind+" "+d.Type)
	}
	b.partial = true
	return nil
}

var deltas = map[string]bool{"text_delta": true, "citations_delta": true, "thinking_delta": true, "signature_delta": true, "input_json_delta": true}
