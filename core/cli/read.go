package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/record"
)

func (a *app) statusCommand() *cobra.Command {
	var submission string
	cmd := a.command("status CONVERSATION | --submission ID", "Shows where a conversation stands",
		`Its state, the active run and what that waits for, and how the last run ended.
With --submission it also shows where that submission stands.`,
		a.Program+" status demo\n"+a.Program+" status --submission s_… --json",
		atMost("CONVERSATION"), func(cmd *cobra.Command, args []string) error { return a.status(cmd, args, submission) })
	cmd.Flags().StringVar(&submission, "submission", "", "the submission to show")
	return cmd
}

// shownStatus is a status with the submission that was asked for.
type shownStatus struct {
	wire.Status
	Submission *wire.Progress `json:"submission,omitempty"`
}

func (a *app) status(cmd *cobra.Command, args []string, submission string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	conversation, err := a.conversation(cmd.Context(), c, args, submission)
	if err != nil {
		return err
	}
	var out shownStatus
	if out.Status, err = c.Status(cmd.Context(), conversation); err != nil {
		return err
	}
	if submission != "" {
		p, err := c.Progress(cmd.Context(), conversation, submission, client.UntilSettled, 0)
		if err != nil {
			return err
		}
		out.Submission = &p
	}
	if a.json {
		return a.printJSON(out)
	}
	a.printStatus(out)
	return nil
}

func (a *app) printStatus(s shownStatus) {
	rows := [][]string{
		{"conversation", show(s.Conversation, 0)},
		{"state", fmt.Sprintf("%s, epoch %d", a.state(s.State), s.Epoch)},
	}
	if r := s.Active; r != nil {
		rows = append(rows, []string{"active", fmt.Sprintf("%s  %s, after %s in %s, deadline %s", show(r.Submission, 0), show(r.Agent, 64),
			plural(r.Turn, "turn"), plural(r.Attempts, "attempt"), clock(r.Deadline))})
	}
	if s.Active != nil && s.Active.Aborting {
		rows = append(rows, []string{"abort", "requested; the run ends once nothing of it runs any more"})
	}
	rows = append(rows, []string{"queued", strconv.Itoa(s.Queued)})
	if s.Latest != nil {
		rows = append(rows, []string{"latest", show(s.Latest.Submission, 0) + "  " + a.state(s.Latest.Status)})
	}
	a.facts(rows)
	if s.Active != nil && s.Active.Parked != nil {
		a.parked(s.Conversation, *s.Active.Parked)
	}
	shown := s.Latest
	if s.Submission != nil {
		shown = s.Submission
		a.printf("\nsubmission %s\n", show(shown.Submission, 0))
	}
	if shown != nil && (s.Active == nil || s.Submission != nil) {
		a.progress(*shown)
	}
}

func (a *app) recordsCommand() *cobra.Command {
	var submission string
	cmd := a.command("records CONVERSATION | --submission ID", "Lists what was recorded in a conversation",
		`One line for each batch of records: what is on a line was written together or not
at all. With --json the batches are printed as they are stored.`,
		a.Program+" records demo\n"+a.Program+" records demo --json",
		atMost("CONVERSATION"), func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			conversation, err := a.oneConversation(cmd.Context(), c, args, submission)
			if err != nil {
				return err
			}
			return a.records(cmd, c, conversation)
		})
	cmd.Flags().StringVar(&submission, "submission", "", "a submission of the conversation")
	return cmd
}

func (a *app) records(cmd *cobra.Command, c *client.Client, conversation string) error {
	rows := [][]string{{"SLOT", "EPOCH", "ATTEMPT", "TIME", "RECORDS"}}
	for line, err := range c.Records(cmd.Context(), conversation) {
		if err != nil {
			if len(rows) > 1 {
				a.table(rows) // what is good is shown all the same
			}
			return err
		}
		if a.json {
			if a.Columns != nil && a.Columns() > 0 { // a terminal, not somebody who checks digests
				line = spelled(line)
			}
			a.printf("%s\n", line)
			continue
		}
		row, err := recordsRow(line)
		if err != nil {
			return fail(exitBroken, "records", "upgrade this program", "a batch does not decode: %v", err)
		}
		rows = append(rows, row)
	}
	if !a.json {
		a.table(rows)
	}
	return nil
}

