package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/cli"
	"github.com/layover-run/layover/core/tool"
)

// TestMain makes the test binary a command line of its own for tests that need
// a process in a terminal.
func TestMain(m *testing.M) {
	if os.Getenv("LAYOVER_TEST_CLI") == "1" {
		cli.Main(agents()...)
	}
	os.Exit(m.Run())
}

// terminal is a real one, with a shell in it.
type terminal struct {
	t      *testing.T
	socket string
	n      int
}

// newTerminal skips the test where tmux is not installed.
func newTerminal(t *testing.T, columns int, env map[string]string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("LAYOVER_TOOLS") != "" {
			t.Fatal("no tmux: install the package tmux")
		}
		t.Skip("no tmux: install the package tmux")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "layover")); err != nil {
		t.Fatal(err)
	}
	w := &terminal{t: t, socket: filepath.Join(bin, "s")}
	args := []string{"-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", "60",
		"env", "-u", "ENV", "LAYOVER_TEST_CLI=1", "PATH=" + bin + ":" + os.Getenv("PATH"), "PS1=> ", "NO_COLOR="}
	for name, value := range env {
		args = append(args, name+"="+value)
	}
	w.tmux(append(args, "sh")...)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", w.socket, "kill-server").Run() })
	w.until(func(s string) bool { return strings.Contains(s, ">") })
	return w
}

func (w *terminal) tmux(args ...string) string {
	w.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", w.socket}, args...)...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// screen is what a person sees; joined puts lines together that the terminal
// broke.
func (w *terminal) screen(flags ...string) string {
	return w.tmux(append([]string{"capture-pane", "-p"}, flags...)...)
}

func (w *terminal) until(seen func(string) bool) string {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s := strings.TrimRight(w.screen(), "\n")
		if seen(s) {
			return s
		}
		if time.Now().After(end) {
			w.t.Fatalf("it never came; the screen is\n%s", s)
		}
	}
}

func (w *terminal) keys(line string) { w.tmux("send-keys", "-l", line); w.tmux("send-keys", "Enter") }

// run types a command and waits for its end.
func (w *terminal) run(line string) (screen string, code string) {
	w.t.Helper()
	w.n++
	mark := fmt.Sprintf("ended-%d:", w.n)
	w.keys("clear; " + line + "; echo " + mark[:5] + "'" + mark[5:] + "'$?")
	s := w.until(func(s string) bool { return strings.Contains(s, "\n"+mark) })
	before, after, _ := strings.Cut(s, "\n"+mark)
	return before, strings.TrimSpace(strings.SplitN(after, "\n", 2)[0])
}

// slow is an agent whose tool runs until the gate opens.
func slow(gate <-chan struct{}) *agent.Definition {
	linger := tool.New("linger", "Takes its time.", func(ctx context.Context, in payment) (payment, error) {
		select {
		case <-gate:
			return in, nil
		case <-ctx.Done():
			return in, ctx.Err()
		}
	})
	return agent.MustDefine[payment, string]("slow", agent.Config[payment]{Instructions: agent.Text[payment]("Linger."), Tools: []*tool.Tool{linger}})
}

// A person who waits sees what the run does, on a wide terminal and on a
// narrow one, and nothing of it stays behind.
func TestTerminalProgress(t *testing.T) {
	for _, columns := range []int{40, 120} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			gate := make(chan struct{})
			s := newShell(t, slow(gate).Engine())
			w := newTerminal(t, columns, s.env)
			w.keys(`clear; layover submit --agent slow --conversation c1 --input '{"cents":7}' --wait; echo "ended:"$?`)
			seen := w.until(func(s string) bool { return strings.Contains(s, "runs linger") })
			if columns == 120 && !strings.Contains(seen, "runs linger · turn 1 · ") {
				t.Errorf("the line of a wide terminal:\n%s", seen)
			}
			if lines := strings.Count(seen, "runs linger"); lines != 1 {
				t.Errorf("%d lines move:\n%s", lines, seen)
			}
			close(gate)
			end := w.until(func(s string) bool { return strings.Contains(s, "ended:0") })
			if !strings.Contains(end, "completed after 2 turns") || strings.ContainsAny(end, "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏") || strings.Contains(end, "linger ·") {
				t.Errorf("at the end:\n%s", end)
			}
		})
	}
}

