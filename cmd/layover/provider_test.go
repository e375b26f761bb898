package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/model/modeltest"
)

// key is a canary: it is nowhere but in the requests to the provider.
const key = "sk-ant-canary-0815-4711"

// onProvider runs `layover dev` against a provider of the test's own, submits one
// question and waits for its end.
func onProvider(t *testing.T, provider http.Handler) wire.Progress {
	t.Helper()
	srv := httptest.NewServer(provider)
	t.Cleanup(srv.Close)
	t.Setenv("ANTHROPIC_API_KEY", key)
	t.Setenv("ANTHROPIC_BASE_URL", srv.URL)
	dir := t.TempDir()
	s, ok := start(t, dir, "")
	if !ok {
		t.Fatalf("the server did not start: %s", s.stderr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	receipt, err := s.client().Submit(ctx, "c", wire.Submit{Agent: "weather", Key: "k", Input: json.RawMessage(`{"location":"Florence, Italy"}`)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.client().Await(ctx, "c", receipt.Submission, client.UntilSettled, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s.kill()
	told, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	keepsKey(t, dir, map[string][]byte{"the log": s.stderr.Bytes(), "the API": told})
	return p
}

// keepsKey looks for the key in what was said and in every file of the data.
func keepsKey(t *testing.T, dir string, said map[string][]byte) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		said[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range said {
		if bytes.Contains(text, []byte(key)) {
			t.Errorf("the provider's key is in %s", where)
		}
	}
}

// The example agents run on a provider, over a connection, in the built binary.
func TestWeatherOnAProvider(t *testing.T) {
	recording, err := modeltest.LoadRecording("../../examples/weather/testdata/florence.json")
	if err != nil {
		t.Fatal(err)
	}
	replay := modeltest.NewReplay(recording.Exchanges...)
	p := onProvider(t, replay)
	if p.Status != "completed" || !strings.Contains(string(p.Output), "40 degrees") || p.Turns != 2 {
		t.Errorf("%+v", p)
	}
	headers := replay.Headers()
	if len(headers) != 2 || headers[0].Get("X-Api-Key") != key {
		t.Errorf("%d requests", len(headers))
	}
	if requests := replay.Requests(); !strings.Contains(string(requests[1]), `celsius\":40`) {
		t.Errorf("the second request has no result: %s", requests[1])
	}
}

// A provider that answers with the key in its error text gives it to nobody.
//
// failure: A36
func TestProviderErrorKeepsTheKey(t *testing.T) {
	p := onProvider(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", "req_"+r.Header.Get("X-Api-Key"))
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key ` + r.Header.Get("X-Api-Key") + `"}}`))
	}))
	if p.Status != "failed" || p.Error == nil || p.Error.Kind != "ModelRefusedError" {
		t.Errorf("%+v", p)
	}
}
