package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// How a member of each Go type is walked. opt marks a member that is left out
// when it is zero.

// text walks a string.
func text[S ~string](c *coder, name string, p *S, opt bool) {
	if !c.member(name, opt, *p == "") {
		return
	}
	switch c.mode {
	case encoding:
		c.out = appendString(c.out, string(*p))
	case decoding:
		*p = S(c.readString())
	}
	c.done(opt, *p == "")
}

// enum is text that has to be one of a closed set.
func enum[S ~string](c *coder, name string, p *S, opt bool, known ...S) {
	present := c.mode == encoding && !(opt && *p == "") || c.mode == decoding && string(c.name) == name
	if text(c, name, p, opt); present && c.checks() && !slices.Contains(known, *p) {
		c.fail(fmt.Errorf("%w: %q as %s", ErrUnknownKind, *p, name))
	}
}

// number walks an integer.
func number[I ~int | ~int64 | ~uint64](c *coder, name string, p *I, opt bool) {
	if !c.member(name, opt, *p == 0) {
		return
	}
	var zero I
	switch {
	case c.mode == encoding && zero-1 > 0:
		c.out = strconv.AppendUint(c.out, uint64(*p), 10)
	case c.mode == encoding:
		c.out = strconv.AppendInt(c.out, int64(*p), 10)
	case c.mode == decoding && zero-1 > 0:
		n, err := strconv.ParseUint(string(c.raw()), 10, 64)
		if *p = I(n); err != nil {
			c.fail(corrupt("%s: not a count", name))
		}
	case c.mode == decoding:
		n, err := strconv.ParseInt(string(c.raw()), 10, 64)
		if *p = I(n); err != nil || int64(I(n)) != n {
			c.fail(corrupt("%s: not an integer", name))
		}
	}
	c.done(opt, *p == 0)
}

// count walks an integer that may be absent.
func count(c *coder, name string, p **int64) {
	if !c.member(name, true, *p == nil) {
		return
	}
	switch c.mode {
	case encoding:
		c.out = strconv.AppendInt(c.out, **p, 10)
	case decoding:
		n, err := strconv.ParseInt(string(c.raw()), 10, 64)
		if *p = &n; err != nil {
			c.fail(corrupt("%s: not an integer", name))
		}
	}
	c.done(true, false)
}

// flag walks a truth value.
func flag(c *coder, name string, p *bool, opt bool) {
	if !c.member(name, opt, !*p) {
		return
	}
	switch c.mode {
	case encoding:
		c.out = strconv.AppendBool(c.out, *p)
	case decoding:
		raw := string(c.raw())
		if *p = raw == "true"; !*p && raw != "false" {
			c.fail(corrupt("%s: neither true nor false", name))
		}
	}
	c.done(opt, !*p)
}

// instant walks a time.
func instant(c *coder, name string, p *time.Time, opt bool) {
	if !c.member(name, opt, p.IsZero()) {
		return
	}
	switch c.mode {
	case encoding:
		out, err := Time(*p).AppendText(append(c.out, '"'))
		if c.out = append(out, '"'); err != nil {
			c.fail(corrupt("%s: %v", name, err))
		}
	case decoding:
		start := c.pos
		if err := p.UnmarshalText([]byte(c.readString())); err != nil {
			c.fail(corrupt("%s: %v", name, err))
		} else if again, err := Time(*p).AppendText(nil); err != nil || string(again) != string(c.src[start+1:c.pos-1]) {
			c.fail(corrupt("%s: %s is not UTC in milliseconds", name, c.src[start:c.pos]))
		}
	}
	c.done(opt, p.IsZero())
}

// rawJSON walks JSON text, left out when absent.
func rawJSON(c *coder, name string, p *json.RawMessage) {
	if !c.member(name, true, len(*p) == 0) {
		return
	}
	switch c.mode {
	case encoding:
		n := canonicalizer{src: *p, out: c.out, depth: MaxDepth}
		if err := n.whole(); err != nil {
			c.fail(fmt.Errorf("%s: %w", name, err))
		}
		c.out = n.out
	case decoding:
		*p = bytes.Clone(c.raw())
	}
	c.done(true, false)
}

