package cli_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server with a token answers who has it, and tells it to nobody: not in its
// output, not in its data, not in an error.
func TestDevToken(t *testing.T) {
	const token = "canary-0123456789abcdef"
	data := t.TempDir()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDev(t, data, "--json", "--token-file", file)
	seen := d.until("url")
	s := &shell{t: t, env: map[string]string{"LAYOVER_DATA": data}}
	if r := s.run("agents"); r.code != 4 || !strings.Contains(r.errout, "LAYOVER_TOKEN") {
		t.Errorf("without the token: %+v", r)
	}
	s.env["LAYOVER_TOKEN"] = token + "x"
	r := s.run("agents")
	if r.code != 4 || !strings.Contains(r.errout, "this is not the token of this server") || strings.Contains(r.errout+r.out, "canary") {
		t.Errorf("with another: %+v", r)
	}
	s.env["LAYOVER_TOKEN"] = token
	out := s.ok("submit", "--agent", "echo", "--conversation", "c1", "--input", `"hi"`, "--wait")
	out += s.ok("events", "c1", "--json") + s.ok("records", "c1", "--json") + s.ok("status", "c1", "--json")
	seen = append(seen, d.until("RunCompleted")...)
	d.stop()
	if strings.Contains(out+strings.Join(seen, "\n")+d.errout.String(), "canary") {
		t.Error("the token was printed")
	}
	err := filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if bytes.Contains(body, []byte("canary")) {
			t.Errorf("the token is in %s", filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The proposals of a server with a token begin with what lets a terminal in,
// and an address may be given as --listen has it.
func TestDevTokenForPeople(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my token")
	if err := os.WriteFile(file, []byte("canary-0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	d := startDev(t, data, "--token-file", file)
	banner := strings.Join(d.until("what happens to runs"), "\n")
	if want := "try in another terminal:\n  export LAYOVER_TOKEN=\"$(cat '" + file + "')\"\n"; !strings.Contains(banner, want) {
		t.Errorf("no %q in\n%s", want, banner)
	}
	_, address, _ := strings.Cut(banner, "http://")
	s := &shell{t: t, env: map[string]string{"LAYOVER_TOKEN": "canary-0123456789abcdef", "LAYOVER_SERVER": strings.Fields(address)[0]}}
	if out := s.ok("list"); out != "no conversations yet\n" {
		t.Errorf("at %s: %s", s.env["LAYOVER_SERVER"], out)
	}
	d.stop()
}
