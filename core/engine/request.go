package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// prepareContext turns the core's projection into a model request: payloads
// brought back, the input in its place, the tools listed.
func (j job) prepareContext(ctx context.Context, e core.PrepareContext) core.Fact {
	req := &model.Request{Choice: model.Auto, Output: j.def.Facts.Output}
	for _, m := range e.Request.Messages {
		resolved, err := j.message(ctx, m, e.Request.Input, req)
		if err != nil {
			return j.contextError(err)
		}
		req.Messages = append(req.Messages, resolved)
	}
	for _, t := range j.def.Tools {
		req.Tools = append(req.Tools, t.ForModel())
	}
	req.ProviderTools = j.def.ProviderTools
	if e.Request.NoCalls {
		req.Choice = model.None
	}
	digest, err := requestDigest(req)
	if err != nil {
		return core.ContextPrepared{Err: &record.Error{Kind: core.Defect, Message: "the model request does not encode"}}
	}
	j.a.request = req
	return core.ContextPrepared{Digest: digest}
}

// message is a message as the model is shown it, with its media's bytes in req.
func (j job) message(ctx context.Context, m record.Message, input record.Value, req *model.Request) (record.Message, error) {
	for i, p := range m.Parts {
		if _, ok := p.(record.InputPart); ok {
			shown, err := j.shown(ctx, input, req)
			if err != nil {
				return m, err
			}
			m = record.Message{Role: m.Role, Parts: slices.Concat(m.Parts[:i], shown, m.Parts[i+1:])}
			break
		}
	}
	m, err := record.MapMessage(m, func(v record.Value) (record.Value, error) { return j.resolve(ctx, v) })
	if err != nil {
		return m, err
	}
	if err := j.media(ctx, m, req); err != nil {
		return m, err
	}
	for i, p := range m.Parts {
		// A follow-up's input is shown as the input of a run is.
		if t, ok := p.(record.TextPart); ok && len(t.Text.Inline) > 0 && t.Text.Inline[0] != '"' {
			m.Parts = slices.Clone(m.Parts)
			m.Parts[i] = record.TextPart{Text: record.TextValue(t.Text.Text())}
		}
	}
	return m, nil
}

// requestDigest pins what the model was asked, without storing it.
func requestDigest(req *model.Request) (string, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return "", fmt.Errorf("engine: request: %w", err)
	}
	return record.Digest(b), nil
}

// callModel streams the prepared request and reduces it to one response.
func (j job) callModel(ctx context.Context) core.Fact {
	fpModelStart.Hit()
	reducer := model.NewReducer(j.a.cfg.Limits.Resolve().model())
	reducer.Continue(j.a.request.Messages)
	finished := false
	j.a.out.live(ctx, "", event.TurnStarted{})
	err := j.def.Model.Stream(ctx, j.a.request, func(p model.Part) error {
		_, finish := p.(model.Finish)
		finished = finished || finish
		err := reducer.Add(p)
		if err == nil {
			j.a.out.part(ctx, p)
		}
		return err
	})
	fpModelEnd.Hit()
	if err == nil && !finished {
		err = &model.Error{Class: model.Transient, Message: "the stream ended before the response was complete"}
	}
	if err == nil {
		var resp model.Response
		if resp, err = reducer.Response(); err == nil {
			// The provider's own report is kept as the log will hold it.
			if resp.Usage.Raw, err = record.Canonical(resp.Usage.Raw); err != nil {
				resp.Usage.Raw = nil
			}
			return core.ModelEnded{Response: &core.Response{
				Message: resp.Message, Stop: string(resp.Stop), RawStop: resp.RawStop, Provider: resp.Provider,
				Model: resp.Model, ResponseID: resp.ResponseID, Usage: resp.Usage, Repairs: resp.Repairs,
			}}
		}
	}
	// A message of the adapter's own type is made for records; any other error
	// text may hold anything.
	failure := &core.ModelFailure{Class: string(model.ClassOf(err)), Message: "the model adapter returned an error"}
	var typed *model.Error
	if errors.As(err, &typed) {
		failure.Message, failure.RetryAfter = typed.Message, typed.RetryAfter
	}
	if ctx.Err() != nil {
		failure.Class = core.FailCancelled
	} else {
		j.a.cfg.OnUserError(UserError{Conversation: j.conversation, Run: j.run, Where: "the model adapter", Err: err})
	}
	return core.ModelEnded{Failure: failure}
}
