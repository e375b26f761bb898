package functions

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/record"
)

// httpStatus is the HTTP status of each kind of error.
var httpStatus = map[engine.ErrorKind]int{
	engine.KindInvalid:     http.StatusBadRequest,
	engine.KindTooLarge:    http.StatusRequestEntityTooLarge,
	engine.KindNotFound:    http.StatusNotFound,
	engine.KindConflict:    http.StatusConflict,
	engine.KindDecided:     http.StatusConflict,
	engine.KindExpired:     http.StatusConflict,
	engine.KindSettled:     http.StatusConflict,
	engine.KindFull:        http.StatusTooManyRequests,
	engine.KindUnsupported: http.StatusNotImplemented,
	engine.KindUnavailable: http.StatusServiceUnavailable,
	engine.KindCorrupt:     http.StatusInternalServerError,
	engine.KindInternal:    http.StatusInternalServerError,
	wire.KindUnauthorized:  http.StatusUnauthorized,
	wire.KindForbidden:     http.StatusForbidden,
	wire.KindMisdirected:   http.StatusMisdirectedRequest,
}

// refuse makes an error of the API itself.
func refuse(kind engine.ErrorKind, op, hint, format string, args ...any) *engine.Error {
	return &engine.Error{Kind: kind, Op: op, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

// problem makes the document an error is answered with.
func problem(op string, err error) wire.Problem {
	e := engine.AsError(op, err)
	status, ok := httpStatus[e.Kind]
	if !ok {
		status = http.StatusInternalServerError
	}
	return wire.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: clipped(e.Message), Kind: string(e.Kind), Op: e.Op, Hint: cmp.Or(e.Hint, wire.Hint(string(e.Kind)))}
}

// maxDetail bounds what a refusal repeats of its request.
const maxDetail = 2000

func clipped(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	end := maxDetail
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

func writeProblem(w http.ResponseWriter, p wire.Problem) {
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="layover"`)
	}
	write(w, p.Status, wire.TypeProblem, p)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	write(w, status, wire.TypeJSON, v)
}

// write answers with one JSON value. Answers are about one moment and one
// caller, so nobody may keep them.
func write(w http.ResponseWriter, status int, mediaType string, v any) {
	body, err := encode(v)
	if err != nil {
		status, mediaType = http.StatusInternalServerError, wire.TypeProblem
		body, _ = encode(problem("answer", refuse(engine.KindInternal, "answer", "", "the answer does not encode: %v", err)))
	}
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller is gone: nobody to tell
}

// encode is JSON without HTML escapes.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// bodySlack is what a request may add to the largest message.
const bodySlack = 4 << 10

// maxEvent is the largest event: ten of the largest messages, with their
// quotes escaped.
const maxEvent = 24 << 20

// readBody reads the JSON of a request in canonical form, which refuses
// duplicate keys, trailing data and invalid UTF-8.
func readBody(w http.ResponseWriter, r *http.Request, op string) ([]byte, error) {
	return readBodyTo(w, r, op, MaxBody+bodySlack)
}

func readBodyTo(w http.ResponseWriter, r *http.Request, op string, limit int64) ([]byte, error) {
	if err := checkContentType(r, op); err != nil {
		return nil, err
	}
	tooLarge := refuse(engine.KindTooLarge, op, "store large content elsewhere and submit a reference to it",
		"the body is larger than %d bytes", limit)
	if r.ContentLength > limit {
		return nil, tooLarge // before any of it is sent, where the caller waits for that
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge
	case err != nil:
		return nil, refuse(engine.KindInvalid, op, "send the request again", "the body broke off")
	case len(bytes.TrimSpace(raw)) == 0:
		return nil, refuse(engine.KindInvalid, op, "send one JSON object", "the body is empty")
	}
	body, err := record.Canonical(raw)
	if err != nil {
		return nil, refuse(engine.KindInvalid, op, "send one JSON object in UTF-8", "the body is malformed: %v", err)
	}
	return body, nil
}

// checkContentType is lenient: nothing at all, JSON under any of its names, or
// what curl says when it is not told. A browser can send the last one across
// origins without asking; guard refuses that by its Origin.
func checkContentType(r *http.Request, op string) error {
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(given)
	if err == nil && (mediaType == wire.TypeJSON || strings.HasSuffix(mediaType, "+json") || mediaType == "application/x-www-form-urlencoded") {
		return nil
	}
	return refuse(engine.KindInvalid, op, "send Content-Type: application/json", "content type %q is not JSON", given)
}

// readInto reads a request into a struct and refuses fields it does not have.
// encoding/json matches names without case; names here have one spelling.
func readInto(w http.ResponseWriter, r *http.Request, op string, dst any) error {
	body, err := readBody(w, r, op)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return refuse(engine.KindInvalid, op, "send one JSON object", "the body is not a JSON object")
	}
	known := fieldNames(dst)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) {
			return refuse(engine.KindInvalid, op, "the fields are: "+strings.Join(known, ", "), "unknown field %q", name)
		}
	}
	if name := strayAllowance(fields["allowance"]); name != "" {
		return refuse(engine.KindInvalid, op, "the fields are: "+strings.Join(allowanceFields, ", "), "unknown field %q in the allowance", name)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(dst); err != nil {
		return refuse(engine.KindInvalid, op, "the fields are: "+strings.Join(known, ", "), "%s", decodeProblem(err))
	}
	return nil
}

func fieldNames(dst any) []string {
	t := reflect.TypeOf(dst).Elem()
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// panicked is what a log may say of a panic: the text of the language's own
// errors, else only its type, because a text may hold what was being handled.
func panicked(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a %T", v)
}
