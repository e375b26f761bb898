package cli_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/cli"
)

func TestExitCodes(t *testing.T) {
	s := newShell(t)
	s.ok("submit", "--agent", "payer", "--conversation", "parked", "--key", "k", "--input", `{"cents":7}`, "--wait=parked")
	s.ok("submit", "--agent", "payer", "--conversation", "denied", "--key", "k", "--input", `{"cents":7}`, "--wait=parked")
	var decided string
	for _, a := range s.lines(0, "approvals") {
		if a["conversation"] == "denied" {
			decided = a["id"].(string)
		}
	}
	s.ok("deny", decided)
	s.ok("submit", "--agent", "payer", "--conversation", "aborted", "--key", "k", "--input", `{"cents":7}`, "--wait=parked")
	s.ok("abort", "aborted")

	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"", 2, "no command"},
		{"explode", 2, "no command \"explode\""},
		{"sumbit", 2, "but there is submit. `layover submit --help`"},
		{"help explode", 2, "no command \"explode\""},
		{"help submit more", 2, "unexpected argument \"more\""},
		{"status", 2, "CONVERSATION"},
		{"status a b", 2, "unexpected argument \"b\""},
		{"list a", 2, "unexpected argument \"a\": list takes none"},
		{"list --data=", 2, "layover: usage: --data is empty"},
		{"status c1 --colour", 2, "unknown flag"},
		{"submit", 2, "--agent"},
		{"submit --agent echo", 2, "--input"},
		{"submit --agent echo --input {", 2, "JSON"},
		{"submit --agent echo --input @/nowhere/at/all", 2, "/nowhere"},
		{"submit --agent echo --input 1 extra", 2, "extra"},
		{"submit --agent echo --input 1 --wait parked", 2, "--wait=parked"},
		{"submit --agent echo --input 1 --wait=happy", 2, "happy"},
		{"submit --agent echo --input 1 --timeout 3s", 2, "--wait"},
		{"submit --agent echo --input 1 --wait --timeout 0s", 2, "positive"},
		{"submit --agent echo --input 1 --wait --timeout soon", 2, "--timeout \"soon\" is not a time such as 30s"},
		{"submit --agent echo --input 1 --allow-turns x", 2, "--allow-turns \"x\" is not a whole number"},
		{"submit --agent echo --input 1 --allow-turns 0", 2, "positive"},
		{"submit --agent nobody --input 1", 2, "nobody"},
		{"submit --agent payer --input 1", 2, "does not fit"},
		{"submit --agent echo --input \"a\" --as \x07", 2, "--as"},
		{"steer parked", 2, "TEXT is missing"},
		{"steer parked @/nowhere/at/all", 2, "/nowhere"},
		{"steer parked @/dev/null", 2, "empty"},
		{"follow-up", 2, "CONVERSATION is missing"},
		{"follow-up parked", 2, "--input"},
		{"follow-up parked --input {", 2, "JSON"},
		{"follow-up parked --input 1", 2, "does not fit"},
		{"follow-up parked --input 1 --agent nobody", 2, "nobody"},
		{"follow-up parked --input 1 --timeout 1s", 2, "--wait"},
		{"follow-up parked --input 1 --wait=happy", 2, "happy"},
		{"approve", 2, "ID is missing"},
		{"resolve parked k1", 2, "OUTCOME is missing"},
		{"resolve parked k1 perhaps", 2, "perhaps"},
		{"resolve parked k1 happened", 2, "--result"},
		{"resolve parked k1 notHappened --result 1", 2, "--result"},
		{"send /nowhere/at/all", 2, "/nowhere"},
		{"events", 2, "CONVERSATION"},
		{"events a --submission b", 2, "not both"},
		{"records a --submission b", 2, "not both"},
		{"verify a --submission b", 2, "not both"},
		{"status a\xff", 2, "not UTF-8"},
		{"agents --as a\xff", 2, "--as"},
		{"events a b", 2, "unexpected argument \"b\""},
		{"events parked --live", 2, "--follow"},
		{"events parked --after x", 2, "not the id"},
		{"tail extra", 2, "unexpected argument"},
		{"completion", 2, "SHELL is missing"},
		{"completion tcsh", 2, "tcsh"},
		{"new", 2, "NAME is missing"},
		{"new Upper", 2, "lower-case"},
		{"new fmt", 2, "--module example.com/fmt"},
		{"new -x", 2, "unknown shorthand"},
		{"new /", 2, "lower-case"},
		{"new x --module //", 2, "module"},
		{"new x --replace /nowhere/at/all", 2, "/nowhere"},
		{"agents --server nonsense", 2, "nonsense"},
		{"dev --listen 0.0.0.0:0", 2, "needs a token"},
		{"dev --listen :0", 2, "needs a token"},
		{"dev --listen [::]:0", 2, "needs a token"},
		{"dev --listen example.com:0", 2, "needs a token"},
		{"dev --token-file /nowhere/at/all", 2, "/nowhere"},
		{"dev --token-file /dev/null", 2, "empty"},
		{"dev --listen here", 2, "address and a port"},

		{"submit --agent payer --conversation aborted --key k --input {\"cents\":7} --wait", 1, ""},
		{"submit --agent payer --conversation parked --key k --input {\"cents\":7} --wait=parked", 0, ""},
		{"submit --agent payer --conversation parked --key k --input {\"cents\":7} --wait --timeout 20ms", 3, ""},
		{"submit --agent payer --conversation denied --key k --input {\"cents\":7} --wait", 0, ""},

		{"submit --agent payer --conversation parked --key k --input {\"cents\":8}", 4, "already used"},
		{"status none", 4, "none"},
		{"records none", 4, "none"},
		{"verify none", 4, "none"},
		{"status --submission none", 4, "none"},
		{"steer none hi", 4, "none"},
		{"steer denied hi", 4, "nothing runs"},
		{"follow-up none --input 1", 4, "none"},
		{"events none", 4, "none"},
		{"events none --follow", 4, "none"},
		{"events --submission none", 4, "none"},
		{"approve none", 4, "none"},
		{"approve " + decided, 4, "already"},
		{"deny " + decided, 4, "already"},
		{"abort denied", 4, "nothing runs"},
		{"resolve parked k1 notHappened", 4, "k1"},

		{"agents --server http://127.0.0.1:1", 5, "does not answer"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			s := *s
			s.t = t
			for _, json := range []bool{false, true} {
				args := strings.Fields(tt.args)
				if json {
					args = append(args, "--json")
				}
				r := s.run(args...)
				if r.code != tt.code || !strings.Contains(r.errout, tt.says) || (tt.says == "") != (r.errout == "") {
					t.Errorf("json %t: exit %d, want %d about %q: %s%s", json, r.code, tt.code, tt.says, r.out, r.errout)
				}
			}
		})
	}
}

