package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/console"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/demo"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/tool"
)

type payment struct {
	Cents int    `json:"cents"`
	Note  string `json:"note,omitempty"`
}

// nasty is text that wants to be markup, to hide, and to turn around.
const nasty = "<script>alert(1)</script>\"'>&amp; \u202egnp.exe\u202c \x1b[31mred\x07 zero\u200bwidth <img src=x onerror=alert(1)>"

// site is a runtime with a console in front, and a browser without scripts.
type site struct {
	t    *testing.T
	rt   *embedded.Runtime
	base string
	http *http.Client

	handler http.Handler
}

func newSite(t *testing.T, m model.Model, wrap func(http.Handler) http.Handler) *site {
	t.Helper()
	pay := tool.New("pay", "Pays.", func(_ context.Context, in payment) (payment, error) { return in, nil }, tool.RequireApproval())
	payer := agent.MustDefine[payment, string]("payer", agent.Config[payment]{Instructions: agent.Text[payment]("Pay."),
		Tools: []*tool.Tool{pay}, Examples: []payment{{Cents: 4900}}})
	echo := agent.MustDefine[string, string]("echo", agent.Config[string]{Instructions: agent.Text[string]("Repeat.")})
	smash := tool.New("smash", "Breaks.", func(context.Context, payment) (payment, error) { panic("broken") })
	breaker := agent.MustDefine[payment, string]("breaker", agent.Config[payment]{Instructions: agent.Text[payment]("Smash it."), Tools: []*tool.Tool{smash}})
	if m == nil {
		m = demo.New()
	}
	rt, err := embedded.Open(t.TempDir(), embedded.Config{Agents: []*agent.Definition{payer, echo, breaker}, Model: m,
		Log: slog.New(slog.DiscardHandler), ConsolePrincipal: "kim@local"})
	if err != nil {
		t.Fatal(err)
	}
	handler := rt.Handler()
	if wrap != nil {
		handler = wrap(handler)
	}
	srv := httptest.NewServer(handler)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &site{t: t, rt: rt, handler: handler, base: srv.URL, http: &http.Client{Jar: jar}}
}

// submit gives an agent work and waits until it has come so far.
func (s *site) submit(agent, conversation, input string, until engine.Until) engine.Progress {
	s.t.Helper()
	r, err := s.rt.Submit(s.t.Context(), engine.SubmitRequest{Agent: agent, Conversation: conversation, Input: json.RawMessage(input)})
	if err != nil {
		s.t.Fatal(err)
	}
	p, err := s.rt.Await(s.t.Context(), "", r.Submission, until)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *site) get(path string, status int) string {
	s.t.Helper()
	resp, err := s.http.Get(s.base + path)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.body(resp, status)
}

func (s *site) body(resp *http.Response, status int) string {
	s.t.Helper()
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != status {
		s.t.Fatalf("%s: %s, want %d\n%s", resp.Request.URL, resp.Status, status, raw)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"} {
		if got := resp.Header.Get(name); got != want {
			s.t.Errorf("%s of %s is %q", name, resp.Request.URL, got)
		}
	}
	policy := resp.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"} {
		if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			s.t.Errorf("the policy of %s is %q", resp.Request.URL, policy)
		}
	}
	return string(raw)
}

func contains(t *testing.T, page string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in:\n%s", want, page)
		}
	}
}

