package peers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/layover-run/layover/localstack/peers"
)

const contentType = "application/x-amz-json-1.0"

// call asks one operation, in the protocol of both services.
func call(ctx context.Context, endpoint, target string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("X-Amz-Target", target)
	req.Header.Set("X-Amz-Date", "20260101T000000Z")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/any/aws4_request, SignedHeaders=host, Signature=0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return &refused{resp.Status, string(answer)}
	}
	return json.Unmarshal(answer, out)
}

type refused struct{ status, body string }

func (r *refused) Error() string { return r.status + ": " + r.body }

func dynamodb(t *testing.T, endpoint, op string, in, out any) {
	t.Helper()
	if err := call(t.Context(), endpoint, "DynamoDB_20120810."+op, in, out); err != nil {
		t.Fatalf("%s: %v", op, err)
	}
}

func sqs(t *testing.T, endpoint, op string, in, out any) {
	t.Helper()
	if err := call(t.Context(), endpoint, "AmazonSQS."+op, in, out); err != nil {
		t.Fatalf("%s: %v", op, err)
	}
}

// hangUp writes a request and goes away: with a reset, or politely. When it
// returns the peer has had three requests' time to notice.
func hangUp(t *testing.T, endpoint, request string, reset bool, heard func()) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	heard()
	if reset {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		heard()
	}
}

// A client that sends half a body and goes away does not end the DynamoDB
// peer.
func TestHalfABody(t *testing.T) {
	endpoint := peers.DynamoDB(t)
	for _, reset := range []bool{false, true} {
		hangUp(t, endpoint, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", reset, func() {
			dynamodb(t, endpoint, "ListTables", struct{}{}, &struct{}{})
		})
	}
}

// A long poll whose client has gone takes no message, so the next poll gets it
// at once and as its first receive.
func TestCancelledLongPoll(t *testing.T) {
	endpoint := peers.SQS(t)
	var queue struct{ QueueUrl string }
	sqs(t, endpoint, "CreateQueue", map[string]any{"QueueName": "cancelled-long-poll", "Attributes": map[string]string{"VisibilityTimeout": "600"}}, &queue)
	poll := map[string]any{"QueueUrl": queue.QueueUrl, "WaitTimeSeconds": 20, "AttributeNames": []string{"ApproximateReceiveCount"}}
	body, err := json.Marshal(poll)
	if err != nil {
		t.Fatal(err)
	}
	request := fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\nContent-Length: %d\r\n\r\n%s",
		contentType, len(body), body)
	hangUp(t, endpoint, request, true, func() { sqs(t, endpoint, "ListQueues", struct{}{}, &struct{}{}) })

	var sent struct{ MessageId string }
	sqs(t, endpoint, "SendMessage", map[string]any{"QueueUrl": queue.QueueUrl, "MessageBody": "one"}, &sent)
	var got struct {
		Messages []struct {
			MessageId  string
			Attributes map[string]string
		}
	}
	poll["WaitTimeSeconds"] = 2
	sqs(t, endpoint, "ReceiveMessage", poll, &got)
	if len(got.Messages) != 1 || got.Messages[0].MessageId != sent.MessageId || got.Messages[0].Attributes["ApproximateReceiveCount"] != "1" {
		t.Errorf("the next poll got %+v, want %s as its first receive", got.Messages, sent.MessageId)
	}
}

// Keys of the environment go to a service somebody named, never to the peers.
func TestAccount(t *testing.T) {
	for name, v := range map[string]string{"LAYOVER_DYNAMODB_ENDPOINT": "", "LAYOVER_SQS_ENDPOINT": "",
		"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "session"} {
		t.Setenv(name, v)
	}
	if got, want := peers.Account(), (peers.Keys{Region: "us-east-1", ID: "test", Secret: "test"}); got != want {
		t.Errorf("the peers are asked as %+v", got)
	}
	t.Setenv("LAYOVER_SQS_ENDPOINT", "https://sqs.eu-central-1.amazonaws.com")
	if got, want := peers.Account(), (peers.Keys{Region: "eu-central-1", ID: "key", Secret: "secret", Session: "session"}); got != want {
		t.Errorf("the service is asked as %+v", got)
	}
	t.Setenv("AWS_REGION", "")
	if got := peers.Account().Region; got != "us-east-1" {
		t.Errorf("without a region it is %q", got)
	}
}
