package anthropic_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
)

// An answer of more deltas than a response may have parts is an answer; the first
// thousands of them are out one by one.
func TestManyDeltas(t *testing.T) {
	const n = model.DefaultMaxParts/3 + 500 // of each sort
	var reasoning, words, args, mixed strings.Builder
	for range model.DefaultMaxParts + 500 {
		mixed.WriteString(more(1, "text_delta", "text", "b"))
	}
	for i := range n {
		reasoning.WriteString(more(0, "thinking_delta", "thinking", fmt.Sprintf("%d ", i)))
		words.WriteString(more(1, "text_delta", "text", fmt.Sprintf("%d ", i)))
		args.WriteString(more(2, "input_json_delta", "partial_json", fmt.Sprintf("%d,", i)))
	}
	parts := 0
	m := newModel(t, anthropic.Config{HTTPClient: modeltest.NewReplay(modeltest.Stream(stream(start,
		opened(0, `{"type":"thinking","thinking":""}`), reasoning.String(), closed(0), opened(1, `{"type":"text","text":""}`), words.String(), closed(1),
		opened(2, `{"type":"tool_use","id":"a","name":"t","input":{}}`), more(2, "input_json_delta", "partial_json", "["), args.String(), more(2, "input_json_delta", "partial_json", "0]"), closed(2), finish("tool_use")))).Client()})
	r := model.NewReducer(model.Limits{})
	err := m.Stream(t.Context(), hello, func(p model.Part) error {
		if d, ok := p.(model.ReasoningDelta); ok && parts < 1000 && len(d.Text) > 5 {
			t.Errorf("part %d was held back: %q", parts, d.Text)
		}
		parts++
		return r.Add(p)
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Response()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d ", n-1)
	for _, p := range got.Message.Parts {
		var text string
		switch p := p.(type) {
		case record.ReasoningPart:
			text = p.Text.Text()
		case record.TextPart:
			text = p.Text.Text()
		case record.ToolCallPart:
			text = strings.ReplaceAll(strings.TrimSuffix(string(p.Args.Inline), ",0]"), ",", " ") + " "
		}
		if strings.Count(text, " ") != n || !strings.HasSuffix(text, " "+want) {
			t.Errorf("%T ends in %q with %d of %d", p, text[max(0, len(text)-20):], strings.Count(text, " "), n)
		}
	}
	if len(got.Message.Parts) != 3 || parts > model.DefaultMaxParts {
		t.Errorf("%d parts of the message from %d of the stream", len(got.Message.Parts), parts)
	}
	both, err := reply(t, anthropic.Config{}, start, opened(0, `{"type":"text","text":""}`), opened(1, `{"type":"text","text":""}`), more(0, "text_delta", "text", "a"), mixed.String(), closed(0), closed(1), finish("end_turn"))
	if err != nil || rendered(both) != "text a\ntext "+strings.Repeat("b", model.DefaultMaxParts+500)+"\n" {
		t.Errorf("mixed: %v", err)
	}
}
