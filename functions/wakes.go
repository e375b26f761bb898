package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/aws/aws-lambda-go/events"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/record"
)

// Attempt is the attempt function: one message is one attempt at a lane.
type Attempt struct {
	attempter *engine.Attempter
	log       *slog.Logger
}

// NewAttempt makes the function; a nil log is slog.Default.
func NewAttempt(a *engine.Attempter, log *slog.Logger) *Attempt {
	return &Attempt{attempter: a, log: orDefault(log)}
}

// Handle works on the lane each message points at. A message that finds a live
// owner or no work is acknowledged; a malformed one is reported.
func (f *Attempt) Handle(ctx context.Context, ev events.SQSEvent) (events.SQSEventResponse, error) {
	return eachWake(ctx, ev, queue.Attempt, f.log, func(lane journal.Lane) error {
		_, err := f.attempter.Attempt(ctx, lane)
		return err
	}), nil
}

// Settle is the settle function.
type Settle struct {
	settler *engine.Settler
	log     *slog.Logger
}

// NewSettle makes the function; a nil log is slog.Default.
func NewSettle(s *engine.Settler, log *slog.Logger) *Settle {
	return &Settle{settler: s, log: orDefault(log)}
}

// Handle hands over the terminal record of each lane it is woken for.
func (f *Settle) Handle(ctx context.Context, ev events.SQSEvent) (events.SQSEventResponse, error) {
	return eachWake(ctx, ev, queue.Settle, f.log, func(lane journal.Lane) error {
		_, err := f.settler.Settle(ctx, lane)
		return err
	}), nil
}

func orDefault(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.Default()
	}
	return log
}

// eachWake runs do for every message of a batch on its own.
func eachWake(ctx context.Context, ev events.SQSEvent, kind queue.Kind, log *slog.Logger, do func(journal.Lane) error) events.SQSEventResponse {
	var failures batchFailures
	for _, m := range ev.Records {
		w, err := parseWake(m.Body, kind)
		if err == nil {
			err = do(w.Lane())
		}
		if err != nil {
			failures.add(m.MessageId)
			if ctx.Err() == nil {
				log.Error("wake failed", "function", string(kind), "message", m.MessageId, "conversation", w.Conversation, "error", err)
			}
		}
	}
	return failures.response()
}

func parseWake(body string, kind queue.Kind) (queue.Wake, error) {
	var w queue.Wake
	canonical, err := record.Canonical([]byte(body))
	if err != nil {
		return w, fmt.Errorf("functions: malformed wake: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return queue.Wake{}, fmt.Errorf("functions: malformed wake: %w", err)
	}
	switch {
	case w.V != queue.Version:
		return w, fmt.Errorf("functions: wake of version %d; this build reads %d", w.V, queue.Version)
	case w.Kind != kind:
		return w, fmt.Errorf("functions: a %q wake on the %s queue", w.Kind, kind)
	case w.Tenant == "" || w.Conversation == "":
		return w, fmt.Errorf("functions: a wake without a lane")
	}
	return w, nil
}
