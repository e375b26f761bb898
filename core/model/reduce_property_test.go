package model_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/layover-run/layover/core/model"
)

// block is one block of a generated response.
type generated struct {
	kind string
	body string
}

// drawBlocks makes a legal response and says whether it holds calls.
func drawBlocks(t *rapid.T) (blocks []generated, calls bool) {
	for range rapid.IntRange(0, 5).Draw(t, "blocks") {
		g := generated{kind: rapid.SampledFrom([]string{"text", "reasoning", "call"}).Draw(t, "kind")}
		switch g.kind {
		case "call":
			calls = true
			g.body = fmt.Sprintf(`{"n": %d, "s": %q}`, rapid.Int32().Draw(t, "n"), rapid.StringMatching(`[a-zé漢 ]{0,12}`).Draw(t, "s"))
		default:
			g.body = rapid.String().Draw(t, "body")
		}
		blocks = append(blocks, g)
	}
	return append(blocks, generated{"text", "answer"}), calls
}

// chunked streams the blocks, each body cut at random bytes.
func chunked(t *rapid.T, blocks []generated, calls bool) script {
	out := script{start}
	index := 0
	for i, b := range blocks {
		if b.kind == "call" {
			out = append(out, model.ToolCallStart{Index: index, ID: fmt.Sprint("c", i), Tool: "look"})
		}
		for rest := b.body; ; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "cut")
			piece := rest[:n]
			switch b.kind {
			case "call":
				out = append(out, model.ToolArgsDelta{Index: index, JSON: piece})
			case "text":
				out = append(out, model.TextDelta{Index: index, Text: piece})
			default:
				out = append(out, model.ReasoningDelta{Index: index, Text: piece})
			}
			if rest = rest[n:]; rest == "" {
				break
			}
		}
		if b.kind == "call" {
			out = append(out, model.ToolCallEnd{Index: index})
		}
		index += rapid.IntRange(1, 3).Draw(t, "gap")
	}
	finish := stop
	if calls {
		finish = called
	}
	return append(out, usage(9, 1, 1, 9, 1), finish)
}

// The same blocks give the same response, however the network cut them.
func TestReduceIgnoresChunking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks, calls := drawBlocks(t)
		a, err := reduce(chunked(t, blocks, calls), model.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := reduce(chunked(t, blocks, calls), model.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A stream cut anywhere is no response.
//
// conformance: RSP-12
func TestReduceCutStreamIsNoResponse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks, calls := drawBlocks(t)
		s := chunked(t, blocks, calls)
		for cut := range s {
			if got, err := reduce(s[:cut], model.Limits{}); err == nil {
				t.Fatalf("the first %d of %d parts became %v", cut, len(s), got)
			}
		}
	})
}

// FuzzReduce feeds parts in any order: whatever is accepted keeps the promises
// the engine relies on.
func FuzzReduce(f *testing.F) {
	f.Add([]byte("\x00\x01\x01\x08"), "text")
	f.Add([]byte("\x00\x04\x05\x06\x07\x18"), `{"a":1}`)
	f.Fuzz(func(t *testing.T, ops []byte, body string) {
		r := model.NewReducer(model.Limits{MaxParts: 64, MaxBytes: 4096})
		completed := false
		for _, op := range ops {
			var p model.Part
			index := int(op>>4) % 4
			switch op % 9 {
			case 0:
				p = start
			case 1:
				p = text(index, body)
			case 2:
				p = model.ReasoningDelta{Index: index, Text: body}
			case 3:
				p = model.ReasoningEnd{Index: index, Opaque: []byte(body)}
			case 4:
				p = model.ToolCallStart{Index: index, ID: fmt.Sprint("c", index), Tool: "look"}
			case 5:
				p = model.ToolArgsDelta{Index: index, JSON: body}
			case 6:
				p = model.ToolCallEnd{Index: index}
			case 7:
				p = usage(int64(op), 0, 0, int64(op), 0)
			case 8:
				p = model.Finish{Reason: []model.StopReason{model.Stop, model.ToolCalls, model.Length, "?"}[index]}
			}
			err := r.Add(p)
			_, finish := p.(model.Finish)
			completed = completed || finish && err == nil
		}
		got, err := r.Response()
		if err == nil && !completed {
			t.Fatal("a response without its completion")
		}
		calls := got.Message.Calls()
		if err == nil && (len(calls) > 0) != (got.Stop == model.ToolCalls) {
			t.Fatalf("%d calls with the reason %s", len(calls), got.Stop)
		}
		if err != nil && (len(got.Message.Parts) > 0 || model.ClassOf(err) != model.Protocol) {
			t.Fatalf("%v with %v", err, got)
		}
	})
}
