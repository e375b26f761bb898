package engine

import (
	"context"
	"crypto/sha256"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// TraceScope is the instrumentation scope of the engine's spans.
const TraceScope = "github.com/layover-run/layover/core/engine"

// The names of the spans' attributes: those of the GenAI semantic conventions
// 0.1 (gen_ai.*), and what they have no word for (layover.*).
const (
	keyOperation    = attribute.Key("gen_ai.operation.name")
	keyAgent        = attribute.Key("gen_ai.agent.name")
	keyAgentVersion = attribute.Key("gen_ai.agent.version")
	keyConversation = attribute.Key("gen_ai.conversation.id")
	keyProvider     = attribute.Key("gen_ai.provider.name")
	keyModel        = attribute.Key("gen_ai.request.model")
	keyStream       = attribute.Key("gen_ai.request.stream")
	keyResponseID   = attribute.Key("gen_ai.response.id")
	keyAnswered     = attribute.Key("gen_ai.response.model")
	keyFinish       = attribute.Key("gen_ai.response.finish_reasons")
	keyInput        = attribute.Key("gen_ai.usage.input_tokens")
	keyCacheRead    = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	keyCacheWrite   = attribute.Key("gen_ai.usage.cache_write.input_tokens")
	keyOutput       = attribute.Key("gen_ai.usage.output_tokens")
	keyReasoning    = attribute.Key("gen_ai.usage.reasoning.output_tokens")
	keyTool         = attribute.Key("gen_ai.tool.name")
	keyToolType     = attribute.Key("gen_ai.tool.type")
	keyToolCall     = attribute.Key("gen_ai.tool.call.id")
	keyErrorType    = attribute.Key("error.type")

	keyRun        = attribute.Key("layover.run.id")
	keyRunStatus  = attribute.Key("layover.run.status")
	keyAttempt    = attribute.Key("layover.attempt.id")
	keyEpoch      = attribute.Key("layover.attempt.epoch")
	keyEnded      = attribute.Key("layover.attempt.ended")
	keyTurn       = attribute.Key("layover.turn")
	keyOutcome    = attribute.Key("layover.tool.outcome")
	keyNotEntered = attribute.Key("layover.tool.not_entered")
	keyResolution = attribute.Key("layover.tool.resolution")
)

// RunTrace is the trace all spans of a run belong to, whichever attempt, host
// or build they come from: a function of the run id, so nothing about it needs
// to be stored. The parent it names is never exported; it stands for the run.
func RunTrace(run string) trace.SpanContext {
	sum := sha256.Sum256([]byte("layover.run\x00" + run))
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(sum[:16]), SpanID: trace.SpanID(sum[16:24]), TraceFlags: trace.FlagsSampled, Remote: true,
	})
}

// spans is the trace of one attempt. Spans are made where something is
// executed, never where the log is folded, so a resume exports nothing again.
type spans struct {
	tracer trace.Tracer    // nil: nothing is traced
	caller context.Context // what invoked the attempt
	began  time.Time
	own    trace.Span // of the attempt, once its run is known
	common []attribute.KeyValue
}

func newSpans(ctx context.Context, cfg Config) spans {
	if cfg.Tracing == nil {
		return spans{}
	}
	return spans{tracer: cfg.Tracing.Tracer(TraceScope), caller: ctx, began: cfg.Now()}
}

// begin starts the attempt's span when its run is known: an attempt that finds
// nothing to do leaves none. The loop calls it.
func (s *spans) begin(a *attempt) {
	if s.tracer == nil || s.own != nil || a.state == nil || a.state.Run == nil {
		return
	}
	run := a.state.Run
	s.common = []attribute.KeyValue{keyConversation.String(a.lane.Conversation), keyAgent.String(run.Agent),
		keyRun.String(run.ID), keyAttempt.String(a.head.Owner)}
	attributes := append([]attribute.KeyValue{keyOperation.String("invoke_agent"), keyEpoch.Int64(int64(a.head.Epoch))}, s.common...)
	if d := a.registry.definition(run.Agent); d != nil {
		provider, _ := identity(d.Model)
		attributes = append(attributes, keyProvider.String(provider), keyAgentVersion.String(d.Facts.Version))
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(s.began), trace.WithAttributes(attributes...)}
	if link := trace.LinkFromContext(s.caller); link.SpanContext.IsValid() {
		options = append(options, trace.WithLinks(link))
	}
	_, s.own = s.tracer.Start(trace.ContextWithRemoteSpanContext(s.caller, RunTrace(run.ID)), "invoke_agent "+run.Agent, options...)
}

