package functions

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/uuid"

	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/record"
)

// APIOptions configures the HTTP API.
type APIOptions struct {
	// Tenant is used for requests without a Layover-Tenant header. Defaults to
	// "local".
	Tenant string
	// LoopbackOnly refuses requests whose Host is no loopback name: a page
	// that rebinds its DNS name to 127.0.0.1 keeps its own name there.
	LoopbackOnly bool
	// Boot is this opening of the data: requests that mean another one are
	// refused. Empty takes them all.
	Boot string
	// Token, when set, is what every request has to show as its bearer token.
	Token string
	// Events is where the events of a conversation come from. Defaults to the
	// admitter.
	Events EventSource
	// Tail is where the events of all conversations come from. Without one they
	// cannot be followed at once.
	Tail Tail
	// Heartbeat is how often a silent stream shows that it lives. Defaults to
	// 15 s.
	Heartbeat time.Duration
	// Stall is how long one write to the reader of a stream may take. Defaults
	// to 20 s.
	Stall time.Duration
	// Log hears of defects. Defaults to slog.Default.
	Log *slog.Logger
}

// acceptFor bounds a command: it goes on when its caller hangs up, because
// half a command helps nobody.
const acceptFor = 30 * time.Second

type api struct {
	admit   *Admit
	opts    APIOptions
	mux     *http.ServeMux
	streams atomic.Int64 // open now
}

// NewAPI serves the /v1 API. Submissions take the road of every other message:
// an SQS event of one message through the admit function.
func NewAPI(admit *Admit, o APIOptions) http.Handler {
	if o.Tenant == "" {
		o.Tenant = "local"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = heartbeat
	}
	if o.Stall <= 0 {
		o.Stall = stallAfter
	}
	if o.Events == nil {
		o.Events = admit.Admitter()
	}
	a := &api{admit: admit, opts: o, mux: http.NewServeMux()}
	for pattern, handle := range a.routes() {
		a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := handle(w, r); err != nil {
				writeProblem(w, problem(pattern, err))
			}
		})
	}
	return a
}

// routes is every method and path of the API.
func (a *api) routes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v1/submissions":                                   a.submit,
		"POST /v1/conversations/{conversation}/submissions":      a.submit,
		"POST /v1/conversations/{conversation}/abort":            a.abort,
		"POST /v1/conversations/{conversation}/resolve":          a.resolve,
		"POST /v1/conversations/{conversation}/steer":            a.steer,
		"POST /v1/conversations/{conversation}/followUp":         a.followUp,
		"POST /v1/approvals/{approval}":                          a.decide,
		"POST /v1/events":                                        a.event,
		"GET /v1/conversations":                                  a.conversations,
		"GET /v1/conversations/{conversation}":                   a.status,
		"GET /v1/conversations/{conversation}/events":            a.events,
		"GET /v1/conversations/{conversation}/records":           a.records,
		"GET /v1/conversations/{conversation}/verify":            a.verify,
		"GET /v1/conversations/{conversation}/submissions/{run}": a.progress,
		"GET /v1/submissions/{run}":                              a.progress,
		"GET /v1/events":                                         a.tail,
		"GET /v1/approvals":                                      a.approvals,
		"GET /v1/agents":                                         a.agents,
		"GET /v1/openapi.json":                                   a.openapi,
	}
}

// ServeHTTP answers everything, refusals of the router included, with JSON.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if defect := recover(); defect != nil && defect != http.ErrAbortHandler {
			a.opts.Log.Error("defect in the API", "request", r.Method+" "+r.URL.Path, "panic", panicked(defect), "stack", string(debug.Stack()))
			writeProblem(w, problem("answer", refuse(engine.KindInternal, "answer", "the stack is in the server's log", "a defect in the server")))
		}
	}()
	if err := a.guard(r); err != nil {
		writeProblem(w, problem("request", err))
		return
	}
	handler, pattern := a.mux.Handler(r)
	if pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	refused := &refusal{header: http.Header{}}
	handler.ServeHTTP(refused, r)
	p := problem("request", refuse(engine.KindNotFound, "request", "/v1/openapi.json describes every route", "no route %s", r.URL.Path))
	if refused.status == http.StatusMethodNotAllowed {
		allow := refused.header.Get("Allow")
		w.Header().Set("Allow", allow)
		p = problem("request", refuse(engine.KindInvalid, "request", "use "+allow, "%s is not for %s", r.URL.Path, r.Method))
		p.Status, p.Title = refused.status, http.StatusText(refused.status)
	}
	writeProblem(w, p)
}

