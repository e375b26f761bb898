package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
)

// exitCode is what the process ends with. As an error it ends a command whose
// output has already said everything.
type exitCode int

const (
	exitOK      exitCode = 0 // done as asked
	exitFailed  exitCode = 1 // the run failed or was aborted
	exitUsage   exitCode = 2 // wrong usage
	exitWaiting exitCode = 3 // still waiting when the time was over
	exitRefused exitCode = 4 // conflict, not found, expired, already decided
	exitBroken  exitCode = 5 // server unreachable, or internal
)

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// failure is what a person is told: layover: what failed: why. What to do.
type failure struct {
	code exitCode
	what string
	why  string
	todo string
}

func (f *failure) Error() string { return f.what + ": " + f.why }

func usage(format string, args ...any) *failure {
	return &failure{code: exitUsage, what: "usage", why: fmt.Sprintf(format, args...)}
}

func fail(code exitCode, what, todo, format string, args ...any) *failure {
	return &failure{code: code, what: what, todo: todo, why: fmt.Sprintf(format, args...)}
}

// line is the failure as the one line that goes to stderr.
func (f *failure) line() string {
	why := event.Printable(oneLine(f.why), 2000)
	return "layover: " + f.what + ": " + sentence(why) + " " + sentence(event.Printable(oneLine(f.todo), 500))
}

// oneLine joins what a library tells in several lines.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}

// sentence ends with one period.
func sentence(s string) string { return strings.TrimRight(strings.TrimSpace(s), ".") + "." }

func upperFirst(s string) string {
	if s != "" && s[0] >= 'a' && s[0] <= 'z' {
		return string(s[0]-'a'+'A') + s[1:]
	}
	return s
}

// explain gives every error of a command its exit code and its next step.
func (a *app) explain(err error) *failure {
	var f *failure
	var p *client.Problem
	var u *client.Unreachable
	switch {
	case errors.As(err, &f):
	case errors.As(err, &p):
		f = &failure{code: exitOf(p), what: p.Op, why: p.Detail, todo: p.Hint}
		if f.todo == "" || f.todo == wire.Hint(p.Kind) { // it is said in words of HTTP
			f.todo = a.nextStep(p)
		}
	case errors.As(err, &u):
		f = fail(exitBroken, "no server", "is `"+a.Program+" dev` running? Name another server with --server", "%s does not answer: %v", u.URL, u.Err)
	case errors.Is(err, context.Canceled):
		f = fail(exitBroken, "stopped", "commands are safe to repeat; give submit a --key to repeat it", "interrupted before the answer came")
	default:
		f = fail(exitBroken, "internal", "try again; if it stays, look at the server's output", "%v", err)
	}
	f.todo = upperFirst(strings.ReplaceAll(f.todo, "`layover ", "`"+a.Program+" "))
	return f
}

func exitOf(p *client.Problem) exitCode {
	switch engine.ErrorKind(p.Kind) {
	case engine.KindInvalid, engine.KindTooLarge:
		return exitUsage
	case engine.KindNotFound, engine.KindConflict, engine.KindDecided, engine.KindExpired, engine.KindSettled,
		engine.KindFull, engine.KindUnsupported, wire.KindForbidden, wire.KindUnauthorized:
		return exitRefused
	}
	return exitBroken
}

// nextStep is for problems that come without one.
func (a *app) nextStep(p *client.Problem) string {
	switch engine.ErrorKind(p.Kind) {
	case engine.KindInvalid, engine.KindTooLarge, engine.KindUnsupported:
		return "" // the usage of the command
	case engine.KindDecided:
		return "`layover approvals` lists what still waits"
	case engine.KindSettled:
		return "`layover status CONVERSATION` shows how it ended"
	case engine.KindNotFound:
		return "check the name and --tenant"
	case engine.KindFull:
		return "try again later"
	case engine.KindConflict, engine.KindExpired:
		return "submit again with another key"
	case engine.KindUnavailable:
		return "try again; the request is safe to repeat"
	}
	return "look at the server's output"
}
