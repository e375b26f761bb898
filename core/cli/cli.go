// Package cli is the command line as a library: a program that calls Main with
// its own agents is a complete Layover.
//
//	func main() { cli.Main(orders.Agent()) }
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/engine"
)

// Agent is what a command line can run: an *agent.Definition, which `dev` binds
// to the demo model, or an *agent.Binding with a model of its own.
type Agent interface{ Engine() engine.Definition }

// Main runs the command line of this process and exits. The first interrupt
// lets it finish in order, the second one ends it at once. Definitions and
// bindings go together as Main[Agent](definition, binding).
func Main[A Agent](agents ...A) {
	list := make([]Agent, len(agents))
	for i, a := range agents {
		list[i] = a
	}
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away is an error to see, not a death
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-ctx.Done()
		stop()
	}()
	os.Exit(Run(ctx, Env{Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Columns: terminalColumns(os.Stdout), ErrColumns: terminalColumns(os.Stderr), Unread: func() { untilUnread(os.Stdout) }, Agents: list, Program: programName(os.Args[0])}))
}

// Env is everything a command line depends on.
type Env struct {
	Args   []string // without the program's name
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string
	// Columns tells how wide the terminal is that Stdout is, 0 when it is none;
	// ErrColumns the same of Stderr. Nil is no terminal: no colours there, no
	// line that moves, and tables as wide as they are.
	Columns, ErrColumns func() int
	// Unread returns once nobody can read Stdout any more, so that a command
	// that follows ends with its reader. Nil: it learns so from its next write.
	Unread func()
	// Agents are what `dev` runs, and whose inputs the help shows.
	Agents []Agent
	// Program is how the reader of a message calls this program. Defaults to
	// "layover".
	Program string
}

// Run executes one command line and returns its exit code.
func Run(ctx context.Context, env Env) int {
	if env.Program == "" {
		env.Program = "layover"
	}
	stdout := &lockedWriter{w: env.Stdout}
	env.Stdout, env.Stderr = stdout, &lockedWriter{w: env.Stderr}
	a := &app{Env: env, stdout: stdout}
	root := a.root()
	root.SetArgs(append([]string{}, env.Args...)) // nil would mean os.Args
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var quiet exitCode
	var said *failure
	if lost := stdout.failed(); lost != nil && (err == nil || errors.Is(err, lost)) {
		a.started, err = true, fail(exitBroken, "output", "free some space, or write it somewhere else", "%v", lost)
	}
	switch {
	case err == nil:
		return int(exitOK)
	case errors.As(err, &quiet):
		return int(quiet)
	case !a.started && !errors.As(err, &said): // cobra refused the command line before any command ran
		err = usage("%s", strings.Join(strings.Fields(err.Error()), " "))
	}
	f := a.explain(err)
	if f.todo == "" {
		f.todo = "`" + cmd.CommandPath() + " --help` shows the usage"
	}
	_, _ = io.WriteString(env.Stderr, f.line()+"\n")
	return int(f.code)
}

// app is one command line: its environment and its global flags.
type app struct {
	Env
	stdout  *lockedWriter
	started bool // a command runs: what fails now is not the command line

	json   bool
	tenant string
	as     string
	server string
	data   string
}

const about = `Layover runs AI agents that can stop at any moment and go on later.

Start a server with all agents of this program, then give it work:

  %[1]s dev
  %[2]s`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           commandName(a.Program) + " COMMAND [flags]",
		Short:         "Runs AI agents that can stop at any moment and go on later",
		Long:          fill(about, a.Program, a.exampleSubmit("")),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: a.Program},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) > 0 {
				return unknownCommand(cmd, given[0])
			}
			return nil
		},
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if !a.json { // who asks for nothing wants to know what there is
				if err := cmd.Help(); err != nil {
					return err
				}
				a.printf("\n")
			}
			return usage("no command was given")
		}),
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
	}
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print JSON, one value for each line")
	flags.StringVar(&a.tenant, "tenant", a.fallback("LAYOVER_TENANT", defaultTenant), "whose conversations; env LAYOVER_TENANT")
	flags.StringVar(&a.as, "as", a.principal(), "who asks")
	flags.StringVar(&a.server, "server", a.Getenv("LAYOVER_SERVER"), "the server; env LAYOVER_SERVER (else that of the data directory)")
	flags.StringVar(&a.data, "data", a.fallback("LAYOVER_DATA", defaultData), "the data directory; env LAYOVER_DATA")
	flags.BoolP("help", "h", false, "show the help of a command")
	root.AddGroup(groups()...)
	for group, commands := range map[string][]*cobra.Command{
		groupBegin:  {a.devCommand(), a.newCommand(), a.agentsCommand()},
		groupWork:   {a.submitCommand(), a.followUpCommand(), a.steerCommand(), a.abortCommand(), a.sendCommand()},
		groupWatch:  {a.listCommand(), a.statusCommand(), a.eventsCommand(), a.tailCommand(), a.recordsCommand(), a.verifyCommand()},
		groupDecide: {a.approvalsCommand(), a.decideCommand("approve"), a.decideCommand("deny"), a.resolveCommand()},
		groupOther:  {a.completionCommand(), a.versionCommand()},
	} {
		for _, cmd := range commands {
			cmd.GroupID = group
		}
		root.AddCommand(commands...)
	}
	root.SetHelpCommandGroupID(groupOther)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagProblem)
	a.completions(root)
	a.help(root)
	return root
}

// run marks that the command line was understood.
func (a *app) run(do func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if a.data == "" {
			return usage("--data is empty")
		}
		a.started = true
		return do(cmd, args)
	}
}

func (a *app) fallback(variable, otherwise string) string {
	if v := a.Getenv(variable); v != "" {
		return v
	}
	return otherwise
}

// principal is the default of --as.
func (a *app) principal() string {
	for _, variable := range []string{"USER", "LOGNAME", "USERNAME"} {
		if user := a.Getenv(variable); user != "" {
			return user + "@local"
		}
	}
	return "anonymous"
}

// programName is what a reader can type to run this program again. `go run`
// deletes the binary, so there it is the package that is named.
func programName(arg0 string) string {
	if strings.Contains(filepath.ToSlash(arg0), "/go-build") {
		if info, ok := debug.ReadBuildInfo(); ok && info.Path != "" && info.Path != "command-line-arguments" {
			return "go run " + info.Path
		}
	}
	name := filepath.Base(arg0)
	if found, err := exec.LookPath(name); err == nil {
		if given, err := filepath.Abs(arg0); arg0 == name || err == nil && given == found {
			return name
		}
	}
	return arg0
}

// lockedWriter keeps lines of concurrent writers whole.
type lockedWriter struct {
	mu  sync.Mutex
	w   io.Writer
	err error // the first one
	eof bool  // nobody reads any more
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.w.Write(b)
	l.eof = l.eof || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
	if l.err == nil && !errors.Is(err, syscall.EPIPE) { // a reader that has seen enough is no failure
		l.err = err
	}
	return n, err
}

// closed reports that nobody reads any more.
func (l *lockedWriter) closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.eof
}

func (l *lockedWriter) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
