package record

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
)

// Sizes that keep one batch one small item.
const (
	// InlineLimit is the largest value, in bytes, that stays inside its record
	// when a batch has to shrink; a value above it always goes aside.
	InlineLimit = 32 << 10
	// BatchLimit is the largest encoded batch, in bytes.
	BatchLimit = 256 << 10
	// RecordLimit is the largest number of records in one batch.
	RecordLimit = 512
)

// Value is one JSON value in canonical form: inside its record, or aside under
// its digest when it is large. Exactly one of the two is set; the zero Value
// is absent.
type Value struct {
	Inline json.RawMessage `json:"inline,omitempty"`
	Aside  *Ref            `json:"aside,omitempty"`
}

// Ref names a payload stored aside before the record that needs it.
type Ref struct {
	SHA256 string `json:"sha256"`
	Size   int    `json:"size"`
}

// IsZero reports whether the value is absent.
func (v Value) IsZero() bool { return len(v.Inline) == 0 && v.Aside == nil }

// Size is the value's length in bytes, wherever it is stored.
func (v Value) Size() int {
	if v.Aside != nil {
		return v.Aside.Size
	}
	return len(v.Inline)
}

// Digest is the SHA-256 of the canonical bytes, in hex, wherever they are.
func (v Value) Digest() string {
	if v.Aside != nil {
		return v.Aside.SHA256
	}
	return Digest(v.Inline)
}

// JSONValue makes a Value of JSON text, in canonical form.
func JSONValue(raw []byte) (Value, error) {
	canonical, err := Canonical(raw)
	if err != nil {
		return Value{}, err
	}
	return Value{Inline: canonical}, nil
}

// TextValue makes a Value of a string. Invalid UTF-8 becomes U+FFFD.
func TextValue(s string) Value {
	return Value{Inline: appendString(make([]byte, 0, len(s)+2), s)}
}

// MustValue makes a Value of a Go value that is known to encode.
func MustValue(v any) Value { return Value{Inline: marshal(v)} }

// BytesValue makes a Value of bytes that are nobody's text: a JSON string that
// holds them in base64. No bytes are an absent value.
func BytesValue(b []byte) Value {
	if len(b) == 0 {
		return Value{}
	}
	return TextValue(base64.StdEncoding.EncodeToString(b))
}

// Bytes is what BytesValue was made of; ErrCorrupt when it was made otherwise.
func (v Value) Bytes() ([]byte, error) {
	if v.Inline == nil {
		return nil, nil
	}
	b, err := base64.StdEncoding.Strict().DecodeString(v.Text())
	if err != nil || v.Inline[0] != '"' {
		return nil, corrupt("opaque bytes: %v", err)
	}
	return b, nil
}

// Text is the string an inline value holds, or its JSON when it is no string.
func (v Value) Text() string {
	var s string
	if len(v.Inline) > 0 && v.Inline[0] == '"' && json.Unmarshal(v.Inline, &s) == nil {
		return s
	}
	return string(v.Inline)
}

// Digest is the SHA-256 of b in hex: the only digest of this format.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// isDigest reports whether s can be the answer of Digest.
func isDigest(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return len(s) == 2*sha256.Size
}
