package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/demo"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
)

// schema spells an object schema: "name:type" entries, required unless they
// end with ?.
func schema(properties ...string) json.RawMessage {
	object := map[string]any{"type": "object", "additionalProperties": false}
	props, required := map[string]any{}, []string{}
	for _, p := range properties {
		name, kind, _ := strings.Cut(p, ":")
		if !strings.HasSuffix(kind, "?") {
			required = append(required, name)
		}
		property := map[string]any{"type": strings.TrimSuffix(kind, "?")}
		if values, ok := strings.CutPrefix(kind, "enum "); ok {
			property = map[string]any{"type": "string", "enum": strings.Fields(values)}
		}
		props[name] = property
	}
	object["properties"], object["required"] = props, required
	return record.MustValue(object).Inline
}

// A rebooking agent nobody has prepared the model for.
var rebooking = model.Request{
	Messages: []record.Message{
		record.TextMessage(record.System, "You rebook flights and send emails about it."),
		record.TextMessage(record.User, `{"booking_ref":"XK4P","travel-date":"2031-05-02","maxPrice":300}`),
	},
	Tools: []model.Tool{
		{Name: "rebook", Description: "Moves the booking.", Schema: schema("bookingRef:string", "flightNumber:string", "priceCents:integer", "cabin:enum economy business")},
		{Name: "getBooking", Description: "Reads a booking.", Schema: schema("bookingRef:string")},
		{Name: "search_flights", Description: "Finds flights.", Schema: schema("travelDate:string", "maxPrice:number", "nonstop:boolean?")},
		{Name: "send_email", Description: "Mails the traveller.", Schema: schema("travelerEmail:string", "confirmation:string")},
		{Name: "cancel_hotel", Description: "Cancels a hotel.", Schema: schema("hotelId:string")},
	},
	Output: schema("confirmation:string", "flightNumber:string", "cabin:enum first economy business", "rebooked:boolean",
		"seats:integer", "notes:string", "voucherCode:string", "options:array", "extra:string?"),
}

var results = map[string]string{
	"getBooking":     `{"bookingRef":"XK4P","traveler":{"name":"Ada","email":"ada@example.com"},"cabin":"business"}`,
	"search_flights": `{"flights":[{"flightNumber":"LY 12","priceCents":24900},{"flightNumber":"LY 99","priceCents":29900}]}`,
	"rebook":         `{"confirmation":"CONF-1","rebooked":true}`,
	"send_email":     `{"sent":true}`,
}

// play runs a request and lists the calls of each response.
func play(t *testing.T, req model.Request, results map[string]string, fails ...string) (turns [][]string, final string, messages []record.Message) {
	t.Helper()
	messages, err := modeltest.Play(context.Background(), demo.New(), req, func(c record.ToolCallPart) (record.Value, bool) {
		if slices.Contains(fails, c.Tool) {
			return record.MustValue(map[string]any{"error": map[string]string{"tag": "denied", "message": "no, says Max"}}), true
		}
		v, err := record.JSONValue([]byte(results[c.Tool]))
		if err != nil {
			t.Errorf("unexpected call of %s", c.Tool)
		}
		return v, false
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		var calls []string
		for _, c := range m.Calls() {
			calls = append(calls, c.Tool+" "+string(c.Args.Inline))
		}
		if calls != nil {
			turns = append(turns, calls)
		}
	}
	return turns, modeltest.FinalText(messages), messages
}

func TestUnknownAgent(t *testing.T) {
	turns, final, messages := play(t, rebooking, results)
	want := [][]string{
		{`getBooking {"bookingRef":"XK4P"}`, `search_flights {"maxPrice":300,"travelDate":"2031-05-02"}`},
		{`rebook {"bookingRef":"XK4P","cabin":"business","flightNumber":"LY 12","priceCents":24900}`},
		{`send_email {"confirmation":"CONF-1","travelerEmail":"ada@example.com"}`},
	}
	if diff := cmp.Diff(want, turns); diff != "" {
		t.Error(diff)
	}
	var answer struct {
		Confirmation, FlightNumber, Cabin, Notes, VoucherCode string
		Rebooked                                              bool
		Seats                                                 int
		Options                                               []any
	}
	dec := json.NewDecoder(strings.NewReader(final))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&answer); err != nil {
		t.Fatal(err, final)
	}
	if answer.Confirmation != "CONF-1" || answer.FlightNumber != "LY 12" || answer.Cabin != "business" || !answer.Rebooked ||
		answer.Seats != 0 || answer.VoucherCode != "" || answer.Options == nil || !strings.Contains(answer.Notes, "rebook returned") {
		t.Errorf("%s", final)
	}
	ids := map[string]bool{}
	for _, m := range messages {
		for _, c := range m.Calls() {
			if ids[c.ID] {
				t.Errorf("call id %s twice", c.ID)
			}
			ids[c.ID] = true
		}
	}
}

