package cli_test

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A program in a module of its own needs one call and gets everything.
func TestOwnApp(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "ownapp")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = filepath.Join("..", "..", "examples", "ownapp")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("examples/ownapp does not build; after a change of dependencies its go.mod and go.sum follow those of the root: %v\n%s", err, out)
	}
	data := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(binary, append(args, "--data", data)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		if strings.Contains(string(out), "refund") {
			t.Errorf("%v mentions an agent of another program:\n%s", args, out)
		}
		return string(out)
	}
	run("--help")

	dev := exec.Command(binary, "dev", "--listen", "127.0.0.1:0", "--json", "--data", data)
	out, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Process.Kill() }) // a no-op after Wait
	lines := bufio.NewScanner(out)
	var first struct{ URL string }
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &first) != nil || first.URL == "" {
		t.Fatalf("first line = %q", lines.Text())
	}
	var agent struct { // whatever it is, its own example has to work
		Name  string
		Input struct{ Examples []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(run("agents", "--json")), &agent); err != nil {
		t.Fatal(err)
	}
	if out := run("submit", "--agent", agent.Name, "--input", string(agent.Input.Examples[0]), "--wait", "--json"); !strings.Contains(out, `"status":"completed"`) {
		t.Errorf("submit = %s", out)
	}
	if err := dev.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		continue
	}
	if err := dev.Wait(); err != nil {
		t.Errorf("dev ended with %v", err)
	}
}
