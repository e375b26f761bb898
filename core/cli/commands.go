package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/record"
)

func (a *app) approvalsCommand() *cobra.Command {
	return a.command("approvals", "Lists what waits for a person", "Each line is one call of a tool that runs only after somebody approved exactly this call.",
		a.Program+" approvals\n"+a.Program+" approvals --json",
		exactly(), func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			pending, err := c.Approvals(cmd.Context())
			if err != nil {
				return err
			}
			return a.printApprovals(pending)
		})
}

func (a *app) printApprovals(pending []wire.Approval) error {
	if a.json {
		for _, p := range pending {
			if err := a.printJSON(p); err != nil {
				return err
			}
		}
		return nil
	}
	if len(pending) == 0 {
		a.printf("nothing waits for approval\n")
		return nil
	}
	rows := [][]string{{"ID", "CONVERSATION", "CALL", "REQUESTED", "EXPIRES"}}
	for _, p := range pending {
		rows = append(rows, []string{show(p.ID, 0), show(p.Conversation, 64), show(p.Tool, 64) + "(" + show(string(p.Args), shownArgs) + ")",
			clock(p.RequestedAt), clock(p.ExpiresAt)})
	}
	a.table(rows)
	a.printf("\nanswer with: %s approve|deny ID\n", a.again())
	return nil
}

// decideCommand is approve or deny.
func (a *app) decideCommand(decision string) *cobra.Command {
	var in wire.Decide
	in.Decision = decision
	short := "Lets a call run that waits for approval"
	if decision == wire.Deny {
		short = "Refuses a call that waits for approval"
	}
	cmd := a.command(decision+" ID [flags]", short, "The first decision counts; a later one is refused with exit code 4.",
		a.Program+" "+decision+" ID\n"+a.Program+" "+decision+" ID --reason 'spoke to the customer' --as ada@example.com",
		exactly("ID"), func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usage("the ID is empty")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			d, err := c.Decide(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(d)
			}
			a.printf("%s %s by %s\n", show(d.ID, 0), show(string(d.Decision), 0), show(d.By, 0))
			return nil
		})
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why; it is recorded, and the model sees why a call was denied")
	cmd.Flags().StringVar(&in.ArgsDigest, "args-digest", "", "decide only if the call has these arguments: argsDigest of approvals --json")
	return cmd
}

func (a *app) abortCommand() *cobra.Command {
	var in wire.Abort
	cmd := a.command("abort CONVERSATION | --submission ID", "Ends a run",
		`The wish is durable once this returns. The run ends as aborted at its next step; a
call whose outcome is unknown is resolved first.`,
		a.Program+" abort demo --reason 'wrong order'",
		atMost("CONVERSATION"), func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			conversation, err := a.conversation(cmd.Context(), c, args, in.Submission)
			if err != nil {
				return err
			}
			out, err := c.Abort(cmd.Context(), conversation, in)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(out)
			}
			a.printf("asked %s to end\n", show(out.Submission, 0))
			return nil
		})
	cmd.Flags().StringVar(&in.Submission, "submission", "", "the submission to end (default: the active one)")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why; it is recorded")
	return cmd
}

func (a *app) resolveCommand() *cobra.Command {
	var result, reason string
	cmd := a.command("resolve CONVERSATION CALL happened|notHappened|safeToRetry [flags]", "Says what became of a call nobody knows about",
		`A call that was running when its process was lost is never run again on a guess.
Look at what it acts on, then say:
  happened     it took effect; give what it would have returned with --result
  notHappened  it had no effect; it runs again
  safeToRetry  running it again does no harm`,
		a.Program+" resolve demo CALL notHappened --reason 'not in the books'\n"+a.Program+" resolve demo CALL happened --result '{\"id\":\"17\"}'",
		exactly("CONVERSATION", "CALL", "OUTCOME"), func(cmd *cobra.Command, args []string) error {
			in := wire.Resolve{Call: args[1], Resolution: record.Resolution(args[2]), Reason: reason}
			if err := a.checkResolve(cmd, args[0], &in, result); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			out, err := c.Resolve(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(out)
			}
			a.printf("%s is resolved: %s\n", show(out.Call, 0), show(string(out.Resolution), 0))
			return nil
		})
	cmd.Flags().StringVar(&result, "result", "", "what the call returned, as JSON, @FILE or -")
	cmd.Flags().StringVar(&reason, "reason", "", "how you know; it is recorded")
	return cmd
}

func (a *app) checkResolve(cmd *cobra.Command, conversation string, in *wire.Resolve, result string) (err error) {
	given := cmd.Flags().Changed("result")
	switch in.Resolution {
	case record.Happened:
		if !given {
			return usage("a call that happened needs its --result")
		}
		in.Result, err = a.readJSON("--result", result)
	case record.NotHappened, record.SafeToRetry:
		if given {
			return usage("--result is for a call that happened")
		}
	default:
		return usage("%q is neither happened, notHappened nor safeToRetry", in.Resolution)
	}
	if conversation == "" || in.Call == "" {
		return usage("CONVERSATION and CALL must not be empty")
	}
	return err
}

func (a *app) sendCommand() *cobra.Command {
	return a.command("send FILE|-", "Hands in an event as a queue would deliver it",
		`FILE holds what Lambda gets from SQS: {"Records":[{"messageId":"…","body":"…"}]}. Printed
is what the function answers. Exit code 4 when a message was not taken; why is in the
server's output.`,
		a.Program+" send event.json\n"+a.Program+" send - < event.json",
		exactly("FILE"), func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if name != "-" {
				name = "@" + name
			}
			event, err := a.readJSON("FILE", name)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			resp, err := c.Send(cmd.Context(), event)
			if err != nil {
				return err
			}
			if err := a.printJSON(resp); err != nil {
				return err
			}
			return a.sent(event, resp)
		})
}

func (a *app) sent(ev json.RawMessage, resp wire.BatchResponse) error {
	if len(resp.Failures) == 0 {
		return nil
	}
	var sent struct{ Records []struct{} }
	if err := json.Unmarshal(ev, &sent); err != nil {
		return err
	}
	return fail(exitRefused, "send", "the server's output says why", "%d of %s not taken, the first is %s",
		len(resp.Failures), plural(len(sent.Records), "message"), event.Quote(resp.Failures[0].Message))
}
