package enginetest

import (
	"context"
	"fmt"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// ReferenceInput is what run W is asked.
const ReferenceInput = `{"order":"A-1001"}`

// ReferenceAgent makes run W with Instant as its model: three turns, one tool
// call in each of the first two, nothing to wait for. What a store needs for it
// is counted and measured on each of them.
func ReferenceAgent() *agent.Definition {
	type order struct {
		Order string `json:"order"`
	}
	type price struct {
		Cents int `json:"cents"`
	}
	look := tool.New("look", "Looks an order up.", func(context.Context, order) (price, error) { return price{4900}, nil }, tool.Readonly())
	return agent.MustDefine[order, string]("reference", agent.Config[order]{
		Instructions: agent.Text[order]("Look the order up twice, then answer."),
		Tools:        []*tool.Tool{look},
	})
}

// Instant is a model that answers at once: a call of look for the first two
// requests of a run, then text.
type Instant struct{}

// Stream implements model.Model.
func (Instant) Stream(_ context.Context, req *model.Request, emit func(model.Part) error) error {
	turn := 0
	for i := len(req.Messages) - 1; i >= 0 && req.Messages[i].Role != record.User; i-- {
		if req.Messages[i].Role == record.Assistant {
			turn++
		}
	}
	parts := []model.Part{model.Start{Provider: "test", Model: "instant"}, model.TextDelta{Text: "All done."}, model.Finish{Reason: model.Stop, Raw: "stop"}}
	if turn < 2 {
		parts = []model.Part{model.Start{Provider: "test", Model: "instant"}, model.ToolCallStart{ID: fmt.Sprint("call-", turn), Tool: "look"},
			model.ToolArgsDelta{JSON: ReferenceInput}, model.ToolCallEnd{}, model.Finish{Reason: model.ToolCalls, Raw: "tool_use"}}
	}
	for _, p := range parts {
		if err := emit(p); err != nil {
			return err
		}
	}
	return nil
}