// A server that fails is 5, whatever it says.
func TestServerErrors(t *testing.T) {
	body, status := "", 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	s := &shell{t: t, env: map[string]string{"LAYOVER_SERVER": srv.URL}}
	for _, tt := range []struct {
		status int
		body   string
		code   int
	}{
		{503, `{"kind":"unavailable","op":"agents","detail":"disk full\nreally","hint":""}`, 5},
		{500, `{"kind":"corrupt","op":"agents","detail":"bad digest"}`, 5},
		{500, `{"kind":"internal","op":"agents","detail":"a defect"}`, 5},
		{502, `<html>`, 5},
		{200, `<html>`, 5},
		{403, `{"kind":"forbidden","op":"request","detail":"host"}`, 4},
		{401, `{"kind":"unauthorized","op":"request","detail":"this server wants a token"}`, 4},
		{429, `{"kind":"full","op":"submit","detail":"64 submissions wait"}`, 4},
		{409, `{"kind":"expired","op":"approve","detail":"too late\u001b[31m"}`, 4},
		{501, `{"kind":"unsupported","op":"steer","detail":"not yet"}`, 4},
		{413, `{"kind":"too-large","op":"submit","detail":"too large"}`, 2},
	} {
		status, body = tt.status, tt.body
		if r := s.run("agents"); r.code != tt.code || strings.Contains(r.errout, "\x1b") {
			t.Errorf("%s: exit %d, want %d: %s", tt.body, r.code, tt.code, r.errout)
		}
	}
}

// A check that finds something is not an error of the check.
func TestVerifyFindsSomething(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"ok":false,"batches":1,"head":"aa","firstBad":2,"violations":["slot 2 does not match its digest"]}`)
	}))
	t.Cleanup(srv.Close)
	s := &shell{t: t, env: map[string]string{"LAYOVER_SERVER": srv.URL}}
	if r := s.run("verify", "c1"); r.code != 1 || r.errout != "" || !strings.Contains(r.out, "slot 2") {
		t.Errorf("%+v", r)
	}
	if v := s.lines(1, "verify", "c1")[0]; v["firstBad"] != 2.0 {
		t.Errorf("%v", v)
	}
}

// An interrupt while waiting leaves the work alone and says where it is.
func TestInterruptedWait(t *testing.T) {
	s := newShell(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out cancelAfterLine
	out.cancel = cancel
	var errout strings.Builder
	code := cli.Run(ctx, cli.Env{Args: []string{"submit", "--agent", "payer", "--conversation", "c1", "--input", `{"cents":7}`, "--wait", "--timeout", "1h", "--json"},
		Stdout: &out, Stderr: &errout, Getenv: func(name string) string { return s.env[name] }})
	if code != 3 || !strings.Contains(errout.String(), "layover status c1") {
		t.Errorf("exit %d: %s", code, errout.String())
	}
}

// cancelAfterLine is a terminal whose user presses ctrl-c once the receipt is there.
type cancelAfterLine struct{ cancel func() }

func (c *cancelAfterLine) Write(b []byte) (int, error) {
	c.cancel()
	return len(b), nil
}

// Every flag of every command is wrong in every way its type allows: exit code
// 2, one line that names it, and nothing happens.
func TestEveryFlagWrong(t *testing.T) {
	s := newShell(t)
	tried := 0
	for _, command := range commandNames(s) {
		wrong := []string{"--no-such-flag", "-Z"}
		for line := range strings.Lines(s.ok(command, "--help")) {
			_, rest, ok := strings.Cut(line, "--")
			if !ok || !strings.HasPrefix(line, "      --") && !strings.HasPrefix(line, "  -") {
				continue
			}
			fields := strings.Fields(rest)
			name := "--" + fields[0]
			switch kind, optional, _ := strings.Cut(fields[1], "["); {
			case kind == "int", kind == "duration":
				wrong = append(wrong, name+"=x", name+"=", name+"=1e99", name)
			case kind == "string" && optional == "":
				wrong = append(wrong, name)
			case kind == "string": // it may stand alone
			default:
				wrong = append(wrong, name+"=maybe")
			}
		}
		for _, flag := range wrong {
			tried++
			r := s.run(command, flag)
			if r.code != 2 || r.out != "" || !strings.Contains(r.errout, strings.TrimLeft(strings.Split(flag, "=")[0], "-")) {
				t.Errorf("%s %s: exit %d: %s%s", command, flag, r.code, r.out, r.errout)
			}
		}
	}
	if tried < 150 {
		t.Errorf("only %d flags were tried", tried)
	}
}
