package failpoint_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/layover-run/layover/core/failpoint"
)

var (
	near = failpoint.New("test.near")
	far  = failpoint.New("test.far")
)

// child makes this binary pass points and say so, instead of testing.
const child = "FAILPOINT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	if err := failpoint.Arm(); err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(3)
	}
	defer os.Stdout.WriteString("deferred ") // must not run after a kill
	for range 5 {
		far.Hit()
		near.Hit()
		os.Stdout.WriteString("near ")
	}
}

// passes runs the child with an armed point: what it wrote, and how it ended.
func passes(t *testing.T, spec string) (string, *os.ProcessState) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1", failpoint.Variable+"="+spec)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState
}

// An armed point kills the process with SIGKILL at its nth pass: nothing runs
// behind it, no deferred call either.
func TestKill(t *testing.T) {
	for spec, want := range map[string]string{
		"test.near":   "",
		"test.near:1": "",
		"test.near:3": "near near ",
		"test.far:2":  "near ",
	} {
		out, state := passes(t, spec)
		status, ok := state.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
			t.Errorf("%s: the child ended with %s", spec, state)
		}
		if out != want {
			t.Errorf("%s: the child wrote %q, want %q", spec, out, want)
		}
	}
	for _, spec := range []string{"", "test.near:6"} {
		out, state := passes(t, spec)
		if !state.Success() || !strings.HasSuffix(out, "near deferred ") {
			t.Errorf("%q: %q, %s", spec, out, state)
		}
	}
	if out, state := passes(t, "test.nowhere"); state.ExitCode() != 3 || !strings.Contains(out, "test.nowhere") {
		t.Errorf("%q, %s", out, state)
	}
}

func TestArmRefuses(t *testing.T) {
	defer failpoint.Set(nil)
	var passed atomic.Int64
	failpoint.Set(func(string) { passed.Add(1) })
	for spec, want := range map[string]string{
		"test.nowhere":   "no such failpoint",
		"test.nowhere:2": "no such failpoint",
		"test.near:0":    "positive number",
		"test.near:-1":   "positive number",
		"test.near:":     "positive number",
		"test.near:two":  "positive number",
		"test.near:1:2":  "positive number",
		"test.near:1.5":  "positive number",
		"test.near ":     "no such failpoint",
		":1":             "no such failpoint",
	} {
		t.Setenv(failpoint.Variable, spec)
		err := failpoint.Arm()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), failpoint.Variable+"="+spec) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	t.Setenv(failpoint.Variable, "")
	if err := failpoint.Arm(); err != nil {
		t.Error(err)
	}
	if near.Hit(); passed.Load() != 1 {
		t.Error("a refused or empty setting replaced the hook")
	}
}

// A hook hears of every pass by name, from whatever goroutine, until it is
// removed.
func TestHook(t *testing.T) {
	defer failpoint.Set(nil)
	near.Hit() // nothing is armed
	var mu sync.Mutex
	passes := map[string]int{}
	nth := 0
	failpoint.Set(func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if passes[name]++; name == "test.near" && passes[name] == 3 {
			nth = passes["test.far"]
		}
	})
	for range 4 {
		far.Hit()
		near.Hit()
	}
	if passes["test.near"] != 4 || passes["test.far"] != 4 || nth != 3 {
		t.Errorf("%v, third pass after %d", passes, nth)
	}
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 50 {
				near.Hit()
			}
		})
	}
	running.Wait()
	failpoint.Set(nil)
	if near.Hit(); passes["test.near"] != 404 {
		t.Errorf("%d passes heard, want 404", passes["test.near"])
	}
}

func TestNames(t *testing.T) {
	names := failpoint.Names()
	if !slices.IsSorted(names) || !slices.Contains(names, "test.near") || !slices.Contains(names, "test.far") {
		t.Error(names)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name was registered twice")
		}
	}()
	failpoint.New("test.near")
}

func BenchmarkHit(b *testing.B) {
	for b.Loop() {
		near.Hit()
	}
}
