package ddbjournal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/layover-run/layover/core/journal/journaltest"
)

// network is the way to the store with faults on it. Each request is one HTTP
// exchange, so the SDK's own retries pass it too.
type network struct {
	next http.RoundTripper
	mu   sync.Mutex
	// around is asked around every write, as in journaltest.
	around journaltest.Fault
	// answer may answer a call instead of the store; nil leaves it to the store.
	answer func(call, body string) *http.Response
	// rewrite may change what the store answered.
	rewrite func(call, request string, response []byte) []byte
	calls   map[string]int // HTTP exchanges by call
}

func newNetwork() *network { return &network{next: transport, calls: map[string]int{}} }

func (n *network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *network) setAround(f journaltest.Fault) { n.set(func() { n.around = f }) }

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	_, call, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Body = io.NopCloser(bytes.NewReader(body))
	n.mu.Lock()
	n.calls[call]++
	around, answer, rewrite := n.around, n.answer, n.rewrite
	n.mu.Unlock()
	if answer != nil {
		if response := answer(call, string(body)); response != nil {
			return response, nil
		}
	}
	writes := around != nil && (call == "PutItem" || call == "UpdateItem")
	if writes {
		if err := around(call, false); err != nil {
			return nil, err
		}
	}
	response, err := n.next.RoundTrip(req)
	for try := 1; err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && req.Context().Err() == nil && try < 5; try++ {
		// The peer itself dropped a connection, under load: no fault of this test.
		req.Body = io.NopCloser(bytes.NewReader(body))
		response, err = n.next.RoundTrip(req)
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	if writes && response.StatusCode == http.StatusOK {
		if err := around(call, true); err != nil {
			return nil, err
		}
	}
	if rewrite != nil && response.StatusCode == http.StatusOK {
		text = rewrite(call, string(body), text)
		response.Header.Del("X-Amz-Crc32")
		response.ContentLength = int64(len(text))
	}
	response.Body = io.NopCloser(bytes.NewReader(text))
	return response, nil
}

// refusal is an error answer of the store.
func refusal(status int, code string) *http.Response {
	body, err := json.Marshal(map[string]string{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": "injected by the test"})
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
}
