package modeltest

import (
	"context"
	"fmt"
	"slices"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// Ask sends one request and reduces its stream.
func Ask(ctx context.Context, m model.Model, req *model.Request) (model.Response, error) {
	r := model.NewReducer(model.Limits{})
	r.Continue(req.Messages)
	if err := m.Stream(ctx, req, r.Add); err != nil {
		return model.Response{}, err
	}
	return r.Response()
}

// Play lets a model and tools talk until the model gives a final answer, for
// at most ten responses: a bare loop to try a model or tools by, without
// anything the engine promises. It returns the whole conversation.
func Play(ctx context.Context, m model.Model, req model.Request,
	run func(record.ToolCallPart) (result record.Value, failed bool)) ([]record.Message, error) {
	req.Messages = slices.Clone(req.Messages)
	for range 10 {
		resp, err := Ask(ctx, m, &req)
		if err != nil {
			return req.Messages, err
		}
		req.Messages = append(req.Messages, resp.Message)
		calls := resp.Message.Calls()
		if len(calls) == 0 {
			return req.Messages, nil
		}
		results := record.Message{Role: record.Tool}
		for _, c := range calls {
			value, failed := run(c)
			results.Parts = append(results.Parts, record.ToolResultPart{Call: c.ID, Tool: c.Tool, Result: value, Failed: failed})
		}
		req.Messages = append(req.Messages, results)
	}
	return req.Messages, fmt.Errorf("modeltest: no final answer within ten responses")
}

// FinalText is the text of the last message.
func FinalText(messages []record.Message) string {
	text := ""
	if len(messages) > 0 {
		for _, p := range messages[len(messages)-1].Parts {
			if t, ok := p.(record.TextPart); ok {
				text += t.Text.Text()
			}
		}
	}
	return text
}
