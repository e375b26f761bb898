package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/record"
)

type submitFlags struct {
	agent, input, conversation, key, replyTo, wait string
	timeout                                        time.Duration
	turns, toolCalls                               int
	within                                         time.Duration
}

func (a *app) submitCommand() *cobra.Command {
	var f submitFlags
	cmd := a.command("submit --agent NAME --input JSON|@FILE|- [flags]", "Gives an agent work",
		`The work is durable once the receipt is printed. Repeating a command with the same
--key is safe: it is answered with the first receipt.

Exit codes: 0 accepted, or with --wait: completed (or parked, with --wait=parked);
1 the run failed or was aborted; 3 still waiting when --timeout was over.`,
		a.exampleSubmit("")+"\n"+a.exampleSubmit(" --key order-17 --wait --timeout 2m")+"\n"+
			a.Program+" submit --agent AGENT --conversation c1 --input @input.json --wait=parked",
		cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			return a.submit(cmd.Context(), f)
		})
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent", "", "the agent to run")
	flags.StringVar(&f.conversation, "conversation", "", "the conversation to go on with, or to open under this name (default: a new one)")
	f.common(cmd)
	flags.IntVar(&f.turns, "allow-turns", 0, "fewer model responses than the agent's own limit")
	flags.IntVar(&f.toolCalls, "allow-tool-calls", 0, "fewer tool calls than the agent's own limit")
	flags.DurationVar(&f.within, "allow-time", 0, "less time than the agent's own limit")
	return cmd
}

// common are the flags of work, whichever way it comes.
func (f *submitFlags) common(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.input, "input", "", "its input as JSON, @FILE, or - for standard input")
	flags.StringVar(&f.key, "key", "", "idempotency key (default: a new one, so that each command is new work)")
	flags.StringVar(&f.replyTo, "reply-to", "", "the name of the queue that hears how it ends")
	flags.StringVar(&f.wait, "wait", "", "wait until the run is settled, or parked")
	flags.Lookup("wait").NoOptDefVal = string(client.UntilSettled)
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait")
}

// checkInput checks the common flags.
func (f *submitFlags) checkInput(cmd *cobra.Command) error {
	waits := cmd.Flags().Changed("wait")
	switch {
	case !cmd.Flags().Changed("input"):
		return usage("--input is missing")
	case waits && f.wait != string(client.UntilSettled) && f.wait != string(client.UntilParked):
		return usage("--wait is settled or parked, not %q", f.wait)
	case cmd.Flags().Changed("timeout") && !waits:
		return usage("--timeout is for --wait")
	case f.timeout <= 0:
		return usage("--timeout must be positive")
	}
	return nil
}

func (f *submitFlags) check(cmd *cobra.Command, args []string) error {
	waits := cmd.Flags().Changed("wait")
	switch {
	case len(args) > 0 && waits && (args[0] == string(client.UntilSettled) || args[0] == string(client.UntilParked)):
		return usage("write --wait=%s, with an equals sign", args[0])
	case len(args) > 0:
		return usage("unexpected argument %q", args[0])
	case f.agent == "":
		return usage("--agent is missing")
	case cmd.Flags().Changed("conversation") && f.conversation == "":
		return usage("--conversation is empty")
	}
	if err := f.checkInput(cmd); err != nil {
		return err
	}
	for name, positive := range map[string]bool{"allow-turns": f.turns > 0, "allow-tool-calls": f.toolCalls > 0, "allow-time": f.within > 0} {
		if cmd.Flags().Changed(name) && !positive {
			return usage("--%s must be positive", name)
		}
	}
	return nil
}

func (f *submitFlags) allowance() wire.Allowance {
	number := func(n float64) *float64 {
		if n == 0 {
			return nil
		}
		return &n
	}
	return wire.Allowance{Turns: number(float64(f.turns)), ToolCalls: number(float64(f.toolCalls)), Seconds: number(f.within.Seconds())}
}

func (a *app) submit(ctx context.Context, f submitFlags) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	input, err := a.readJSON("--input", f.input)
	if err != nil {
		return err
	}
	receipt, err := c.Submit(ctx, f.conversation, wire.Submit{Agent: f.agent, Key: f.key, Input: input, ReplyTo: f.replyTo, Allowance: f.allowance()})
	if err != nil {
		return err
	}
	return a.accepted(ctx, c, receipt, client.Until(f.wait), f.timeout)
}

// accepted prints a receipt, and waits where that was asked for.
func (a *app) accepted(ctx context.Context, c *client.Client, receipt wire.Submitted, until client.Until, timeout time.Duration) error {
	if a.json {
		if err := a.printJSON(receipt); err != nil {
			return err
		}
	} else {
		a.facts([][]string{
			{receipt.Receipt, show(receipt.Submission, 0)},
			{"conversation", show(receipt.Conversation, 0)},
		})
	}
	if until == "" {
		return nil
	}
	return a.await(ctx, c, receipt, until, timeout)
}