func TestNothingActsAfterAFailure(t *testing.T) {
	for _, fails := range []string{"getBooking", "search_flights"} {
		turns, final, _ := play(t, rebooking, results, fails)
		if len(turns) != 1 {
			t.Errorf("%s failed, and still: %v", fails, turns)
		}
		if !strings.Contains(final, "no, says Max") || !strings.Contains(final, `"rebooked":false`) {
			t.Errorf("%s", final)
		}
	}
	turns, final, _ := play(t, rebooking, results, "rebook")
	if len(turns) != 2 || !strings.Contains(final, "rebook did not succeed: no, says Max") {
		t.Errorf("%v, %s", turns, final)
	}
}

func TestActingToolsWaitForReaders(t *testing.T) {
	req := rebooking
	req.Messages = []record.Message{record.TextMessage(record.System, "Rebook."), record.TextMessage(record.User,
		`{"bookingRef":"XK4P","flightNumber":"X","priceCents":1,"cabin":"economy","travelDate":"d","maxPrice":1}`)}
	turns, _, _ := play(t, req, results)
	if len(turns[0]) != 2 || strings.HasPrefix(turns[0][0], "rebook") || strings.Contains(turns[1][0], `"flightNumber":"X"`) {
		t.Errorf("%v: everything was given, and yet the look-ups come first", turns)
	}
}

func TestConstrainedRequestAnswers(t *testing.T) {
	req := rebooking
	req.Choice = model.None
	turns, final, _ := play(t, req, results)
	if turns != nil || !json.Valid([]byte(final)) {
		t.Errorf("%v %s", turns, final)
	}
}

func TestFreeTextAnswer(t *testing.T) {
	req := rebooking
	req.Output = nil
	_, final, _ := play(t, req, results, "rebook")
	for _, says := range []string{"XK4P", "getBooking returned", "ada@example.com", "rebook did not succeed: no, says Max"} {
		if !strings.Contains(final, says) {
			t.Errorf("%q does not say %q", final, says)
		}
	}
}

func TestValuesFromPlainText(t *testing.T) {
	req := rebooking
	req.Messages = []record.Message{record.TextMessage(record.User, "Please help.\nBooking ref: 4711\n- travel date: 2031-05-02\nmax_price = 12.5\nnonstop: true")}
	turns, _, _ := play(t, req, results)
	want := []string{`getBooking {"bookingRef":"4711"}`, `search_flights {"maxPrice":12.5,"nonstop":true,"travelDate":"2031-05-02"}`}
	if diff := cmp.Diff(want, turns[0]); diff != "" {
		t.Error(diff)
	}
}

func TestTypesAndBoundsAreRespected(t *testing.T) {
	req := model.Request{
		Messages: []record.Message{record.TextMessage(record.User, `{"a":"text","b":1.5,"c":11,"d":"p9","order":{"id":"O-1"},"id":"top","list":["x",2]}`)},
		Tools: []model.Tool{
			{Name: "get_a", Schema: schema("a:integer")},
			{Name: "get_b", Schema: schema("b:integer")},
			{Name: "get_c", Schema: json.RawMessage(`{"type":"object","properties":{"c":{"type":"integer","maximum":10}},"required":["c"]}`)},
			{Name: "get_d", Schema: schema("d:enum p1 p2")},
			{Name: "get_list", Schema: json.RawMessage(`{"type":"object","properties":{"list":{"type":"array","items":{"type":"string"}}},"required":["list"]}`)},
			{Name: "get_nested", Schema: json.RawMessage(`{"type":"object","properties":{"order":{"$ref":"#/$defs/o"},"id":{"type":["null","string"]}},"required":["order","id"],"$defs":{"o":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}}}`)},
			{Name: "get_order", Schema: schema("orderId:string")},
		},
	}
	turns, _, _ := play(t, req, map[string]string{"get_nested": `{}`, "get_order": `{}`})
	want := [][]string{{`get_nested {"id":"top","order":{"id":"O-1"}}`, `get_order {"orderId":"O-1"}`}}
	if diff := cmp.Diff(want, turns); diff != "" {
		t.Error(diff)
	}
}