// form is the first form of a page that leads to an address.
func (s *site) form(page string) (action string, fields url.Values) {
	s.t.Helper()
	m := regexp.MustCompile(`(?s)<form method="post" action="([^"]+)".*?</form>`).FindStringSubmatch(page)
	if m == nil {
		s.t.Fatalf("no form in:\n%s", page)
	}
	fields = url.Values{}
	for _, f := range regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`).FindAllStringSubmatch(m[0], -1) {
		fields.Set(f[1], f[2])
	}
	return m[1], fields
}

// A person without scripts reads what waits, decides, and reads how it ended.
func TestReadAndDecide(t *testing.T) {
	s := newSite(t, nil, nil)
	contains(t, s.get("/", 200), "Nothing yet")
	s.submit("payer", "c1", `{"cents":7}`, engine.UntilParked)
	home := s.get("/", 200)
	contains(t, home, "Waiting for you", "c1", "parked", "&#34;cents&#34;: 7", `<b class="n">1</b>`)
	contains(t, s.get("/ui/approvals", 200), "pay", "expires in")
	contains(t, s.get("/ui/conversations/c1", 200), "turn 1", "waiting", "Approve")

	action, fields := s.form(home)
	fields.Set("decision", "approve")
	fields.Set("reason", "looks right")
	resp, err := s.http.PostForm(s.base+action, fields)
	if err != nil {
		t.Fatal(err)
	}
	if s.body(resp, 200); resp.Request.URL.Path != "/" {
		t.Errorf("it leads to %s", resp.Request.URL)
	}
	s.submit("echo", "c1", `"again"`, engine.UntilSettled)
	page := s.get("/ui/conversations/c1", 200)
	contains(t, page, "approved by kim@local", "Reason: looks right", "succeeded", "completed", "turn 2", "again")
	if strings.Contains(page, "<form") {
		t.Error("a decided approval still has a form")
	}
	// Somebody who comes too late is told so.
	if resp, err = s.http.PostForm(s.base+action, fields); err != nil {
		t.Fatal(err)
	}
	contains(t, s.body(resp, 409), "already approved by kim@local")
}

// Nobody else's page decides anything.
func TestForgedForms(t *testing.T) {
	s := newSite(t, nil, nil)
	s.submit("payer", "c1", `{"cents":7}`, engine.UntilParked)
	action, good := s.form(s.get("/", 200))
	good.Set("decision", "approve")
	post := func(fields url.Values, cookies bool, headers ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.base+action, strings.NewReader(fields.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		who := http.Client{}
		if cookies {
			who.Jar = s.http.Jar
		}
		resp, err := who.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	without := url.Values{"decision": {"approve"}}
	other := url.Values{"decision": {"approve"}, "form": {strings.Repeat("0", 32)}}
	empty := url.Values{"decision": {"approve"}, "form": {""}}
	for name, resp := range map[string]*http.Response{
		"no token":              post(without, true),
		"another token":         post(other, true),
		"an empty token":        post(empty, false, "Cookie", "layover_form="),
		"no cookie":             post(good, false),
		"another origin":        post(good, true, "Origin", "https://evil.example"),
		"an opaque origin":      post(good, true, "Origin", "null"),
		"a cross-site request":  post(good, true, "Sec-Fetch-Site", "cross-site"),
		"a same-site subdomain": post(good, true, "Sec-Fetch-Site", "same-site"),
	} {
		if resp.StatusCode != 403 {
			t.Errorf("%s: %s", name, resp.Status)
		}
		resp.Body.Close()
	}
	if pending, err := s.rt.Approvals(t.Context(), ""); err != nil || len(pending) != 1 {
		t.Fatalf("decided by a forged form: %v, %v", pending, err)
	}
	changed := url.Values{"decision": {"approve"}, "form": good["form"], "argsDigest": {"00"}}
	if resp := post(changed, true); resp.StatusCode != 409 {
		t.Errorf("other arguments than shown: %s", resp.Status)
	}
	if resp := post(url.Values{"decision": {"maybe"}, "form": good["form"]}, true); resp.StatusCode != 400 {
		t.Errorf("no decision: %s", resp.Status)
	}
	if resp := post(url.Values{"reason": {strings.Repeat("x", 100<<10)}}, true); resp.StatusCode != 400 {
		t.Errorf("a huge form: %s", resp.Status)
	}
	if resp := post(good, true, "Origin", s.base, "Sec-Fetch-Site", "same-origin"); resp.StatusCode != 200 {
		t.Errorf("the page's own form: %s", resp.Status)
	}
}

// What others wrote is text, wherever it is shown.
func TestNastyText(t *testing.T) {
	args, err := json.Marshal(payment{Cents: 7, Note: nasty})
	if err != nil {
		t.Fatal(err)
	}
	script := modeltest.Script(
		modeltest.Emit(model.Start{Provider: nasty, Model: nasty}, model.TextDelta{Text: nasty},
			model.ToolCallStart{Index: 1, ID: "call-1", Tool: "pay"}, model.ToolArgsDelta{Index: 1, JSON: string(args)}, model.ToolCallEnd{Index: 1}, model.Finish{Reason: model.ToolCalls, Raw: "x"}),
	)
	s := newSite(t, script, nil)
	s.submit("payer", "c <b>&amp;", string(args), engine.UntilParked)
	name := url.PathEscape("c <b>&amp;")
	for _, path := range []string{"/", "/ui/approvals", "/ui/conversations/" + name, "/ui/conversations/" + name + "?part=main", "/ui/agents", "/ui/conversations/none%3Cscript%3E%E2%80%AE"} {
		status := 200
		if strings.Contains(path, "none") {
			status = 404
		}
		page := s.get(path, status)
		if i := strings.IndexFunc(page, func(r rune) bool {
			return r < ' ' && r != '\n' || r == '\u202e' || r == '\u202c' || r == '\u200b' || r == 0x7f
		}); i >= 0 {
			t.Errorf("%s holds a raw %q", path, page[i:i+4])
		}
		if regexp.MustCompile(`(?i)<script>|<b> |<img|onerror=alert\(1\)>[^&]*<`).MatchString(page) {
			t.Errorf("%s holds markup of a stranger:\n%s", path, page)
		}
		if strings.Contains(page, "<style") || regexp.MustCompile(` (on\w+|style)=`).MatchString(strings.ReplaceAll(page, "onerror=alert", "")) {
			t.Errorf("%s has inline code or style", path)
		}
	}
	contains(t, s.get("/", 200), `<span class="esc">\u202e</span>`, `c &lt;b&gt;&amp;amp;`, `&lt;script&gt;`)
	contains(t, s.get("/ui/conversations/"+name, 200), `<span class="esc">\x1b</span>[31mred<span class="esc">\a</span>`, `<span class="esc">\u200b</span>`)
}

// Where a token is wanted, a browser shows it once.
func TestLogin(t *testing.T) {
	const token = "0123456789abcdef"
	s := newSite(t, nil, func(http.Handler) http.Handler {
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+token {
				t.Errorf("%s was asked without the token", r.URL)
			}
			io.WriteString(w, `{"approvals":[],"conversations":[],"agents":[]}`)
		})
		return console.New(console.Options{API: api, Token: token, Log: slog.New(slog.DiscardHandler)})
	})
	page := s.get("/?cursor=9", 200) // led to the form
	contains(t, page, "Sign in", `type="password"`, `value="/?cursor=9"`)
	action, fields := s.form(page)
	fields.Set("token", "wrong")
	resp, err := s.http.PostForm(s.base+action, fields)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, s.body(resp, 401), "not the token")
	fields.Set("token", token)
	if resp, err = s.http.PostForm(s.base+action, fields); err != nil {
		t.Fatal(err)
	}
	if s.body(resp, 200); resp.Request.URL.RequestURI() != "/?cursor=9" {
		t.Errorf("it leads to %s", resp.Request.URL)
	}
	u, _ := url.Parse(s.base)
	for _, c := range s.http.Jar.Cookies(u) {
		if strings.Contains(c.Value, token) {
			t.Errorf("cookie %s holds the token", c.Name)
		}
	}
	for _, next := range []string{"https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"} {
		contains(t, s.get("/ui/login?next="+url.QueryEscape(next), 200), `name="next" value="/"`)
	}
}

func TestAddresses(t *testing.T) {
	s := newSite(t, nil, nil)
	contains(t, s.get("/ui/nothing", 404), "There is nothing here")
	contains(t, s.get("/ui/conversations/none", 404), "No conversation")
	contains(t, s.get("/ui/assets/../console.go", 404), "")
	if strings.Contains(s.get("/ui/assets/style.css", 200), "url(") {
		t.Error("the style asks another address")
	}
	s.get("/ui/assets/console.js", 200)
	s.get("/ui/assets/icon.svg", 200)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.base+"/", nil)
	req.Host = "evil.example"
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	s.body(resp, 403)
	for _, name := range []string{".", "..", "a/b", "café ?#"} {
		s.submit("echo", name, `"x"`, engine.UntilSettled)
		contains(t, s.get("/", 200), `href="/ui/conversations/`)
	}
	for _, path := range []string{"%2E", "%2E%2E", "a%2Fb", "caf%C3%A9%20%3F%23"} {
		contains(t, s.get("/ui/conversations/"+path, 200), "completed")
	}
}

