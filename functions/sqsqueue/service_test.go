package sqsqueue_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/functions/sqsqueue"
	"github.com/layover-run/layover/localstack/peers"
)

// entry is a message as the service gets it, alone or in a batch.
type entry struct {
	Id, MessageBody, MessageGroupId, MessageDeduplicationId string
	DelaySeconds                                            int
	MessageAttributes                                       map[string]struct{ StringValue string }
}

// service is the sending half of SQS behind the SDK's transport: it keeps what
// it takes and answers as faults says.
type service struct {
	mu    sync.Mutex
	calls int
	took  map[string][]entry // by queue URL
	// faults are the answers to the next calls; after them all goes well.
	faults []fault
}

// fault is what goes wrong with one call.
type fault struct {
	status  int    // an error answer of this status and code
	code    string //
	lose    bool   // the call is done, its answer lost
	refuse  []int  // entries of a batch that fail, by position
	faulty  bool   // … through the sender's fault
	silence []int  // entries the answer does not mention
}

func (s *service) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	var f fault
	if len(s.faults) > 0 {
		f, s.faults = s.faults[0], s.faults[1:]
	}
	if f.status != 0 {
		return answer(f.status, map[string]string{"__type": "com.amazonaws.sqs#" + f.code, "message": "as the test wants it"}), nil
	}
	out, err := s.do(strings.TrimPrefix(req.Header.Get("X-Amz-Target"), "AmazonSQS."), body, f)
	if f.lose && err == nil {
		return nil, io.ErrUnexpectedEOF
	}
	return out, err
}

func (s *service) do(op string, body []byte, f fault) (*http.Response, error) {
	var in struct {
		entry
		QueueUrl string
		Entries  []entry
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	if op == "SendMessage" {
		s.took[in.QueueUrl] = append(s.took[in.QueueUrl], in.entry)
		return answer(http.StatusOK, map[string]string{"MessageId": "m", "MD5OfMessageBody": sum(in.MessageBody)}), nil
	}
	if op != "SendMessageBatch" || len(in.Entries) == 0 || len(in.Entries) > 10 {
		return nil, errors.New("SQS would refuse this call")
	}
	out := struct{ Successful, Failed []map[string]any }{}
	for i, e := range in.Entries {
		switch {
		case has(f.silence, i):
		case has(f.refuse, i):
			out.Failed = append(out.Failed, map[string]any{"Id": e.Id, "Code": "InternalError", "Message": "try later", "SenderFault": f.faulty})
		default:
			s.took[in.QueueUrl] = append(s.took[in.QueueUrl], e)
			out.Successful = append(out.Successful, map[string]any{"Id": e.Id, "MessageId": "m", "MD5OfMessageBody": sum(e.MessageBody)})
		}
	}
	return answer(http.StatusOK, out), nil
}

func has(list []int, n int) bool {
	for _, v := range list {
		if v == n {
			return true
		}
	}
	return false
}

func sum(body string) string {
	digest := md5.Sum([]byte(body))
	return hex.EncodeToString(digest[:])
}

func answer(status int, v any) *http.Response {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
}

// client is the SDK's own client, on a transport or an endpoint. It makes no
// request that SQS would refuse.
func client(change ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{Region: peers.Account().Region, Credentials: aws.CredentialsProviderFunc(keys)}, append(change, strict)...)
}

// over builds the queue over the service, with a number of tries for each call.
func over(t *testing.T, s *service, tries int) *sqsqueue.Queue {
	t.Helper()
	s.took = map[string][]entry{}
	q, err := sqsqueue.New(sqsqueue.Config{
		Client: client(func(o *sqs.Options) {
			o.HTTPClient = &http.Client{Transport: s}
			o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) { r.MaxAttempts, r.RateLimiter = tries, ratelimit.None })
		}),
		Wakes:   map[queue.Kind]string{queue.Attempt: attemptURL, queue.Settle: settleURL},
		Replies: map[string]string{"done": replyURL, "ordered": fifoURL},
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

const (
	attemptURL = "https://sqs.us-east-1.amazonaws.com/1/attempt"
	settleURL  = "https://sqs.us-east-1.amazonaws.com/1/settle"
	replyURL   = "https://sqs.us-east-1.amazonaws.com/1/done"
	fifoURL    = "https://sqs.us-east-1.amazonaws.com/1/done.fifo"
)
