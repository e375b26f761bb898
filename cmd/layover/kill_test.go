package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
)

// binary is the command under test, built once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "layover-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "layover")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	_ = os.Unsetenv("ANTHROPIC_API_KEY") // the tests ask no provider but their own
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// server is one `layover dev` process.
type server struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
	stderr *bytes.Buffer
	url    string
}

// start runs the server on a data directory; failpoint may be empty. It
// reports false when the process died before it served.
func start(t *testing.T, dir, failpoint string) (*server, bool) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, exited: make(chan struct{}), stderr: &bytes.Buffer{}}
	s.cmd = exec.Command(path, "dev", "--listen", "127.0.0.1:0", "--data", dir, "--json")
	s.cmd.Env = append(os.Environ(), "LAYOVER_FAILPOINT="+failpoint)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd.Stderr = s.stderr
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadBytes('\n')
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	if err != nil {
		<-s.exited
		return s, false
	}
	var hello struct{ URL string }
	if err := json.Unmarshal(first, &hello); err != nil || hello.URL == "" {
		t.Fatalf("first line %q: %v\n%s", first, err, s.stderr)
	}
	s.url = hello.URL
	return s, true
}

// kill ends the process as a power cut would.
func (s *server) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	<-s.exited
}

// stop ends the process in order, and says whether it died on the way: at a
// point that is passed only after the outcome can be seen.
func (s *server) stop() (died bool) {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.exited
	return !s.cmd.ProcessState.Exited()
}

func (s *server) dead() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

func (s *server) client() *client.Client {
	s.t.Helper()
	c, err := client.New(s.url, client.Options{Principal: "kim@local"})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// story plays the README's story on a data directory that may lose its process
// at any moment: every step is repeated on a new process until it holds.
type story struct {
	t      *testing.T
	dir    string
	server *server
	deaths int
	next   []string // failpoints of the following processes
}

func (st *story) up() *client.Client {
	for st.server == nil || st.server.dead() {
		if st.server != nil {
			st.deaths++
		}
		fp := ""
		if len(st.next) > 0 {
			fp, st.next = st.next[0], st.next[1:]
		}
		server, ok := start(st.t, st.dir, fp)
		st.server = server
		if !ok && st.deaths > 20 {
			st.t.Fatalf("the server does not come up:\n%s", server.stderr)
		}
	}
	return st.server.client()
}

// step repeats do until it succeeds; only a lost server is a reason to repeat.
func (st *story) step(what string, do func(context.Context, *client.Client) error) {
	st.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		err := do(ctx, st.up())
		if err == nil {
			return
		}
		var unreachable *client.Unreachable
		if !errors.As(err, &unreachable) || ctx.Err() != nil {
			st.t.Fatalf("%s: %v\n%s", what, err, st.server.stderr)
		}
		<-st.server.exited
	}
}

func (st *story) play() {
	t := st.t
	var submission, approval string
	st.step("submit", func(ctx context.Context, c *client.Client) error {
		s, err := c.Submit(ctx, "demo", wire.Submit{Agent: "refund", Key: "k1", Input: json.RawMessage(`{"orderId":"A-1001","reason":"arrived broken"}`)})
		submission = s.Submission
		return err
	})
	st.step("wait for the approval", func(ctx context.Context, c *client.Client) error {
		p, err := c.Await(ctx, "demo", submission, client.UntilParked, 30*time.Second)
		if err == nil && p.Status != "parked" {
			t.Fatalf("wait for the approval: the run is %s: %+v", p.Status, p.Error)
		}
		if err != nil {
			return err
		}
		all, err := c.Approvals(ctx)
		if err == nil && len(all) != 1 {
			t.Fatalf("%d approvals are pending, want 1", len(all))
		}
		if err == nil {
			approval = all[0].ID
		}
		return err
	})
	st.step("approve", func(ctx context.Context, c *client.Client) error {
		_, err := c.Decide(ctx, approval, wire.Decide{Decision: "approve"})
		var p *client.Problem
		if errors.As(err, &p) && (p.Kind == "decided" || p.Kind == "settled") && st.deaths > 0 {
			return nil // the answer was lost with the server, the decision was not
		}
		return err
	})
	var outcome wire.Progress
	st.step("wait for the outcome", func(ctx context.Context, c *client.Client) (err error) {
		outcome, err = c.Await(ctx, "demo", submission, client.UntilSettled, 30*time.Second)
		return err
	})
	if outcome.Status != "completed" {
		t.Fatalf("the run is %s: %+v", outcome.Status, outcome.Error)
	}
	if n := refunds(t, st.dir); n != 1 {
		t.Errorf("%d refunds, want exactly 1", n)
	}
	st.step("verify", func(ctx context.Context, c *client.Client) error {
		for batch, err := range c.Records(ctx, "demo") {
			if err != nil {
				return err
			}
			if n := bytes.Count(batch, []byte(`"kind":"runSettled"`)); n > 1 {
				t.Errorf("%d settlements in one batch", n)
			}
		}
		v, err := c.Verify(ctx, "demo")
		if err == nil && !v.OK {
			t.Errorf("verify: %v", v.Violations)
		}
		return err
	})
}

