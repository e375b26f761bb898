// Package anthropic is the adapter to Anthropic's Messages API.
//
// The official SDK sends the request: authentication, headers and the shape of
// what goes out are its work. It neither retries, reads the environment nor
// decodes the answer here: the raw bytes of the stream are read by package sse
// and turned into parts as they came, because an accumulator that completes what
// the provider cut off would hide it.
//
// What the provider needs back byte for byte, signatures of its reasoning and
// the results of tools it ran itself, is kept in the conversation and goes back
// to the model it came from; any other model gets the conversation without it.
package anthropic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/provider"
)

// Provider is the name of this provider in records.
const Provider = "anthropic"

// Defaults of a Config.
const (
	DefaultBaseURL         = "https://api.anthropic.com"
	DefaultMaxOutputTokens = 8192
	DefaultIdleTimeout     = 60 * time.Second
)

// Config configures a Model. APIKey and Model are required.
type Config struct {
	// APIKey authenticates every request. It is in no error, log or record.
	APIKey string
	// Model is the name of the model, such as claude-sonnet-4-20250514.
	Model string
	// BaseURL is where the API is, up to and without its /v1, with or without a
	// slash at the end. Defaults to DefaultBaseURL.
	BaseURL string
	// HTTPClient sends the requests. It must have no overall Timeout, which would
	// cut long answers off. Defaults to one of its own, which follows no
	// redirects, so that the key goes to no other host.
	HTTPClient *http.Client
	// MaxOutputTokens bounds an answer, reasoning included, where the request
	// does not. Defaults to DefaultMaxOutputTokens.
	MaxOutputTokens int
	// Thinking lets the model reason before it answers. Defaults to off.
	Thinking Thinking
	// Cache says how long the provider keeps a conversation's prefix, so that
	// the next request pays less for it. Defaults to CacheFiveMinutes.
	Cache Cache
	// Beta lists beta features to ask for, as the anthropic-beta header does.
	Beta []string
	// IdleTimeout is how long the provider may be silent: before the first byte
	// and between any two. Defaults to DefaultIdleTimeout.
	IdleTimeout time.Duration
	// Compat switches repairs of harmless deviations off. Each repair that is
	// made is recorded with the response.
	Compat Compat
	// Now is the clock that HTTP dates are compared with. Defaults to time.Now.
	Now func() time.Time
}

// Thinking is how a model reasons before it answers.
type Thinking struct {
	// Budget is how many tokens it may reason for; at least 1024 and less than
	// the output may have. 0 means that no budget is set.
	Budget int
	// Adaptive lets the model decide for itself how long. It excludes a Budget.
	Adaptive bool
}

// Cache is how long the provider keeps a prefix.
type Cache string

// The cache lifetimes.
const (
	CacheFiveMinutes Cache = "5m"
	CacheOneHour     Cache = "1h"
	CacheOff         Cache = "off"
)

// Compat switches repairs off. Servers that speak this API deviate from it in
// ways that change nothing about what the model said; with every field false
// those are mended, and recorded with the raw value (D-60).
type Compat struct {
	// KeepEmptyArguments leaves the arguments of a tool without parameters as
	// they came, which is no text at all or null, instead of {}.
	KeepEmptyArguments bool
	// KeepStopReason leaves end_turn and stop_sequence behind complete tool calls
	// as they came, instead of tool_use.
	KeepStopReason bool
	// KeepCallIDs leaves empty and repeated ids of tool calls as they came,
	// instead of making them unique.
	KeepCallIDs bool
	// RefuseUnknown refuses answers with content blocks or deltas of types that
	// are not known here. Otherwise an unknown block, which nothing can be read
	// from, goes back as it came if it came whole, and an unknown delta is left
	// out, unless it may be a part of a call.
	RefuseUnknown bool
	// KeepUsage leaves token counts that are no integer, negative or fall as they
	// came, instead of taking them for not reported.
	KeepUsage bool
}

// Model is one model of Anthropic. It is immutable and safe for concurrent use.
type Model struct {
	cfg      Config
	messages sdk.MessageService
	redact   provider.Redactor
}

var _ interface {
	model.Model
	model.Named
} = (*Model)(nil)

