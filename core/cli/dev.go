package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/failpoint"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/demo"
)

// closeRuns is how long attempts may take to come to a safe boundary.
const closeRuns = 20 * time.Second

func (a *app) devCommand() *cobra.Command {
	var listen, tokenFile string
	var failpoints bool
	cmd := a.command("dev [flags]", "Runs everything in this process",
		`The API, the queues and all agents of this program, with their data in a directory.
What a killed server leaves behind goes on when it is started again. It shows what
happens to runs, with --json as events, one for each line.

It listens for this machine only. For any other address a token is required, in
--token-file or LAYOVER_TOKEN; clients send it when they have LAYOVER_TOKEN set.`,
		a.Program+" dev\n"+a.Program+" dev --listen 127.0.0.1:0 --data /tmp/try --json\n"+a.Program+" dev --listen 0.0.0.0:7077 --token-file token.txt",
		exactly(), func(cmd *cobra.Command, _ []string) error {
			if failpoints {
				return a.listFailpoints()
			}
			token, err := a.token(cmd, tokenFile)
			if err != nil {
				return err
			}
			return a.dev(cmd.Context(), listen, token, tokenFile)
		})
	cmd.Flags().StringVar(&listen, "listen", defaultListen, "address and port to listen on; port 0 takes a free one")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "a file with the token every request has to show (default: env LAYOVER_TOKEN)")
	cmd.Flags().BoolVar(&failpoints, "list-failpoints", false, "list where LAYOVER_FAILPOINT can kill the process, and exit")
	return cmd
}

// userError tells whoever runs the server what its own code returned. Nobody
// else learns it: not the model, not a caller, not the records.
func (a *app) userError(e engine.UserError) {
	if !a.json {
		_, _ = fmt.Fprintf(a.Stderr, "layover: %s: %s: %s.\n", show(e.Conversation, 64), show(e.Where, 128), show(e.Err.Error(), 1000))
	}
}

