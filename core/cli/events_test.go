package cli_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/cli"
)

func TestEvents(t *testing.T) {
	s := newShell(t)
	s.ok("submit", "--agent", "payer", "--conversation", "c1", "--key", "k", "--input", `{"cents":7}`, "--wait=parked")
	out := s.ok("events", "c1")
	for _, want := range []string{"payer starts, for ada@local", `→ pay({"cents":7})`, "waits for approval of pay", "layover approve s_"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	events := s.lines(0, "events", "c1")
	if len(events) != 6 || events[5]["kind"] != "RunSuspended" || events[5]["id"] != "6" {
		t.Fatalf("events = %v", events)
	}
	for _, e := range events {
		s.has(e, "v", "kind", "run", "conversation", "agent", "sequence", "epoch", "at", "data", "id")
	}
	if rest := s.lines(0, "events", "c1", "--after", "4"); len(rest) != 2 || rest[0]["id"] != "5" {
		t.Errorf("after 4: %v", rest)
	}
	if of := s.lines(0, "events", "--submission", events[0]["run"].(string)); len(of) != 6 {
		t.Errorf("of the submission: %v", of)
	}
}

// follow runs a command in the background and hands out its lines.
func (s *shell) follow(args ...string) (lines <-chan string, stop func() int) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := cli.Run(ctx, cli.Env{Args: args, Stdin: strings.NewReader(""), Stdout: in, Stderr: io.Discard,
			Getenv: func(name string) string { return s.env[name] }, Agents: agents()})
		in.Close()
		ended <- code
	}()
	list := make(chan string, 1000)
	go func() {
		defer close(list)
		dec := json.NewDecoder(out)
		for {
			var v map[string]any
			if dec.Decode(&v) != nil {
				return
			}
			list <- v["kind"].(string)
		}
	}()
	return list, func() int { cancel(); return <-ended }
}

// Who follows sees what happens next and ends with an interrupt, in order.
func TestFollow(t *testing.T) {
	s := newShell(t)
	s.ok("submit", "--agent", "payer", "--conversation", "c1", "--key", "k", "--input", `{"cents":7}`, "--wait=parked")
	lines, stop := s.follow("events", "c1", "--follow", "--json")
	var seen []string
	for kind := range lines {
		if seen = append(seen, kind); kind == "RunSuspended" {
			s.ok("approve", s.line("approvals")["id"].(string))
		}
		if kind == "RunCompleted" {
			break
		}
	}
	if len(seen) != 12 {
		t.Errorf("seen %v", seen)
	}
	if code := stop(); code != 0 {
		t.Errorf("an interrupt ends it with %d", code)
	}
}

func TestTail(t *testing.T) {
	s := newShell(t)
	s.ok("submit", "--agent", "echo", "--conversation", "before", "--input", `"x"`, "--wait")
	lines, stop := s.follow("tail", "--json")
	// It begins with what happens once it listens, perhaps in the middle of a run:
	// work goes on until a run is seen from its start to its end.
	var seen []string
	for len(seen) == 0 || seen[len(seen)-1] != "RunCompleted" {
		s.ok("submit", "--agent", "echo", "--conversation", "c1", "--input", `"x"`, "--wait")
		for more := true; more; {
			select {
			case kind := <-lines:
				if kind == "RunStarted" || len(seen) > 0 {
					seen = append(seen, kind)
				}
				more = kind != "RunCompleted" || len(seen) == 0
			default:
				more = false
			}
		}
	}
	if strings.Count(strings.Join(seen, " "), "RunStarted") == 0 || seen[0] != "RunStarted" {
		t.Errorf("seen %v", seen)
	}
	if code := stop(); code != 0 {
		t.Errorf("an interrupt ends it with %d", code)
	}
}

// Steering and a follow-up are words of the same run.
func TestSteerAndFollowUp(t *testing.T) {
	s := newShell(t)
	s.ok("submit", "--agent", "payer", "--conversation", "c1", "--key", "k", "--input", `{"cents":7}`, "--wait=parked")
	s.stdin = "be polite"
	if out := s.ok("steer", "c1", "-"); !strings.Contains(out, "accepted") || !strings.Contains(out, "submission  s_") {
		t.Errorf("steer:\n%s", out)
	}
	steered := s.line("steer", "c1", "hurry", "--key", "k1")
	s.has(steered, "conversation", "submission", "key", "receipt", "by", "at")
	if again := s.line("steer", "c1", "hurry", "--key", "k1"); again["receipt"] != "duplicate" {
		t.Errorf("again: %v", again)
	}
	joined := s.line("follow-up", "c1", "--input", `{"cents":8}`)
	s.has(joined, "v", "submission", "conversation", "receipt", "at")
	s.ok("approve", s.line("approvals")["id"].(string))
	s.ok("submit", "--agent", "payer", "--conversation", "c1", "--key", "k", "--input", `{"cents":7}`, "--wait=parked", "--timeout", "60s")
	if out := s.ok("events", "c1"); !strings.Contains(out, "steered by ada@local: \"be polite\"") {
		t.Errorf("events:\n%s", out)
	}
}