// sub walks an object member.
func sub(c *coder, name string, f fielder) {
	if c.member(name, false, false) {
		c.body(f, nil)
		c.done(false, false)
	}
}

// optSub walks an object member that is left out when it says nothing.
func optSub(c *coder, name string, f interface {
	fielder
	IsZero() bool
}) {
	if c.member(name, true, f.IsZero()) {
		c.body(f, nil)
		c.done(true, f.IsZero())
	}
}

// ptr walks an object behind a pointer, left out when nil.
func ptr[T any, P interface {
	*T
	fielder
}](c *coder, name string, p **T) {
	if !c.member(name, true, *p == nil) {
		return
	}
	if c.mode == decoding {
		*p = new(T)
	}
	c.body(P(*p), nil)
	c.done(true, false)
}

// list walks an array, left out when empty if opt.
func list[T any](c *coder, name string, p *[]T, opt bool, each func(*coder, *T)) {
	if !c.member(name, opt, len(*p) == 0) {
		return
	}
	elements(c, p, each)
	c.done(opt, len(*p) == 0)
}

// elements walks the elements of an array.
func elements[T any](c *coder, p *[]T, each func(*coder, *T)) {
	switch c.mode {
	case encoding:
		c.out = append(c.out, '[')
		for i := range *p {
			if i > 0 {
				c.out = append(c.out, ',')
			}
			each(c, &(*p)[i])
		}
		c.out = append(c.out, ']')
	case decoding:
		*p = []T{}
		for c.enter('['); c.err == nil && c.src[c.pos] != ']'; {
			if len(*p) > 0 {
				c.pos++ // comma
			}
			var next T
			each(c, &next)
			*p = append(*p, next)
		}
		c.pos++
	default:
		if c.mode == mapping {
			*p = slices.Clone(*p)
		}
		for i := range *p {
			each(c, &(*p)[i])
		}
	}
}

// objects is list for objects.
func objects[T any, P interface {
	*T
	fielder
}](c *coder, name string, p *[]T) {
	list(c, name, p, true, func(c *coder, v *T) { c.body(P(v), nil) })
}

// names is list for strings.
func names(c *coder, name string, p *[]string) {
	list(c, name, p, true, func(c *coder, s *string) {
		if c.mode == encoding {
			c.out = appendString(c.out, *s)
		} else if c.mode == decoding {
			*s = c.readString()
		}
	})
}

// value walks a Value.
func value(c *coder, name string, p *Value, opt bool) {
	if !c.member(name, opt, p.IsZero()) {
		return
	}
	switch {
	case c.mode < visiting:
		c.body(p, nil)
	case !p.IsZero():
		v, err := c.visit(*p)
		if err != nil {
			c.fail(err)
		} else if c.mode == mapping {
			*p = v
		}
	}
	c.done(opt, p.IsZero())
}

func (c *coder) readString() string {
	if c.src[c.pos] != '"' {
		c.fail(corrupt("%s where a string belongs", c.excerpt()))
		return ""
	}
	raw := c.raw()
	if bytes.IndexByte(raw, '\\') >= 0 {
		return string(unquote(raw))
	}
	return string(raw[1 : len(raw)-1])
}

// appendString writes a string in canonical form. Invalid UTF-8 becomes U+FFFD.
func appendString(out []byte, s string) []byte {
	out = append(out, '"')
	for i := 0; i < len(s); {
		run := i
		for i < len(s) && plain[s[i]] {
			i++
		}
		if out = append(out, s[run:i]...); i < len(s) {
			r, size := utf8.DecodeRuneInString(s[i:])
			out = appendRune(out, r)
			i += size
		}
	}
	return append(out, '"')
}
