package record

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is the deepest nesting of arrays and objects that Canonical accepts.
const MaxDepth = 200

// Canonical rewrites JSON into its one canonical form: no white space, object
// keys sorted by their UTF-8 bytes, the shortest escapes, and numbers as exact
// decimals (1.0, 1e0 and 1 are one number; no digit of an integer is lost).
// Two texts have equal canonical forms exactly if they mean the same value, so
// digests of canonical bytes can bind an approval to the arguments a person
// saw.
//
// It refuses with ErrInvalidJSON what JSON readers disagree about: duplicate
// keys, invalid UTF-8, lone surrogates, trailing data, nesting over MaxDepth.
func Canonical(src []byte) ([]byte, error) {
	return canonicalize(src, MaxDepth)
}

func canonicalize(src []byte, depth int) ([]byte, error) {
	c := canonicalizer{src: src, out: make([]byte, 0, len(src)), depth: depth}
	if err := c.whole(); err != nil {
		return nil, err
	}
	return c.out, nil
}

// whole appends the canonical form of the one value that src holds.
func (c *canonicalizer) whole() error {
	if err := c.value(0); err != nil {
		return err
	}
	if c.space(); c.pos != len(c.src) {
		return c.fail("data after the value")
	}
	return nil
}

type canonicalizer struct {
	src   []byte
	pos   int
	out   []byte
	depth int // deepest nesting to accept
}

func (c *canonicalizer) fail(what string) error {
	return fmt.Errorf("%w at byte %d: %s", ErrInvalidJSON, c.pos, what)
}

