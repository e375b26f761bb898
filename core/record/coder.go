package record

import (
	"fmt"
	"slices"
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
