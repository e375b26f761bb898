package functions_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/client/wire"
)

// Every body is wrong in every way: each is refused, by a client's mistake and
// not the server's, with what is wrong.
func TestEveryBodyWrong(t *testing.T) {
	w := newWorld(t)
	answer[wire.Submitted](w, 202, "POST", "/v1/conversations/c1/submissions", `{"agent":"payer","input":{"cents":7}}`)
	w.work("c1")
	approval := answer[wire.Approvals](w, 200, "GET", "/v1/approvals", "").Approvals[0].ID
	path := strings.NewReplacer("{conversation}", "c1", "{approval}", approval)
	c, tried := openAPI(), 0
	for _, op := range c.operations {
		pattern, ok := strings.CutPrefix(op, "POST ")
		ref, has := c.at("paths", pattern, "post", "requestBody", "content", "application/json", "schema", "$ref")
		if !ok || !has {
			continue
		}
		schema, _ := c.at(strings.Split(strings.TrimPrefix(ref.(string), "#/"), "/")...)
		for body, says := range wrongBodies(schema.(map[string]any)) {
			tried++
			p := answer[wire.Problem](w, 400, "POST", path.Replace(pattern), body)
			if p.Kind != "invalid" || p.Hint == "" || !strings.Contains(p.Detail, says) {
				t.Errorf("%s with %q: %+v, which does not say %q", op, body, p, says)
			}
		}
	}
	if tried < 60 {
		t.Errorf("only %d bodies were tried", tried)
	}
	st := answer[wire.Status](w, 200, "GET", "/v1/conversations/c1", "")
	if st.State != "parked" || st.Queued != 0 || st.Active.Aborting {
		t.Errorf("a wrong body did something: %+v", st)
	}
}

// wrongBodies are bodies a schema does not allow, and what a refusal has to say.
func wrongBodies(schema map[string]any) map[string]string {
	properties := schema["properties"].(map[string]any)
	bodies := map[string]string{
		"{": "malformed", "[]": "", "null": "", `"text"`: "", "7": "", "{}{}": "malformed", "{\"a\":\"\xff\"}": "malformed",
	}
	if schema["additionalProperties"] == false {
		bodies[`{"nonsense":1}`] = `"nonsense"`
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property := properties[name].(map[string]any)
		bodies[fmt.Sprintf(`{%q:1,%q:2}`, name, name)] = "duplicate"
		upper := strings.ToUpper(name[:1]) + name[1:]
		if schema["additionalProperties"] == false {
			bodies[fmt.Sprintf(`{%q:1}`, upper)] = fmt.Sprintf("%q", upper)
		}
		if property["type"] == "string" {
			for _, value := range []any{7, true, []int{}, map[string]int{}} {
				raw, _ := json.Marshal(map[string]any{name: value})
				bodies[string(raw)] = name
			}
		}
	}
	return bodies
}
