package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/record"
)

// redraw is how often the line of a wait is drawn again.
const redraw = 120 * time.Millisecond

// ticker is the line a person watches while a command waits. It knows a run by
// its events; without them it shows the time only.
type ticker struct {
	run   string
	begin time.Time

	mu     sync.Mutex
	turn   int
	doing  string
	tokens record.Usage
	parked string // what the run waits for
}

// watchRun draws a line on the terminal until the returned function is called.
// Where nobody watches it does nothing.
func (a *app) watchRun(ctx context.Context, c *client.Client, conversation, submission string) (stop func()) {
	if a.json || a.ErrColumns == nil || a.ErrColumns() == 0 || a.Getenv("TERM") == "dumb" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &ticker{run: submission, begin: time.Now(), doing: "waits for its turn"}
	var work sync.WaitGroup
	work.Go(func() {
		for e, err := range c.Events(ctx, conversation, client.EventsOptions{Follow: true, Live: true}) {
			if err != nil {
				return // whoever waits for the outcome hears of it
			}
			t.add(e)
		}
	})
	work.Go(func() {
		again := time.NewTicker(redraw)
		defer again.Stop()
		for n := 0; ; n++ {
			a.note("\r%s\x1b[K", fit(t.line(n, time.Since(t.begin)), a.ErrColumns()-1))
			select {
			case <-again.C:
			case <-ctx.Done():
				a.note("\r\x1b[K")
				return
			}
		}
	})
	return func() { cancel(); work.Wait() }
}

func (t *ticker) add(e client.Event) {
	var ev event.Event
	if json.Unmarshal(e.JSON, &ev) != nil || ev.Run != t.run {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn, t.parked = max(t.turn, ev.Turn), ""
	switch d := ev.Data.(type) {
	case event.RunStarted:
		t.doing = "asks the model"
	case event.TextDelta:
		t.doing = "the model writes"
	case event.ReasoningDelta:
		t.doing = "the model thinks"
	case event.ResponseCompleted:
		t.tokens, t.doing = t.tokens.Add(d.Usage), "goes on"
	case event.ToolCallStarted:
		t.doing = "runs " + show(d.Tool, 64)
	case event.ToolCallSucceeded, event.ToolCallFailed:
		t.doing = "asks the model"
	case event.RunSuspended:
		t.parked = waitWord(d.Reason)
		if len(d.Tools) > 0 {
			t.parked += " (" + show(strings.Join(d.Tools, ", "), 100) + ")"
		}
	}
}

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// line is what is known, the most wanted first: a narrow terminal cuts the end.
func (t *ticker) line(n int, took time.Duration) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := []string{fmt.Sprintf("%c %d s", spinner[n%len(spinner)], int(took.Seconds()))}
	if t.parked != "" {
		parts = append(parts, "waits for "+t.parked)
	} else {
		parts = append(parts, t.doing)
	}
	if t.turn > 0 {
		parts = append(parts, fmt.Sprintf("turn %d", t.turn))
	}
	if in, out := t.tokens.InputTokens, t.tokens.OutputTokens; in != nil && out != nil {
		parts = append(parts, fmt.Sprintf("%d tokens in, %d out", *in, *out))
	}
	return strings.Join(parts, " · ")
}
