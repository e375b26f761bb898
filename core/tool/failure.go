package tool

import (
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/layover-run/layover/core/record"
)

func failed(outcome record.Outcome, tag, message string, err error) Result {
	type body struct {
		Message string `json:"message"`
		Tag     string `json:"tag"`
	}
	value, encodeErr := Encode(struct {
		Error body `json:"error"`
	}{body{bounded(message, maxMessage), tag}})
	if encodeErr != nil { // two strings always encode
		panic(encodeErr)
	}
	return Result{Outcome: outcome, Value: value, Tag: tag, Err: err}
}

// fixedText is all a model learns from an error that chose no message.
const fixedText = "the tool failed"

// maxMessage bounds what an error may tell the model, in bytes.
const maxMessage = 4 << 10

var validTag = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]{0,63}$`)

// tagOf is the error's own tag when it has a usable one.
func tagOf(err error, otherwise string) string {
	var tagged interface {
		error
		Tag() string
	}
	if errors.As(err, &tagged) {
		if tag := tagged.Tag(); validTag.MatchString(tag) {
			return tag
		}
	}
	return otherwise
}

func messageOf(err error) string {
	var chosen interface {
		error
		ModelMessage() string
	}
	if errors.As(err, &chosen) {
		if text := chosen.ModelMessage(); text != "" {
			return text
		}
	}
	return fixedText
}

// Failf is an error the model is told about: its tag, a short stable name such
// as order-not-found, and its whole message, to which a wrapped error (%w)
// contributes its text as any other argument does. Wrapped errors stay
// reachable. A tag that is empty, or no letter followed by at most 63 letters,
// digits, "_", "." and "-", gives way to ToolError.
func Failf(tag, format string, args ...any) error {
	return &toldError{tag: tag, err: fmt.Errorf(format, args...)}
}

type toldError struct {
	tag string
	err error
}

func (e *toldError) Error() string        { return e.tag + ": " + e.err.Error() }
func (e *toldError) Unwrap() error        { return e.err }
func (e *toldError) Tag() string          { return e.tag }
func (e *toldError) ModelMessage() string { return e.err.Error() }

// Abort wraps an error after which the run makes no sense: the run fails, and
// no model is asked again.
func Abort(err error) error {
	if err == nil {
		err = errors.New("aborted without an error")
	}
	return &abortError{err}
}

type abortError struct{ err error }

func (e *abortError) Error() string { return e.err.Error() }
func (e *abortError) Unwrap() error { return e.err }

// bounded cuts s to at most limit bytes at a rune border.
func bounded(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const ellipsis = "…"
	cut := limit - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}
