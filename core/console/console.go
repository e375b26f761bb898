// Package console is the web console: pages over the HTTP API, in the same
// process and on the same address. It reads and decides through the API only,
// so it can do what any other client can.
//
// The pages are whole without JavaScript; with it they follow what happens.
// Nothing comes from another address.
package console

import (
	"bytes"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/functions"
)

//go:embed templates assets
var files embed.FS

// Options configures a console.
type Options struct {
	// API answers what the pages ask: a handler of package functions. Required.
	API http.Handler
	// Token, when set, is what a browser has to show once to get a session.
	Token string
	// LoopbackOnly refuses requests whose Host is no loopback name.
	LoopbackOnly bool
	// Tenant is whose conversations are shown. Defaults to "local".
	Tenant string
	// Principal is recorded as who decided. Defaults to "console@local".
	Principal string
	// Now is the clock of the pages. Defaults to time.Now.
	Now func() time.Time
	// Log hears of pages that could not be made. Defaults to slog.Default.
	Log *slog.Logger
}

type console struct {
	opts  Options
	api   *client.Client
	mux   *http.ServeMux
	pages map[string]*template.Template
}

// New serves the console: the root, and everything under /ui/.
func New(o Options) http.Handler {
	if o.Tenant == "" {
		o.Tenant = "local"
	}
	if o.Principal == "" {
		o.Principal = "console@local"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	api, err := client.New("http://localhost", client.Options{Tenant: o.Tenant, Principal: o.Principal, Token: o.Token,
		HTTP: &http.Client{Transport: inProcess{o.API}}})
	if err != nil {
		panic("console: " + err.Error()) // the address above is one
	}
	c := &console{opts: o, api: api, mux: http.NewServeMux(), pages: parsePages(o.Now)}
	for pattern, page := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /{$}":                                      c.home,
		"GET /ui/conversations/{conversation}":          c.conversation,
		"POST /ui/conversations/{conversation}/abort":   c.abort,
		"POST /ui/conversations/{conversation}/resolve": c.resolve,
		"GET /ui/approvals":                             c.approvals,
		"POST /ui/approvals/{approval}":                 c.decide,
		"GET /ui/agents":                                c.agents,
		"GET /ui/login":                                 c.login,
		"POST /ui/login":                                c.enter,
		"GET /ui/assets/{name}":                         c.asset,
		"/":                                             c.nothing,
	} {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := page(w, r); err != nil {
				c.fail(w, r, err)
			}
		})
	}
	return c
}

// ServeHTTP lets in who may see the pages.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if c.opts.LoopbackOnly && !functions.LoopbackHost(r.Host) {
		c.fail(w, r, refused(http.StatusForbidden, "This name is not this machine", "Use the address the server printed."))
		return
	}
	if r.Method == http.MethodPost {
		if err := sameOrigin(r); err != nil {
			c.fail(w, r, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
	if c.opts.Token != "" && !c.open(r) {
		http.Redirect(w, r, "/ui/login?next="+url.QueryEscape(local(r.URL.RequestURI())), http.StatusSeeOther)
		return
	}
	c.mux.ServeHTTP(w, r)
}

// maxForm bounds the forms of the console.
const maxForm = 64 << 10

// open reports whether a request may be answered: it has a session, or it is
// about getting one.
func (c *console) open(r *http.Request) bool {
	if r.URL.Path == "/ui/login" || strings.HasPrefix(r.URL.Path, "/ui/assets/") {
		return true
	}
	cookie, err := r.Cookie(functions.TokenCookie)
	return err == nil && functions.SameToken(cookie.Value, functions.SessionOf(c.opts.Token))
}

// secure sets what every answer of the console carries: no script but ours, no
// frame around it, nothing kept.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// sameOrigin refuses forms of other pages.
func sameOrigin(r *http.Request) error {
	no := refused(http.StatusForbidden, "This form was not sent by this page", "Open the console and try there.")
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return no
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return nil
	}
	return no
}

// csrfCookie is what a form has to repeat: another site cannot read it, and a
// browser does not send it along with another site's form.
const csrfCookie = "layover_form"

// formToken is the token of a browser, which gets one with its first page.
func (c *console) formToken(w http.ResponseWriter, r *http.Request) string {
	if cookie, err := r.Cookie(csrfCookie); err == nil && len(cookie.Value) == 32 {
		return cookie.Value
	}
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // never fails
	token := hex.EncodeToString(raw)
	setCookie(w, r, csrfCookie, token)
	return token
}

func setCookie(w http.ResponseWriter, r *http.Request, name, value string) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
}

func checkForm(r *http.Request) error {
	cookie, err := r.Cookie(csrfCookie)
	if err == nil && functions.SameToken(r.PostFormValue("form"), cookie.Value) && cookie.Value != "" {
		return nil
	}
	return refused(http.StatusForbidden, "This form is too old", "Go back, load the page again and repeat what you did.")
}

// local keeps a target on this server.
func local(target string) string {
	u, err := url.Parse(target)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(target, "//") || strings.Contains(target, "\\") {
		return "/"
	}
	return target
}

func (c *console) login(w http.ResponseWriter, r *http.Request) error {
	return c.render(w, r, http.StatusOK, "login", page{Title: "Sign in", Data: local(r.URL.Query().Get("next"))})
}

// enter changes the token of the server for a session.
func (c *console) enter(w http.ResponseWriter, r *http.Request) error {
	next := local(r.PostFormValue("next"))
	if c.opts.Token == "" || !functions.SameToken(strings.TrimSpace(r.PostFormValue("token")), c.opts.Token) {
		return c.render(w, r, http.StatusUnauthorized, "login", page{Title: "Sign in", Alert: "This is not the token of this server.", Data: next})
	}
	setCookie(w, r, functions.TokenCookie, functions.SessionOf(c.opts.Token))
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

func (c *console) asset(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	body, err := files.ReadFile("assets/" + name)
	if err != nil {
		return c.nothing(w, r)
	}
	w.Header().Set("Cache-Control", "max-age=60")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
	return nil
}

func (c *console) nothing(http.ResponseWriter, *http.Request) error {
	return refused(http.StatusNotFound, "There is nothing here", "The conversations are at the root.")
}

// refusal is a page that says no.
type refusal struct {
	status    int
	what, how string
}

func (r *refusal) Error() string { return r.what }

func refused(status int, what, how string) *refusal { return &refusal{status, what, how} }

// fail answers with a page that says what went wrong and what to do.
func (c *console) fail(w http.ResponseWriter, r *http.Request, err error) {
	var no *refusal
	var p *client.Problem
	switch {
	case errors.As(err, &no):
	case errors.As(err, &p):
		no = refused(p.Status, upperFirst(p.Detail), upperFirst(p.Hint))
	default:
		c.opts.Log.Error("a page of the console failed", "path", r.URL.Path, "error", err)
		no = refused(http.StatusInternalServerError, "The page could not be made", "Why is in the server's log.")
	}
	if err := c.render(w, r, no.status, "failed", page{Title: http.StatusText(no.status), Alert: no.what, Data: no.how}); err != nil {
		c.opts.Log.Error("a page of the console failed", "path", r.URL.Path, "error", err)
		http.Error(w, no.what, no.status)
	}
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
