package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/cli"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model/demo"
	"github.com/layover-run/layover/core/tool"
)

type payment struct {
	Cents int `json:"cents"`
}

// agents are one that needs an approval, one whose tool breaks, and one that
// repeats its input.
func definitions() []engine.Definition {
	var all []engine.Definition
	for _, a := range agents() {
		all = append(all, a.Engine())
	}
	return all
}

func agents() []cli.Agent {
	pay := tool.New("pay", "Pays.", func(_ context.Context, in payment) (payment, error) { return in, nil }, tool.RequireApproval())
	smash := tool.New("smash", "Breaks.", func(context.Context, payment) (payment, error) { panic("broken") })
	return []cli.Agent{
		agent.MustDefine[payment, string]("payer", agent.Config[payment]{Description: "Pays what is owed.", Instructions: agent.Text[payment]("Pay."),
			Tools: []*tool.Tool{pay}, Examples: []payment{{Cents: 4900}}}),
		agent.MustDefine[payment, string]("breaker", agent.Config[payment]{Instructions: agent.Text[payment]("Smash it."), Tools: []*tool.Tool{smash}}),
		agent.MustDefine[string, string]("echo", agent.Config[string]{Instructions: agent.Text[string]("Repeat.")}),
	}
}

// shell runs command lines against one server.
type shell struct {
	t     *testing.T
	env   map[string]string
	stdin string
}

