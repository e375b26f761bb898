package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpColumns is how wide help is at most, and where nobody knows how wide the
// reader is.
const helpColumns = 100

// The groups of commands in the help, in the order a newcomer needs them.
const (
	groupBegin  = "begin"
	groupWork   = "work"
	groupWatch  = "watch"
	groupDecide = "decide"
	groupOther  = "other"
)

func groups() []*cobra.Group {
	return []*cobra.Group{
		{ID: groupBegin, Title: "Begin:"},
		{ID: groupWork, Title: "Give work, and steer it:"},
		{ID: groupWatch, Title: "See what happens:"},
		{ID: groupDecide, Title: "Answer what a run waits for:"},
		{ID: groupOther, Title: "And:"},
	}
}

const usageText = `Usage:
  {{.UseLine}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$all := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $all}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped %[1]d | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of every command:
{{.InheritedFlags.FlagUsagesWrapped %[1]d | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

More about one: {{.CommandPath}} COMMAND --help{{end}}
`

// help makes the help of all commands, as wide as its reader.
func (a *app) help(root *cobra.Command) {
	columns := a.columns()
	if columns == 0 || columns > helpColumns {
		columns = helpColumns
	}
	root.SetUsageTemplate(fmt.Sprintf(usageText, columns))
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		_, _ = io.WriteString(a.Stdout, reflow(cmd.Long, columns)+"\n\n"+cmd.UsageString()) // Run sees what was lost
	})
	root.SetHelpCommand(a.command("help [COMMAND]", "Shows the help of a command", "The same as COMMAND --help.",
		a.Program+" help\n"+a.Program+" help submit",
		atMost("COMMAND"), func(cmd *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, args[0])
			}
			return about.Help()
		}))
}

// reflow breaks the paragraphs of a text anew. Lines that begin with a space
// are not prose: they stay.
func reflow(text string, columns int) string {
	var out []string
	prose := ""
	end := func() {
		if prose != "" {
			out = append(out, wrap(prose, columns)...)
		}
		prose = ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == ' ' {
			end()
			out = append(out, line)
			continue
		}
		prose = strings.TrimLeft(prose+" "+line, " ")
	}
	end()
	return strings.Join(out, "\n")
}

func unknownCommand(root *cobra.Command, given string) *failure {
	f := usage("there is no command %q", given)
	if near := root.SuggestionsFor(given); len(near) > 0 {
		f.why += ", but there is " + strings.Join(near, " and ")
		f.todo = "`" + root.CommandPath() + " " + near[0] + " --help` shows its usage"
	} else {
		f.todo = "`" + root.CommandPath() + " --help` lists the commands"
	}
	return f
}

// takes says how many arguments a command takes, by their names.
func takes(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		switch n := len(given); {
		case n >= least && n <= len(names):
			return nil
		case len(names) == 0:
			return usage("unexpected argument %q: %s takes none", given[0], cmd.Name())
		case n > len(names):
			return usage("unexpected argument %q: %s takes %s", given[len(names)], cmd.Name(), strings.Join(names, " "))
		}
		return usage("%s is missing", strings.Join(names[len(given):least], " and "))
	}
}

func exactly(names ...string) cobra.PositionalArgs { return takes(len(names), names...) }
func atMost(names ...string) cobra.PositionalArgs  { return takes(0, names...) }

// flagProblem says what is wrong with a flag in words of this program.
func flagProblem(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	wants := map[string]string{"duration": "a time such as 30s, 5m or 2h", "int": "a whole number", "bool": "true or false"}[flag.Value.Type()]
	if wants == "" {
		return err
	}
	return usage("--%s %q is not %s", flag.Name, invalid.GetValue(), wants)
}
