package model

import "github.com/layover-run/layover/core/record"

// report merges a cumulative report: a count that a later report leaves out
// keeps its earlier value, because what was used stays used.
func (r *Reducer) report(u record.Usage) error {
	if u.Raw != nil {
		if _, err := record.Canonical(u.Raw); err != nil {
			return &Error{Class: Protocol, Message: "the raw usage report is not JSON", Err: err}
		}
		if err := r.grow(len(u.Raw)); err != nil {
			return err
		}
		r.usage.Raw = append([]byte(nil), u.Raw...)
	}
	for _, count := range []struct {
		name    string
		current **int64
		next    *int64
	}{
		{"input", &r.usage.InputTokens, u.InputTokens},
		{"cache read", &r.usage.CacheReadTokens, u.CacheReadTokens},
		{"cache write", &r.usage.CacheWriteTokens, u.CacheWriteTokens},
		{"output", &r.usage.OutputTokens, u.OutputTokens},
		{"reasoning", &r.usage.ReasoningTokens, u.ReasoningTokens},
		{"cost", &r.usage.CostMicroUSD, u.CostMicroUSD},
	} {
		switch {
		case count.next == nil:
			continue
		case *count.next < 0 || *count.next > record.MaxSafeInteger:
			return protocol("%s usage of %d is out of range", count.name, *count.next)
		case *count.current != nil && *count.next < **count.current:
			return protocol("%s usage falls from %d to %d", count.name, **count.current, *count.next)
		}
		value := *count.next
		*count.current = &value
	}
	cached := present(r.usage.CacheReadTokens) + present(r.usage.CacheWriteTokens)
	if in := r.usage.InputTokens; in != nil && cached > *in {
		return protocol("%d cached of %d input tokens", cached, *in)
	}
	if out := r.usage.OutputTokens; out != nil && present(r.usage.ReasoningTokens) > *out {
		return protocol("%d reasoning of %d output tokens", *r.usage.ReasoningTokens, *out)
	}
	return nil
}

func present(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