// newShell opens a server in a directory of its own.
func newShell(t *testing.T, more ...engine.Definition) *shell {
	t.Helper()
	rt, err := embedded.Open(t.TempDir(), embedded.Config{Definitions: append(definitions(), more...), Model: demo.New(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(rt.Handler())
	t.Cleanup(func() {
		srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return &shell{t: t, env: map[string]string{"USER": "ada", "LAYOVER_SERVER": srv.URL, "LAYOVER_DATA": t.TempDir()}}
}

type result struct {
	code        int
	out, errout string
}

func (s *shell) run(args ...string) result {
	s.t.Helper()
	var out, errout bytes.Buffer
	code := cli.Run(s.t.Context(), cli.Env{Args: args, Stdin: strings.NewReader(s.stdin), Stdout: &out, Stderr: &errout,
		Getenv: func(name string) string { return s.env[name] }, Agents: agents()})
	r := result{code, out.String(), errout.String()}
	if r.errout != "" && !slices.Contains(args, "__complete") && (!strings.HasPrefix(r.errout, "layover: ") || strings.Count(r.errout, "\n") != 1 || !strings.HasSuffix(r.errout, ".\n")) {
		s.t.Errorf("%v: stderr is not one line of what, why and what to do: %q", args, r.errout)
	}
	return r
}

// ok runs a command that has to succeed.
func (s *shell) ok(args ...string) string {
	s.t.Helper()
	r := s.run(args...)
	if r.code != 0 || r.errout != "" {
		s.t.Fatalf("%v: exit %d: %s%s", args, r.code, r.out, r.errout)
	}
	return r.out
}

// lines runs a command with --json and decodes its lines.
func (s *shell) lines(code int, args ...string) []map[string]any {
	s.t.Helper()
	r := s.run(append(args, "--json")...)
	if r.code != code {
		s.t.Fatalf("%v: exit %d, want %d: %s%s", args, r.code, code, r.out, r.errout)
	}
	var out []map[string]any
	for line := range strings.Lines(r.out) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			s.t.Fatalf("%v: %v in %q", args, err, line)
		}
		out = append(out, v)
	}
	return out
}

func (s *shell) line(args ...string) map[string]any {
	s.t.Helper()
	lines := s.lines(0, args...)
	if len(lines) != 1 {
		s.t.Fatalf("%v: %d lines", args, len(lines))
	}
	return lines[0]
}

// has checks that a value has at least these members.
func (s *shell) has(v map[string]any, names ...string) {
	s.t.Helper()
	for _, name := range names {
		if _, ok := v[name]; !ok {
			s.t.Errorf("%v has no %q", v, name)
		}
	}
}

// The life of a run that needs an approval, as a script would see it.
func TestLifeInJSON(t *testing.T) {
	s := newShell(t)
	submit := []string{"submit", "--agent", "payer", "--conversation", "c1", "--key", "k1", "--input", `{"cents":7}`}
	lines := s.lines(0, append(submit, "--wait=parked")...)
	if len(lines) != 2 || lines[0]["receipt"] != "accepted" || lines[1]["status"] != "parked" {
		t.Fatalf("submit = %v", lines)
	}
	s.has(lines[0], "v", "submission", "conversation", "at")
	s.has(lines[1], "usage", "attempts", "turns")
	submission := lines[0]["submission"].(string)

	status := s.line("status", "c1")
	s.has(status, "conversation", "state", "epoch", "queued", "active")
	active := status["active"].(map[string]any)
	s.has(active, "submission", "turn", "deadline", "parked")
	s.has(active["parked"].(map[string]any), "reason", "since", "on")

	approval := s.line("approvals")
	s.has(approval, "id", "conversation", "submission", "call", "tool", "toolVersion", "argsDigest", "args", "requestedAt")
	if approval["submission"] != submission || approval["args"].(map[string]any)["cents"] != 7.0 {
		t.Errorf("approval = %v", approval)
	}
	decision := s.line("approve", approval["id"].(string), "--reason", "fine")
	if decision["id"] != approval["id"] || decision["decision"] != "approved" || decision["by"] != "ada@local" || decision["at"] == nil {
		t.Errorf("decision = %v", decision)
	}

	lines = s.lines(0, append(submit, "--wait")...)
	if lines[0]["receipt"] != "duplicate" || lines[0]["submission"] != submission || lines[1]["status"] != "completed" {
		t.Errorf("submit again = %v", lines)
	}
	s.has(lines[1], "finishReason", "output", "usage", "attempts", "turns")

	status = s.line("status", "--submission", submission)
	if status["state"] != "idle" || status["latest"].(map[string]any)["submission"] != submission || status["submission"].(map[string]any)["status"] != "completed" {
		t.Errorf("status = %v", status)
	}
	for i, batch := range s.lines(0, "records", "c1") {
		s.has(batch, "slot", "batch", "epoch", "attempt", "prev", "digest", "at", "records")
		if batch["slot"] != float64(i+1) {
			t.Errorf("line %d is slot %v", i, batch["slot"])
		}
	}
	verified := s.line("verify", "c1")
	if verified["ok"] != true || len(verified["violations"].([]any)) != 0 {
		t.Errorf("verify = %v", verified)
	}
	s.has(verified, "batches", "head")
	if list := s.lines(0, "agents"); len(list) != 3 {
		t.Errorf("agents = %v", list)
	} else {
		s.has(list[0], "name", "version", "description", "input")
		s.has(list[0]["input"].(map[string]any), "examples")
	}
	s.has(s.line("version"), "version", "go", "format")
	if left := s.lines(0, "approvals"); len(left) != 0 {
		t.Errorf("approvals left = %v", left)
	}
}

// The same as a person sees it.
func TestLifeForPeople(t *testing.T) {
	s := newShell(t)
	for _, step := range []struct {
		args string
		want []string
	}{
		{"approvals", []string{"nothing waits for approval"}},
		{"submit --agent payer --conversation c1 --input {\"cents\":7} --wait=parked", []string{"accepted", "conversation  c1", "parked after 1 turn in 1 attempt", "waits for: approval", "approve with: layover approve s_"}},
		{"status c1", []string{"parked, epoch 1", "payer", "waits for: approval", "queued        0"}},
		{"approvals", []string{"ID", `pay({"cents":7})`, "layover approve|deny ID"}},
		{"records c1", []string{"SLOT", "attemptStarted submissionQueued runStarted", "responseRecorded approvalRequested"}},
		{"verify c1", []string{"ok: ", "batches checked"}},
		{"agents", []string{"payer 1", "Pays what is owed.", `{"cents":4900}`, "pay (uncertain, needs approval)"}},
		{"version", []string{"layover ", "format 1"}},
		{"abort c1 --reason enough", []string{"asked s_", "to end"}},
	} {
		out := s.ok(strings.Fields(step.args)...)
		for _, want := range step.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in:\n%s", step.args, want, out)
			}
		}
	}
}

// What a caller or a model wrote cannot take the terminal over.
func TestOutputIsPrintable(t *testing.T) {
	s := newShell(t)
	out := s.ok("submit", "--agent", "echo", "--conversation", "c1", "--input", `"\u001b]0;title\u0007 \u202e\n\u009b31m"`, "--wait")
	out += s.ok("status", "c1") + s.ok("records", "c1")
	for line := range strings.Lines(out) {
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' }) {
			t.Errorf("%q", line)
		}
	}
	if !strings.Contains(out, `\x1b]0;title\a`) && !strings.Contains(out, `\u001b]0;title`) {
		t.Errorf("the text is not shown:\n%s", out)
	}
}

