package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Certify compares what a sweep did with its committed certificate in dir, or
// writes it there. The certificate says which cells there are, all of which
// came to their outcome; it holds nothing that differs from one machine to the
// next. A sweep in which a cell failed certifies nothing.
func Certify(t *testing.T, r Result, dir string, write bool) {
	t.Helper()
	if t.Failed() {
		return
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"sweep-" + r.Store + ".json": append(raw, '\n'), "sweep-" + r.Store + ".md": r.page()} {
		path := filepath.Join(dir, name)
		if write {
			if err := os.WriteFile(path, body, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if committed, err := os.ReadFile(path); err != nil {
			t.Errorf("%v: run `make certificates`", err)
		} else if !bytes.Equal(committed, body) {
			t.Errorf("%s says something else than this sweep: run `make certificates` and look at the difference", path)
		}
	}
}

// deaths says what happens at a failpoint.
var deaths = map[Death]string{
	Process:    "a process dies: everything in memory and every waiting wake is lost, and another process opens the store",
	Pause:      "one invocation stops where it is: the others take it for dead and do all the work, and then it goes on",
	Overtaken:  "the lease of one invocation is judged over too early: another attempt takes the lane and does what it can, and then the first one goes on, by its own clock still in time",
	Submission: "at that instant one more submission is accepted, before the call goes on",
	Abort:      "at that instant somebody asks for an abort and is answered, before the call goes on",
	Invocation: "one invocation dies: its message is delivered again, and its lease has to run out, because nothing else tells the others that it is gone",
}

// page is the certificate for people.
func (r Result) page() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Sweep of %s\n\nRead this to see what was proven about recovery on this store. It is written by `make certificates`; CI writes it again and compares.\n\n", r.Store)
	fmt.Fprintf(&out, "At every pass of every failpoint of every scenario, once for each, this happens: %s", deaths[r.Death])
	if r.Passes > 0 {
		fmt.Fprintf(&out, " (of each point the first %d passes)", r.Passes)
	}
	fmt.Fprintf(&out, ". Then requests repeated until they are answered, wakes delivered again and a sweep a minute drive the conversation on, and nothing else. "+
		"Each of the **%d cells** came to the outcome of its scenario, with its effects counted and every rule of `core.CheckConversation` holding, then and at the end.\n\n", r.Cells)
	out.WriteString("| Scenario | Cells | Story |\n|---|---:|---|\n")
	for _, s := range r.Scenarios {
		fmt.Fprintf(&out, "| %s | %d | %s |\n", s.Name, s.Cells, s.About)
	}
	out.WriteString("\nHow often a play without a death passes each point:\n\n| Point | Passes | In |\n|---|---:|---|\n")
	for _, point := range r.Points {
		total, in := 0, []string(nil)
		for _, s := range r.Scenarios {
			if n := s.Passes[point]; n > 0 {
				total += n
				in = append(in, fmt.Sprintf("%s %d", s.Name, n))
			}
		}
		fmt.Fprintf(&out, "| `%s` | %d | %s |\n", point, total, strings.Join(in, " · "))
	}
	not := "none"
	if len(r.NotExercised) > 0 {
		not = "`" + strings.Join(slices.Clone(r.NotExercised), "`, `") + "`"
	}
	fmt.Fprintf(&out, "\nPoints that no scenario passes: %s.\n", not)
	return out.Bytes()
}
