package tool

import (
	"encoding/json"
	"unicode/utf8"
)

// Bounds of a tool result, in bytes of its JSON.
const (
	DefaultResultBound = 51200
	// MinResultBound is the smallest bound: below it an envelope says nothing.
	MinResultBound = 256
)

// truncated is what the model sees of a result over its bound: the beginning
// and the end of the result's JSON text, and its size.
type truncated struct {
	Bytes     int    `json:"bytes"`
	Head      string `json:"head"`
	Tail      string `json:"tail"`
	Truncated bool   `json:"truncated"`
}

// Bound returns value unchanged and 0 when it has at most limit bytes.
// Otherwise it returns the TruncatedToolResult envelope
//
//	{"bytes":n,"head":"…","tail":"…","truncated":true}
//
// and the original size. The whole envelope has at most limit bytes; head and
// tail share what it leaves, cut at rune borders. A limit of 0 or less means
// DefaultResultBound, one below MinResultBound means MinResultBound.
func Bound(value json.RawMessage, limit int) (json.RawMessage, int) {
	if limit <= 0 {
		limit = DefaultResultBound
	}
	limit = max(limit, MinResultBound)
	if len(value) <= limit {
		return value, 0
	}
	t := truncated{Bytes: len(value), Truncated: true}
	budget := limit - len(mustEncode(t))
	t.Head = head(value, budget/2)
	t.Tail = tail(value[len(t.Head):], budget-budget/2)
	return mustEncode(t), len(value)
}

func mustEncode(v any) json.RawMessage {
	raw, err := Encode(v)
	if err != nil { // plain strings and numbers always encode
		panic(err)
	}
	return raw
}

// head is the longest beginning of text that takes at most budget bytes as
// part of a JSON string.
func head(text []byte, budget int) string {
	end := 0
	for end < len(text) {
		r, size := utf8.DecodeRune(text[end:])
		if budget -= escaped(r); budget < 0 {
			break
		}
		end += size
	}
	return string(text[:end])
}

func tail(text []byte, budget int) string {
	start := len(text)
	for start > 0 {
		r, size := utf8.DecodeLastRune(text[:start])
		if budget -= escaped(r); budget < 0 {
			break
		}
		start -= size
	}
	return string(text[start:])
}

// escaped is how many bytes a character takes inside canonical JSON.
func escaped(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\b', r == '\f', r == '\n', r == '\r', r == '\t':
		return 2
	case r < 0x20, r == '\u2028', r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}
