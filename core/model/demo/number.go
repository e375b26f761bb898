package demo

import (
	"encoding/json"
	"math/big"
	"strings"
)

func numberOf(v any) (json.Number, bool) {
	switch v := v.(type) {
	case json.Number:
		return v, true
	case written:
		n, ok := parse([]byte(v)).(json.Number)
		return n, ok
	}
	return "", false
}

// inRange checks the bounds of a numeric schema.
func inRange(n json.Number, s object) bool {
	value := rational(n)
	if value == nil || typeOf(s) == "integer" && !value.IsInt() {
		return false
	}
	for _, bound := range []struct {
		word      string
		sign      int // of the comparison, for a value beyond the bound
		exclusive bool
	}{{"minimum", -1, false}, {"maximum", 1, false}, {"exclusiveMinimum", -1, true}, {"exclusiveMaximum", 1, true}} {
		if limit := rational(s[bound.word]); limit != nil {
			if c := value.Cmp(limit); c == bound.sign || c == 0 && bound.exclusive {
				return false
			}
		}
	}
	step := rational(s["multipleOf"])
	return step == nil || step.Sign() <= 0 || new(big.Rat).Quo(value, step).IsInt()
}

// modest is the number of a schema that is nearest to nothing: 0, or one next
// to a bound.
func modest(s object) json.Number {
	one, zero := big.NewRat(1, 1), new(big.Rat)
	step := rational(s["multipleOf"])
	if step == nil || step.Sign() <= 0 {
		step = one
	}
	candidates := []*big.Rat{zero}
	var bounds []*big.Rat
	for _, word := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
		if limit := rational(s[word]); limit != nil {
			bounds = append(bounds, limit)
		}
	}
	for _, limit := range bounds {
		below := floor(limit, step)
		candidates = append(candidates, limit, below, new(big.Rat).Add(below, step), new(big.Rat).Sub(below, step))
	}
	if len(bounds) > 1 {
		middle := new(big.Rat).Add(bounds[0], bounds[len(bounds)-1])
		candidates = append(candidates, middle.Quo(middle, big.NewRat(2, 1)))
	}
	for _, c := range candidates {
		text := c.FloatString(30)
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
		if n := json.Number(text); text != "" && inRange(n, s) {
			return n
		}
	}
	return "0"
}

// floor is the largest multiple of step that is not above value.
func floor(value, step *big.Rat) *big.Rat {
	quotient := new(big.Rat).Quo(value, step)
	whole := new(big.Int).Div(quotient.Num(), quotient.Denom()) // Euclidean: downwards
	return new(big.Rat).Mul(new(big.Rat).SetInt(whole), step)
}

// rational is a number as it is written; nil when it is none, or one of more
// than a thousand digits.
func rational(v any) *big.Rat {
	n, ok := v.(json.Number)
	if !ok || len(n) > 1000 {
		return nil
	}
	if e := strings.IndexAny(n.String(), "eE"); e >= 0 && len(n)-e > len("e-999") {
		return nil
	}
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		return nil
	}
	return r
}
