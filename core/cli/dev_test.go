package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/cli"
	"github.com/layover-run/layover/core/event"
)

// server is a `dev` in this process.
type server struct {
	t      *testing.T
	lines  chan string
	ended  chan int
	cancel func()
	errout bytes.Buffer
}

func startDev(t *testing.T, data string, args ...string) *server {
	t.Helper()
	t.Setenv("LAYOVER_DATA", data) // dev sets it for its tools; this restores it
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	d := &server{t: t, lines: make(chan string, 1000), ended: make(chan int, 1), cancel: cancel}
	go func() {
		code := cli.Run(ctx, cli.Env{Args: append([]string{"dev", "--data", data, "--listen", "127.0.0.1:0"}, args...),
			Stdout: in, Stderr: &d.errout, Getenv: func(string) string { return "" }, Agents: agents()})
		in.Close()
		d.ended <- code
	}()
	go func() {
		defer close(d.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			d.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { cancel() })
	return d
}

// until reads lines up to the first one with a text, and returns them.
func (d *server) until(text string) []string {
	d.t.Helper()
	var seen []string
	for line := range d.lines {
		if seen = append(seen, line); strings.Contains(line, text) {
			return seen
		}
	}
	d.t.Fatalf("no %q in:\n%s\nstderr: %s", text, strings.Join(seen, "\n"), d.errout.String())
	return nil
}

func (d *server) stop() {
	d.t.Helper()
	d.cancel()
	if code := <-d.ended; code != 0 || d.errout.Len() > 0 {
		d.t.Errorf("dev ended with %d: %s", code, d.errout.String())
	}
}

func TestDevInJSON(t *testing.T) {
	data := t.TempDir()
	d := startDev(t, data, "--json")
	first := d.until("url")
	if !strings.HasPrefix(first[0], `{"url":"http://127.0.0.1:`) {
		t.Errorf("first line = %s", first[0])
	}
	if os.Getenv("LAYOVER_DATA") != data {
		t.Errorf("tools see LAYOVER_DATA=%q", os.Getenv("LAYOVER_DATA"))
	}
	s := &shell{t: t, env: map[string]string{"LAYOVER_DATA": data}} // finds the server by its data
	submit := []string{"submit", "--agent", "payer", "--conversation", "c1", "--key", "k1", "--input", `{"cents":7}`}
	s.ok(append(submit, "--wait=parked")...)
	trace := d.until("RunSuspended")

	// What a stop leaves open goes on at the next start, and so does the trace.
	d.stop()
	if _, err := os.Stat(filepath.Join(data, "server.json")); err == nil {
		t.Error("server.json is still there")
	}
	d = startDev(t, data, "--json")
	d.until("url")
	s.ok("approve", s.line("approvals")["id"].(string))
	s.ok(append(submit, "--wait")...)
	trace = append(trace, d.until("RunCompleted")...)
	d.stop()

	var kinds []string
	for i, line := range trace {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Sequence != uint64(i+1) || e.Conversation != "c1" || e.Agent != "payer" {
			t.Errorf("event %d: %s", i, line)
		}
		kinds = append(kinds, string(e.Data.Kind()))
	}
	want := "RunStarted TurnStarted ResponseCompleted ToolCallDeclared ApprovalRequested RunSuspended " +
		"ApprovalResolved ToolCallStarted ToolCallSucceeded TurnStarted ResponseCompleted RunCompleted"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("trace %s\nwant  %s", got, want)
	}
}

func TestDevForPeople(t *testing.T) {
	data := filepath.Join(t.TempDir(), "it's here")
	d := startDev(t, data)
	banner := strings.Join(d.until("what happens to runs"), "\n")
	for _, want := range []string{"http://127.0.0.1:", data, "payer, breaker, echo", "layover --data '" + strings.ReplaceAll(data, "'", `'\''`) + "' approvals"} {
		if !strings.Contains(banner, want) {
			t.Errorf("no %q in\n%s", want, banner)
		}
	}
	d.follow(banner)
	d.stop()
}