// refusal takes the router's own answer, to say the same in JSON.
type refusal struct {
	header http.Header
	status int
}

func (r *refusal) Header() http.Header         { return r.header }
func (r *refusal) Write(b []byte) (int, error) { return len(b), nil }
func (r *refusal) WriteHeader(status int)      { r.status = status }

// guard lets in who may ask. It keeps other web pages out: a browser that shows
// one would send its requests here, with the cookies of this server.
func (a *api) guard(r *http.Request) error {
	if a.opts.Token != "" && !bears(r, a.opts.Token) {
		if r.Header.Get("Authorization") != "" {
			return refuse(wire.KindUnauthorized, "request", "check LAYOVER_TOKEN: it is what the server was started with", "this is not the token of this server")
		}
		return refuse(wire.KindUnauthorized, "request", "give the token of the server: set LAYOVER_TOKEN", "this server wants a token")
	}
	if a.opts.LoopbackOnly && !LoopbackHost(r.Host) {
		return refuse(wire.KindForbidden, "request", "use the address the server printed", "host %q is not this machine", r.Host)
	}
	if boot := r.Header.Get(wire.HeaderBoot); boot != "" && a.opts.Boot != "" && boot != a.opts.Boot {
		return refuse(wire.KindMisdirected, "request", "the server that was meant is gone: start it again", "another server answers here")
	}
	if dotted(r.URL.EscapedPath()) {
		return refuse(engine.KindNotFound, "request", "escape the dots of an id: %2E", "no route %s", r.URL.Path)
	}
	if strings.Contains(r.URL.EscapedPath(), "//") { // the router would make another path of it
		return refuse(engine.KindNotFound, "request", "a segment of the path is empty: an id has at least one character", "no route %s", r.URL.Path)
	}
	for name, text := range map[string]string{"the path": r.URL.Path, wire.HeaderTenant: r.Header.Get(wire.HeaderTenant),
		wire.HeaderPrincipal: r.Header.Get(wire.HeaderPrincipal)} {
		if !utf8.ValidString(text) { // it would be stored as another text
			return refuse(engine.KindInvalid, "request", "send names in UTF-8", "%s is not UTF-8", name)
		}
	}
	const hint = "a web page of another origin cannot use this API"
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return refuse(wire.KindForbidden, "request", hint, "origin %q is not this server", origin)
		}
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "none", "same-origin":
	default:
		return refuse(wire.KindForbidden, "request", hint, "the request is %s", site)
	}
	return nil
}

// dotted reports a path the router would send somewhere else.
func dotted(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// LoopbackHost reports whether an address, with a port or without, names this
// machine and nothing others can reach.
func LoopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// caller says who asks.
func (a *api) caller(r *http.Request) (tenant, principal string) {
	tenant, principal = r.Header.Get(wire.HeaderTenant), r.Header.Get(wire.HeaderPrincipal)
	if tenant == "" {
		tenant = a.opts.Tenant
	}
	if principal == "" {
		principal = "anonymous"
	}
	return tenant, principal
}

// command is the context of a request that changes something.
func command(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), acceptFor)
}

func (a *api) submit(w http.ResponseWriter, r *http.Request) error {
	var in wire.Submit
	if err := readInto(w, r, "submit", &in); err != nil {
		return err
	}
	if in.Agent == "" {
		return refuse(engine.KindInvalid, "submit", "name one of GET /v1/agents: {\"agent\":…,\"input\":…}", "the agent is missing")
	}
	tenant, principal := a.caller(r)
	body, err := encode(Message{
		V: MessageVersion, Type: "submit", Agent: in.Agent, Conversation: r.PathValue("conversation"), Key: in.Key, Input: in.Input,
		ReplyTo: in.ReplyTo, Allowance: engine.AllowanceRequest(in.Allowance),
	})
	if err != nil {
		return refuse(engine.KindInternal, "submit", "", "the message does not encode: %v", err)
	}
	ctx, cancel := command(r)
	defer cancel()
	result := a.admit.Process(ctx, events.SQSEvent{Records: []events.SQSMessage{{
		MessageId: uuid.Must(uuid.NewV7()).String(), Body: string(body), EventSource: "aws:sqs",
		Attributes:        map[string]string{"SenderId": principal},
		MessageAttributes: map[string]events.SQSMessageAttribute{"tenant": {DataType: "String", StringValue: &tenant}},
	}}})[0]
	if result.Err != nil {
		return result.Err
	}
	writeJSON(w, http.StatusAccepted, submitted(*result.Receipt))
	return nil
}