func (a *app) listFailpoints() error {
	for _, name := range failpoint.Names() {
		if !a.json {
			a.printf("%s\n", name)
		} else if err := a.printJSON(map[string]string{"failpoint": name}); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) dev(ctx context.Context, listen, token, tokenFile string) (err error) {
	if err := a.checkDev(listen, token); err != nil {
		return err
	}
	if a.data, err = filepath.Abs(a.data); err != nil {
		return fail(exitBroken, "dev", "name the data directory with --data", "%v", err)
	}
	// Tools keep what belongs to them beside the journal.
	if err := os.Setenv("LAYOVER_DATA", a.data); err != nil {
		return usage("--data: %v", err)
	}
	socket, err := bind(ctx, listen)
	if err != nil {
		return a.cannotListen(listen, err)
	}
	defer socket.Close()
	log := slog.New(newLogHandler(a.Stderr, !a.json))
	announced := make(chan struct{}) // what an earlier server left goes on at once: its events come after the address
	config := embedded.Config{Model: demo.New(), Log: log, OnUserError: a.userError, ConsolePrincipal: a.as,
		OnEvent: func(lane journal.Lane, e event.Event) { <-announced; a.showEvent(lane, e) }}
	for _, d := range a.Agents {
		config.Definitions = append(config.Definitions, d.Engine())
	}
	rt, err := embedded.Open(a.data, config)
	if err != nil {
		return a.cannotOpen(err)
	}
	url := "http://" + socket.Addr().String()
	if err := a.announce(url, rt.Boot(), a.tokenHint(tokenFile, token)); err != nil {
		close(announced)
		return errors.Join(err, rt.Close(ctx))
	}
	close(announced)
	defer a.forget(url)

	err = rt.Serve(ctx, socket, embedded.ServeOptions{Token: token})
	if err != nil {
		err = fail(exitBroken, "dev", "start it again", "%v", err)
	}
	if !a.json {
		a.printf("stopping; what is not done goes on at the next start\n")
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeRuns)
	defer cancel()
	return errors.Join(err, rt.Close(closing))
}

// token is what clients have to show: the content of a file, or of a variable.
func (a *app) token(cmd *cobra.Command, file string) (string, error) {
	if !cmd.Flags().Changed("token-file") {
		return a.Getenv("LAYOVER_TOKEN"), nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", usage("--token-file: %v", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", usage("--token-file %q is empty", file)
	}
	return token, nil
}

func (a *app) checkDev(listen, token string) error {
	if len(a.Agents) == 0 {
		return usage("this program has no agents")
	}
	if _, _, err := net.SplitHostPort(listen); err != nil {
		return usage("--listen %q is not an address and a port, such as %s", listen, defaultListen)
	}
	if err := embedded.CheckToken(listen, token); err != nil {
		f := usage("--listen %q: %v", listen, err)
		f.todo = fmt.Sprintf("put at least %d random letters and digits into LAYOVER_TOKEN or a --token-file, or listen on %s", embedded.MinToken, defaultListen)
		return f
	}
	if err := failpoint.Arm(); err != nil {
		return usage("%v", err)
	}
	return nil
}

// bindFor is how long a port may stay taken by a server that was just killed.
const bindFor = time.Second

// bind listens on an address. A process that is killed goes on to hold its port
// for a moment, and whoever starts it again is that fast.
func bind(ctx context.Context, listen string) (net.Listener, error) {
	for end := time.Now().Add(bindFor); ; {
		socket, err := net.Listen("tcp", listen)
		if !errors.Is(err, syscall.EADDRINUSE) || ctx.Err() != nil || time.Now().After(end) {
			return socket, err
		}
		time.Sleep(bindFor / 20)
	}
}

func (a *app) cannotListen(listen string, err error) error {
	_, port, _ := net.SplitHostPort(listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		if f, ok := runningServer(a.data); ok && strings.HasSuffix(f.URL, ":"+port) {
			return fail(exitRefused, "dev", "use it, or stop it first: `kill "+strconv.Itoa(f.PID)+"`. A second one needs a --listen and a --data of its own",
				"a server with the data directory %s is at %s already", a.data, f.URL)
		}
		return fail(exitBroken, "dev", "stop the other program, it may be another dev, or take a free port with --listen 127.0.0.1:0",
			"port %s is in use", port)
	}
	return fail(exitBroken, "dev", "choose another address with --listen", "cannot listen on %s: %v", listen, err)
}

func (a *app) cannotOpen(err error) error {
	for _, reason := range []error{journal.ErrInUse, journal.ErrNewer} {
		for next := errors.Unwrap(err); next != nil && next != reason && errors.Is(next, reason); next = errors.Unwrap(next) {
			err = next // the packages it came through are of no use to a reader
		}
	}
	var path *fs.PathError
	switch {
	case errors.Is(err, journal.ErrInUse):
		todo := "stop the other server, or use another directory with --data"
		if f, ok := runningServer(a.data); ok {
			todo = "it is at " + f.URL + ": " + todo
		}
		return fail(exitRefused, "dev", todo, "%v", err)
	case errors.Is(err, journal.ErrNewer):
		return fail(exitRefused, "dev", "upgrade this program, or use another directory with --data", "%v", err)
	}
	if errors.As(err, &path) {
		return fail(exitBroken, "dev", "name a directory where you may write with --data", "cannot use %s as the data directory: %v", a.data, path.Err)
	}
	return fail(exitBroken, "dev", "check the agents of this program and the directory "+a.data, "%v", err)
}

// announce tells people and other commands where the server is.
func (a *app) announce(url, boot, tokenHint string) error {
	f := serverFile{URL: url, PID: os.Getpid(), Boot: boot}
	raw, err := json.Marshal(f)
	if err != nil {
		return err
	}
	path := serverPath(a.data)
	if err := os.WriteFile(path+".new", append(raw, '\n'), 0o600); err != nil {
		return fail(exitBroken, "dev", "check the directory", "%v", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fail(exitBroken, "dev", "check the directory", "%v", err)
	}
	if a.json {
		return a.printJSON(struct {
			serverFile
			Data string `json:"data"`
		}{f, a.data})
	}
	a.banner(url, tokenHint)
	return nil
}

// tokenHint is what another terminal does to be let in; empty where nobody has to
// show a token, or where every terminal has it already.
func (a *app) tokenHint(file, token string) string {
	if token == "" || file == "" {
		return ""
	}
	path, err := filepath.Abs(file)
	if err != nil {
		path = file
	}
	return `export LAYOVER_TOKEN="$(cat ` + event.Quote(path) + `)"`
}

// forget removes the announcement, unless a later server has its own there.
func (a *app) forget(url string) {
	if f, ok := runningServer(a.data); ok && f.URL == url {
		_ = os.Remove(serverPath(a.data))
	}
}

// models says who answers.
func (a *app) models() string {
	var names []string
	for _, d := range a.Agents {
		name := "of the agents' own"
		switch m := d.Engine().Model.(type) {
		case nil:
			name = onDemo
		case model.Named:
			if provider, of := m.Identity(); provider == "demo" {
				name = onDemo
			} else {
				name = provider + " " + of
			}
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

const onDemo = "demo: it picks tools by rules, to try things out without an account"

func (a *app) banner(url, tokenHint string) {
	names := make([]string, len(a.Agents))
	approval := false
	for i, d := range a.Agents {
		e := d.Engine()
		names[i] = e.Facts.Name
		for _, t := range e.Facts.Tools {
			approval = approval || t.Approval
		}
	}
	program := a.remote()
	commands := []string{submitLine(program, a.Agents[0], "demo") + " --wait=parked"}
	if len(a.Agents) > 1 {
		commands = append(commands, submitLine(program, a.Agents[1], "demo2")+" --wait")
	} else {
		commands = append(commands, program+" status demo")
	}
	if approval {
		commands = append(commands, program+" approvals")
	} else {
		commands = append(commands, program+" records demo")
	}
	if tokenHint != "" {
		commands = append([]string{tokenHint}, commands...)
	}
	a.printf("layover is ready\n")
	a.facts([][]string{
		{"  url", url + "  in a browser it is the console"},
		{"  data", show(a.data, 0)},
		{"  model", a.models()},
		{"  agents", strings.Join(names, ", ")},
	})
	a.printf("\ntry in another terminal:\n  %s\n\nwhat happens to runs:\n", strings.Join(commands, "\n  "))
}

// remote is the program with what another terminal needs to find this server.
func (a *app) remote() string {
	here, err := filepath.Abs(defaultData)
	if err == nil && here == a.data {
		return a.Program
	}
	return a.Program + " --data " + event.Quote(a.data)
}

// showEvent prints one event of a run.
func (a *app) showEvent(lane journal.Lane, e event.Event) {
	if a.json {
		_ = a.printJSON(e) // nobody reads
		return
	}
	e.At = e.At.Local()
	command := a.remote()
	if lane.Tenant != defaultTenant {
		command += " --tenant " + event.Quote(lane.Tenant)
	}
	a.eventLine(e, command)
}
