package cli

import (
	"context"
	"io"
	"log/slog"
	"strings"

	"github.com/layover-run/layover/core/event"
)

// logHandler writes what an operator should see as lines like those of any
// other error. A stack goes on lines of its own where a person reads.
type logHandler struct {
	out    io.Writer
	stacks bool
	attrs  []slog.Attr
}

func newLogHandler(out io.Writer, stacks bool) *logHandler {
	return &logHandler{out: out, stacks: stacks}
}

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{out: h.out, stacks: h.stacks, attrs: append(append([]slog.Attr{}, h.attrs...), attrs...)}
}

// WithGroup keeps the names as they are: nothing here uses groups.
func (h *logHandler) WithGroup(string) slog.Handler { return h }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var details []string
	stack := ""
	add := func(attr slog.Attr) bool {
		if attr.Key == "stack" && h.stacks {
			stack = attr.Value.String()
		} else {
			details = append(details, attr.Key+"="+event.Printable(oneLine(attr.Value.String()), 1000))
		}
		return true
	}
	for _, attr := range h.attrs {
		add(attr)
	}
	r.Attrs(add)
	line := "layover: " + event.Printable(oneLine(r.Message), 300)
	if len(details) > 0 {
		line += ": " + strings.Join(details, ", ")
	}
	line = sentence(line) + "\n"
	for l := range strings.Lines(stack) {
		line += "    " + event.Printable(strings.ReplaceAll(strings.TrimRight(l, "\n"), "\t", "    "), 0) + "\n"
	}
	_, err := io.WriteString(h.out, line)
	return err
}