func (c *canonicalizer) space() {
	for c.pos < len(c.src) {
		switch c.src[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

func (c *canonicalizer) peek() byte {
	if c.space(); c.pos < len(c.src) {
		return c.src[c.pos]
	}
	return 0
}

func (c *canonicalizer) value(depth int) error {
	switch b := c.peek(); {
	case (b == '{' || b == '[') && depth >= c.depth:
		return c.fail("nested too deeply")
	case b == '{':
		return c.object(depth)
	case b == '[':
		return c.array(depth)
	case b == '"':
		return c.str()
	case b == '-' || b >= '0' && b <= '9':
		return c.number()
	case b == 't':
		return c.literal("true")
	case b == 'f':
		return c.literal("false")
	case b == 'n':
		return c.literal("null")
	case c.pos >= len(c.src):
		return c.fail("unexpected end")
	default:
		return c.fail("unexpected character " + strconv.QuoteRune(rune(b)))
	}
}

func (c *canonicalizer) literal(word string) error {
	if !bytes.HasPrefix(c.src[c.pos:], []byte(word)) {
		return c.fail("unexpected word")
	}
	c.pos += len(word)
	c.out = append(c.out, word...)
	return nil
}

func (c *canonicalizer) array(depth int) error {
	c.pos++
	c.out = append(c.out, '[')
	if c.peek() == ']' {
		c.pos++
		c.out = append(c.out, ']')
		return nil
	}
	for {
		if err := c.value(depth + 1); err != nil {
			return err
		}
		switch c.peek() {
		case ',':
			c.out = append(c.out, ',')
		case ']':
			c.pos++
			c.out = append(c.out, ']')
			return nil
		default:
			return c.fail("expected , or ]")
		}
		c.pos++
	}
}

// member is one name/value pair of an object already rendered into out.
type member struct{ start, colon, end int }

func (c *canonicalizer) object(depth int) error {
	c.pos++
	c.out = append(c.out, '{')
	body := len(c.out)
	if c.peek() == '}' {
		c.pos++
		c.out = append(c.out, '}')
		return nil
	}
	var few [16]member
	members, sorted := few[:0], true
	for {
		m := member{start: len(c.out)}
		if c.peek() != '"' {
			return c.fail("expected a member name")
		}
		if err := c.str(); err != nil {
			return err
		}
		if m.colon = len(c.out); c.peek() != ':' {
			return c.fail("expected :")
		}
		c.pos++
		c.out = append(c.out, ':')
		if err := c.value(depth + 1); err != nil {
			return err
		}
		m.end = len(c.out)
		if n := len(members); n > 0 && c.compare(members[n-1], m) >= 0 {
			sorted = false
		}
		members = append(members, m)
		switch c.peek() {
		case ',':
			c.pos++
			c.out = append(c.out, ',')
			continue
		case '}':
			c.pos++
		default:
			return c.fail("expected , or }")
		}
		break
	}
	if !sorted {
		if err := c.sortMembers(body, members); err != nil {
			return err
		}
	}
	c.out = append(c.out, '}')
	return nil
}

// compare orders two members by the decoded bytes of their names.
func (c *canonicalizer) compare(a, b member) int {
	x, y := c.out[a.start:a.colon], c.out[b.start:b.colon]
	if bytes.IndexByte(x, '\\') < 0 && bytes.IndexByte(y, '\\') < 0 {
		return bytes.Compare(x[:len(x)-1], y[:len(y)-1])
	}
	return bytes.Compare(unquote(x), unquote(y))
}

func (c *canonicalizer) sortMembers(body int, members []member) error {
	slices.SortFunc(members, c.compare)
	for i := 1; i < len(members); i++ {
		if c.compare(members[i-1], members[i]) == 0 {
			return c.fail("duplicate member " + string(c.out[members[i].start:members[i].colon]))
		}
	}
	sorted := make([]byte, 0, len(c.out)-body)
	for i, m := range members {
		if i > 0 {
			sorted = append(sorted, ',')
		}
		sorted = append(sorted, c.out[m.start:m.end]...)
	}
	c.out = append(c.out[:body], sorted...)
	return nil
}

func (c *canonicalizer) str() error {
	c.pos++ // opening quote
	c.out = append(c.out, '"')
	for {
		run := c.pos
		for c.pos < len(c.src) && plain[c.src[c.pos]] {
			c.pos++
		}
		c.out = append(c.out, c.src[run:c.pos]...)
		if c.pos >= len(c.src) {
			return c.fail("unterminated string")
		}
		switch b := c.src[c.pos]; {
		case b == '"':
			c.pos++
			c.out = append(c.out, '"')
			return nil
		case b == '\\':
			r, err := c.escape()
			if err != nil {
				return err
			}
			c.out = appendRune(c.out, r)
		case b < 0x20:
			return c.fail("control character in a string")
		default:
			r, size := utf8.DecodeRune(c.src[c.pos:])
			if r == utf8.RuneError && size == 1 {
				return c.fail("invalid UTF-8")
			}
			c.pos += size
			c.out = appendRune(c.out, r)
		}
	}
}

// plain marks the bytes that stand for themselves inside a string.
var plain = func() (t [256]bool) {
	for b := 0x20; b < 0x80; b++ {
		t[b] = b != '"' && b != '\\'
	}
	return t
}()

func (c *canonicalizer) escape() (rune, error) {
	if c.pos+1 >= len(c.src) {
		return 0, c.fail("unterminated escape")
	}
	b := c.src[c.pos+1]
	if b != 'u' {
		r := unescape(b)
		if r == 0 {
			return 0, c.fail("unknown escape")
		}
		c.pos += 2
		return r, nil
	}
	r, err := c.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if c.pos+1 < len(c.src) && c.src[c.pos] == '\\' && c.src[c.pos+1] == 'u' {
		low, err := c.hex()
		if err != nil {
			return 0, err
		}
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, nil
		}
	}
	return 0, c.fail("lone surrogate")
}

// unescape is the character a one-letter escape stands for, 0 for none.
func unescape(b byte) rune {
	switch b {
	case '"', '\\', '/':
		return rune(b)
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

func (c *canonicalizer) hex() (rune, error) {
	if c.pos+6 > len(c.src) {
		return 0, c.fail("short \\u escape")
	}
	var r rune
	for _, h := range c.src[c.pos+2 : c.pos+6] {
		switch {
		case h >= '0' && h <= '9':
			r = r<<4 | rune(h-'0')
		case h >= 'a' && h <= 'f':
			r = r<<4 | rune(h-'a'+10)
		case h >= 'A' && h <= 'F':
			r = r<<4 | rune(h-'A'+10)
		default:
			return 0, c.fail("bad \\u escape")
		}
	}
	c.pos += 6
	return r, nil
}

// appendRune writes one character the way canonical JSON spells it: the same
// spelling as encoding/json without HTML escaping.
func appendRune(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(out, '\\', byte(r))
	case r == '\b':
		return append(out, '\\', 'b')
	case r == '\f':
		return append(out, '\\', 'f')
	case r == '\n':
		return append(out, '\\', 'n')
	case r == '\r':
		return append(out, '\\', 'r')
	case r == '\t':
		return append(out, '\\', 't')
	case r < 0x20:
		return append(out, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
	case r == '\u2028' || r == '\u2029':
		return append(out, '\\', 'u', '2', '0', '2', hex[r&15])
	default:
		return utf8.AppendRune(out, r)
	}
}

// unquote decodes a string that str has already rendered.
func unquote(quoted []byte) []byte {
	c := canonicalizer{src: quoted, pos: 1}
	var out []byte
	for c.pos < len(quoted)-1 {
		if quoted[c.pos] != '\\' {
			out = append(out, quoted[c.pos])
			c.pos++
			continue
		}
		r, err := c.escape()
		if err != nil {
			return out
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}
