package console

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// What stands for a character that cannot be seen is marked, whoever spelled it
// out; a backslash that was written by somebody is none of that.
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[31m":     `&#34;<span class="esc">\u001b</span>[31m&#34;`,
		`\u001b`:       `&#34;\\u001b&#34;`,
		"\u202e\u2028": `&#34;<span class="esc">\u202e</span><span class="esc">\u2028</span>&#34;`,
		"<b>\n&\"\\":   `&#34;&lt;b&gt;\n&amp;\&#34;\\&#34;`,
		"\\\x07":       `&#34;\\<span class="esc">\u0007</span>&#34;`,
		"日本 😀":         `&#34;日本 😀&#34;`,
	} {
		var raw strings.Builder
		enc := json.NewEncoder(&raw)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(text); err != nil {
			t.Fatal(err)
		}
		if got := string(exact(json.RawMessage(strings.TrimSpace(raw.String())))); got != want {
			t.Errorf("%q is shown as\n%s, want\n%s", text, got, want)
		}
	}
	long := string(exact(json.RawMessage(`"` + strings.Repeat(`\u0007`, shownBytes) + `"`)))
	if !strings.HasSuffix(long, ` more bytes</span>`) || strings.Count(long, "more bytes") != 1 {
		t.Errorf("a long text ends in %s", long[len(long)-80:])
	}
}

// A time of another day says so.
func TestClock(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.Local)
	for at, want := range map[time.Time]string{
		now.Add(-time.Hour):      "11:00:00",
		now.Add(-13 * time.Hour): "2026-11-30 23:00",
	} {
		if got := clock(now, at); got != want {
			t.Errorf("%s is shown as %q, want %q", at, got, want)
		}
	}
}