// Long conversations and long lists come in pages.
func TestPages(t *testing.T) {
	s := newSite(t, nil, nil)
	for i := range 23 {
		s.submit("echo", "long", fmt.Sprintf(`"run %d."`, i), engine.UntilSettled)
	}
	first := s.get("/ui/conversations/long", 200)
	contains(t, first, "run 22.", "run 3.", "?page=2", `data-stream="/v1/conversations/long/events"`)
	second := s.get("/ui/conversations/long?page=2", 200)
	contains(t, second, "run 2.", "run 0.", "Later runs")
	if strings.Contains(first, "run 2.") || strings.Contains(second, "run 3.") || strings.Contains(second, "data-stream") {
		t.Error("the pages overlap, or an old one follows")
	}
	for _, page := range []string{"0", "-1", "x", "99"} {
		contains(t, s.get("/ui/conversations/long?page="+page, 200), "run 22.")
	}
	for i := range 35 {
		if _, err := s.rt.Submit(t.Context(), engine.SubmitRequest{Agent: "echo", Conversation: fmt.Sprintf("lane-%02d", i), Input: []byte(`"x"`)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.rt.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	page := s.get("/", 200)
	next := regexp.MustCompile(`href="(/\?cursor=[^"]+)"`).FindStringSubmatch(page)
	if next == nil || strings.Contains(page, "lane-04") || !strings.Contains(page, "lane-05") {
		t.Fatalf("the first page:\n%s", page)
	}
	contains(t, s.get(next[1], 200), "lane-04", "long", "Newest")
	s.get("/?cursor=x", 400)
}
