package record_test

import (
	"testing"
	"time"

	"github.com/layover-run/layover/core/record"
)

// typical is what one turn with a tool call writes: about 1 KB.
func typical() record.Batch {
	n := func(v int64) *int64 { return &v }
	at := time.Date(2026, 3, 1, 12, 0, 0, 123e6, time.UTC)
	return record.Batch{
		Tenant: "local", Conversation: "c_5zq3qk6b4n2v", Slot: 4, ID: "0195f3a1-6f0e-7b2c-9a53-1f6f5d0a9b11", Epoch: 1,
		Attempt: "0195f3a1-6f0e-7b2c-9a53-1f6f5d0a9b10", Prev: record.Digest([]byte("before")), At: at,
		Records: record.Records{
			record.ResponseRecorded{
				Turn: 1, Stop: "tool-calls", RawStop: "tool_use", Provider: "demo", Model: "demo-1", ResponseID: "resp-1",
				Message: record.Message{Role: record.Assistant, Parts: record.Parts{
					record.TextPart{Text: record.TextValue("I look the order up first, and then I decide whether it can be refunded.")},
					record.ToolCallPart{ID: "call_1", Tool: "look_up_order", Args: record.MustValue(map[string]any{"orderId": "A-1001"})},
				}},
				Calls:   []record.DeclaredCall{{ID: "call_1", Tool: "look_up_order", Version: "1", Class: record.Readonly, ArgsDigest: record.Digest([]byte(`{"orderId":"A-1001"}`))}},
				Usage:   record.Usage{InputTokens: n(812), OutputTokens: n(64), CacheReadTokens: n(700)},
				Request: record.Digest([]byte("request")),
			},
			record.CallPrepared{Call: "call_1", Operation: "op_5zq3qk6b4n2v"},
		},
	}
}

func BenchmarkSeal(b *testing.B) {
	batch := typical()
	sealed, err := record.Seal(&batch)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(sealed.Body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := record.Seal(&batch); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	batch := typical()
	sealed, err := record.Seal(&batch)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(sealed.Body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := record.Open(sealed, batch.Tenant, batch.Conversation); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCanonical(b *testing.B) {
	batch := typical()
	sealed, err := record.Seal(&batch)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(sealed.Body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := record.Canonical(sealed.Body); err != nil {
			b.Fatal(err)
		}
	}
}
