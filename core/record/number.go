package record

import (
	"bytes"
	"math/big"
	"strconv"
)

// maxNumber bounds the digits and the exponent of a number, so that a short
// literal such as 1e999999999 cannot expand into memory.
const maxNumber = 400

// number reads one JSON number and writes its exact decimal value.
func (c *canonicalizer) number() error {
	start := c.pos
	negative := c.src[c.pos] == '-'
	if negative {
		c.pos++
	}
	digits := c.digits()
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return c.fail("malformed number")
	}
	exponent := 0
	if c.pos < len(c.src) && c.src[c.pos] == '.' {
		c.pos++
		frac := c.digits()
		if len(frac) == 0 {
			return c.fail("malformed number")
		}
		digits = append(digits[:len(digits):len(digits)], frac...)
		exponent = -len(frac)
	}
	if c.pos < len(c.src) && (c.src[c.pos] == 'e' || c.src[c.pos] == 'E') {
		c.pos++
		e, err := c.exponent()
		if err != nil {
			return err
		}
		exponent += e
	}
	var ok bool
	if c.out, ok = appendDecimal(c.out, negative, digits, exponent); !ok {
		c.pos = start
		return c.fail("number out of range")
	}
	return nil
}

func (c *canonicalizer) digits() []byte {
	start := c.pos
	for c.pos < len(c.src) && c.src[c.pos] >= '0' && c.src[c.pos] <= '9' {
		c.pos++
	}
	return c.src[start:c.pos]
}

func (c *canonicalizer) exponent() (int, error) {
	start := c.pos
	if c.pos < len(c.src) && (c.src[c.pos] == '+' || c.src[c.pos] == '-') {
		c.pos++
	}
	if len(c.digits()) == 0 {
		return 0, c.fail("malformed number")
	}
	e, err := strconv.Atoi(string(c.src[start:c.pos]))
	if err != nil || e > maxNumber || e < -maxNumber {
		return 0, c.fail("exponent out of range")
	}
	return e, nil
}

// maxZeros is how many zeros an integer may end with before it is written with
// an exponent. It bounds what a short literal expands to, and leaves every
// 128-bit amount spelled out.
const maxZeros = 40

// appendDecimal writes digits × 10^exponent, the same way for every spelling
// of one value: an integer as its digits, unless it ends with very many zeros;
// a fraction as 0.000001 and above as a decimal; the rest as d.ddde±n. Its
// answer is within the bounds that number accepts, or ok is false.
func appendDecimal(out []byte, negative bool, digits []byte, exponent int) (_ []byte, ok bool) {
	digits = bytes.TrimLeft(digits, "0")
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits, exponent = digits[:len(digits)-1], exponent+1
	}
	point := len(digits) + exponent // position of the decimal point
	switch {
	case len(digits) == 0:
		return append(out, '0'), true
	case len(digits) > maxNumber || point-1 > maxNumber || point-1 < -maxNumber:
		return out, false
	case negative:
		out = append(out, '-')
	}
	switch {
	case exponent >= 0 && exponent <= maxZeros:
		out = appendZeros(append(out, digits...), exponent)
	case exponent < 0 && point > 0:
		out = append(append(append(out, digits[:point]...), '.'), digits[point:]...)
	case point <= 0 && point > -6:
		out = append(appendZeros(append(out, '0', '.'), -point), digits...)
	default:
		out = append(out, digits[0])
		if len(digits) > 1 {
			out = append(append(out, '.'), digits[1:]...)
		}
		out = strconv.AppendInt(append(out, 'e'), int64(point-1), 10)
	}
	return out, true
}

func appendZeros(out []byte, n int) []byte {
	for range n {
		out = append(out, '0')
	}
	return out
}

// Integer reads a JSON number as an exact integer, whatever its spelling.
func Integer(src []byte) (*big.Int, bool) {
	canonical, err := Canonical(src)
	if err != nil || len(canonical) == 0 || canonical[0] != '-' && (canonical[0] < '0' || canonical[0] > '9') {
		return nil, false
	}
	r, ok := new(big.Rat).SetString(string(canonical))
	if !ok || !r.IsInt() {
		return nil, false
	}
	return r.Num(), true
}