// follow types what the banner and then the lines of runs propose.
func (d *server) follow(banner string) {
	d.t.Helper()
	s := &shell{t: d.t, env: map[string]string{}}
	proposed := func(text, command string) []string {
		_, rest, ok := strings.Cut(text, "layover --data")
		for ok && !strings.Contains(strings.SplitN(rest, "\n", 2)[0], command) {
			_, rest, ok = strings.Cut(rest, "layover --data")
		}
		// A shell takes the words apart.
		words, err := exec.Command("sh", "-c", `printf '%s\n' --data`+strings.SplitN(rest, "\n", 2)[0]).Output()
		if err != nil || !ok {
			d.t.Fatalf("%s is not proposed in:\n%s", command, text)
		}
		return strings.Split(strings.TrimSuffix(string(words), "\n"), "\n")
	}
	if out := s.ok(proposed(banner, "submit")...); !strings.Contains(out, "waits for: approval") {
		d.t.Errorf("the first proposal did not park:\n%s", out)
	}
	lines := d.until("approve with")
	s.ok(proposed(lines[len(lines)-1], "approve")...)
	d.until("completed in 2 turns")
}

func TestDevRefusals(t *testing.T) {
	data := t.TempDir()
	d := startDev(t, data, "--json")
	var first struct{ URL string }
	if err := json.Unmarshal([]byte(d.until("url")[0]), &first); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(first.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{t: t, env: map[string]string{}}
	if r := s.run("dev", "--listen", "127.0.0.1:0", "--data", data); r.code != 4 || !strings.Contains(r.errout, "in use by another process") ||
		!strings.Contains(r.errout, "It is at "+first.URL) {
		t.Errorf("second server of the directory: %+v", r)
	}
	if r := s.run("dev", "--listen", u.Host, "--data", data); r.code != 4 || !strings.Contains(r.errout, data+" is at "+first.URL+" already") ||
		!strings.Contains(r.errout, "`kill ") {
		t.Errorf("the same server again: %+v", r)
	}
	if r := s.run("dev", "--listen", u.Host, "--data", t.TempDir()); r.code != 5 || !strings.Contains(r.errout, "port "+u.Port()) || !strings.Contains(r.errout, "--listen 127.0.0.1:0") {
		t.Errorf("second server of the port: %+v", r)
	}
	d.stop()

	db, err := os.OpenFile(filepath.Join(data, "layover.db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.WriteAt([]byte{0, 0, 0, 99}, 60) // the version in the header of the file
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if r := s.run("dev", "--listen", "127.0.0.1:0", "--data", data); err != nil || r.code != 4 || !strings.Contains(r.errout, "Upgrade this program") {
		t.Errorf("directory of a newer version: %v, %+v", err, r)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.run("dev", "--listen", "127.0.0.1:0", "--data", file); r.code != 5 || !strings.Contains(r.errout, "cannot use "+file+" as the data directory") {
		t.Errorf("a file as the directory: %+v", r)
	}
}

// Who starts a server right after it was killed finds its port still taken.
func TestDevAfterAKill(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { taken.Close() })
	d := startDev(t, t.TempDir(), "--json", "--listen", taken.Addr().String())
	if first := d.until("url")[0]; !strings.Contains(first, taken.Addr().String()) {
		t.Errorf("it says %s", first)
	}
	d.stop()
}

func TestDevWithoutAgents(t *testing.T) {
	var errout strings.Builder
	if code := cli.Run(t.Context(), cli.Env{Args: []string{"dev"}, Stdout: io.Discard, Stderr: &errout, Getenv: os.Getenv}); code != 2 || !strings.Contains(errout.String(), "no agents") {
		t.Errorf("exit %d: %s", code, errout.String())
	}
}

func TestFailpoints(t *testing.T) {
	s := &shell{t: t, env: map[string]string{}}
	if out := s.ok("dev", "--list-failpoints"); !strings.Contains(out, "engine.append.before\n") {
		t.Errorf("list = %s", out)
	}
	if list := s.lines(0, "dev", "--list-failpoints"); len(list) < 10 || list[0]["failpoint"] == nil {
		t.Errorf("list = %v", list)
	}
	t.Setenv("LAYOVER_FAILPOINT", "no.such.point")
	if r := s.run("dev"); r.code != 2 || !strings.Contains(r.errout, "no.such.point") {
		t.Errorf("an unknown failpoint: %+v", r)
	}
}
