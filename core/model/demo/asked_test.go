package demo_test

import (
	"encoding/json"
	"testing"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// calls lists the tools the model calls for instructions and an input.
func calls(t *testing.T, instructions, input string, tools []model.Tool, results map[string]string) (names []string, final string) {
	t.Helper()
	req := model.Request{Tools: tools, Messages: []record.Message{
		record.TextMessage(record.System, instructions), record.TextMessage(record.User, input)}}
	_, final, messages := play(t, req, results)
	for _, m := range messages {
		for _, c := range m.Calls() {
			names = append(names, c.Tool)
		}
	}
	return names, final
}

func TestActsOnlyWhenAsked(t *testing.T) {
	const order = `{"orderId":"A-1","note":"the kettle is broken"}`
	for name, tc := range map[string]struct {
		tool         string
		parameter    string
		instructions string
		input        string
		acts         bool
	}{
		"the noun of a vague verb": {"issue_refund", "orderId:string", "Look the order up, then refund it.", order, true},
		"plural":                   {"issueRefund", "orderId:string", "You decide about refunds.", order, true},
		"nobody asked":             {"issue_refund", "orderId:string", "Look the order up.", order, false},
		"asked by the input":       {"issue_refund", "orderId:string", "Help.", `{"orderId":"A-1","wish":"a refund"}`, true},
		"asked by plain text":      {"issue_refund", "orderId:string", "Help.", "Refund please.\norderId: A-1", true},
		"a name in the input":      {"issue_refund", "orderId:string", "Help.", `{"orderId":"A-1","refund":false}`, false},
		"forbidden":                {"issue_refund", "orderId:string", "Never issue a refund.", order, false},
		"forbidden, then asked":    {"issue_refund", "orderId:string", "Never pay twice. Refund the order.", order, true},
		"only its object":          {"cancel_order", "orderId:string", "Look the order up.", order, false},
		"only its verb":            {"send_invoice", "orderId:string", "Send a summary of the order.", order, false},
		"verb and object":          {"cancel_order", "orderId:string", "Cancel orders.", order, true},
		"a short verb":             {"pay", "orderId:string", "Pay.", order, true},
		"no words":                 {"do_it", "orderId:string", "Do it.", order, false},
		"no parameters":            {"cancel", "", "Cancel.", order, false},
		"optional parameters":      {"cancel", "orderId:string?", "Cancel.", order, false},
		"nothing given":            {"cancel", "customerId:string", "Cancel.", order, false},
		"in the answer's contract": {"cancel", "orderId:string", `Conform to {"type":"object","description":"cancel"}`, order, false},
	} {
		var parameters []string
		if tc.parameter != "" {
			parameters = []string{tc.parameter}
		}
		req := model.Request{
			Tools:    []model.Tool{{Name: tc.tool, Schema: schema(parameters...)}},
			Output:   json.RawMessage(`{"type":"object","description":"cancel"}`),
			Messages: []record.Message{record.TextMessage(record.System, tc.instructions), record.TextMessage(record.User, tc.input)},
		}
		turns, _, _ := play(t, req, map[string]string{tc.tool: `{}`})
		if (len(turns) > 0) != tc.acts {
			t.Errorf("%s: %v", name, turns)
		}
	}
}

func TestConstantsAreNoRequest(t *testing.T) {
	req := model.Request{
		Tools: []model.Tool{{Name: "cancel", Schema: json.RawMessage(
			`{"type":"object","properties":{"mode":{"const":"all"},"more":{"type":"object","properties":{}}},"required":["mode","more"]}`)}},
		Messages: []record.Message{record.TextMessage(record.User, "Cancel.")},
	}
	if turns, _, _ := play(t, req, map[string]string{"cancel": `{}`}); turns != nil {
		t.Errorf("%v", turns)
	}
	req.Tools[0].Schema = json.RawMessage(`true`)
	if turns, _, _ := play(t, req, map[string]string{"cancel": `{}`}); turns != nil {
		t.Errorf("%v", turns)
	}
}

func TestOneActUnlessTheNextNeedsIt(t *testing.T) {
	tools := []model.Tool{
		{Name: "charge_card", Schema: schema("orderId:string")},
		{Name: "send_receipt", Schema: schema("chargeId:string")},
		{Name: "close_order", Schema: schema("orderId:string")},
	}
	results := map[string]string{"charge_card": `{"chargeId":"c"}`, "send_receipt": `{}`, "close_order": `{}`}
	got, _ := calls(t, "Charge the card, send the receipt, close the order.", `{"orderId":"A-1"}`, tools, results)
	if len(got) != 2 || got[0] != "charge_card" || got[1] != "send_receipt" {
		t.Errorf("%v", got)
	}
}

func TestReaders(t *testing.T) {
	for name, tc := range map[string]struct {
		description string
		reads       bool
	}{
		"get_order":          {"Reads an order.", true},
		"list_orders":        {"Lists the orders and refunds of a customer.", false}, // cautious
		"search-posts":       {"Finds posts of a customer, the newest first.", true},
		"lookUpOrder":        {"Finds an order: item, customer, and what may be refunded.", true},
		"check_stock":        {"Says where an item is.", true},
		"check_out":          {"Ends the visit.", false},
		"list_item_for_sale": {"Offers an item.", false},
		"check_cart":         {"Places the order in the cart.", false},
		"get_coffee":         {"Goes to the shop and orders one.", false},
		"find_winner":        {"Picks a winner, then pays the prize.", false},
		"fetch_and_delete":   {"Takes a message.", false},
		"read_mail":          {"Reads a mail; deletes it.", false},
		"gettysburg":         {"A town.", false},
		"checkout":           {"Ends the visit.", false},
		"get":                {"", true},
	} {
		tools := []model.Tool{{Name: name, Description: tc.description, Schema: schema("id:string")}}
		if got, _ := calls(t, "Help.", `{"id":"1"}`, tools, map[string]string{name: `{}`}); (len(got) == 1) != tc.reads {
			t.Errorf("%s (%s): called %v", name, tc.description, got)
		}
	}
}

// Whatever the schema asks for that Go types are made of, the answer conforms.
func TestAnswersConform(t *testing.T) {
	for _, raw := range []string{
		`true`, `{}`, `{"type":"string"}`, `{"type":["null","string"],"enum":["a",null]}`,
		`{"type":"string","format":"date-time"}`,
		`{"type":"object","properties":{"at":{"type":"string","format":"date-time"},"when":{"type":["null","string"],"format":"date-time"},"day":{"type":"string","format":"date-time"}},"required":["at","when","day"]}`,
		`{"type":"object","properties":{"note":{"type":["null","string"],"contentEncoding":"base64"},"ok":{"type":"string","contentEncoding":"base64"}},"required":["note","ok"]}`,
		`{"type":"integer","exclusiveMinimum":0}`, `{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":0.5}`,
		`{"type":"integer","minimum":8,"multipleOf":5}`, `{"type":"integer","maximum":-8,"multipleOf":5}`,
		`{"type":"number","exclusiveMinimum":1,"multipleOf":0.25}`, `{"type":"integer","exclusiveMaximum":-1}`,
		`{"type":"object","properties":{"n":{"type":"integer","exclusiveMinimum":7},"m":{"type":"integer","multipleOf":2}},"required":["n","m"]}`,
		`{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2}`,
		`{"type":"object","properties":{"list":{"type":"array","items":{"type":"integer"},"maxItems":1}},"required":["list"]}`,
		`{"type":"object","properties":{"map":{"type":"object","additionalProperties":{"type":"integer"}}},"required":["map"]}`,
		`{"type":"object","properties":{"any":{},"also":true},"required":["any","also"]}`,
	} {
		s, err := tool.CompileSchema(json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		for _, input := range []string{
			`Do it.`,
			`{"at":"tomorrow","when":"2031-05-02","day":"2031-05-02T10:00:00+02:00","note":"no bytes!","ok":"b2s=","n":7,"m":3,"list":[1,2],"map":{"a":1,"b":"x"}}`,
		} {
			req := model.Request{Output: json.RawMessage(raw), Messages: []record.Message{record.TextMessage(record.User, input)}}
			_, final, _ := play(t, req, nil)
			if err := s.Check(json.RawMessage(final)); err != nil {
				t.Errorf("%s: %s: %v", raw, final, err)
			}
		}
	}
}
