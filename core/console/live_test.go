package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
)

// In a browser, what happens shows without a load, and a click decides.
func TestBrowserFollows(t *testing.T) {
	b := newBrowser(t, 1100, 900, false)
	s := newSite(t, nil, nil)
	b.open(s.base + "/")
	b.until(`document.getElementById("link").textContent === "live"`)
	s.submit("payer", "c1", `{"cents":7}`, engine.UntilParked)
	b.until(`document.querySelector(".ask") !== null`)
	b.until(`document.querySelector("header .n").textContent === "1"`)

	b.eval(`document.querySelector(".ask h3 a").click()`)
	b.until(`location.pathname === "/ui/conversations/c1" && document.getElementById("link").textContent === "live"`)
	b.eval(`document.querySelector('button[value="approve"]').click()`)
	b.until(`document.querySelector("h1 .badge.completed") !== null`)
	if text := b.text(); !strings.Contains(text, "turn 2") || strings.Contains(text, "Deny") {
		t.Errorf("after the decision:\n%s", text)
	}
	b.quiet()
}

// pieces is a model that emits when a test says so.
type pieces struct {
	next chan func(emit func(model.Part) error) error
}

func (p pieces) Stream(ctx context.Context, _ *model.Request, emit func(model.Part) error) error {
	for {
		select {
		case step, ok := <-p.next:
			if !ok {
				return nil
			}
			if err := step(emit); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p pieces) emit(parts ...model.Part) {
	p.next <- func(emit func(model.Part) error) error {
		for _, part := range parts {
			if err := emit(part); err != nil {
				return err
			}
		}
		return nil
	}
}

// Text on its way is shown, and greyed once it is taken back.
func TestBrowserShowsAndRetracts(t *testing.T) {
	b := newBrowser(t, 800, 700, true)
	m := pieces{next: make(chan func(emit func(model.Part) error) error)}
	s := newSite(t, m, nil)
	if _, err := s.rt.Submit(t.Context(), engine.SubmitRequest{Agent: "echo", Conversation: "c1", Input: json.RawMessage(`"x"`)}); err != nil {
		t.Fatal(err)
	}
	m.emit(model.Start{Provider: "p", Model: "m"}, model.TextDelta{Text: "This was <b>wro"})
	b.open(s.base + "/ui/conversations/c1")
	b.until(`document.querySelector(".draft span")?.textContent === "This was <b>wro"`)
	m.emit(model.TextDelta{Text: "ng \u202e"})
	b.until(`document.querySelector(".draft span").textContent === "This was <b>wrong \\u{202e}"`)
	// The stream breaks and the request is made again: what was shown is void.
	m.next <- func(func(model.Part) error) error { return errors.New("connection reset") }
	m.emit(model.Start{Provider: "p", Model: "m"}, model.TextDelta{Text: "This is right."})
	b.until(`document.querySelector(".draft.retracted span")?.textContent.startsWith("This was")`)
	b.until(`document.querySelector(".draft:not(.retracted) span")?.textContent === "This is right."`)
	b.screenshot("retracted")
	m.emit(model.Finish{Reason: model.Stop, Raw: "stop"})
	m.next <- func(func(model.Part) error) error { close(m.next); return nil }
	b.until(`document.querySelector(".draft") === null && document.querySelector("h1 .badge.completed") !== null`)
	if text := b.text(); !strings.Contains(text, "This is right.") || strings.Contains(text, "wrong") {
		t.Errorf("at the end:\n%s", text)
	}
	b.quiet()
}

// wire is a network that a test can take away.
type wire struct {
	net.Listener
	mu    sync.Mutex
	off   bool
	conns map[net.Conn]bool
}

func (w *wire) Accept() (net.Conn, error) {
	for {
		c, err := w.Listener.Accept()
		if err != nil {
			return c, err
		}
		w.mu.Lock()
		off := w.off
		if !off {
			w.conns[c] = true
		}
		w.mu.Unlock()
		if !off {
			return c, nil
		}
		c.Close()
	}
}

func (w *wire) cut(off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.off = off; off {
		for c := range w.conns {
			c.Close()
		}
		clear(w.conns)
	}
}

// A browser that was offline says so and goes on behind the last event it has.
func TestBrowserOffline(t *testing.T) {
	b := newBrowser(t, 800, 700, false)
	var mu sync.Mutex
	var resumed []string
	s := newSite(t, nil, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/c1/events") {
				mu.Lock()
				id := r.Header.Get("Last-Event-ID")
				if id == "" {
					id = r.URL.Query().Get("after")
				}
				resumed = append(resumed, id)
				mu.Unlock()
			}
			h.ServeHTTP(w, r)
		})
	})
	// A second address of the same server, which can go away.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, conns: map[net.Conn]bool{}}
	srv := &http.Server{Handler: s.handler}
	go func() { _ = srv.Serve(w) }()
	t.Cleanup(func() { srv.Close() })

	s.submit("payer", "c1", `{"cents":7}`, engine.UntilParked)
	b.open("http://" + l.Addr().String() + "/ui/conversations/c1")
	b.until(`document.getElementById("link").textContent === "live"`)
	w.cut(true)
	b.until(`document.getElementById("link").textContent === "reconnecting…"`)
	b.screenshot("reconnecting")
	pending, err := s.rt.Approvals(t.Context(), "")
	if err != nil || len(pending) != 1 {
		t.Fatal(pending, err)
	}
	if _, err := s.rt.Decide(t.Context(), engine.DecisionRequest{Approval: pending[0].ID, Approve: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.rt.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.cut(false)
	b.until(`document.getElementById("link").textContent === "live"`)
	b.until(`document.querySelector("h1 .badge.completed") !== null`)
	mu.Lock()
	defer mu.Unlock()
	for _, id := range resumed {
		if id == "" || id == "0" {
			t.Errorf("a stream began from nothing: %q", resumed)
		}
	}
}

// Every page holds together from 360 to 1280 pixels, in light and dark.
func TestBrowserLayouts(t *testing.T) {
	long := strings.Repeat("x", 300)
	args, err := json.Marshal(payment{Cents: 7, Note: nasty + long})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, modeltest.Script(modeltest.Emit(model.Start{Provider: "p", Model: "m-" + long[:40]}, model.TextDelta{Text: nasty + long},
		model.ToolCallStart{Index: 1, ID: "call-1", Tool: "pay"}, model.ToolArgsDelta{Index: 1, JSON: string(args)}, model.ToolCallEnd{Index: 1},
		model.Finish{Reason: model.ToolCalls, Raw: "x"})), nil)
	s.submit("payer", "conversation-"+long[:100], string(args), engine.UntilParked)
	b := newBrowser(t, 360, 740, true)
	for _, size := range []struct {
		name          string
		width, height int
		dark          bool
	}{{"narrow", 360, 740, true}, {"wide", 1280, 900, false}} {
		b.resize(size.width, size.height, size.dark)
		for page, path := range map[string]string{"home": "/", "approvals": "/ui/approvals", "agents": "/ui/agents", "nothing": "/ui/nothing",
			"conversation": "/ui/conversations/conversation-" + long[:100]} {
			b.open(s.base + path)
			b.fits()
			b.screenshot(page + "-" + size.name)
			if title := b.eval("document.title").(string); strings.Contains(title, "alert") {
				t.Errorf("a script of a stranger ran")
			}
		}
	}
	for _, e := range b.errors {
		if !strings.Contains(e, "404") { // that page is one
			t.Errorf("a page complains: %s", e)
		}
	}
}
