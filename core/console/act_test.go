package console_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/engine"
)

// formTo is the form of a page that leads to an address, with its hidden fields.
func (s *site) formTo(page, action string) url.Values {
	s.t.Helper()
	_, form, ok := strings.Cut(page, `action="`+action+`"`)
	if !ok {
		s.t.Fatalf("no form leads to %s in:\n%s", action, page)
	}
	form, _, _ = strings.Cut(form, "</form>")
	fields := url.Values{}
	for _, m := range regexp.MustCompile(`type="hidden" name="([^"]+)" value="([^"]*)"`).FindAllStringSubmatch(form, -1) {
		fields.Set(m[1], m[2])
	}
	return fields
}

func (s *site) post(action string, fields url.Values, status int) string {
	s.t.Helper()
	resp, err := s.http.PostForm(s.base+action, fields)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.body(resp, status)
}

func (s *site) await(submission string, until engine.Until) engine.Progress {
	s.t.Helper()
	p, err := s.rt.Await(s.t.Context(), "", submission, until)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// A conversation's page says what each run was asked, whole and spelled out.
func TestInputIsShown(t *testing.T) {
	s := newSite(t, nil, nil)
	s.submit("echo", "c1", `"the first question"`, engine.UntilSettled)
	input, err := json.Marshal(nasty)
	if err != nil {
		t.Fatal(err)
	}
	s.submit("echo", "c1", string(input), engine.UntilSettled)
	page := s.get("/ui/conversations/c1", 200)
	contains(t, page, `<span class="num">asked</span><pre>the first question</pre>`,
		`<span class="num">asked</span><pre>&lt;script&gt;alert(1)&lt;/script&gt;`, `<span class="esc">\u202e</span>gnp.exe`)
	if strings.Count(page, ">asked<") != 2 || strings.Contains(page, "<script>alert") || strings.Contains(page, "\u202e") {
		t.Errorf("the page is:\n%s", page)
	}
	s.submit("payer", "c2", `{"cents":7,"note":"`+strings.Repeat("x", 100_000)+`"}`, engine.UntilParked)
	contains(t, s.get("/ui/conversations/c2", 200), `asked with an input of 1000`)
}

// Somebody ends a run from its page: this one, and no later one.
func TestEndARun(t *testing.T) {
	s := newSite(t, nil, nil)
	p := s.submit("payer", "c 1", `{"cents":7}`, engine.UntilParked)
	const action = "/ui/conversations/c%201/abort"
	fields := s.formTo(s.get("/ui/conversations/c%201", 200), action)
	forged := url.Values{"submission": fields["submission"]}
	contains(t, s.post(action, forged, 403), "This form is too old")
	fields.Set("reason", "wrong order")
	s.post(action, fields, 200)
	if p := s.await(p.Submission, engine.UntilSettled); p.Status != "aborted" {
		t.Fatalf("it is %s", p.Status)
	}
	page := s.get("/ui/conversations/c%201", 200)
	contains(t, page, "aborted")
	if strings.Contains(page, "End this run") {
		t.Error("what is over can be ended")
	}
	s.submit("payer", "c 1", `{"cents":8}`, engine.UntilParked)
	s.post(action, fields, 409)
	contains(t, s.get("/ui/conversations/c%201", 200), "End this run")
}

// Somebody says what became of a call that nobody knows about.
func TestResolveACall(t *testing.T) {
	s := newSite(t, nil, nil)
	for _, tt := range []struct{ conversation, resolution, result, status string }{
		{"happened", "happened", `{"cents":7}`, "completed"},
		{"again", "safeToRetry", "", ""},
	} {
		p := s.submit("breaker", tt.conversation, `{"cents":7}`, engine.UntilParked)
		action := "/ui/conversations/" + tt.conversation + "/resolve"
		page := s.get("/ui/conversations/"+tt.conversation, 200)
		contains(t, page, "may have happened, nobody knows", "unknown", "&#34;cents&#34;: 7")
		if strings.Contains(page, "running") {
			t.Errorf("a call that nobody knows about runs:\n%s", page)
		}
		fields := s.formTo(page, action)
		if tt.result != "" {
			fields.Set("resolution", "happened")
			contains(t, s.post(action, fields, 400), "needs its result")
		}
		fields.Set("resolution", "perhaps")
		s.post(action, fields, 400)
		fields.Set("resolution", tt.resolution)
		fields.Set("result", tt.result)
		fields.Set("reason", "saw it")
		s.post(action, fields, 200)
		if tt.status != "" {
			if p := s.await(p.Submission, engine.UntilSettled); p.Status != tt.status {
				t.Errorf("%s: %s", tt.conversation, p.Status)
			}
		}
		s.post(action, url.Values{"call": fields["call"], "resolution": fields["resolution"]}, 403)
	}
}
