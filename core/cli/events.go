package cli

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/event"
)

func (a *app) eventsCommand() *cobra.Command {
	var submission, after string
	var follow, live bool
	cmd := a.command("events CONVERSATION | --submission ID [flags]", "Shows what happened in a conversation",
		`One line for each event, in order. With --follow it goes on with what happens next
until it is interrupted, and connects again when the server was away. With --json the
events are printed as they are, each with the id that --after goes on behind.`,
		a.Program+" events demo\n"+a.Program+" events demo --follow\n"+a.Program+" events demo --follow --live --json --after 17",
		atMost("CONVERSATION"), func(cmd *cobra.Command, args []string) error {
			if live && !follow {
				return usage("--live is for --follow: what is provisional is not kept")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			conversation, err := a.oneConversation(cmd.Context(), c, args, submission)
			if err != nil {
				return err
			}
			o := client.EventsOptions{After: after, Follow: follow, Live: live, OnLost: a.lost}
			ctx, cancel := a.read(cmd.Context())
			defer cancel()
			return a.showEvents(ctx, c.Events(ctx, conversation, o))
		})
	cmd.Flags().StringVar(&submission, "submission", "", "a submission of the conversation")
	cmd.Flags().StringVar(&after, "after", "", "only what is behind the event with this id")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what happens next")
	cmd.Flags().BoolVar(&live, "live", false, "with --follow: also pieces of responses on their way, which may be retracted")
	return cmd
}

func (a *app) tailCommand() *cobra.Command {
	var after string
	cmd := a.command("tail [flags]", "Shows what happens in all conversations",
		`From now on, until it is interrupted. What happened before is in the events of each
conversation.`,
		a.Program+" tail\n"+a.Program+" tail --json",
		exactly(), func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			o := client.EventsOptions{After: after, OnLost: a.lost}
			ctx, cancel := a.read(cmd.Context())
			defer cancel()
			return a.showEvents(ctx, c.Tail(ctx, o))
		})
	cmd.Flags().StringVar(&after, "after", "", "go on behind the event with this id, if the server still has it")
	return cmd
}

// lost tells a person that the server is away; a script sees the events go on.
func (a *app) lost(error) {
	if !a.json {
		a.note("the server does not answer; connecting again\n")
	}
}

// read is a context that ends with the reader of the output: one that has what
// it wanted must not be waited for until the next event.
func (a *app) read(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if a.Unread != nil {
		go func() { a.Unread(); cancel() }() // it ends with the process
	}
	return ctx, cancel
}

// showEvents prints a stream until it ends or the caller has enough.
func (a *app) showEvents(ctx context.Context, events iter.Seq2[client.Event, error]) error {
	for e, err := range events {
		switch {
		case err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled):
			return nil // an interrupt is how a stream without an end is left
		case err != nil:
			return err
		}
		if err := a.showEventLine(e); err != nil {
			return err
		}
		if a.stdout.closed() {
			return nil
		}
	}
	return nil
}

func (a *app) showEventLine(e client.Event) error {
	if a.json {
		if e.Gap {
			return a.printJSON(map[string]any{"gap": true, "id": e.ID})
		}
		_, err := a.Stdout.Write(spelled(append(e.JSON, '\n')))
		return err
	}
	if e.Gap {
		a.printf("… some events are not shown: they are in the events of their conversations\n")
		return nil
	}
	var ev event.Event
	err := json.Unmarshal(e.JSON, &ev)
	switch {
	case errors.Is(err, event.ErrUnknownKind):
		return nil // of a newer server, and said by its neighbours
	case err != nil:
		return fail(exitBroken, "events", "upgrade this program", "an event does not decode: %v", err)
	}
	ev.At = ev.At.Local()
	a.eventLine(ev, a.again())
	return nil
}

// eventLine prints an event for a person: its time dimmed, and the words that
// matter most in the colour of what they mean. On a terminal that is narrower
// than the line, the command that answers it gets a line of its own, so that it
// can be copied.
func (a *app) eventLine(e event.Event, command string) {
	text := event.Line(e, command)
	if text == "" {
		return
	}
	at, rest, _ := strings.Cut(text, "  ")
	style, answer := plain, ""
	switch e.Data.(type) {
	case event.RunCompleted:
		style = green
	case event.RunFailed, event.RunInterrupted, event.ToolCallFailed:
		style = red
	case event.ApprovalRequested, event.RunSuspended:
		style = yellow
		if columns := a.columns(); columns > 0 && width(text) > columns {
			rest, answer = splitAnswer(rest)
		}
	}
	margin := width(at) + 2
	a.printf("%s  ", a.paint(dim, at))
	a.below(margin, a.paint(style, rest))
	if answer != "" {
		a.printf("%s%s\n", strings.Repeat(" ", margin), a.paint(style, answer))
	}
}

// splitAnswer parts what is asked from the command that answers it, which is
// last: what stands before may hold anything.
func splitAnswer(line string) (asked, answer string) {
	at := max(strings.LastIndex(line, "  approve with: "), strings.LastIndex(line, "  say what is true with: "))
	if at < 0 {
		return line, ""
	}
	return line[:at], strings.TrimLeft(line[at:], " ")
}
