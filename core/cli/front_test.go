package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/tool"
)

// Who types the program's name alone learns what there is; a program learns
// only that it was wrong.
func TestNoCommand(t *testing.T) {
	s := newShell(t)
	if r := s.run(); r.code != 2 || !strings.HasPrefix(r.out, s.ok("--help")) || !strings.Contains(r.errout, "no command was given") {
		t.Errorf("for people: %+v", r)
	}
	if r := s.run("--json"); r.code != 2 || r.out != "" {
		t.Errorf("for programs: %+v", r)
	}
	if s.ok("help", "submit") != s.ok("submit", "--help") {
		t.Error("help submit is not submit --help")
	}
}

// The conversations are listed, the newest first, each in the state it is in.
func TestList(t *testing.T) {
	s := newShell(t)
	if out := s.ok("list"); out != "no conversations yet\n" {
		t.Errorf("of nothing: %q", out)
	}
	if out := s.ok("list", "--active"); out != "nothing runs and nothing waits\n" {
		t.Errorf("of nothing active: %q", out)
	}
	s.ok("submit", "--agent", "payer", "--conversation", "waits", "--input", `{"cents":7}`, "--wait=parked")
	s.ok("submit", "--agent", "echo", "--conversation", "done", "--input", `"x"`, "--wait")
	want := "CONVERSATION  STATE      WHAT\n" +
		"done          completed  1 turn, 1 attempt\n" +
		"waits         parked     payer waits for approval: pay\n"
	if out := s.ok("list"); out != want {
		t.Errorf("list is\n%s, want\n%s", out, want)
	}
	if out := s.ok("list", "--active"); strings.Contains(out, "done") || !strings.Contains(out, "waits") {
		t.Errorf("active are\n%s", out)
	}
	if list := s.lines(0, "list"); len(list) != 2 || list[1]["conversation"] != "waits" || list[1]["state"] != "parked" {
		t.Errorf("as JSON: %v", list)
	}
	for i := range 50 {
		s.ok("submit", "--agent", "echo", "--conversation", fmt.Sprint("c", i), "--input", `"x"`)
	}
	if out := s.ok("list"); strings.Count(out, "\n") != 53 || !strings.HasSuffix(out, "there are more: layover list --all\n") {
		t.Errorf("a page of many:\n%s", out)
	}
	if list := s.lines(0, "list", "--all"); len(list) != 52 {
		t.Errorf("all are %d", len(list))
	}
}

// message is what an agent sends, once somebody has read it.
type message struct {
	Text string `json:"text"`
}

func sender() *agent.Definition {
	send := tool.New("send", "Sends a text.", func(_ context.Context, in message) (message, error) { return in, nil }, tool.RequireApproval())
	return agent.MustDefine[message, string]("sender", agent.Config[message]{Instructions: agent.Text[message]("Send the text."), Tools: []*tool.Tool{send}})
}

// Who decides about a call sees all of its arguments, wherever they are shown
// together with the way to approve it.
func TestArgumentsAreWhole(t *testing.T) {
	s := newShell(t, sender().Engine())
	input := `{"text":"` + strings.Repeat("harmless words, ", 60) + `and then the sting"}`
	out := s.ok("submit", "--agent", "sender", "--conversation", "c1", "--input", input, "--wait=parked")
	for name, out := range map[string]string{"submit": out, "status": s.ok("status", "c1"), "approvals": s.ok("approvals")} {
		if !strings.Contains(out, input) {
			t.Errorf("%s does not show all of it:\n%s", name, out)
		}
	}
}

// A table that is a little too wide breaks its widest column and stays a
// table; lines of events go on below themselves, and the command that answers
// one stands alone, so that it can be copied.
func TestTerminalOf80(t *testing.T) {
	s := newShell(t, sender().Engine())
	input := `{"text":"` + strings.Repeat("harmless words, ", 12) + ` approve with: something else"}`
	s.ok("submit", "--agent", "sender", "--conversation", "c1", "--input", input, "--wait=parked")
	id := s.line("approvals")["id"].(string)
	w := newTerminal(t, 80, s.env)
	records, _ := w.run("layover records c1")
	if lines := strings.Split(strings.TrimSpace(records), "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], "SLOT  EPOCH") ||
		!strings.HasPrefix(lines[2], strings.Repeat(" ", 20)) || strings.TrimSpace(lines[2]) != "runStarted" {
		t.Errorf("records:\n%s", records)
	}
	events, _ := w.run("layover events c1")
	for i, line := range strings.Split(strings.TrimSpace(events), "\n") {
		if begins := len(line) > 2 && line[2] == ':'; !begins && !strings.HasPrefix(line, strings.Repeat(" ", 10)) {
			t.Errorf("line %d begins at the margin: %q in\n%s", i, line, events)
		}
	}
	if !strings.HasSuffix(strings.TrimSpace(events), "\n          approve with: layover approve "+id) {
		t.Errorf("events:\n%s", events)
	}
	help, _ := w.run("layover submit --help | head -8; layover events --help | tail -14")
	for line := range strings.Lines(help) {
		if len([]rune(line)) > 81 {
			t.Errorf("help is wider than the terminal: %q", line)
		}
	}
}

// What follows ends with its reader, also when nothing happens any more: a
// script looks for a line and goes on.
func TestFollowEndsWithItsReader(t *testing.T) {
	s := newShell(t)
	s.ok("submit", "--agent", "echo", "--conversation", "c1", "--input", `"x"`, "--wait")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"events", "c1", "--follow"}, {"events", "c1", "--follow", "--json"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cmd := exec.CommandContext(ctx, self, args...)
		cmd.Env = append(os.Environ(), "LAYOVER_TEST_CLI=1")
		for name, value := range s.env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && !strings.Contains(lines.Text(), "completed") && !strings.Contains(lines.Text(), "RunCompleted") {
			continue
		}
		out.Close()
		if err := cmd.Wait(); err != nil || ctx.Err() != nil {
			t.Errorf("%v: %v, %v", args, err, ctx.Err())
		}
		cancel()
	}
}
