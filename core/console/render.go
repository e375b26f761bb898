package console

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/record"
)

// page is what every page has.
type page struct {
	Title   string
	Stream  string // events that make the page out of date
	After   string // the last event that is on it
	Alert   string
	Waiting int // approvals; -1 when nobody counted
	Form    string
	Login   bool
	Data    any
}

// render writes a page, or the part of it that changes.
func (c *console) render(w http.ResponseWriter, r *http.Request, status int, name string, p page) error {
	p.Form = c.formToken(w, r)
	p.Login = name == "login"
	t, entry := c.pages[name], "page"
	if r.URL.Query().Get("part") == "main" {
		entry = "part"
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, entry, p); err != nil {
		return fmt.Errorf("console: %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the browser is gone
	return nil
}

func parsePages(now func() time.Time) map[string]*template.Template {
	base := template.New("base").Funcs(template.FuncMap{
		"visible": visible, "value": value, "exact": exact, "line": oneLine, "segment": pathSegment,
		"clock": func(t time.Time) string { return clock(now(), t) }, "stamp": stamp, "ago": func(t time.Time) string { return ago(now(), t) }, "left": func(t time.Time) string { return ago(t, now()) },
		"took": took, "tokens": tokens, "cost": cost, "count": count, "state": wire.StateWord, "waits": waitWord, "dict": dict,
	})
	base = template.Must(base.ParseFS(files, "templates/base.html"))
	pages := map[string]*template.Template{}
	for _, name := range []string{"home", "conversation", "approvals", "agents", "login", "failed"} {
		pages[name] = template.Must(template.Must(base.Clone()).ParseFS(files, "templates/"+name+".html"))
	}
	return pages
}

// dict passes several values to a template.
func dict(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

// clock is a time of today, or a day with its time.
func clock(now, t time.Time) string {
	if now.Local().Format(time.DateOnly) == t.Local().Format(time.DateOnly) {
		return t.Local().Format(time.TimeOnly)
	}
	return t.Local().Format("2006-01-02 15:04")
}

func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -0700") }

// ago is the time between two instants in its largest unit.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// took is a duration as a person says it.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "< 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// tokens is what a response cost in tokens; empty when nothing was reported.
func tokens(u record.Usage) string {
	var parts []string
	for _, n := range []struct {
		n    *int64
		what string
	}{{u.InputTokens, "in"}, {u.CacheReadTokens, "cached"}, {u.OutputTokens, "out"}} {
		if n.n != nil && (*n.n > 0 || n.what != "cached") {
			parts = append(parts, thousands(*n.n)+" "+n.what)
		}
	}
	return strings.Join(parts, " · ")
}

func thousands(n int64) string {
	if n < 10_000 {
		return strconv.FormatInt(n, 10)
	}
	return strconv.FormatFloat(float64(n)/1000, 'f', 1, 64) + "k"
}

// cost is the estimated price; empty when nobody knows it.
func cost(u record.Usage) string {
	if u.CostMicroUSD == nil {
		return ""
	}
	return fmt.Sprintf("$%.4f", float64(*u.CostMicroUSD)/1e6)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// waitWord says what a run waits for.
func waitWord(reason string) string {
	if text, ok := wire.WaitText(reason); ok {
		return text
	}
	if reason == "approval" {
		return "a person's approval"
	}
	return reason
}

// asUnsupported reports an error that says the server cannot do a thing.
func asUnsupported(err error, p **client.Problem) bool {
	return errors.As(err, p) && (*p).Kind == string(engine.KindUnsupported)
}
