package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model/demo"
)

// openEcho opens a runtime with an agent that repeats its input.
func openEcho(t *testing.T) *embedded.Runtime {
	t.Helper()
	echo := agent.MustDefine[string, string]("echo", agent.Config[string]{Instructions: agent.Text[string]("Repeat.")})
	rt, err := embedded.Open(t.TempDir(), embedded.Config{Agents: []*agent.Definition{echo}, Model: demo.New(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, rt) })
	return rt
}

const secret = "0123456789abcdef-secret"

// serveRuntime serves until the test stops it.
func serveRuntime(t *testing.T, rt *embedded.Runtime, o embedded.ServeOptions) (base string, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() { ended <- rt.Serve(ctx, l, o) }()
	return "http://" + l.Addr().String(), func() error { cancel(); return <-ended }
}

func get(t *testing.T, address, token string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// What others can reach is not served without a token, nor with a short one.
func TestServeNeedsAToken(t *testing.T) {
	rt := openEcho(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // or one that serves would do so for ever
	defer cancel()
	for _, tt := range []struct{ listen, token string }{{"0.0.0.0:0", ""}, {"0.0.0.0:0", "short"}, {"127.0.0.1:0", "short"}, {"127.0.0.1:0", "0123456789 abcdef"}} {
		l, err := net.Listen("tcp", tt.listen)
		if err != nil {
			t.Fatal(err)
		}
		err = rt.Serve(ctx, l, embedded.ServeOptions{Token: tt.token})
		if err == nil || strings.Contains(err.Error(), "abcdef") || (tt.token == "") != errors.Is(err, embedded.ErrNeedsToken) {
			t.Errorf("%+v: %v", tt, err)
		}
		if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
			t.Errorf("%+v still listens", tt)
		}
	}
	base, stop := serveRuntime(t, rt, embedded.ServeOptions{Token: secret})
	for token, want := range map[string]int{"": 401, secret + "x": 401, secret: 200} {
		if resp := get(t, base+"/v1/agents", token); resp.StatusCode != want {
			t.Errorf("token %q: %s", token, resp.Status)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A stop ends the streams that wait, so that nobody's open page holds it up.
func TestServeStopsWithOpenStreams(t *testing.T) {
	rt := openEcho(t)
	receipt, err := rt.Submit(t.Context(), engine.SubmitRequest{Agent: "echo", Conversation: "c1", Input: []byte(`"hi"`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Await(t.Context(), "", receipt.Submission, engine.UntilSettled); err != nil {
		t.Fatal(err)
	}
	base, stop := serveRuntime(t, rt, embedded.ServeOptions{})
	var bodies []io.Reader
	for _, path := range []string{"/v1/conversations/c1/events", "/v1/events"} {
		resp := get(t, base+path, "")
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %s", path, resp.Status)
		}
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "retry: 1000\n" {
			t.Fatalf("%s: %q, %v", path, line, err)
		}
		bodies = append(bodies, resp.Body)
	}
	begin := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("the stop took %s", took)
	}
	for _, body := range bodies {
		if _, err := io.ReadAll(body); err != nil {
			t.Errorf("a stream ends with %v", err)
		}
	}
}

// A request that is not well-behaved is refused before it costs anything.
func TestServeLimits(t *testing.T) {
	base, _ := serveRuntime(t, openEcho(t), embedded.ServeOptions{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/agents HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 80<<10))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "431") {
		t.Errorf("answered %q, %v", line, err)
	}
}
