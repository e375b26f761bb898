// Package client is the Go client of the HTTP API.
//
//	c, err := client.New("http://127.0.0.1:7077", client.Options{Principal: "ada@local"})
//	receipt, err := c.Submit(ctx, "c1", wire.Submit{Agent: "triage", Input: input})
//	progress, err := c.Await(ctx, receipt.Conversation, receipt.Submission, client.UntilSettled, time.Minute)
//
// What the server refuses is a *Problem; a server that does not answer is an
// *Unreachable. Bodies are the types of package wire.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/layover-run/layover/core/client/wire"
)

// Options configures a Client.
type Options struct {
	// Tenant is sent with every request. Empty leaves it to the server.
	Tenant string
	// Principal is who asks. Empty leaves it to the server.
	Principal string
	// Token is the bearer token of the server, where it wants one. It goes to no
	// error.
	Token string
	// Boot, when set, is the opening of a data directory that is meant: another
	// server at the address refuses every request.
	Boot string
	// HTTP makes the requests. Defaults to http.DefaultClient.
	HTTP *http.Client
	// Timeout bounds one request, the time it was asked to wait not counted.
	// Defaults to 60 s.
	Timeout time.Duration
}

// Client talks to one server. It is safe for concurrent use.
type Client struct {
	base string
	opts Options
}

// New makes a client of the server at an http or https URL.
func New(baseURL string, o Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("client: %q is not a server's address: use one such as http://127.0.0.1:7077", baseURL)
	}
	if o.HTTP == nil {
		o.HTTP = http.DefaultClient
	}
	if o.Timeout <= 0 {
		o.Timeout = 60 * time.Second
	}
	return &Client{base: strings.TrimRight(baseURL, "/"), opts: o}, nil
}

// Submit asks for a run. The server opens a conversation when none is named.
func (c *Client) Submit(ctx context.Context, conversation string, s wire.Submit) (wire.Submitted, error) {
	path := "/v1/submissions"
	if conversation != "" {
		path = conversationPath(conversation) + "/submissions"
	}
	return post[wire.Submitted](ctx, c, path, s)
}

// Send hands in an SQS event as Lambda would get it.
func (c *Client) Send(ctx context.Context, event json.RawMessage) (wire.BatchResponse, error) {
	return post[wire.BatchResponse](ctx, c, "/v1/events", event)
}

// Status reads a conversation.
func (c *Client) Status(ctx context.Context, conversation string) (wire.Status, error) {
	return get[wire.Status](ctx, c, conversationPath(conversation))
}

// Verify checks a conversation's log.
func (c *Client) Verify(ctx context.Context, conversation string) (wire.Verification, error) {
	return get[wire.Verification](ctx, c, conversationPath(conversation)+"/verify")
}

// Steer tells a run something before its next model request.
func (c *Client) Steer(ctx context.Context, conversation string, s wire.Steer) (wire.Steering, error) {
	return post[wire.Steering](ctx, c, conversationPath(conversation)+"/steer", s)
}

// FollowUp adds work that joins the active run where that would end.
func (c *Client) FollowUp(ctx context.Context, conversation string, f wire.FollowUp) (wire.Submitted, error) {
	return post[wire.Submitted](ctx, c, conversationPath(conversation)+"/followUp", f)
}

// Abort asks to end a submission.
func (c *Client) Abort(ctx context.Context, conversation string, a wire.Abort) (wire.Aborting, error) {
	return post[wire.Aborting](ctx, c, conversationPath(conversation)+"/abort", a)
}

// Resolve says what became of a call whose outcome is unknown.
func (c *Client) Resolve(ctx context.Context, conversation string, r wire.Resolve) (wire.Resolved, error) {
	return post[wire.Resolved](ctx, c, conversationPath(conversation)+"/resolve", r)
}

// Approvals lists what waits for a person, oldest first.
func (c *Client) Approvals(ctx context.Context) ([]wire.Approval, error) {
	list, err := get[wire.Approvals](ctx, c, "/v1/approvals")
	return list.Approvals, err
}

// Decide answers an approval.
func (c *Client) Decide(ctx context.Context, approval string, d wire.Decide) (wire.Decision, error) {
	return post[wire.Decision](ctx, c, "/v1/approvals/"+segment(approval), d)
}

// Agents lists what the server can run.
func (c *Client) Agents(ctx context.Context) ([]wire.Agent, error) {
	list, err := get[wire.Agents](ctx, c, "/v1/agents")
	return list.Agents, err
}

func conversationPath(id string) string { return "/v1/conversations/" + segment(id) }

// segment is an id as one segment of a path. The names . and .. are segments
// with a meaning, so they are spelled in another way.
func segment(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	return call[T](ctx, c, http.MethodGet, path, nil, 0)
}

func post[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		var none T
		return none, fmt.Errorf("client: the request does not encode: %w", err)
	}
	return call[T](ctx, c, http.MethodPost, path, &buf, 0)
}

// maxAnswer bounds an answer that is one value.
const maxAnswer = 64 << 20

func call[T any](ctx context.Context, c *Client, method, path string, body io.Reader, waits time.Duration) (T, error) {
	var out T
	bounded, cancel := context.WithTimeout(ctx, c.opts.Timeout+waits)
	defer cancel()
	resp, err := c.do(bounded, method, path, body)
	if err != nil {
		return out, c.failed(ctx, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return out, c.failed(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		return out, refusal(resp, raw)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, c.failed(ctx, fmt.Errorf("the answer is not what this API answers: %w", err))
	}
	return out, nil
}

func (c *Client) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", wire.TypeJSON)
	}
	if c.opts.Tenant != "" {
		req.Header.Set(wire.HeaderTenant, c.opts.Tenant)
	}
	if c.opts.Principal != "" {
		req.Header.Set(wire.HeaderPrincipal, c.opts.Principal)
	}
	if c.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	if c.opts.Boot != "" {
		req.Header.Set(wire.HeaderBoot, c.opts.Boot)
	}
	return c.opts.HTTP.Do(req)
}