func (a *app) await(ctx context.Context, c *client.Client, receipt wire.Submitted, until client.Until, timeout time.Duration) error {
	stop := a.watchRun(ctx, c, receipt.Conversation, receipt.Submission)
	p, err := c.Await(ctx, receipt.Conversation, receipt.Submission, until, timeout)
	stop()
	goesOn := "the submission goes on; `" + a.Program + " status " + event.Quote(receipt.Conversation) + "` shows it"
	var gone *client.Unreachable
	switch {
	case errors.Is(err, context.Canceled):
		return fail(exitWaiting, "wait", goesOn, "interrupted")
	case errors.As(err, &gone):
		return fail(exitBroken, "wait", goesOn+" once the server is back", "%s does not answer any more: %v", gone.URL, gone.Err)
	case err != nil:
		return err
	}
	if a.json {
		err = a.printJSON(p)
	} else {
		a.progress(p)
	}
	switch {
	case err != nil:
		return err
	case p.Status == string(record.StatusCompleted), until == client.UntilParked && p.Status == wire.StatusParked:
		return nil
	case p.Settled():
		return exitFailed
	}
	return exitWaiting
}

// progress tells a person where a submission stands.
func (a *app) progress(p wire.Progress) {
	a.printf("%s after %s in %s\n", a.state(p.Status), plural(p.Turns, "turn"), plural(p.Attempts, "attempt"))
	if p.Exhausted != "" {
		a.printf("the run was out of %s\n", show(p.Exhausted, 64))
	}
	if p.Error != nil {
		a.printf("%s: %s\n", show(p.Error.Kind, 64), show(p.Error.Message, 0))
		if p.Error.Hint != "" {
			a.printf("%s\n", show(upperFirst(sentence(p.Error.Hint)), 0))
		}
	}
	if p.Parked != nil {
		a.parked(p.Conversation, *p.Parked)
	}
	if len(p.Output) > 0 {
		a.printf("%s\n", pretty(p.Output))
	}
}

// parked tells what a run waits for and what ends the waiting.
func (a *app) parked(conversation string, w wire.Wait) {
	a.printf("waits for: %s%s\n", waitWord(w.Reason), until(w))
	for i, on := range w.On {
		if i < len(w.Calls) {
			a.printf("  ")
			a.below(2, waitCall(w.Calls[i]))
		}
		switch w.Reason {
		case "approval":
			a.printf("  approve with: %s approve %s\n", a.again(), event.Quote(on))
		case "unknown":
			a.printf("  say what is true with: %s resolve %s %s happened|notHappened|safeToRetry\n", a.again(), event.Quote(conversation), event.Quote(on))
		default:
			a.printf("  %s\n", show(on, 300))
		}
	}
}

// shownArgs is how much of a call's arguments a person is shown: all, but for
// what nobody would read in a terminal.
const shownArgs = 8000

// waitCall shows what an approver or an operator decides about.
func waitCall(c wire.WaitCall) string {
	line := fmt.Sprintf("%s(%s)", show(c.Tool, 64), show(string(c.Args), shownArgs))
	if c.Reason != "" {
		line += fmt.Sprintf("  outcome %s, operation %s", show(c.Reason, 64), show(c.Operation, 0))
	}
	return line
}

func until(w wire.Wait) string {
	if w.Until.IsZero() {
		return ""
	}
	return ", until " + clock(w.Until)
}

func waitWord(reason string) string {
	if text, ok := wire.WaitText(reason); ok {
		return text
	}
	return show(reason, 64)
}

// again is the program with the flags that lead to the same server.
func (a *app) again() string {
	again := a.Program
	if a.server != a.Getenv("LAYOVER_SERVER") {
		again += " --server " + event.Quote(a.server)
	}
	if a.data != a.fallback("LAYOVER_DATA", defaultData) {
		again += " --data " + event.Quote(a.data)
	}
	if a.tenant != a.fallback("LAYOVER_TENANT", defaultTenant) {
		again += " --tenant " + event.Quote(a.tenant)
	}
	return again
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "ch") {
		what += "e"
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// pretty shows an output: a text as it is, anything else as indented JSON.
func pretty(raw json.RawMessage) string {
	text := ""
	if json.Unmarshal(raw, &text) != nil {
		var buf bytes.Buffer
		if err := json.Indent(&buf, raw, "", "  "); err != nil {
			return show(string(raw), 0)
		}
		text = buf.String()
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = show(lines[i], 0)
	}
	return strings.Join(lines, "\n")
}
