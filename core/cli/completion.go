package cli

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/client"
)

func (a *app) completionCommand() *cobra.Command {
	name := commandName(a.Program)
	cmd := a.command("completion bash|zsh|fish", "Writes the completion for a shell",
		`It completes commands, flags, and the conversations, approvals and agents of the server
that the command line is about.`,
		"source <("+a.Program+" completion bash)\n"+a.Program+" completion zsh > \"${fpath[1]}/_"+name+"\"\n"+
			a.Program+" completion fish > ~/.config/fish/completions/"+name+".fish",
		exactly("SHELL"), func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.Stdout)
			case "fish":
				return root.GenFishCompletion(a.Stdout, true)
			}
			return usage("%q is neither bash, zsh nor fish", args[0])
		})
	cmd.ValidArgs = []string{"bash", "zsh", "fish"}
	return cmd
}

// commandName is what a shell knows the program by.
func commandName(program string) string {
	if strings.Contains(program, " ") { // go run …
		return "layover"
	}
	return filepath.Base(program)
}

// completeWithin bounds what a person waits for after the tab key.
const completeWithin = time.Second

// complete makes a completion of the first argument out of what a server has.
// A server that does not answer completes nothing.
func (a *app) complete(list func(context.Context, *client.Client) ([]string, error)) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		c, err := a.connect()
		if len(args) > 0 || err != nil {
			return nil, none
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completeWithin)
		defer cancel()
		all, err := list(ctx, c)
		if err != nil {
			return nil, none
		}
		var found []string
		for _, name := range all {
			if strings.HasPrefix(name, begun) && show(name, 0) == name && !strings.ContainsAny(name, "\t\n") {
				found = append(found, name)
			}
		}
		return found, none
	}
}

// completions gives the commands what they complete.
func (a *app) completions(root *cobra.Command) {
	of := map[string]func(context.Context, *client.Client) ([]string, error){}
	for _, name := range []string{"status", "events", "records", "verify", "abort", "resolve", "steer", "follow-up"} {
		of[name] = conversationNames
	}
	of["approve"], of["deny"] = approvalNames, approvalNames
	for _, cmd := range root.Commands() {
		if list := of[cmd.Name()]; list != nil {
			cmd.ValidArgsFunction = a.complete(list)
		}
		if cmd.Flags().Lookup("agent") != nil {
			if err := cmd.RegisterFlagCompletionFunc("agent", a.completeAgent); err != nil {
				panic("cli: " + err.Error()) // the flag is there
			}
		}
	}
}

func (a *app) completeAgent(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	return a.complete(agentNames)(cmd, nil, begun)
}

func conversationNames(ctx context.Context, c *client.Client) (names []string, err error) {
	list, err := c.Conversations(ctx, "", 100)
	for _, s := range list.Conversations {
		names = append(names, s.Conversation)
	}
	return names, err
}

func approvalNames(ctx context.Context, c *client.Client) (names []string, err error) {
	list, err := c.Approvals(ctx)
	for _, p := range list {
		names = append(names, p.ID)
	}
	return names, err
}

func agentNames(ctx context.Context, c *client.Client) (names []string, err error) {
	list, err := c.Agents(ctx)
	for _, agent := range list {
		names = append(names, agent.Name)
	}
	return names, err
}
