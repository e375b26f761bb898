package event

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/layover-run/layover/core/record"
)

// Bounds of what a line shows of values somebody else made, in characters.
const (
	nameLimit  = 64
	valueLimit = 160
	textLimit  = 300
)

// Line tells a person what happened: the time as the event has it, the
// conversation, and one sentence. It is empty for an event that says nothing a
// neighbour does not say. Command is how the reader calls the CLI, for the
// commands a line proposes.
func Line(e Event, command string) string {
	what := sentence(e, command)
	if what == "" {
		return ""
	}
	if e.Turn > 0 {
		what = fmt.Sprintf("turn %d %s", e.Turn, what)
	}
	return fmt.Sprintf("%s  %s  %s", e.At.Format(time.TimeOnly), Printable(e.Conversation, nameLimit), what)
}

func sentence(e Event, command string) string {
	switch d := e.Data.(type) {
	case RunStarted:
		return fmt.Sprintf("%s starts, for %s", name(e.Agent), name(d.Principal))
	case ToolCallDeclared:
		if d.Problem != "" {
			return fmt.Sprintf("→ %s is not possible: %s", name(d.Tool), Printable(d.Problem, textLimit))
		}
		return fmt.Sprintf("→ %s(%s)", name(d.Tool), value(d.Args, d.ArgsAside))
	case ToolCallStarted:
		if d.Execution == 1 {
			return ""
		}
		return fmt.Sprintf("→ %s runs again, execution %d", name(d.Tool), d.Execution)
	case ToolCallProgress:
		return fmt.Sprintf("  %s: %s", name(d.Tool), Printable(d.Message, textLimit))
	case ToolCallSucceeded:
		return fmt.Sprintf("← %s%s: %s", name(d.Tool), source(d.Source), value(d.Result, d.ResultAside))
	case ToolCallFailed:
		return fmt.Sprintf("← %s%s %s: %s", name(d.Tool), source(d.Source), failedAs(d.Outcome), value(d.Result, d.ResultAside))
	case ApprovalRequested:
		return fmt.Sprintf("waits for approval of %s(%s)  approve with: %s approve %s", name(d.Tool), value(d.Args, d.ArgsAside), command, Quote(d.Approval))
	case ApprovalResolved:
		if d.Decision == record.Expired {
			return name(d.Tool) + " was not decided in time"
		}
		return fmt.Sprintf("%s %s%s", name(d.Tool), name(string(d.Decision)), byWhom(d.By, d.Reason))
	case SteeringApplied:
		return fmt.Sprintf("steered by %s: %s", name(d.By), value(d.Text, d.TextAside))
	case FollowUpApplied:
		return "goes on with a follow-up: " + value(d.Text, d.TextAside)
	case ContextCompacted:
		return "condensed its history"
	case BudgetWarning:
		return fmt.Sprintf("has used %d of %d %s", d.Used, d.Limit, name(d.Dimension))
	case RunSuspended:
		return suspended(e, d, command)
	case RunCompleted:
		exhausted := ""
		if d.Exhausted != "" {
			exhausted = ", out of " + name(d.Exhausted)
		}
		return fmt.Sprintf("completed in %s%s: %s", count(d.Turns, "turn"), exhausted, value(d.Output, d.OutputAside))
	case RunFailed:
		return fmt.Sprintf("failed: %s: %s", name(d.Error.Kind), Printable(d.Error.Message, textLimit))
	case RunInterrupted:
		if d.Error == nil {
			return "aborted"
		}
		return Printable(d.Error.Message, textLimit)
	}
	return "" // the response is told by its calls or by the end of the run
}

func suspended(e Event, d RunSuspended, command string) string {
	until := ""
	if !d.Until.IsZero() {
		until = ", until " + d.Until.In(e.At.Location()).Format(time.TimeOnly)
	}
	on := Printable(strings.Join(d.On, ", "), textLimit)
	switch d.Reason {
	case "approval":
		return "" // each approval has its own line
	case "unknown":
		return fmt.Sprintf("waits: nobody knows whether %s happened  say what is true with: %s resolve %s %s happened|notHappened|safeToRetry",
			Printable(strings.Join(d.Tools, ", "), textLimit), command, Quote(e.Conversation), Quote(first(d.On)))
	case "backoff":
		return fmt.Sprintf("waits for the model (%s)%s", on, until)
	case "held":
		return fmt.Sprintf("is held: %s%s", on, until)
	}
	return fmt.Sprintf("waits: %s %s%s", name(d.Reason), on, until)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func failedAs(o record.Outcome) string {
	switch o {
	case record.DeniedCall:
		return "was denied"
	case record.Interrupted:
		return "was interrupted"
	case record.Aborted:
		return "ended the run"
	}
	return "failed"
}

func source(s string) string {
	if s == "" {
		return ""
	}
	return " (says the " + name(s) + ")"
}

func byWhom(by, reason string) string {
	out := ""
	if by != "" {
		out = " by " + name(by)
	}
	if reason != "" {
		out += ": " + Printable(reason, textLimit)
	}
	return out
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func name(s string) string { return Printable(s, nameLimit) }

func value(v json.RawMessage, aside *record.Ref) string {
	if aside != nil {
		return fmt.Sprintf("(%d bytes)", aside.Size)
	}
	return Printable(string(v), valueLimit)
}

// Printable shortens text to limit characters and spells out what a terminal
// would obey or hide: control characters, changes of direction, invisible ones.
// A limit of 0 shortens nothing.
func Printable(s string, limit int) string {
	var out strings.Builder
	n := 0
	for i, r := range s {
		if limit > 0 && n == limit {
			out.WriteString("…")
			break
		}
		n++
		switch {
		case r == utf8.RuneError && s[i] != "\uFFFD"[0]:
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return out.String()
}

// Quote makes one word of a POSIX shell of a text.
func Quote(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !safe(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(Printable(s, 0), "'", `'\''`) + "'"
}
