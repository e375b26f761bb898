package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// fielder lists a type's members, by name in byte order. The one list writes
// and reads canonical JSON and finds the values inside; the struct tags say the
// same to encoding/json, and a test holds the two together.
type fielder interface{ fields(c *coder) }

type mode int

const (
	encoding mode = iota // append to out
	decoding             // read src, which is canonical
	visiting             // call visit with every value
	mapping              // replace every value by what visit returns
)

// coder walks records in one of four ways. The first error stays in err, and
// every later step does nothing.
type coder struct {
	mode  mode
	err   error
	out   []byte
	some  bool // the object in hand has a member already
	src   []byte
	pos   int
	name  []byte // of the member at pos; nil at the end of the object
	tags  []tag  // members of the object in hand that no field holds
	visit func(Value) (Value, error)
}

// tag is a member with a fixed value, such as a record's kind.
type tag struct{ name, raw string }

func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// checks reports whether rules between fields are to be checked now.
func (c *coder) checks() bool { return c.err == nil && c.mode <= decoding }

// body walks one object.
func (c *coder) body(f fielder, tags []tag) {
	if c.err != nil {
		return
	}
	some, name, outer := c.some, c.name, c.tags
	c.some, c.tags = false, tags
	switch c.mode {
	case encoding:
		c.out = append(c.out, '{')
		f.fields(c)
		c.writeTags("")
		c.out = append(c.out, '}')
	case decoding:
		if c.enter('{'); c.err == nil {
			c.next()
			f.fields(c)
			if c.err == nil && c.name != nil {
				c.fail(unknownField(c.name))
			}
			c.pos++
		}
	default:
		f.fields(c)
	}
	c.some, c.name, c.tags = some, name, outer
}

// member reports whether the caller is to walk the named member's value now,
// and is followed by done when it is. An optional member is left out exactly
// when it is zero, so that a record is written in one way only.
func (c *coder) member(name string, opt, zero bool) bool {
	switch {
	case c.err != nil:
		return false
	case c.mode == decoding:
		here := string(c.name) == name
		switch {
		case c.name != nil && string(c.name) < name:
			c.fail(unknownField(c.name))
		case !here && !opt:
			c.fail(corrupt("no field %q", name))
		}
		return here
	case opt && zero:
		return false
	case c.mode == encoding:
		c.writeTags(name)
		c.writeName(name)
	}
	return true
}

func unknownField(name []byte) error { return fmt.Errorf("%w: field %q", ErrUnknownKind, name) }

func (c *coder) done(opt, zero bool) {
	if c.mode == decoding && c.err == nil {
		if opt && zero {
			c.fail(corrupt("an empty field %q", c.name))
			return
		}
		c.next()
	}
}

func (c *coder) writeName(name string) {
	if c.some {
		c.out = append(c.out, ',')
	}
	c.some = true
	c.out = append(append(append(c.out, '"'), name...), '"', ':')
}

// writeTags writes the tags that sort before a name, or all of them.
func (c *coder) writeTags(before string) {
	for len(c.tags) > 0 && (before == "" || c.tags[0].name < before) {
		c.writeName(c.tags[0].name)
		c.out = append(c.out, c.tags[0].raw...)
		c.tags = c.tags[1:]
	}
}

// next moves to the following member of the object, over its tags.
func (c *coder) next() {
	for {
		if c.name = nil; c.src[c.pos] == ',' {
			c.pos++
		} else if c.src[c.pos] == '}' {
			return
		}
		start := c.pos + 1
		c.skip()
		c.name = c.src[start : c.pos-1]
		c.pos++ // colon
		if !slices.ContainsFunc(c.tags, func(t tag) bool { return t.name == string(c.name) }) {
			return
		}
		c.skip()
	}
}

// enter moves into an object or array.
func (c *coder) enter(open byte) {
	if c.src[c.pos] != open {
		c.fail(corrupt("%s where %c belongs", c.excerpt(), open))
		return
	}
	c.pos++
}

func (c *coder) excerpt() []byte { return c.src[c.pos:min(c.pos+24, len(c.src))] }

// skip moves over one value.
func (c *coder) skip() {
	depth := 0
	for {
		switch b := c.src[c.pos]; {
		case b == '"':
			for c.pos++; c.src[c.pos] != '"'; c.pos++ {
				if c.src[c.pos] == '\\' {
					c.pos++
				}
			}
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			depth--
		case depth > 0:
		default: // a number or a word
			for c.pos < len(c.src) && c.src[c.pos] != ',' && c.src[c.pos] != '}' && c.src[c.pos] != ']' {
				c.pos++
			}
			return
		}
		if c.pos++; depth == 0 {
			return
		}
	}
}

// raw moves over one value and returns it.
func (c *coder) raw() []byte {
	start := c.pos
	c.skip()
	return c.src[start:c.pos]
}

// peek returns the named member of the object at pos, nil when it has none.
func (c *coder) peek(name string) []byte {
	at := coder{src: c.src, pos: c.pos + 1}
	if c.src[c.pos] != '{' {
		return nil
	}
	for at.next(); at.name != nil; at.next() {
		if value := at.raw(); string(at.name) == name {
			return value
		}
	}
	return nil
}

// text walks a string; opt leaves it out when it is empty.
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

// number walks an integer; opt leaves it out when it is 0.
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

// flag walks a truth value; opt leaves it out when it is false.
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

// instant walks a time; opt leaves it out when it is zero.
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

// opaque walks bytes, in base64, left out when empty.
func opaque(c *coder, name string, p *[]byte) {
	if !c.member(name, true, len(*p) == 0) {
		return
	}
	switch c.mode {
	case encoding:
		c.out = append(base64.StdEncoding.AppendEncode(append(c.out, '"'), *p), '"')
	case decoding:
		b, err := base64.StdEncoding.Strict().DecodeString(c.readString())
		if *p = b; err != nil {
			c.fail(corrupt("%s: %v", name, err))
		}
	}
	c.done(true, len(*p) == 0)
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

// value walks a Value; opt leaves it out when it is absent.
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
