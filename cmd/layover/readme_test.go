package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The README's agent is the one in examples/ownapp, line for line.
func TestReadmeShowsTheExample(t *testing.T) {
	readme, example := read(t, "../../README.md"), read(t, "../../examples/ownapp/main.go")
	_, block, _ := strings.Cut(readme, "```go\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok || !strings.Contains(example, block) {
		t.Errorf("examples/ownapp/main.go does not hold the README's code:\n%s", block)
	}
	if n := strings.Count(block, "\n"); n > 25 {
		t.Errorf("the README's agent has %d lines, want at most 25", n)
	}
}

// TestReadme runs the README's commands as they stand there, in the root of
// the tree, and compares what they print, ids and times aside.
func TestReadme(t *testing.T) {
	if os.Getenv("LAYOVER_README") == "" {
		t.Skip("runs the README's commands in this tree, on port 7077: set LAYOVER_README=1, as .ci/readme does")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(root, ".layover")); err != nil {
		t.Fatal(err)
	}
	s := &shell{t: t, root: root}
	t.Cleanup(s.end)
	for _, c := range console(read(t, "../../README.md")) {
		s.run(c)
	}
	if s.ran < 8 {
		t.Errorf("only %d commands were found", s.ran)
	}
}

// command is one line of a console block with the output shown below it.
type command struct{ line, output string }

func console(readme string) []command {
	var all []command
	for i, block := range strings.Split(readme, "```console\n") {
		if i == 0 {
			continue
		}
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			if cmd, ok := strings.CutPrefix(line, "$ "); ok {
				all = append(all, command{line: strings.TrimSpace(cmd)})
			} else if len(all) > 0 {
				all[len(all)-1].output += line
			}
		}
	}
	return all
}

// shell runs commands in the tree's root; servers go on in the background.
type shell struct {
	t    *testing.T
	root string
	ran  int
}

func (s *shell) run(c command) {
	s.t.Helper()
	s.ran++
	line := c.line
	switch {
	case line == "make test":
		return // this very test run is part of it
	case strings.HasSuffix(line, "layover dev"):
		s.serve(line)
		return
	case strings.Contains(line, " approve "):
		line = regexp.MustCompile(`s_[a-z2-7]{26}\.\d+\.\d+`).ReplaceAllString(line, s.pending())
	case strings.HasPrefix(line, "kill"):
		defer s.gone()
	}
	out, err := s.bash(line).CombinedOutput()
	if err != nil {
		s.t.Fatalf("$ %s\n%v\n%s", line, err, out)
	}
	if strings.Contains(line, " approve ") {
		s.settle()
	}
	if got, want := normal(string(out)), normal(c.output); got != want {
		s.t.Errorf("$ %s\nprints\n%s\nand the README shows\n%s", line, got, want)
	}
}

func (s *shell) bash(line string) *exec.Cmd {
	cmd := exec.Command("bash", "-c", line)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "USER=kim", "LAYOVER_DATA=", "LAYOVER_SERVER=")
	return cmd
}

func (s *shell) serve(line string) {
	s.t.Helper()
	cmd := s.bash("exec " + line)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	s.until("the server is up", func() bool {
		return s.bash("go run ./cmd/layover agents").Run() == nil
	})
}

// pending is the approval the story waits for.
func (s *shell) pending() string {
	s.t.Helper()
	out, err := s.bash("go run ./cmd/layover approvals --json").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	var a struct{ ID string }
	if err := json.Unmarshal(out, &a); err != nil {
		s.t.Fatalf("approvals: %v\n%s", err, out)
	}
	return a.ID
}

func (s *shell) settle() {
	s.t.Helper()
	s.until("the run is settled", func() bool {
		out, err := s.bash("go run ./cmd/layover status demo --json").Output()
		return err == nil && bytes.Contains(out, []byte(`"state":"idle"`))
	})
}

func (s *shell) gone() {
	s.t.Helper()
	s.until("the server is gone", func() bool {
		return s.bash("go run ./cmd/layover agents").Run() != nil
	})
}

func (s *shell) until(what string, holds func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for !holds() {
		if ctx.Err() != nil {
			s.t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *shell) end() {
	_ = s.bash(`kill "$(cat .layover/lock)"`).Run()
	s.gone()
}

// normal takes out what differs from run to run.
func normal(s string) string {
	for pattern, name := range map[string]string{
		`s_[a-z2-7]{26}`:                 "ID",
		`\b[0-9a-f]{64}\b`:               "DIGEST",
		`\b[0-9a-f]{8}\b`:                "ATTEMPT",
		`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`: "TIME",
	} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, name)
	}
	return s
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
