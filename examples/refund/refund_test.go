package refund

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/demo"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

func invoke(t *tool.Tool, operation, args string) tool.Result {
	return t.Invoke(context.Background(), tool.Call{ID: "c1", Operation: operation, Args: json.RawMessage(args)})
}

func TestTools(t *testing.T) {
	t.Setenv("LAYOVER_DATA", t.TempDir()+"/data")
	if r := invoke(LookUpOrder, "", `{"orderId":"A-9"}`); r.Outcome != record.Failed || r.Tag != "order-not-found" {
		t.Errorf("%+v", r)
	}
	if r := invoke(LookUpOrder, "", `{"orderId":"A-1001"}`); !strings.Contains(string(r.Value), `"totalCents":4900`) {
		t.Errorf("%s", r.Value)
	}
	const refund = `{"orderId":"A-1001","amountCents":4900}`
	reconcile := func(operation string) (tool.Result, tool.Resolution, error) {
		return IssueRefund.Reconcile(context.Background(), tool.Call{Operation: operation, Args: json.RawMessage(refund)})
	}
	if _, got, err := reconcile("op1"); got != tool.NotHappened || err != nil {
		t.Errorf("before: %s, %v", got, err)
	}
	for _, args := range []string{`{"orderId":"A-1001","amountCents":4901}`, `{"orderId":"A-9","amountCents":1}`, `{"orderId":"A-1001","amountCents":0}`} {
		if r := invoke(IssueRefund, "op1", args); r.Tag != "amount-refused" {
			t.Errorf("%s: %+v", args, r)
		}
	}
	paid := invoke(IssueRefund, "op1", refund)
	if paid.Outcome != record.Succeeded {
		t.Fatalf("%+v", paid)
	}
	found, got, err := reconcile("op1")
	if got != tool.Happened || err != nil || string(found.Value) != string(paid.Value) {
		t.Errorf("after: %s, %v, %s instead of %s", got, err, found.Value, paid.Value)
	}
	if _, got, _ := reconcile("op2"); got != tool.NotHappened {
		t.Errorf("another call: %s", got)
	}
	if err := os.WriteFile(ledger(), []byte(`{"operation":"op1"`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, got, err := reconcile("op1"); err == nil {
		t.Errorf("a damaged ledger said %s", got)
	}
}

// The demo model finds its way through the agent.
func TestWithDemoModel(t *testing.T) {
	t.Setenv("LAYOVER_DATA", t.TempDir())
	for denied, want := range map[bool]string{false: `"refundId":"refund-op1","refunded":true`, true: `"refunded":false`} {
		e := Agent().Engine()
		const input = `{"orderId":"A-1002","reason":"too bright"}`
		instructions, err := e.Hooks.Instruct(t.Context(), json.RawMessage(input))
		if err != nil {
			t.Fatal(err)
		}
		req := model.Request{Output: e.Facts.Output, Messages: []record.Message{
			record.TextMessage(record.System, instructions), record.TextMessage(record.User, input)}}
		for _, tl := range e.Tools {
			req.Tools = append(req.Tools, tl.ForModel())
		}
		messages, err := modeltest.Play(context.Background(), demo.New(), req, func(c record.ToolCallPart) (record.Value, bool) {
			for _, tl := range e.Tools {
				if f := tl.Facts(); f.Name == c.Tool && !(f.Approval && denied) {
					r := invoke(tl, "op1", string(c.Args.Inline))
					return record.Value{Inline: r.Value}, r.Outcome != record.Succeeded
				}
			}
			return record.TextValue("denied"), true
		})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := e.Hooks.Conclude(modeltest.FinalText(messages))
		if err != nil || !strings.Contains(string(answer), want) {
			t.Errorf("denied %v: %s, %v", denied, answer, err)
		}
		t.Logf("%s", answer)
	}
}