// A handler that panicked leaves an unknown outcome, which a person resolves.
func TestResolve(t *testing.T) {
	s := newShell(t)
	submit := []string{"submit", "--agent", "breaker", "--conversation", "c1", "--key", "k1", "--input", `{"cents":7}`}
	parked := s.lines(0, append(submit, "--wait=parked")...)[1]["parked"].(map[string]any)
	if parked["reason"] != "unknown" {
		t.Fatalf("parked = %v", parked)
	}
	call := parked["on"].([]any)[0].(string)
	if out := s.ok("status", "c1"); !strings.Contains(out, "layover resolve c1 "+call+" happened|notHappened|safeToRetry") {
		t.Errorf("status does not say how to go on:\n%s", out)
	}
	got := s.line("resolve", "c1", call, "happened", "--result", `{"cents":7}`, "--reason", "looked")
	if got["call"] != call || got["resolution"] != "happened" || got["by"] != "ada@local" {
		t.Errorf("resolve = %v", got)
	}
	if end := s.lines(0, append(submit, "--wait")...)[1]; end["status"] != "completed" {
		t.Errorf("end = %v", end)
	}
	if r := s.run("resolve", "c1", call, "notHappened"); r.code != 4 {
		t.Errorf("a second resolution: exit %d: %s", r.code, r.errout)
	}
}

func TestSend(t *testing.T) {
	s := newShell(t)
	file := filepath.Join(t.TempDir(), "event.json")
	const message = `{"messageId":"m1","body":"{\"v\":1,\"type\":\"submit\",\"agent\":\"echo\",\"conversation\":\"c1\",\"input\":\"hi\"}"}`
	if err := os.WriteFile(file, []byte(`{"Records":[`+message+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a redelivery
		if out := s.ok("send", file); out != "{\"batchItemFailures\":[]}\n" {
			t.Errorf("send = %q", out)
		}
	}
	s.stdin = `{"Records":[{"messageId":"m2","body":"{}"},` + message + `]}`
	r := s.run("send", "-", "--json")
	if r.code != 4 || r.out != "{\"batchItemFailures\":[{\"itemIdentifier\":\"m2\"}]}\n" || !strings.Contains(r.errout, "1 of 2 messages") {
		t.Errorf("send = %+v", r)
	}
}

// --input takes text, a file and standard input.
func TestInputs(t *testing.T) {
	s := newShell(t)
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte(`"from a file"`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.stdin = `"from stdin"`
	for input, want := range map[string]string{`"given"`: "given", "@" + file: "from a file", "-": "from stdin"} {
		if out := s.ok("submit", "--agent", "echo", "--input", input, "--wait"); !strings.Contains(out, want) {
			t.Errorf("--input %s: %s", input, out)
		}
	}
}

// Two submissions differ in whose they are.
func TestWhoAsks(t *testing.T) {
	s := newShell(t)
	submit := []string{"submit", "--agent", "echo", "--conversation", "c1", "--key", "k", "--input", `"a"`}
	mine := s.line(submit...)["submission"]
	if hers := s.line(append(submit, "--as", "bob@local")...)["submission"]; hers == mine {
		t.Error("--as does not tell callers apart")
	}
	if r := s.run("status", "c1", "--tenant", "other"); r.code != 4 {
		t.Errorf("another tenant sees the conversation: %+v", r)
	}
	s.env["LAYOVER_TENANT"] = "other"
	if other := s.line(submit...); other["receipt"] != "accepted" || other["submission"] == mine {
		t.Errorf("LAYOVER_TENANT: %v", other)
	}
}

// commandNames are the commands that the help lists.
func commandNames(s *shell) (names []string) {
	s.t.Helper()
	_, list, _ := strings.Cut(s.ok("--help"), "Begin:\n")
	list, _, _ = strings.Cut(list, "\n\nFlags:")
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "  ") {
			names = append(names, strings.Fields(line)[0])
		}
	}
	return names
}

