package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What `new` makes builds, is formatted, passes its own tests and has no need
// of anything else.
func TestNew(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	s := &shell{t: t, env: map[string]string{}}
	out := s.ok("new", "lamp-shop", "--module", "example.com/lamps", "--replace", root)
	for _, want := range []string{"example.com/lamps", "cd lamp-shop", "go test ./...", "go run . dev"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "go mod tidy") {
		t.Errorf("Go could not tidy:\n%s", out)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = "lamp-shop"
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	if unformatted := run("gofmt", "-l", "."); unformatted != "" {
		t.Errorf("not formatted: %s", unformatted)
	}
	run("go", "vet", "./...")
	run("go", "test", "./...")
	if help := run("go", "run", ".", "--help"); !strings.Contains(help, `--agent lamp-shop --input '{"item":"lamp","quantity":2}'`) {
		t.Errorf("its help is not about its agent:\n%s", help)
	}
	if mod, err := os.ReadFile("lamp-shop/go.mod"); err != nil || !strings.Contains(string(mod), "replace github.com/layover-run/layover => "+root+"\n") {
		t.Errorf("%v: %s", err, mod)
	}
	if r := s.run("new", "lamp-shop"); r.code != 4 || !strings.Contains(r.errout, "exists") {
		t.Errorf("over an existing directory: %+v", r)
	}
	if r := s.run("new", "missing/lamp"); r.code != 5 {
		t.Errorf("in a directory that is not there: %+v", r)
	}
}

// A program built from a copy of Layover makes modules that use this copy and
// says so; an empty directory may be there already, and Go's own words are
// passed on when it cannot tidy.
func TestNewFromSource(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	s := &shell{t: t, env: map[string]string{}}
	if err := os.Mkdir("here", 0o755); err != nil {
		t.Fatal(err)
	}
	if out := s.ok("new", "here"); !strings.Contains(out, "It uses the copy of Layover in "+root) {
		t.Errorf("it does not say what it uses:\n%s", out)
	}
	mod, err := os.ReadFile("here/go.mod")
	if err != nil || !strings.Contains(string(mod), "replace github.com/layover-run/layover => "+root+"\n") {
		t.Errorf("%v: %s", err, mod)
	}
	if r := s.run("new", "here"); r.code != 4 {
		t.Errorf("over its own files: %+v", r)
	}
	t.Setenv("GOFLAGS", "-nonsense")
	if r := s.run("new", "broken"); r.code != 0 || !strings.Contains(r.errout, "layover: go mod tidy: ") || !strings.Contains(r.errout, "nonsense") ||
		!strings.Contains(r.out, "cd broken\n  go mod tidy\n") {
		t.Errorf("where Go cannot tidy: %+v", r)
	}
	if v := s.line("new", "broken-json"); !strings.Contains(v["problem"].(string), "nonsense") {
		t.Errorf("as JSON: %v", v)
	}
}
