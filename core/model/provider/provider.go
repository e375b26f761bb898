// Package provider holds what the adapters of HTTP model providers share: how
// long to wait before asking again, when a silent stream is given up, and what
// an error may say.
package provider

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/layover-run/layover/core/model"
)

// longestWait is what a provider may ask for; more is taken for nonsense.
const longestWait = 30 * 24 * time.Hour

// RetryAfter is how long a response asks to wait, in every form providers use:
// retry-after-ms in milliseconds; retry-after in seconds, as an HTTP date, or as
// a duration such as 6m0s. What cannot be read, lies in the past or is longer
// than 30 days is 0.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if wait, ok := times(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return wait
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if wait, ok := times(value, time.Second); ok {
		return wait
	}
	if at, err := http.ParseTime(value); err == nil {
		return within(at.Sub(now))
	}
	if wait, err := time.ParseDuration(value); err == nil {
		return within(wait)
	}
	return 0
}

// Until is how long it is until an instant in the form of RFC 3339, by the rules
// of RetryAfter.
func Until(value string, now time.Time) time.Duration {
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(value))
	if err != nil {
		return 0
	}
	return within(at.Sub(now))
}

func times(value string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || math.IsNaN(n) {
		return 0, false
	}
	if n *= float64(unit); n > float64(longestWait) {
		return 0, true
	}
	return within(time.Duration(n)), true
}

func within(wait time.Duration) time.Duration {
	if wait < 0 || wait > longestWait {
		return 0
	}
	return wait
}

// ByStatus classifies an HTTP error that says nothing better about itself.
func ByStatus(status int) model.Class {
	switch {
	case status == http.StatusTooManyRequests:
		return model.RateLimited
	case status == http.StatusRequestEntityTooLarge:
		return model.ContextOverflow
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly, status >= 500:
		return model.Transient
	case status >= 300:
		return model.Refused
	}
	return model.Transient // an error behind a 200
}

// maxDetail is how much of a provider's own text an error keeps, in bytes.
const maxDetail = 500

// Redactor keeps secrets out of texts.
type Redactor struct{ secrets []string }

// NewRedactor knows the secrets of one adapter; those under 4 bytes are no
// secrets and would only garble every text.
func NewRedactor(secrets ...string) Redactor {
	var r Redactor
	for _, s := range secrets {
		if len(s) >= 4 {
			r.secrets = append(r.secrets, s)
		}
	}
	return r
}

// Text is s without secrets and control characters, and bounded.
func (r Redactor) Text(s string) string {
	for _, secret := range r.secrets {
		s = strings.ReplaceAll(s, secret, "[redacted]")
	}
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 || c >= 0x200e && c <= 0x200f || c >= 0x202a && c <= 0x202e || c >= 0x2066 && c <= 0x2069 {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}

// Detail is what a provider or the network said. It is the cause inside a
// model.Error, for whoever runs the program; the error's own message has none
// of it, because that is recorded.
type Detail struct{ Text string }

func (d *Detail) Error() string { return d.Text }

// Detailf makes a Detail whose text is redacted and bounded.
func (r Redactor) Detailf(format string, args ...any) error {
	return &Detail{r.Text(fmt.Sprintf(format, args...))}
}
