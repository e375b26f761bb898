package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
)

// listPage is how many conversations one request asks for.
const listPage = 50

func (a *app) listCommand() *cobra.Command {
	var active, all bool
	cmd := a.command("list [flags]", "Lists the conversations",
		`The one opened last comes first, fifty of them unless --all is given. With --json each is
printed as status prints it.`,
		a.Program+" list\n"+a.Program+" list --active",
		exactly(), func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			list, more, err := conversations(cmd, c, active, all)
			if err != nil {
				return err
			}
			return a.printList(list, more, active)
		})
	cmd.Flags().BoolVar(&active, "active", false, "only those that run, wait or have work queued")
	cmd.Flags().BoolVar(&all, "all", false, "all of them")
	return cmd
}

// conversations reads the list, and tells whether there is more of it.
func conversations(cmd *cobra.Command, c *client.Client, active, all bool) (list []wire.Status, more bool, err error) {
	if active {
		list, err = c.Active(cmd.Context())
		return list, false, err
	}
	for cursor := ""; ; {
		page, err := c.Conversations(cmd.Context(), cursor, listPage)
		if err != nil {
			return nil, false, err
		}
		list, cursor = append(list, page.Conversations...), page.Next
		if cursor == "" || !all {
			return list, cursor != "", nil
		}
	}
}

func (a *app) printList(list []wire.Status, more, active bool) error {
	if a.json {
		for _, s := range list {
			if err := a.printJSON(s); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		word := "no conversations yet"
		if active {
			word = "nothing runs and nothing waits"
		}
		a.printf("%s\n", word)
		return nil
	}
	rows := [][]string{{"CONVERSATION", "STATE", "WHAT"}}
	for _, s := range list {
		rows = append(rows, []string{show(s.Conversation, 0), a.state(wire.StateWord(s)), what(s)})
	}
	a.table(rows)
	if more {
		a.printf("\nthere are more: %s list --all\n", a.again())
	}
	return nil
}

// what is what a conversation does, or did.
func what(s wire.Status) string {
	var parts []string
	switch r := s.Active; {
	case r != nil && r.Parked != nil:
		word := show(r.Agent, 64) + " waits for " + waitWord(r.Parked.Reason)
		for i, c := range r.Parked.Calls {
			word += map[bool]string{true: ": ", false: ", "}[i == 0] + show(c.Tool, 64)
		}
		parts = append(parts, word)
	case r != nil:
		parts = append(parts, fmt.Sprintf("%s, turn %d, %s", show(r.Agent, 64), r.Turn, plural(r.Attempts, "attempt")))
	case s.Latest != nil:
		parts = append(parts, plural(s.Latest.Turns, "turn")+", "+plural(s.Latest.Attempts, "attempt"))
		if s.Latest.Error != nil {
			parts = append(parts, show(s.Latest.Error.Kind, 64))
		}
	}
	if s.Queued > 0 {
		parts = append(parts, fmt.Sprintf("%d queued", s.Queued))
	}
	return strings.Join(parts, "; ")
}
