package functions_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/functions"
)

// Steering reaches the model in front of its next request, once.
func TestAPISteer(t *testing.T) {
	w := newWorld(t)
	s := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"payer","input":{"cents":7}}`)
	w.work("c1")
	const steer = `{"text":"and be <polite>","key":"k1"}`
	first := answer[wire.Steering](w, 202, "POST", "/v1/conversations/c1/steer", steer, "Layover-Principal", "ada")
	again := answer[wire.Steering](w, 202, "POST", "/v1/conversations/c1/steer", steer, "Layover-Principal", "ada")
	if first.Submission != s.Submission || first.Key != "k1" || first.By != "ada" || first.Receipt != "accepted" || again.Receipt != "duplicate" || !again.At.Equal(first.At) {
		t.Errorf("receipts %+v, %+v", first, again)
	}
	p := answer[wire.Problem](w, 409, "POST", "/v1/conversations/c1/steer", `{"text":"or not","key":"k1"}`, "Layover-Principal", "ada")
	if p.Kind != "conflict" {
		t.Errorf("another text under the key: %+v", p)
	}
	approve(w)
	w.work("c1")
	stream := bodyOf(t, w.call("GET", "/v1/conversations/c1/events?format=lines", ""))
	if strings.Count(stream, `"kind":"SteeringApplied"`) != 1 || !strings.Contains(stream, `"and be <polite>"`) {
		t.Errorf("events:\n%s", stream)
	}
}

func approve(w *world) {
	w.t.Helper()
	for _, a := range answer[wire.Approvals](w, 200, "GET", "/v1/approvals", "").Approvals {
		answer[wire.Decision](w, 200, "POST", "/v1/approvals/"+a.ID, `{"decision":"approve"}`)
	}
}

// A follow-up settles with the run it joined, or runs on its own; the agent
// need not be named.
func TestAPIFollowUp(t *testing.T) {
	w := newWorld(t)
	answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"echo","input":"one"}`)
	const followUp = `{"input":"two","key":"k2"}`
	f := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/followUp", followUp)
	if again := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/followUp", followUp); again.Receipt != "duplicate" || again.Submission != f.Submission {
		t.Errorf("receipts %+v, %+v", f, again)
	}
	w.work("c1")
	if p := answer[wire.Progress](w, 200, "GET", "/v1/submissions/"+f.Submission, ""); p.Status != "completed" {
		t.Errorf("the follow-up joined: %+v", p)
	}
	late := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/followUp", `{"input":"three"}`)
	w.work("c1")
	if p := answer[wire.Progress](w, 200, "GET", "/v1/submissions/"+late.Submission, ""); p.Status != "completed" || !strings.Contains(string(p.Output), "three") {
		t.Errorf("the late one ran on its own: %+v", p)
	}
}