// Tables hold together at 40 columns, and what has to be typed again stays
// whole.
func TestTerminalTables(t *testing.T) {
	s := newShell(t)
	s.ok("submit", "--agent", "payer", "--conversation", "a-conversation-with-a-long-name", "--key", "k", "--input", `{"cents":7}`, "--wait=parked")
	id := s.line("approvals")["id"].(string)
	narrow, wide := newTerminal(t, 40, s.env), newTerminal(t, 160, s.env)

	got, code := wide.run("layover approvals")
	if code != "0" || !strings.Contains(got, "ID ") || !strings.Contains(got, "CONVERSATION") || !strings.Contains(got, id+"  a-conversation-with-a-long-name  pay(") {
		t.Errorf("wide:\n%s", got)
	}
	got, code = narrow.run("layover approvals")
	if joined := narrow.screen("-J"); code != "0" || strings.Contains(got, "ID  ") || !strings.Contains(joined, id) || !strings.Contains(got, "conversation  a-conversation") {
		t.Errorf("narrow:\n%s", got)
	}
	for _, command := range []string{"status a-conversation-with-a-long-name", "records a-conversation-with-a-long-name", "agents", "events a-conversation-with-a-long-name"} {
		if got, code := narrow.run("layover " + command); code != "0" || strings.TrimSpace(got) == "" {
			t.Errorf("%s: exit %s:\n%s", command, code, got)
		}
	}
	// Colours on a terminal only, and not against the reader's will.
	_, _ = wide.run("layover status a-conversation-with-a-long-name")
	if colours := wide.screen("-e"); !strings.Contains(colours, "\x1b[33mparked") {
		t.Errorf("no colours: %q", colours)
	}
	for _, command := range []string{"layover status a-conversation-with-a-long-name | cat", "NO_COLOR=1 layover status a-conversation-with-a-long-name", "TERM=dumb layover status a-conversation-with-a-long-name"} {
		_, _ = wide.run(command)
		if colours := wide.screen("-e"); strings.Contains(colours, "\x1b[33m") {
			t.Errorf("%s has colours: %q", command, colours)
		}
	}
}

// What a stranger wrote neither moves the cursor nor names the window.
func TestTerminalIsNotTakenOver(t *testing.T) {
	s := newShell(t)
	s.ok("submit", "--agent", "echo", "--conversation", "c1", "--input", `"\u001b]0;owned\u0007\u001b[2J\u001b[31mred \u202egnp.exe \u009b5n"`, "--wait")
	w := newTerminal(t, 80, s.env)
	title := w.tmux("display-message", "-p", "#{pane_title}")
	for _, command := range []string{"status c1", "events c1", "events c1 --json", "records c1 --json", "status c1 --json"} {
		got, code := w.run("layover " + command)
		if code != "0" || strings.ContainsAny(got, "\u202e\u009b") || !strings.Contains(got, "gnp.exe") && !strings.Contains(got, "attemptStarted") {
			t.Errorf("%s: exit %s:\n%s", command, code, got)
		}
	}
	if now := w.tmux("display-message", "-p", "#{pane_title}"); now != title {
		t.Errorf("the window is named %q", now)
	}
}

// ctrl-c ends what has no end, in order.
func TestTerminalInterrupt(t *testing.T) {
	s := newShell(t)
	s.ok("submit", "--agent", "payer", "--conversation", "c1", "--key", "k", "--input", `{"cents":7}`, "--wait=parked")
	w := newTerminal(t, 120, s.env)
	for _, tt := range []struct{ command, until, code string }{
		{"layover events c1 --follow", "waits for approval", "ended:0"},
		{"layover submit --agent payer --conversation c1 --key k --input '{\"cents\":7}' --wait", "waits for approval (pay)", "ended:3"},
	} {
		w.keys("clear; " + tt.command + "; echo ended:$?")
		w.until(func(s string) bool { return strings.Contains(s, tt.until) })
		w.tmux("send-keys", "C-c")
		w.until(func(s string) bool { return strings.Contains(s, tt.code) })
	}
}