func TestEarlierRunsDoNotCount(t *testing.T) {
	_, _, history := play(t, rebooking, results)
	req := rebooking
	req.Messages = append(slices.Clone(history), record.TextMessage(record.User, "thanks, that was all"))
	if turns, final, _ := play(t, req, results); len(turns) != 3 || strings.Contains(final, "CONF-1") {
		t.Errorf("a thank-you started %v, and answered %s", turns[3:], final)
	}
	req.Messages = append(slices.Clone(history[:4]), record.TextMessage(record.System, "You rebook flights."),
		record.TextMessage(record.User, `{"bookingRef":"NEW1"}`))
	turns, _, _ := play(t, req, results)
	if diff := cmp.Diff([]string{`getBooking {"bookingRef":"NEW1"}`}, turns[1]); diff != "" {
		t.Errorf("after a run that was cut short: %s", diff)
	}
}

func parts(t *testing.T, m *demo.Model, req model.Request) (out []model.Part) {
	t.Helper()
	if err := m.Stream(context.Background(), &req, func(p model.Part) error { out = append(out, p); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStreamIsDeterministicAndInPieces(t *testing.T) {
	req := rebooking
	a, b := parts(t, demo.New(), req), parts(t, demo.New(demo.WithDelay(time.Microsecond)), req)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	req.Choice = model.None
	deltas, last := 0, record.Usage{}
	for _, p := range parts(t, demo.New(), req) {
		switch p := p.(type) {
		case model.TextDelta:
			deltas++
		case model.UsageReport:
			last = p.Usage
		}
	}
	if deltas < 3 || last.InputTokens == nil || *last.InputTokens == 0 || *last.OutputTokens == 0 {
		t.Errorf("%d deltas, usage %+v", deltas, last)
	}
}

// However long the arguments, the stream stays within what a reader takes.
func TestLongValuesStreamInBoundedPieces(t *testing.T) {
	req := rebooking
	note := strings.Repeat("n", 600_000)
	req.Messages = []record.Message{record.TextMessage(record.User, `{"bookingRef":"`+note+`","travelDate":"2031-05-02","maxPrice":300}`)}
	stream := parts(t, demo.New(), req)
	args := 0
	for _, p := range stream {
		if d, ok := p.(model.ToolArgsDelta); ok {
			args += len(d.JSON)
		}
	}
	if args < len(note) || len(stream) > 2_000 {
		t.Errorf("%d bytes of arguments in %d parts", args, len(stream))
	}
}

func TestStreamEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	err := demo.New(demo.WithDelay(time.Hour)).Stream(ctx, &rebooking, func(model.Part) error {
		if n++; n == 2 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n != 2 {
		t.Errorf("%v after %d parts", err, n)
	}
	full := errors.New("full")
	if err := demo.New().Stream(context.Background(), &rebooking, func(model.Part) error { return full }); err != full {
		t.Errorf("emit's error became %v", err)
	}
}

// Whatever it is asked, the demo model keeps the protocol.
func FuzzDemo(f *testing.F) {
	f.Add(`{"a":1}`, `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`)
	f.Add("a: [1]", `{"anyOf":[{"$ref":"#"}],"enum":[{"a":1}]}`)
	f.Add(`{"x":1}`, `{"type":"object","required":["a","b"],"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`)
	f.Add(`{"x":1}`, `{"type":"array","minItems":90,"items":{"$ref":"#"}}`)
	f.Fuzz(func(t *testing.T, input, raw string) {
		req := &model.Request{
			Messages: []record.Message{record.TextMessage(record.User, input)},
			Tools:    []model.Tool{{Name: "get", Schema: json.RawMessage(raw)}},
			Output:   json.RawMessage(raw),
		}
		for _, choice := range []model.Choice{model.Auto, model.None} {
			req.Choice = choice
			if _, err := modeltest.Ask(context.Background(), demo.New(), req); err != nil {
				t.Fatal(err)
			}
		}
	})
}