func recordsRow(line json.RawMessage) ([]string, error) {
	var b wire.Batch
	if err := json.Unmarshal(line, &b); err != nil {
		return nil, err
	}
	kinds := make([]string, len(b.Records))
	for i, r := range b.Records {
		var head struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(r, &head); err != nil {
			return nil, err
		}
		kinds[i] = show(head.Kind, 64)
	}
	attempt := b.Attempt
	if len(attempt) > 8 { // the end of a UUIDv7 tells attempts apart, its begin is the time
		attempt = attempt[len(attempt)-8:]
	}
	return []string{strconv.FormatUint(b.Slot, 10), strconv.FormatUint(b.Epoch, 10), show(attempt, 0), clock(b.At), strings.Join(kinds, " ")}, nil
}

func (a *app) verifyCommand() *cobra.Command {
	var submission string
	cmd := a.command("verify CONVERSATION | --submission ID", "Checks a conversation's records",
		`Every digest, the chain, the order, legal sequences only, limits kept, and a state
that follows from the records. Exit code 1 when something does not hold.`,
		a.Program+" verify demo",
		atMost("CONVERSATION"), func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			conversation, err := a.oneConversation(cmd.Context(), c, args, submission)
			if err != nil {
				return err
			}
			v, err := c.Verify(cmd.Context(), conversation)
			if err != nil {
				return err
			}
			return a.printVerification(v)
		})
	cmd.Flags().StringVar(&submission, "submission", "", "a submission of the conversation")
	return cmd
}

func (a *app) printVerification(v wire.Verification) error {
	switch {
	case a.json:
		if err := a.printJSON(v); err != nil {
			return err
		}
	case v.OK:
		a.printf("ok: %s checked, the last has digest %s\n", plural(v.Batches, "record batch"), show(v.Head, 0))
	default:
		a.printf("does not hold:\n")
		for _, violation := range v.Violations {
			a.printf("  %s\n", show(violation, 0))
		}
	}
	if !v.OK {
		return exitFailed
	}
	return nil
}

func (a *app) agentsCommand() *cobra.Command {
	return a.command("agents", "Lists the agents of the server", "With the JSON Schema of each one's input and an example.",
		a.Program+" agents\n"+a.Program+" agents --json",
		exactly(), func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			agents, err := c.Agents(cmd.Context())
			if err != nil {
				return err
			}
			for i, agent := range agents {
				if a.json {
					err = a.printJSON(agent)
				} else {
					a.printAgent(i, agent)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
}

func (a *app) printAgent(i int, agent wire.Agent) {
	if i > 0 {
		a.printf("\n")
	}
	var tools []string
	for _, t := range agent.Tools {
		word := show(t.Name, 64) + " (" + show(t.Class, 64)
		if t.Approval {
			word += ", needs approval"
		}
		tools = append(tools, word+")")
	}
	a.printf("%s %s\n", show(agent.Name, 64), show(agent.Version, 64))
	rows := [][]string{{"  about", show(agent.Description, 300)}, {"  input", show(string(exampleInput(agent.Input)), 300)}}
	if len(tools) > 0 {
		rows = append(rows, []string{"  tools", strings.Join(tools, ", ")})
	}
	a.facts(rows)
}

// shownVersion is what `version` prints.
type shownVersion struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Format  int    `json:"format"`
}

func (a *app) versionCommand() *cobra.Command {
	return a.command("version", "Shows the version of this program", "Of Layover, of Go, and of the stored format.",
		a.Program+" version",
		exactly(), func(*cobra.Command, []string) error {
			v := shownVersion{Version: moduleVersion(), Go: runtime.Version(), Format: record.FormatVersion}
			if a.json {
				return a.printJSON(v)
			}
			a.printf("layover %s, %s, format %d\n", v.Version, v.Go, v.Format)
			return nil
		})
}

const module = "github.com/layover-run/layover"

// moduleVersion is the version of this module, be it the program's own or a
// dependency of it.
func moduleVersion() string {
	version := "(devel)"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	if info.Main.Path == module && info.Main.Version != "" {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == module && dep.Replace == nil {
			return dep.Version
		}
	}
	return version
}
