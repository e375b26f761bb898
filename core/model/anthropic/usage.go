package anthropic

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// usage merges the reports of one answer. Each is cumulative, and a later one
// may leave out what an earlier one said.
type usage struct {
	raw map[string]json.RawMessage
	// The buckets as this API counts them, which do not overlap.
	counts map[string]int64
}

// report takes a usage object and passes on what is known by now.
func (s *stream) report(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		if s.m.cfg.Compat.KeepUsage {
			return broke("a usage report that is not the JSON it should be")
		}
		s.repair("usage", string(raw))
		return nil
	}
	if s.usage.raw == nil {
		s.usage.raw, s.usage.counts = map[string]json.RawMessage{}, map[string]int64{}
	}
	for name, value := range members {
		if string(value) == "null" {
			delete(members, name)
		}
	}
	maps.Copy(s.usage.raw, members)
	var details struct {
		Thinking json.RawMessage `json:"thinking_tokens"`
	}
	if d, ok := members["output_tokens_details"]; ok && json.Unmarshal(d, &details) == nil && details.Thinking != nil {
		members["thinking_tokens"] = details.Thinking
	}
	for _, name := range []string{"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "thinking_tokens"} {
		if value, ok := members[name]; ok {
			if err := s.count(name, value); err != nil {
				return err
			}
		}
	}
	if out, ok := s.usage.counts["output_tokens"]; ok && s.usage.counts["thinking_tokens"] > out && !s.m.cfg.Compat.KeepUsage {
		s.repair("usage", fmt.Sprintf("thinking_tokens %d of %d", s.usage.counts["thinking_tokens"], out))
		delete(s.usage.counts, "thinking_tokens")
	}
	whole, err := json.Marshal(s.usage.raw)
	if err != nil {
		return broke("a usage report that does not encode")
	}
	u := s.usage.normal()
	u.Raw = whole
	return s.emit(model.UsageReport{Usage: u})
}

// count takes one count. Counts that make no sense are left out (A21), unless
// Compat leaves them to the reducer, which refuses the answer.
func (s *stream) count(name string, value json.RawMessage) error {
	var n int64
	err := json.Unmarshal(value, &n)
	before, reported := s.usage.counts[name]
	nonsense := err != nil || n < 0 || n > record.MaxSafeInteger || reported && n < before
	if nonsense && !s.m.cfg.Compat.KeepUsage {
		s.repair("usage", name+" "+string(value))
		return nil
	}
	if err != nil {
		return broke("a usage report whose %s is no integer", name)
	}
	s.usage.counts[name] = n
	return nil
}

// normal puts the counts into the buckets of records, where the input is all of
// it, cached or not. A count that was not reported stays absent.
func (u usage) normal() record.Usage {
	count := func(name string) *int64 {
		if n, ok := u.counts[name]; ok {
			return &n
		}
		return nil
	}
	out := record.Usage{
		InputTokens: count("input_tokens"), CacheReadTokens: count("cache_read_input_tokens"),
		CacheWriteTokens: count("cache_creation_input_tokens"), OutputTokens: count("output_tokens"), ReasoningTokens: count("thinking_tokens"),
	}
	if out.InputTokens != nil {
		*out.InputTokens += u.counts["cache_read_input_tokens"] + u.counts["cache_creation_input_tokens"]
	}
	return out
}
