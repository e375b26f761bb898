package triage

import (
	"context"
	"testing"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/demo"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// The demo model finds its way through the agent.
func TestWithDemoModel(t *testing.T) {
	for ticket, want := range map[string]Verdict{
		`{"ticketId":"T-1","customerId":"C-7","product":"checkout","message":"502"}`: {Priority: "p1", Team: "payments"},
		`{"ticketId":"T-2","customerId":"C-7","product":"blog","message":"typo"}`:    {Priority: "p2", Team: "key accounts"},
		`{"ticketId":"T-3","customerId":"C-0","product":"search","message":"slow"}`:  {Priority: "p3", Team: "search"},
	} {
		e := Agent().Engine()
		req := model.Request{Output: e.Facts.Output, Messages: []record.Message{record.TextMessage(record.User, ticket)}}
		for _, tl := range e.Tools {
			req.Tools = append(req.Tools, tl.ForModel())
		}
		messages, err := modeltest.Play(context.Background(), demo.New(), req, func(c record.ToolCallPart) (record.Value, bool) {
			for _, tl := range e.Tools {
				if tl.Facts().Name == c.Tool {
					r := tl.Invoke(context.Background(), tool.Call{Args: c.Args.Inline})
					return record.Value{Inline: r.Value}, r.Outcome != record.Succeeded
				}
			}
			return record.TextValue("unknown tool"), true
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(messages[1].Calls()); n != 2 {
			t.Errorf("%d look-ups in the first response; they do not need each other", n)
		}
		raw, err := e.Hooks.Conclude(modeltest.FinalText(messages))
		if err != nil {
			t.Fatal(err)
		}
		schema, err := tool.SchemaFor[Verdict]()
		if err != nil {
			t.Fatal(err)
		}
		got, err := tool.Decode[Verdict](schema, raw)
		if err != nil || got.Priority != want.Priority || got.Team != want.Team || got.Summary == "" {
			t.Errorf("%s: %+v, %v", ticket, got, err)
		}
	}
}
