package main_test

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The requests of docs/http.md work as they stand there, one after the other,
// and are answered with the members that are shown.
func TestHTTPPage(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("LAYOVER_TOOLS") != "" {
			t.Fatal("no curl: install the package curl")
		}
		t.Skip("no curl: install the package curl")
	}
	binary := filepath.Join(t.TempDir(), "layover")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dev := exec.Command(binary, "dev", "--listen", "127.0.0.1:0", "--json", "--data", t.TempDir())
	dev.Env = append(os.Environ(), "ANTHROPIC_API_KEY=", "LAYOVER_TOKEN=")
	out, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Process.Kill(); _ = dev.Wait() })
	lines := bufio.NewScanner(out)
	var first struct{ URL string }
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &first) != nil || first.URL == "" {
		t.Fatalf("first line = %q", lines.Text())
	}
	go func() {
		for lines.Scan() {
			continue
		}
	}()
	ran := 0
	for _, c := range console(read(t, "../../docs/http.md")) {
		if !strings.HasPrefix(c.line, "curl ") {
			continue
		}
		ran++
		got, err := exec.Command("sh", "-c", strings.ReplaceAll(c.line, "http://127.0.0.1:7077", first.URL)).Output()
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		want, _, _ := strings.Cut(c.output, "\n")
		line, _, _ := strings.Cut(string(got), "\n")
		if g, w := members(t, line), members(t, want); g != w {
			t.Errorf("%s\nanswers with %s\nthe page shows %s\n%s", c.line, g, w, got)
		}
	}
	if ran < 5 {
		t.Errorf("only %d requests were found", ran)
	}
}

// members are the names in a JSON object, and what its words for a state are.
func members(t *testing.T, line string) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		t.Errorf("%v in %q", err, line)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		switch s, text := v[name].(string); {
		case text && !strings.ContainsAny(name[:1], "as") || name == "status" && text:
			names = append(names, name+"="+s)
		default:
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}