// Every command explains itself, with an example, and mentions nobody but the
// agents given to Main.
func TestHelp(t *testing.T) {
	s := newShell(t)
	commands := commandNames(s)
	for _, want := range strings.Fields("dev submit follow-up steer send approvals approve deny list status events tail records verify abort resolve agents new completion version") {
		if !slices.Contains(commands, want) {
			t.Errorf("%s is not listed in %v", want, commands)
		}
	}
	for _, command := range commands {
		out := s.ok(command, "--help")
		if strings.Contains(out, "refund") || strings.Contains(out, "triage") {
			t.Errorf("%s mentions agents of another program", command)
		}
		_, examples, ok := strings.Cut(out, "Examples:\n")
		if !ok || !strings.Contains(strings.SplitN(examples, "\n\n", 2)[0], "layover "+command) {
			t.Errorf("%s has no example of itself:\n%s", command, out)
		}
		for line := range strings.Lines(out) {
			if len([]rune(line)) > 101 && !strings.HasPrefix(line, "  layover") {
				t.Errorf("%s: a line of %d characters: %s", command, len([]rune(line)), line)
			}
		}
	}
	if out := s.ok("submit", "--help"); !strings.Contains(out, `layover submit --agent payer --input '{"cents":4900}'`) {
		t.Errorf("no example that works here:\n%s", out)
	}
}

// The tab key knows what the server has, and a server that is away is quiet.
func TestCompletion(t *testing.T) {
	s := newShell(t)
	s.ok("submit", "--agent", "payer", "--conversation", "alpha", "--key", "k", "--input", `{"cents":7}`, "--wait=parked")
	s.ok("submit", "--agent", "echo", "--conversation", "beta", "--input", `"x"`, "--wait")
	id := s.line("approvals")["id"].(string)
	for args, want := range map[string]string{
		"status ": "beta\nalpha\n", "events a": "alpha\n", "approve ": id + "\n", "submit --agent e": "echo\n", "status alpha ": "",
		"completion ": "bash\nzsh\nfish\n",
	} {
		r := s.run(append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if got, _, _ := strings.Cut(r.out, ":"); got != want {
			t.Errorf("%q completes to %q, want %q", args, got, want)
		}
	}
	s.env["LAYOVER_SERVER"] = "http://127.0.0.1:1"
	if r := s.run("__complete", "status", ""); r.code != 0 || !strings.HasPrefix(r.out, ":") {
		t.Errorf("without a server: %+v", r)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := s.ok("completion", shell); !strings.Contains(out, "layover") {
			t.Errorf("%s: %s", shell, out)
		}
	}
}
