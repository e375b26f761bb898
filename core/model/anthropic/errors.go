package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/provider"
	"github.com/layover-run/layover/core/model/sse"
)

// classes maps the error types of the API. A type decides before any status:
// behind a 200 there is no other.
var classes = map[string]model.Class{
	"invalid_request_error": model.Refused,
	"authentication_error":  model.Refused,
	"permission_error":      model.Refused,
	"not_found_error":       model.Refused,
	"billing_error":         model.Refused,
	"request_too_large":     model.ContextOverflow,
	"rate_limit_error":      model.RateLimited,
	"overloaded_error":      model.Transient,
	"api_error":             model.Transient,
	"timeout_error":         model.Transient,
}

// apiError is the body of an error, with a status or inside a stream.
type apiError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

// refusal makes a typed error of what the API answered. status is 200 for an
// error inside a stream.
func (m *Model) refusal(status int, h http.Header, body []byte) *model.Error {
	var e apiError
	_ = json.Unmarshal(body, &e) // what is no JSON has no type
	class, known := classes[e.Error.Type]
	if !known {
		class = provider.ByStatus(status)
	}
	said := e.Error.Message
	if said == "" {
		said = string(body)
	}
	if class == model.Refused && status != http.StatusUnauthorized && overflows(said) {
		class = model.ContextOverflow
	}
	what := "an error of unknown type"
	switch {
	case known:
		what = e.Error.Type
	case e.Error.Type == "" && status == http.StatusNotFound:
		what = "there is no such API at the base URL, which ends in front of /v1"
	case status >= 300 && status < 400:
		what = "a redirect, which is not followed: check the base URL"
	}
	return &model.Error{
		Class: class, Message: fmt.Sprintf("anthropic: %s (HTTP status %d)", what, status),
		RetryAfter: m.wait(class, h),
		Err:        m.redact.Detailf("%s%s", said, requestID(h)),
	}
}

// wait is how long an answer asks to wait. One that says so for a limit without
// saying how long names when each of its limits is filled up again: the last of
// those that are used up counts.
func (m *Model) wait(class model.Class, h http.Header) time.Duration {
	wait := provider.RetryAfter(h, m.cfg.Now())
	if wait > 0 || class != model.RateLimited {
		return wait
	}
	for _, limit := range []string{"Requests", "Tokens", "Input-Tokens", "Output-Tokens"} {
		if strings.TrimSpace(h.Get("Anthropic-Ratelimit-"+limit+"-Remaining")) == "0" {
			wait = max(wait, provider.Until(h.Get("Anthropic-Ratelimit-"+limit+"-Reset"), m.cfg.Now()))
		}
	}
	return wait
}

func requestID(h http.Header) string {
	if id := h.Get("Request-Id"); id != "" {
		return " (request " + id + ")"
	}
	return ""
}

// overflows recognises the wordings of a request that does not fit the model's
// context. The API has no error type of its own for that.
func overflows(message string) bool {
	message = strings.ToLower(message)
	for _, wording := range []string{
		"prompt is too long",
		"input is too long",
		"input length and `max_tokens` exceed",
		"input length and max_tokens exceed",
		"exceed context limit",
		"exceeds context limit",
		"exceeds the context window",
		"exceed the context window",
		"exceeds the maximum number of tokens",
		"context window exceeded",
		"context length exceeded",
		"too many total text bytes",
		"request exceeds the maximum size",
	} {
		if strings.Contains(message, wording) {
			return true
		}
	}
	return false
}

// broken makes a typed error of an exchange that did not come to its end. The
// end of the caller's context stays what it is.
func (m *Model) broken(ctx context.Context, call *provider.Call, err error) error {
	var api *sdk.Error
	var long *sse.TooLongError
	var typed *model.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case call.Idle():
		return &model.Error{Class: model.Transient, Err: provider.ErrIdle,
			Message: fmt.Sprintf("anthropic: no bytes for %s", m.cfg.IdleTimeout)}
	case errors.As(err, &typed):
		return typed
	case errors.As(err, &api):
		return m.refusal(api.StatusCode, api.Response.Header, []byte(api.RawJSON()))
	case errors.As(err, &long):
		return &model.Error{Class: model.Protocol, Err: long, Message: fmt.Sprintf("anthropic: an event of more than %d bytes", long.Limit)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &model.Error{Class: model.Transient, Err: io.ErrUnexpectedEOF,
			Message: "anthropic: the connection ended before the response was complete"}
	}
	var address *url.Error
	if errors.As(err, &address) { // the address may hold a secret
		err = address.Err
	}
	return &model.Error{Class: model.Transient, Message: "anthropic: the provider could not be reached, or the connection broke",
		Err: m.redact.Detailf("%v", err)}
}

// notAStream says what an answer is that was accepted and is no event stream.
func (m *Model) notAStream(ctx context.Context, call *provider.Call, resp *http.Response, body io.Reader) error {
	said, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil {
		return m.broken(ctx, call, err)
	}
	var e apiError
	if json.Unmarshal(said, &e) == nil && e.Error.Type != "" || resp.StatusCode >= 300 {
		return m.refusal(resp.StatusCode, resp.Header, said)
	}
	return &model.Error{Class: model.Protocol, Message: "anthropic: the answer is no event stream: check the base URL",
		Err: m.redact.Detailf("content type %q", resp.Header.Get("Content-Type"))}
}

func broke(format string, args ...any) *model.Error {
	return &model.Error{Class: model.Protocol, Message: "anthropic: " + fmt.Sprintf(format, args...)}
}
