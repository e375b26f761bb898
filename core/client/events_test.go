package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/client"
)

func line(id int) string { return fmt.Sprintf(`{"v":1,"kind":"TurnStarted","id":"%d"}`+"\n", id) }

// A follower goes on where its connection broke off, whatever broke it.
func TestEventsGoOn(t *testing.T) {
	var asked []string
	var lost int
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("after"))
		if r.URL.Query().Get("follow") != "true" || r.URL.Query().Get("live") != "true" {
			t.Errorf("asked %s", r.RequestURI)
		}
		switch len(asked) {
		case 1: // a line is cut off
			io.WriteString(w, line(1)+"\n"+`{"v":1,"kind":"TextDelta"}`+"\n"+line(2)+line(3)[:10])
		case 2: // the connection is reset
			io.WriteString(w, line(3))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 3: // the server stops in order
		default:
			io.WriteString(w, line(4))
		}
	})
	var ids []string
	for e, err := range c.Events(t.Context(), "c1", client.EventsOptions{Follow: true, Live: true, OnLost: func(error) { lost++ }}) {
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, e.ID); e.ID == "4" {
			break
		}
	}
	if want := []string{"1", "", "2", "3", "4"}; !slices.Equal(ids, want) {
		t.Errorf("ids %q, want %q", ids, want)
	}
	if want := []string{"", "2", "3", "3"}; !slices.Equal(asked, want) || lost != 3 {
		t.Errorf("asked after %q, want %q; lost %d", asked, want, lost)
	}
}

// What the server says instead of events ends the stream.
func TestEventsEnd(t *testing.T) {
	for body, want := range map[string]string{
		line(1) + `{"type":"about:blank","title":"","status":500,"detail":"the disk is away","kind":"unavailable","op":"events"}` + "\n": "events: the disk is away",
		"<html>\n": "events: an event does not decode",
	} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) })
		var last error
		for _, err := range c.Tail(t.Context(), client.EventsOptions{}) {
			last = err
		}
		if last == nil || last.Error() != want {
			t.Errorf("%q ends with %v, want %s", body, last, want)
		}
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(404)
		io.WriteString(w, `{"kind":"not-found","op":"read","detail":"no conversation"}`)
	})
	for _, err := range c.Events(t.Context(), "c1", client.EventsOptions{Follow: true}) {
		var p *client.Problem
		if !errors.As(err, &p) || p.Kind != "not-found" {
			t.Errorf("refused with %v", err)
		}
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	c, err := client.New(gone.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.Events(t.Context(), "c1", client.EventsOptions{Follow: true}) {
		var u *client.Unreachable
		if !errors.As(err, &u) { // a server that never answered is no lost connection
			t.Errorf("nobody answers: %v", err)
		}
	}
}

func TestEventsStopWithTheCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, line(1))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	var last error
	for e, err := range c.Events(ctx, "c1", client.EventsOptions{Follow: true}) {
		if last = err; e.ID == "1" {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("ended with %v", last)
	}
}

// The token goes to the server and nowhere else.
func TestToken(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		w.WriteHeader(401)
	}))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, client.Options{Token: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Agents(t.Context())
	if got != "Bearer s3cret" || err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("sent %q, answered %v", got, err)
	}
}