func refunds(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "refunds.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

func failpoints(t *testing.T) []string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "dev", "--list-failpoints").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(out))
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "mem.") }) // of another store
	if len(names) < 20 {
		t.Fatalf("only %d failpoints: %q", len(names), out)
	}
	return names
}

// neverFires are the points the story does not pass: nothing is written aside
// in it, and the probe is asked only after a refund whose result was lost.
var neverFires = []string{"engine.probe.end", "engine.probe.start", "sqlite.payload.after", "sqlite.payload.before"}

// The process is killed with SIGKILL at every failpoint of the story, each time
// it is passed. Whatever the instant, the story ends in one outcome and one
// refund, by restarting alone.
//
// conformance: REC-05, RUN-013, INT-05 @embedded
// failure: A02, A03
func TestKillAtEveryFailpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("kills about a hundred processes: run without -short")
	}
	var mu sync.Mutex
	var never []string
	t.Run("points", func(t *testing.T) {
		for _, name := range failpoints(t) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for nth := 1; ; nth++ {
					st := &story{t: t, dir: t.TempDir(), next: []string{fmt.Sprintf("%s:%d", name, nth)}}
					st.play()
					died := st.server.stop()
					if t.Failed() {
						t.Fatalf("killed at %s:%d", name, nth)
					}
					if st.deaths == 0 && !died {
						if nth == 1 {
							mu.Lock()
							never = append(never, name)
							mu.Unlock()
						}
						return
					}
				}
			})
		}
	})
	slices.Sort(never)
	if !slices.Equal(never, neverFires) {
		t.Errorf("points that never fired: %q, the committed list is %q", never, neverFires)
	}
}

// The process is killed while the refund's result is in its hands, and then
// again wherever the recovery can be killed: the probe finds the refund, and
// nobody is refunded twice.
func TestKillTheRecovery(t *testing.T) {
	if testing.Short() {
		t.Skip("kills about sixty processes: run without -short")
	}
	for _, first := range []string{"engine.tool.start:2", "engine.tool.end:2"} {
		for _, second := range failpoints(t) {
			t.Run(first+" then "+second, func(t *testing.T) {
				t.Parallel()
				st := &story{t: t, dir: t.TempDir(), next: []string{first, second}}
				st.play()
				st.server.kill()
				if st.deaths == 0 {
					t.Error("the first kill did not happen")
				}
			})
		}
	}
}

// conformance: RUN-030d @embedded
//
// A lane whose process was killed is alive again within a second of the
// restart (D-62): here a run in the middle of its work.
func TestAliveWithinASecondOfRestart(t *testing.T) {
	dir := t.TempDir()
	s, _ := start(t, dir, "engine.model.end:1")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	sub, err := s.client().Submit(ctx, "demo", wire.Submit{Agent: "triage", Input: example(ctx, t, s, "triage")})
	if err != nil {
		t.Fatal(err)
	}
	<-s.exited // in the middle of turn 1
	s, _ = start(t, dir, "")
	began := time.Now()
	p, err := s.client().Await(ctx, "demo", sub.Submission, client.UntilSettled, 20*time.Second)
	if err != nil || p.Status != "completed" || p.Attempts != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("settled %s after the restart, want within 1 s", took)
	}
}

// example is an input the agent's manifest shows.
func example(ctx context.Context, t *testing.T, s *server, agent string) json.RawMessage {
	t.Helper()
	all, err := s.client().Agents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		var schema struct{ Examples []json.RawMessage }
		if a.Name == agent && json.Unmarshal(a.Input, &schema) == nil && len(schema.Examples) > 0 {
			return schema.Examples[0]
		}
	}
	t.Fatalf("no example input of %s", agent)
	return nil
}
