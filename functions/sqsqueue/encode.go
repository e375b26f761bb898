package sqsqueue

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/layover-run/layover/core/queue"
)

// maxGroup is the longest message group or deduplication id, in characters.
const maxGroup = 128

// group makes an id that SQS takes of any text: the text itself where that is
// allowed, so that an operator recognises it, else its digest.
func group(text string) *string {
	allowed := text != "" && len(text) <= maxGroup
	for i := 0; i < len(text) && allowed; i++ {
		allowed = '!' <= text[i] && text[i] <= '~' // letters, digits and punctuation
	}
	if !allowed {
		sum := sha256.Sum256([]byte(text))
		text = "sha256-" + hex.EncodeToString(sum[:])
	}
	return &text
}

// ascii encodes a value as JSON of ASCII characters.
func ascii(v any) (string, error) {
	if w, ok := v.(queue.Wake); ok && (!utf8.ValidString(w.Tenant) || !utf8.ValidString(w.Conversation)) {
		return "", errors.New("the lane's name is not UTF-8, and would become another one") // JSON replaces what is wrong
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, r := range string(encoded) {
		switch {
		case r < utf8.RuneSelf:
			out.WriteByte(byte(r))
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String(), nil
}