// end says how the attempt ended.
func (s *spans) end(a *attempt, ended Ended, err error) {
	if s.own == nil {
		return
	}
	if err != nil {
		ended = "died"
		failedWith(s.own, string(AsError("attempt", err).Kind))
	}
	s.own.SetAttributes(keyEnded.String(string(ended)))
	if last := a.state.Latest; ended == HandedOver && last != nil {
		s.own.SetAttributes(keyRunStatus.String(string(last.Status)))
		if last.Error != nil {
			failedWith(s.own, last.Error.Kind)
		}
	}
	s.own.End(trace.WithTimestamp(a.cfg.Now()))
}

// span starts the span of an effect that somebody outside would ask about, and
// ends it with what came of it. Whatever the effect starts under the context it
// gets is a child of it.
func (j job) span(e core.Effect) (context.Context, func(posted)) {
	s := &j.spans
	if s.own == nil {
		return j.effects, func(posted) {}
	}
	name, kind, attributes := j.describe(e)
	if name == "" {
		return trace.ContextWithSpan(j.effects, s.own), func(posted) {}
	}
	attributes = append(append(attributes, s.common...), keyTurn.Int(j.turn))
	ctx, span := s.tracer.Start(trace.ContextWithSpan(j.effects, s.own), name, trace.WithSpanKind(kind),
		trace.WithTimestamp(j.a.cfg.Now()), trace.WithAttributes(attributes...))
	return ctx, func(p posted) {
		outcome(span, p)
		span.End(trace.WithTimestamp(j.a.cfg.Now()))
	}
}

// describe names an effect's span, and what is known about it beforehand.
func (j job) describe(e core.Effect) (name string, kind trace.SpanKind, attributes []attribute.KeyValue) {
	switch e := e.(type) {
	case core.CallModel:
		provider, name := identity(j.def.Model)
		return "chat " + name, trace.SpanKindClient, []attribute.KeyValue{keyOperation.String("chat"), keyProvider.String(provider), keyModel.String(name), keyStream.Bool(true)}
	case core.StartTool:
		return "execute_tool " + e.Tool, trace.SpanKindInternal, []attribute.KeyValue{keyOperation.String("execute_tool"), keyTool.String(e.Tool), keyToolType.String("function"), keyToolCall.String(e.Call)}
	case core.Reconcile:
		return "reconcile " + e.Tool, trace.SpanKindInternal, []attribute.KeyValue{keyTool.String(e.Tool), keyToolCall.String(e.Call)}
	}
	return "", 0, nil
}

// identity is a model's names, the provider's as the conventions spell it.
func identity(m model.Model) (provider, name string) {
	named, ok := m.(model.Named)
	if !ok {
		return "custom", "custom"
	}
	provider, name = named.Identity()
	if provider == "bedrock" {
		provider = "aws.bedrock"
	}
	return provider, name
}

// outcome puts what came of an effect on its span: kinds and counts, no text.
func outcome(span trace.Span, p posted) {
	switch f := p.fact.(type) {
	case core.ModelEnded:
		if f.Failure != nil {
			span.SetAttributes(keyFinish.StringSlice([]string{"error"}))
			failedWith(span, f.Failure.Class)
			return
		}
		answered(span, f.Response)
	case core.ToolEnded:
		span.SetAttributes(keyOutcome.String(string(f.Outcome)))
		switch {
		case f.NotStarted:
			span.SetAttributes(keyNotEntered.Bool(true))
		case f.Outcome != record.Succeeded:
			failedWith(span, f.Tag)
		}
	case core.Reconciled:
		span.SetAttributes(keyResolution.String(string(f.Resolution)))
	case core.Faulted:
		failedWith(span, core.Defect)
	case nil:
		failedWith(span, "unavailable") // the store did not give out what the effect needs
	}
}

func answered(span trace.Span, r *core.Response) {
	span.SetAttributes(keyFinish.StringSlice([]string{r.Stop}), keyAnswered.String(r.Model))
	if r.ResponseID != "" {
		span.SetAttributes(keyResponseID.String(r.ResponseID))
	}
	for key, count := range map[attribute.Key]*int64{keyInput: r.Usage.InputTokens, keyCacheRead: r.Usage.CacheReadTokens,
		keyCacheWrite: r.Usage.CacheWriteTokens, keyOutput: r.Usage.OutputTokens, keyReasoning: r.Usage.ReasoningTokens} {
		if count != nil {
			span.SetAttributes(key.Int64(*count))
		}
	}
}

// failedWith marks a span as failed. The class says why; a text could hold
// what nobody should read.
func failedWith(span trace.Span, class string) {
	span.SetStatus(codes.Error, "")
	span.SetAttributes(keyErrorType.String(class))
}
