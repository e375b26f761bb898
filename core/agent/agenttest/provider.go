package agenttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/layover-run/layover/core/model/modeltest"
)

// RecordVariable is the environment variable that makes Provider record.
const RecordVariable = "LAYOVER_RECORD"

// Provider is an HTTP client for a provider's adapter, and the key to give it,
// so that a test can run on what a real provider said without asking it.
//
// It replays the file at path: each request gets the recorded answer, and must
// be the recorded request. With LAYOVER_RECORD set it sends the requests to the
// provider, with the key in the variable keyVariable, and writes the file when
// the test is over. No header and no key is ever in it; what the conversation
// itself holds is.
func Provider(t testing.TB, path, keyVariable string) (client *http.Client, key string) {
	t.Helper()
	if os.Getenv(RecordVariable) == "" {
		recording, err := modeltest.LoadRecording(path)
		if errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("agenttest: there is no recording at %s: set %s=1 and %s to make it", path, RecordVariable, keyVariable)
		} else if err != nil {
			t.Fatalf("agenttest: %v", err)
		}
		r := &replayer{t: t, path: path, exchanges: recording.Exchanges, replay: modeltest.NewReplay(recording.Exchanges...)}
		t.Cleanup(func() {
			if left := r.replay.Left(); left > 0 && !t.Failed() {
				t.Errorf("agenttest: %d of the %d exchanges in %s were not asked for", left, len(recording.Exchanges), path)
			}
		})
		return &http.Client{Transport: r}, "replayed"
	}
	key = os.Getenv(keyVariable)
	if key == "" {
		t.Fatalf("agenttest: to record, set %s to the provider's key", keyVariable)
	}
	recorder := modeltest.Record(nil, key)
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := recorder.Save(path); err != nil {
			t.Errorf("agenttest: %v", err)
		}
	})
	return &http.Client{Transport: recorder}, key
}

// replayer answers as recorded and compares what is asked.
type replayer struct {
	t         testing.TB
	path      string
	exchanges []modeltest.Exchange
	replay    *modeltest.Replay
	mu        sync.Mutex
	next      int
}

func (r *replayer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.replay.RoundTrip(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.t.Errorf("agenttest: a request behind the last one that %s has: set %s=1 to record anew", r.path, RecordVariable)
		// An answer, because an adapter would take an error for a lost connection
		// and ask again.
		return &http.Response{StatusCode: http.StatusBadRequest, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
			Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("agenttest: the recording has no more answers"))}, nil
	}
	asked := r.replay.Requests()
	want, got := r.exchanges[r.next], asked[len(asked)-1]
	r.next++
	if problem := differs(want, req, got); problem != "" {
		r.t.Errorf("agenttest: request %d is not the one in %s: %s\nset %s=1 to record anew", r.next, r.path, problem, RecordVariable)
	}
	return resp, nil
}

// differs says how a request differs from the recorded one; "" is not at all. The
// path may have another beginning, that of a proxy.
func differs(want modeltest.Exchange, req *http.Request, body []byte) string {
	if req.Method != want.Method || !strings.HasSuffix(req.URL.Path, want.Path) && !strings.HasSuffix(want.Path, req.URL.Path) {
		return fmt.Sprintf("%s %s instead of %s %s", req.Method, req.URL.Path, want.Method, want.Path)
	}
	var a, b any
	if json.Unmarshal([]byte(want.Request), &a) != nil || json.Unmarshal(body, &b) != nil {
		if want.Request != string(body) {
			return "the body differs"
		}
		return ""
	}
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return fmt.Sprintf("\nrecorded %s\nsent     %s", clip([]byte(want.Request), body), clip(body, []byte(want.Request)))
}

// clip is the part of a where it begins to differ from b.
func clip(a, b []byte) string {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	from, to := max(0, at-60), min(len(a), at+120)
	return fmt.Sprintf("…%s…", bytes.ToValidUTF8(a[from:to], nil))
}
