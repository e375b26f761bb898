package modeltest_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
)

// bugs are adapters that are wrong in one way each, with the parts of the suite
// that say so.
var bugs = map[string][]string{
	"ends what was cut":        {"cut_anywhere"},
	"runs what was cut":        {"cut_anywhere"},
	"invents a call":           {"answers", "what_goes_back"},
	"loses a signature":        {"what_goes_back"},
	"loses a result":           {"what_goes_back"},
	"loses the usage":          {"answers"},
	"forgets the choice":       {"requests"},
	"changes the request":      {"requests"},
	"asks again":               {"cut_anywhere", "refusals"},
	"takes all for passing":    {"refusals"},
	"cannot wait":              {"retry_after"},
	"tells the key":            {"secrets"},
	"reads short lines":        {"long_lines"},
	"hides the caller's error": {"the_caller's_error"},
	"leaves the answer open":   {"answers", "the_caller's_error"},
	"waits for ever":           {"silence"},
	"follows a redirect":       {"redirect"},
}

const bugVariable = "LAYOVER_TEST_BUG"

// The suite passes an adapter that is right, and fails each that is wrong, where
// it is wrong.
func TestSuiteFindsBugs(t *testing.T) {
	if bug := os.Getenv(bugVariable); bug != "" {
		certify(t, bug)
		return
	}
	certify(t, "")
	failed := regexp.MustCompile(`(?m)^ *--- FAIL: TestSuiteFindsBugs/([^/ ]+) `)
	for bug, parts := range bugs {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			run := "^TestSuiteFindsBugs$/^(" + strings.Join(parts, "|") + ")$"
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+run, "-test.timeout=5m")
			child.Env = append(os.Environ(), bugVariable+"="+bug)
			out, err := child.CombinedOutput()
			if err == nil {
				t.Fatal("the suite is content with it")
			}
			var found []string
			for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
				found = append(found, m[1])
			}
			for _, part := range parts {
				if !slices.Contains(found, part) {
					t.Errorf("%s does not fail; what fails is %q\n%.2000s", part, found, out)
				}
			}
		})
	}
}

func certify(t *testing.T, bug string) {
	say := func(events ...said) string {
		var out strings.Builder
		for _, e := range events {
			raw, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			out.WriteString("data: " + string(raw) + "\n\n")
		}
		return out.String()
	}
	n := func(i int64) *int64 { return &i }
	begin, stop, calls := said{Do: "begin"}, said{Do: "end", Text: "stop", In: n(7), Out: n(3)}, said{Do: "end", Text: "tool-calls"}
	call := func(id, args string) said { return said{Do: "call", ID: id, Text: "look", Args: args} }
	fault := func(class model.Class) string {
		raw, err := json.Marshal(said{Do: "error", Class: string(class), Text: "no"})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	modeltest.TestAdapter(t, modeltest.Adapter{
		New: func(base, key string, client *http.Client, idle time.Duration) (model.Model, error) {
			if client == nil {
				client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
				if bug == "follows a redirect" {
					client = &http.Client{}
				}
			}
			return &toy{base: base, key: key, client: client, idle: idle, bug: bug}, nil
		},
		Answers: map[string]modeltest.Answer{
			"text": {Body: say(begin, said{Do: "text", Text: "Good "}, said{Do: "text", Text: "day."}, stop), Stop: model.Stop, Text: "Good day.",
				Usage: record.Usage{InputTokens: n(7), OutputTokens: n(3)}},
			"call": {Body: say(begin, said{Do: "thought", Seal: []byte("signature-1")}, call("a", `{"n":1}`), calls), Stop: model.ToolCalls,
				Calls: []modeltest.Call{{Tool: "look", Args: `{"n":1}`}}, Back: []string{"signature-1"}},
			"parallel": {Body: say(begin, call("a", `{"n":1}`), call("b", `{}`), calls), Stop: model.ToolCalls,
				Calls: []modeltest.Call{{Tool: "look", Args: `{"n":1}`}, {Tool: "look", Args: `{}`}}},
		},
		Text: func(text string) string { return say(begin, said{Do: "text", Text: text}, stop) },
		Call: say(begin, call("a", `{}`)),
		Refusals: map[string]modeltest.Refusal{"key": {Status: 401, Body: fault(model.Refused), Class: model.Refused},
			"down": {Status: 500, Body: fault(model.Transient), Class: model.Transient}},
		Behind:  map[string]modeltest.Refusal{"down": {Body: "data: " + fault(model.Transient) + "\n\n", Class: model.Transient}},
		Limited: fault(model.RateLimited),
		Says: func(message string) string {
			raw, err := json.Marshal(said{Do: "error", Class: string(model.Refused), Text: message})
			if err != nil {
				t.Fatal(err)
			}
			return string(raw)
		},
	})
}
