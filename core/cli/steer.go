package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
)

func (a *app) steerCommand() *cobra.Command {
	var in wire.Steer
	cmd := a.command("steer CONVERSATION TEXT|@FILE|- [flags]", "Tells a run something before its next model request",
		`The response that is under way and its calls stay as they are. What was taken in is in
the events; a run that ends first does not take it in.`,
		a.Program+" steer demo 'answer in French'\n"+a.Program+" steer demo - < notes.txt",
		exactly("CONVERSATION", "TEXT"), func(cmd *cobra.Command, args []string) error {
			text, err := a.source(args[1])
			switch {
			case err != nil:
				return usage("TEXT: %v", err)
			case args[0] == "" || len(text) == 0:
				return usage("CONVERSATION and TEXT must not be empty")
			}
			in.Text = string(text)
			c, err := a.connect()
			if err != nil {
				return err
			}
			out, err := c.Steer(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(out)
			}
			a.facts([][]string{{out.Receipt, show(out.Key, 0)}, {"submission", show(out.Submission, 0)}})
			return nil
		})
	cmd.Flags().StringVar(&in.Submission, "submission", "", "the submission to steer (default: the active one, or the next)")
	cmd.Flags().StringVar(&in.Key, "key", "", "idempotency key (default: a new one, so that each command is new)")
	return cmd
}

func (a *app) followUpCommand() *cobra.Command {
	var f submitFlags
	cmd := a.command("follow-up CONVERSATION --input JSON|@FILE|- [flags]", "Adds work that joins the run where it would end",
		`Where no run takes it in, it gets a run of its own, as with submit. The exit codes are
those of submit.`,
		a.Program+` follow-up demo --input '"and the other one?"'`+"\n"+a.Program+" follow-up demo --input @input.json --wait",
		exactly("CONVERSATION"), func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usage("CONVERSATION is empty")
			}
			if err := f.checkInput(cmd); err != nil {
				return err
			}
			return a.followUp(cmd, args[0], f)
		})
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent", "", "the agent to run (default: that of the conversation's newest submission)")
	f.common(cmd)
	return cmd
}

func (a *app) followUp(cmd *cobra.Command, conversation string, f submitFlags) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	var input json.RawMessage
	if input, err = a.readJSON("--input", f.input); err != nil {
		return err
	}
	receipt, err := c.FollowUp(cmd.Context(), conversation, wire.FollowUp{Agent: f.agent, Key: f.key, Input: input, ReplyTo: f.replyTo})
	if err != nil {
		return err
	}
	return a.accepted(cmd.Context(), c, receipt, client.Until(f.wait), f.timeout)
}
