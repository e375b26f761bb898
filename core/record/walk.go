package record

import "slices"

// Outsize moves values of the records aside, largest first, until the batch
// that holds them is small: put is called with the digest and the bytes of
// each before the record refers to it. Values above InlineLimit always go.
// The records are copied where they change.
func Outsize(records Records, put func(digest string, body []byte) error) (Records, error) {
	var sizes []int
	for _, r := range records {
		eachValue(r, func(v Value) { sizes = append(sizes, len(v.Inline)) })
	}
	limit := inlineLimit(sizes)
	if len(sizes) == 0 || slices.Max(sizes) <= limit {
		return records, nil
	}
	out := slices.Clone(records)
	for i, r := range records {
		moved, err := moveAside(r, limit, put)
		if err != nil {
			return nil, err
		}
		out[i] = moved
	}
	return out, nil
}

// smallest is the size below which moving a value aside saves nothing worth it.
const smallest = 256

// inlineLimit is the largest size that may stay inside.
func inlineLimit(sizes []int) int {
	limit := InlineLimit
	for ; limit > smallest; limit /= 2 {
		total := 0
		for _, size := range sizes {
			if size <= limit {
				total += size
			}
		}
		if total <= BatchLimit/2 {
			break
		}
	}
	return limit
}

func moveAside(r Record, limit int, put func(string, []byte) error) (Record, error) {
	needed := false
	eachValue(r, func(v Value) { needed = needed || len(v.Inline) > limit })
	if !needed {
		return r, nil
	}
	c := coder{mode: mapping, visit: func(v Value) (Value, error) {
		if len(v.Inline) <= limit {
			return v, nil
		}
		ref := Ref{SHA256: Digest(v.Inline), Size: len(v.Inline)}
		return Value{Aside: &ref}, put(ref.SHA256, v.Inline)
	}}
	c.record(&r)
	return r, c.err
}

// eachValue calls f with each value of a record that is present.
func eachValue(r Record, f func(Value)) {
	c := coder{mode: visiting, visit: func(v Value) (Value, error) { f(v); return v, nil }}
	c.record(&r)
}

// MapMessage rebuilds a message with each of its values passed through f; the
// engine uses it to bring payloads that are aside back in.
func MapMessage(msg Message, f func(Value) (Value, error)) (Message, error) {
	c := coder{mode: mapping, visit: f}
	msg.fields(&c)
	return msg, c.err
}

// checkResponse holds RUN-033c and RUN-035b: what no writer produces.
func checkResponse(c *coder, r *ResponseRecorded) {
	for _, m := range r.Prefix {
		if m.Role != System && m.Role != User {
			c.fail(corrupt("a %s message in the run's prefix", m.Role))
		}
	}
	u, reported := r.Usage, func(n *int64) int64 {
		if n == nil {
			return 0
		}
		return *n
	}
	switch {
	case r.Message.Role != Assistant:
		c.fail(corrupt("a response from the %s", r.Message.Role))
	case u.InputTokens != nil && reported(u.CacheReadTokens)+reported(u.CacheWriteTokens) > *u.InputTokens,
		u.OutputTokens != nil && reported(u.ReasoningTokens) > *u.OutputTokens:
		c.fail(corrupt("a part of the usage above its total"))
	}
}

// checkSettled holds the metadata families of RUN-011 together, fail-closed.
func checkSettled(c *coder, s *RunSettled) {
	exhausted := s.FinishReason == BudgetExhausted
	switch {
	case exhausted != (s.Exhausted != ""):
		c.fail(corrupt("finish reason and exhausted dimension disagree"))
	case s.FinishReason != "" && s.Status != StatusCompleted:
		c.fail(corrupt("a finish reason on a %s run", s.Status))
	case s.PolicyLimit != "" && (s.Status != StatusFailed || s.Error == nil || s.Error.Kind != PolicyError || s.Error.Limit != s.PolicyLimit):
		c.fail(corrupt("a policy limit without its error"))
	case !s.Disposition.IsZero() && (s.Status != StatusCompleted || exhausted):
		c.fail(corrupt("a disposition on a run that cannot have one"))
	case s.Status == StatusCompleted && s.Error != nil:
		c.fail(corrupt("an error on a completed run"))
	}
}

// PolicyError is the kind of an error that names an exhausted policy limit.
const PolicyError = "AgentPolicyError"