// event takes the JSON that Lambda gets from SQS. The envelope has fields this
// program does not know; what it carries is checked message by message.
func (a *api) event(w http.ResponseWriter, r *http.Request) error {
	body, err := readBodyTo(w, r, "send", maxEvent)
	if err != nil {
		return err
	}
	const hint = `send {"Records":[…]}, as Lambda gets it from SQS`
	var ev events.SQSEvent
	if err := json.Unmarshal(body, &ev); err != nil {
		return refuse(engine.KindInvalid, "send", hint, "the body is no SQS event: %s", decodeProblem(err))
	}
	if len(ev.Records) == 0 {
		return refuse(engine.KindInvalid, "send", hint, "the event has no Records")
	}
	a.complete(r, ev.Records)
	ctx, cancel := command(r)
	defer cancel()
	resp, err := a.admit.Handle(ctx, ev)
	if err != nil {
		return err
	}
	if resp.BatchItemFailures == nil {
		resp.BatchItemFailures = []events.SQSBatchItemFailure{}
	}
	writeJSON(w, http.StatusOK, resp)
	return nil
}

// complete gives messages that do not say who sent them the caller of the
// request, so that an event written by hand needs a body only.
func (a *api) complete(r *http.Request, messages []events.SQSMessage) {
	tenant, principal := a.caller(r)
	for i := range messages {
		m := &messages[i]
		if m.Attributes["SenderId"] == "" {
			if m.Attributes == nil {
				m.Attributes = map[string]string{}
			}
			m.Attributes["SenderId"] = principal
		}
		if _, ok := m.MessageAttributes["tenant"]; !ok {
			if m.MessageAttributes == nil {
				m.MessageAttributes = map[string]events.SQSMessageAttribute{}
			}
			m.MessageAttributes["tenant"] = events.SQSMessageAttribute{DataType: "String", StringValue: &tenant}
		}
	}
}

func (a *api) decide(w http.ResponseWriter, r *http.Request) error {
	var in wire.Decide
	if err := readInto(w, r, "decide", &in); err != nil {
		return err
	}
	if in.Decision != wire.Approve && in.Decision != wire.Deny {
		return refuse(engine.KindInvalid, "decide", `the decisions are "approve" and "deny"`, "unknown decision %q", in.Decision)
	}
	ctx, cancel := command(r)
	defer cancel()
	tenant, principal := a.caller(r)
	d, err := a.admit.Admitter().Decide(ctx, engine.DecisionRequest{Tenant: tenant, Principal: principal,
		Approval: r.PathValue("approval"), Approve: in.Decision == wire.Approve, Reason: in.Reason, ArgsDigest: in.ArgsDigest})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, wire.Decision{ID: d.Approval, Decision: d.Decision, By: d.By, At: record.Time(d.At)})
	return nil
}

func (a *api) abort(w http.ResponseWriter, r *http.Request) error {
	var in wire.Abort
	if r.ContentLength != 0 {
		if err := readInto(w, r, "abort", &in); err != nil {
			return err
		}
	}
	ctx, cancel := command(r)
	defer cancel()
	tenant, principal := a.caller(r)
	conversation := r.PathValue("conversation")
	submission, err := a.admit.Admitter().RequestAbort(ctx, engine.AbortRequest{Tenant: tenant, Principal: principal,
		Conversation: conversation, Submission: in.Submission, Reason: in.Reason})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, wire.Aborting{Conversation: conversation, Submission: submission, By: principal})
	return nil
}

func (a *api) resolve(w http.ResponseWriter, r *http.Request) error {
	var in wire.Resolve
	if err := readInto(w, r, "resolve", &in); err != nil {
		return err
	}
	ctx, cancel := command(r)
	defer cancel()
	tenant, principal := a.caller(r)
	conversation := r.PathValue("conversation")
	if err := a.admit.Admitter().Resolve(ctx, engine.ResolveRequest{Tenant: tenant, Principal: principal, Conversation: conversation,
		Call: in.Call, Resolution: in.Resolution, Result: in.Result, Reason: in.Reason}); err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, wire.Resolved{Conversation: conversation, Call: in.Call, Resolution: in.Resolution, By: principal})
	return nil
}