// Both come from a queue too, where a redelivery is the same wish.
func TestSteerFromAQueue(t *testing.T) {
	w := newWorld(t)
	answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"payer","input":{"cents":7}}`)
	w.work("c1")
	const event = `{"Records":[{"messageId":"m1","body":"{\"v\":1,\"type\":\"steer\",\"conversation\":\"c1\",\"text\":\"hurry\"}"},
		{"messageId":"m2","body":"{\"v\":1,\"type\":\"followUp\",\"conversation\":\"c1\",\"input\":{\"cents\":8}}"}]}`
	for range 2 {
		if resp := answer[wire.BatchResponse](w, 200, "POST", "/v1/events", event); len(resp.Failures) != 0 {
			t.Fatalf("refused %+v", resp)
		}
	}
	if st := answer[wire.Status](w, 200, "GET", "/v1/conversations/c1", ""); st.Queued != 1 {
		t.Errorf("%d queued", st.Queued)
	}
	approve(w)
	w.work("c1")
	stream := bodyOf(t, w.call("GET", "/v1/conversations/c1/events?format=lines", ""))
	if strings.Count(stream, `"kind":"SteeringApplied"`) != 1 {
		t.Errorf("events:\n%s", stream)
	}
}

// told is a tail that ends.
type told []functions.Tailed

func (t told) Follow(context.Context, string, string) iter.Seq2[functions.Tailed, error] {
	return func(yield func(functions.Tailed, error) bool) {
		for _, e := range t {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// The file knows how every operation answers when all is well.
func TestEveryOperation(t *testing.T) {
	w := newWorld(t)
	s := answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"payer","input":{"cents":7}}`)
	w.work("c1")
	approval := answer[wire.Approvals](w, 200, "GET", "/v1/approvals", "").Approvals[0].ID
	answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c3/submissions", `{"agent":"breaker","input":{"cents":7}}`)
	w.work("c3")
	call := answer[wire.Status](w, 200, "GET", "/v1/conversations/c3", "").Active.Parked.On[0]
	w.api = functions.NewAPI(w.admit, functions.APIOptions{LoopbackOnly: true, Log: w.log, Tail: told{
		{ID: "b-1", Gap: true},
		{ID: "b-2", Event: event.Event{Run: "r", Conversation: "c1", Agent: "echo", Sequence: 1, Epoch: 1, Data: event.RunStarted{Principal: "ada"}}},
	}})
	calls := map[string][2]string{
		"POST /v1/submissions":                                   {"/v1/submissions", `{"agent":"echo","input":"hi","key":"k","replyTo":"q","allowance":{"turns":3,"toolCalls":2,"seconds":9.5}}`},
		"GET /v1/submissions/{run}":                              {"/v1/submissions/" + s.Submission, ""},
		"GET /v1/conversations":                                  {"/v1/conversations?limit=1", ""},
		"GET /v1/conversations/{conversation}":                   {"/v1/conversations/c1", ""},
		"POST /v1/conversations/{conversation}/submissions":      {"/v1/conversations/c2/submissions", `{"agent":"echo","input":"hi"}`},
		"GET /v1/conversations/{conversation}/submissions/{run}": {"/v1/conversations/c1/submissions/" + s.Submission, ""},
		"POST /v1/conversations/{conversation}/steer":            {"/v1/conversations/c1/steer", `{"text":"hi","key":"k","submission":"` + s.Submission + `"}`},
		"POST /v1/conversations/{conversation}/followUp":         {"/v1/conversations/c1/followUp", `{"input":{"cents":8},"agent":"payer","key":"k","replyTo":"q"}`},
		"POST /v1/conversations/{conversation}/abort":            {"/v1/conversations/c1/abort", `{"submission":"` + s.Submission + `","reason":"r"}`},
		"GET /v1/conversations/{conversation}/events":            {"/v1/conversations/c1/events?format=lines", ""},
		"GET /v1/conversations/{conversation}/records":           {"/v1/conversations/c1/records", ""},
		"GET /v1/conversations/{conversation}/verify":            {"/v1/conversations/c1/verify", ""},
		"POST /v1/events":                                        {"/v1/events", `{"Records":[{"messageId":"m","body":"no"}]}`},
		"GET /v1/approvals":                                      {"/v1/approvals", ""},
		"POST /v1/approvals/{approval}":                          {"/v1/approvals/" + approval, `{"decision":"deny","reason":"r"}`},
		"GET /v1/agents":                                         {"/v1/agents", ""},
		"GET /v1/openapi.json":                                   {"/v1/openapi.json", ""},
		"POST /v1/conversations/{conversation}/resolve":          {"/v1/conversations/c3/resolve", `{"call":"` + call + `","resolution":"happened","result":{"cents":7},"reason":"r"}`},
		"GET /v1/events":                                         {"/v1/events", ""},
	}
	for _, route := range functions.Routes() {
		c, ok := calls[route]
		if !ok {
			t.Errorf("%s is not called", route)
		}
		method, _, _ := strings.Cut(route, " ")
		if resp := w.call(method, c[0], c[1]); resp.StatusCode/100 != 2 {
			t.Errorf("%s: %s: %s", route, resp.Status, bodyOf(t, resp))
		}
	}
}
