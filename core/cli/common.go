package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/record"
)

const (
	defaultTenant = "local"
	defaultData   = ".layover"
	defaultListen = "127.0.0.1:7077"
)

// connect makes the client of the server this command line is about.
func (a *app) connect() (*client.Client, error) {
	for _, id := range []struct{ flag, value string }{{"--tenant", a.tenant}, {"--as", a.as}} {
		if id.value == "" || strings.TrimSpace(id.value) != id.value || !utf8.ValidString(id.value) || strings.ContainsFunc(id.value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, usage("%s %q is not a printable name", id.flag, id.value)
		}
	}
	server, boot := a.server, ""
	if server == "" {
		running, ok := runningServer(a.data)
		switch {
		case ok:
			server, boot = running.URL, running.Boot
		case a.data != defaultData:
			return nil, fail(exitBroken, "no server", "start `"+a.Program+" dev --data "+event.Quote(a.data)+"`, or name a server with --server",
				"none uses the data directory %s", show(a.data, 0))
		default:
			server = "http://" + defaultListen
		}
	}
	if _, _, err := net.SplitHostPort(server); err == nil && !strings.Contains(server, "://") {
		server = "http://" + server // as --listen has it
	}
	c, err := client.New(server, client.Options{Tenant: a.tenant, Principal: a.as, Boot: boot, Token: a.Getenv("LAYOVER_TOKEN")})
	if err != nil {
		return nil, usage("%s", strings.TrimPrefix(err.Error(), "client: "))
	}
	return c, nil
}

// serverFile says who serves a data directory. It is a convenience: the file
// of a server that was killed stays behind.
type serverFile struct {
	URL  string `json:"url"`
	PID  int    `json:"pid"`
	Boot string `json:"boot,omitempty"` // what that server says of itself
}

func serverPath(data string) string { return filepath.Join(data, "server.json") }

func runningServer(data string) (f serverFile, ok bool) {
	raw, err := os.ReadFile(serverPath(data))
	return f, err == nil && json.Unmarshal(raw, &f) == nil && f.URL != ""
}

// printJSON writes one value as one line.
func (a *app) printJSON(v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := a.Stdout.Write(spelled(buf.Bytes()))
	return err
}

// spelled escapes what a terminal would obey or hide, which in JSON can only
// stand inside strings. A reader of JSON sees no difference.
func spelled(line []byte) []byte {
	hidden := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) && r != utf8.RuneError }
	if bytes.IndexFunc(line, hidden) < 0 {
		return line
	}
	var out bytes.Buffer
	for _, r := range string(line) {
		switch {
		case !hidden(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.Bytes()
}

func (a *app) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Stdout, format, args...) // a closed pipe: nobody reads
}

// note says something beside the output.
func (a *app) note(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Stderr, format, args...) // nobody reads
}

// show is a value of somebody else in a table.
func show(s string, limit int) string { return event.Printable(s, limit) }

// clock is a time for a person: local, without what does not matter.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// readJSON reads a flag that is JSON, @FILE or - for standard input.
func (a *app) readJSON(flag, given string) (json.RawMessage, error) {
	raw, err := a.source(given)
	if err != nil {
		return nil, usage("%s: %v", flag, err)
	}
	canonical, err := record.Canonical(raw)
	if err != nil {
		f := usage("%s: %v", flag, err)
		f.todo = "put JSON into single quotes, a text as '\"text\"', or name a file with @FILE"
		return nil, f
	}
	return canonical, nil
}

// maxInput is more than any server takes, so that it is the server that says
// what is too much.
const maxInput = 16 << 20

func (a *app) source(given string) ([]byte, error) {
	switch {
	case given == "-":
		return io.ReadAll(io.LimitReader(a.Stdin, maxInput))
	case strings.HasPrefix(given, "@"):
		return os.ReadFile(given[1:])
	}
	return []byte(given), nil
}

// conversation is the one argument of many commands, or what --submission
// belongs to.
func (a *app) conversation(ctx context.Context, c *client.Client, args []string, submission string) (string, error) {
	switch {
	case len(args) == 1 && args[0] != "":
		return args[0], nil
	case submission != "":
		p, err := c.Progress(ctx, "", submission, client.UntilSettled, 0)
		return p.Conversation, err
	}
	f := usage("name a CONVERSATION, or a submission with --submission")
	f.todo = "`" + a.Program + " list` shows the conversations"
	return "", f
}

// oneConversation is for commands about a whole conversation.
func (a *app) oneConversation(ctx context.Context, c *client.Client, args []string, submission string) (string, error) {
	if len(args) > 0 && submission != "" {
		return "", usage("name a CONVERSATION or a --submission, not both")
	}
	return a.conversation(ctx, c, args, submission)
}

// fill is Sprintf for help texts, indented as cobra wants them.
func fill(text string, args ...any) string { return strings.TrimSpace(fmt.Sprintf(text, args...)) }

// exampleSubmit is a command line that works for the first agent.
func (a *app) exampleSubmit(more string) string {
	if len(a.Agents) == 0 {
		return a.Program + " submit --agent AGENT --input '{…}'" + more
	}
	return submitLine(a.Program, a.Agents[0], "") + more
}

func submitLine(program string, d Agent, conversation string) string {
	line := program + " submit --agent " + event.Quote(d.Engine().Facts.Name)
	if conversation != "" {
		line += " --conversation " + event.Quote(conversation)
	}
	return line + " --input " + event.Quote(string(exampleInput(d.Engine().Facts.Input)))
}

// exampleInput takes the first example out of an input schema.
func exampleInput(schema json.RawMessage) json.RawMessage {
	var s struct {
		Examples []json.RawMessage `json:"examples"`
	}
	if err := json.Unmarshal(schema, &s); err != nil || len(s.Examples) == 0 {
		return json.RawMessage("{}")
	}
	return s.Examples[0]
}

// command makes a cobra command with an example and a body.
func (a *app) command(use, short, long, example string, args cobra.PositionalArgs, do func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: short + ".\n\n" + strings.TrimSpace(long), Args: args, RunE: a.run(do),
		Example: "  " + strings.ReplaceAll(strings.TrimSpace(example), "\n", "\n  "), DisableFlagsInUseLine: true}
}