// New checks a configuration. Its error names everything that is wrong.
func New(c Config) (*Model, error) {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf("anthropic: "+format, args...)) }
	if strings.TrimSpace(c.APIKey) == "" {
		refuse("Config.APIKey is empty: create a key in the provider's console")
	} else if strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		refuse("Config.APIKey has characters that no key has, such as a line end: check how it was copied")
	}
	if strings.TrimSpace(c.Model) == "" {
		refuse("Config.Model is empty: name a model")
	}
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	secrets := []string{c.APIKey}
	switch u, err := url.Parse(c.BaseURL); {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		refuse("Config.BaseURL is not an http or https address")
	case u.RawQuery != "" || u.Fragment != "":
		refuse("Config.BaseURL has a query or a fragment, which would not be sent")
	case u.User != nil:
		password, _ := u.User.Password()
		secrets = append(secrets, u.User.Username(), password)
	}
	if c.MaxOutputTokens <= 0 {
		c.MaxOutputTokens = DefaultMaxOutputTokens
	}
	switch {
	case c.Thinking.Adaptive && c.Thinking.Budget != 0:
		refuse("Config.Thinking is adaptive and has a budget: choose one")
	case c.Thinking.Budget != 0 && (c.Thinking.Budget < 1024 || c.Thinking.Budget >= c.MaxOutputTokens):
		refuse("Config.Thinking.Budget is %d: it is at least 1024 and less than MaxOutputTokens (%d)", c.Thinking.Budget, c.MaxOutputTokens)
	}
	switch c.Cache {
	case "":
		c.Cache = CacheFiveMinutes
	case CacheFiveMinutes, CacheOneHour, CacheOff:
	default:
		refuse("Config.Cache is %q: use 5m, 1h or off", c.Cache)
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	if c.HTTPClient == nil {
		c.HTTPClient = client()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	m := &Model{cfg: c, redact: provider.NewRedactor(secrets...)}
	m.messages = sdk.NewMessageService(
		option.WithBaseURL(c.BaseURL), option.WithAPIKey(c.APIKey), option.WithHTTPClient(c.HTTPClient),
		option.WithMaxRetries(0), option.WithoutOpenTelemetry(), option.WithHeader("Accept", "text/event-stream"),
		option.WithMiddleware(guard))
	return m, nil
}

func client() *http.Client {
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		c.Transport = t.Clone()
	}
	return c
}

// maxErrorBody is how much of an error response is read, in bytes.
const maxErrorBody = 64 << 10

// guard keeps the SDK from reading an endless error response, and from leaving
// one open whose request was given up.
func guard(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(req)
	switch {
	case err != nil:
	case req.Context().Err() != nil:
		_ = resp.Body.Close()
		return nil, req.Context().Err()
	case resp.StatusCode >= 400:
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxErrorBody), resp.Body}
	}
	return resp, err
}

// Identity names the model in records.
func (m *Model) Identity() (providerName, modelName string) { return Provider, m.cfg.Model }

// Stream sends one request. It never asks again.
func (m *Model) Stream(ctx context.Context, req *model.Request, emit func(model.Part) error) error {
	params, err := m.params(req)
	if err != nil {
		return err
	}
	call := provider.Begin(ctx, m.cfg.IdleTimeout)
	defer call.End()
	resp, err := m.open(call, params)
	if err != nil {
		return m.broken(ctx, call, err)
	}
	defer resp.Body.Close()
	body := call.Body(resp.Body)
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return m.notAStream(ctx, call, resp, body)
	}
	s := &stream{m: m, header: resp.Header, emit: emit}
	err = s.read(body)
	if failed := (*readError)(nil); errors.As(err, &failed) {
		return m.broken(ctx, call, failed.err)
	}
	return err
}

// open sends the request and returns the answer with its body unread.
func (m *Model) open(call *provider.Call, params sdk.MessageNewParams) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(call.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { call.Progress() }})
	var resp *http.Response
	opts := []option.RequestOption{option.WithResponseBodyInto(&resp), option.WithMiddleware(
		func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			if req.Body != nil {
				req.Body = call.Sending(req.Body)
			}
			return next(req)
		})}
	for _, b := range m.cfg.Beta {
		opts = append(opts, option.WithHeaderAdd("anthropic-beta", b))
	}
	err := m.messages.NewStreaming(ctx, params, opts...).Err()
	switch {
	case err != nil && resp != nil:
		_ = resp.Body.Close()
		return nil, err
	case err != nil:
		return nil, err
	case resp == nil:
		return nil, errors.New("no response")
	}
	return resp, nil
}
