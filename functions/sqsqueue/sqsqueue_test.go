package sqsqueue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/functions/sqsqueue"
	"github.com/layover-run/layover/localstack/peers"
)

func keys(context.Context) (aws.Credentials, error) {
	k := peers.Account()
	return aws.Credentials{AccessKeyID: k.ID, SecretAccessKey: k.Secret, SessionToken: k.Session}, nil
}

func wake(kind queue.Kind, conversation string) queue.Wake {
	return queue.For(kind, journal.Lane{Tenant: "acme", Conversation: conversation})
}

func wakes(n int) (out []queue.Wake) {
	for i := range n {
		out = append(out, wake(queue.Attempt, fmt.Sprint("lane-", i)))
	}
	return out
}

// A wake goes to the queue of its kind, as JSON, in its tenant's group.
func TestSend(t *testing.T) {
	s := &service{}
	q := over(t, s, 1)
	for _, w := range []queue.Wake{wake(queue.Attempt, "a"), wake(queue.Settle, "s")} {
		if err := q.Send(t.Context(), w, 0); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]entry{
		attemptURL: {{MessageBody: `{"v":1,"kind":"attempt","tenant":"acme","conversation":"a"}`, MessageGroupId: "acme"}},
		settleURL:  {{MessageBody: `{"v":1,"kind":"settle","tenant":"acme","conversation":"s"}`, MessageGroupId: "acme"}},
	}
	if diff := cmp.Diff(want, s.took); diff != "" {
		t.Error(diff)
	}
}

// A delay is whole seconds, rather late than early, and at most what SQS takes.
func TestDelaySeconds(t *testing.T) {
	for delay, want := range map[time.Duration]int{
		-time.Hour: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 900*time.Second - 1: 900, 900 * time.Second: 900,
		900*time.Second + 1: 900, 365 * 24 * time.Hour: 900,
	} {
		s := &service{}
		if err := over(t, s, 1).Send(t.Context(), wake(queue.Attempt, "a"), delay); err != nil {
			t.Fatal(err)
		}
		if got := s.took[attemptURL][0].DelaySeconds; got != want {
			t.Errorf("a delay of %s is sent as %d s, want %d", delay, got, want)
		}
	}
}

// Bodies are ASCII whatever lanes are called, and read back as they were;
// groups are ids that SQS takes, different for different tenants.
func TestOddNames(t *testing.T) {
	groups := map[string]string{}
	for _, tenant := range []string{"acme", "a b", "é", "À\u0085", "漢字🛫", "\u2028\uFFFE\uFFFF", "\x00\x1f\x7f", strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("x", 130)} {
		s := &service{}
		w := queue.For(queue.Attempt, journal.Lane{Tenant: tenant, Conversation: tenant + "/1"})
		if err := over(t, s, 1).Send(t.Context(), w, 0); err != nil {
			t.Fatal(err)
		}
		sent := s.took[attemptURL][0]
		if !regexp.MustCompile(`^[ -~\x7f]*$`).MatchString(sent.MessageBody) {
			t.Errorf("the body is not ASCII: %q", sent.MessageBody)
		}
		var back queue.Wake
		if err := json.Unmarshal([]byte(sent.MessageBody), &back); err != nil || back != w {
			t.Errorf("%q reads back as %+v, %v", sent.MessageBody, back, err)
		}
		if !regexp.MustCompile(`^[!-~]{1,128}$`).MatchString(sent.MessageGroupId) {
			t.Errorf("SQS refuses the group %q", sent.MessageGroupId)
		}
		if other := groups[sent.MessageGroupId]; other != "" {
			t.Errorf("tenants %q and %q share a group", other, tenant)
		}
		groups[sent.MessageGroupId] = tenant
	}
	for _, lane := range []journal.Lane{{Tenant: "a", Conversation: "\xff"}, {Tenant: "\xff", Conversation: "a"}} {
		s := &service{}
		if err := over(t, s, 1).Send(t.Context(), queue.For(queue.Attempt, lane), 0); err == nil || s.calls != 0 {
			t.Errorf("a name that JSON would change was sent: %v", s.took)
		}
	}
}

// What goes wrong with a call is repeated by the client, and at last an error:
// the wake may have arrived by then, once for each lost answer.
func TestFaultsOfACall(t *testing.T) {
	for _, tt := range []struct {
		name    string
		faults  []fault
		calls   int
		arrives int
		fails   string
	}{
		{"throttled once", []fault{{status: 400, code: "RequestThrottled"}}, 2, 1, ""},
		{"two internal errors", []fault{{status: 500, code: "InternalError"}, {status: 503, code: "ServiceUnavailable"}}, 3, 1, ""},
		{"a lost answer", []fault{{lose: true}}, 2, 2, ""},
		{"throttled to the end", []fault{{status: 400, code: "Throttling"}, {status: 400, code: "Throttling"}, {status: 400, code: "Throttling"}}, 3, 0, "send to the attempt queue"},
		{"three lost answers", []fault{{lose: true}, {lose: true}, {lose: true}}, 3, 3, "send to the attempt queue"},
		{"no such queue", []fault{{status: 400, code: "QueueDoesNotExist"}}, 1, 0, "used literally"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{faults: tt.faults}
				err := over(t, s, 3).Send(t.Context(), wake(queue.Attempt, "a"), 0)
				if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("error %v, want %q", err, tt.fails)
				}
				if s.calls != tt.calls || len(s.took[attemptURL]) != tt.arrives {
					t.Errorf("%d calls and %d messages, want %d and %d", s.calls, len(s.took[attemptURL]), tt.calls, tt.arrives)
				}
			})
		})
	}
}

// The way mains repeat calls has an end: a queue that throttles everything
// takes three tries and about two seconds of an invocation.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := &service{took: map[string][]entry{}}, time.Now()
		for range 9 {
			s.faults = append(s.faults, fault{status: 400, code: "RequestThrottled"})
		}
		q, err := sqsqueue.New(sqsqueue.Config{Wakes: map[queue.Kind]string{queue.Attempt: attemptURL},
			Client: client(sqsqueue.Retries, func(o *sqs.Options) { o.HTTPClient = &http.Client{Transport: s} })})
		if err != nil {
			t.Fatal(err)
		}
		retryer := client(sqsqueue.Retries).Options().Retryer
		for try := range 20 {
			if d, err := retryer.RetryDelay(try+1, errors.New("any")); err != nil || d > time.Second {
				t.Errorf("waits %s after try %d, %v", d, try+1, err)
			}
		}
		err = q.Send(t.Context(), wake(queue.Attempt, "a"), 0)
		if took := time.Since(began); err == nil || s.calls != 3 || took > 2*time.Second+100*time.Millisecond {
			t.Errorf("%v after %d calls in %s", err, s.calls, took)
		}
	})
}

// What a batch leaves out or fails is sent again, and only that.
func TestPartialBatches(t *testing.T) {
	later := fault{refuse: []int{0}}
	for _, tt := range []struct {
		name   string
		wakes  int
		faults []fault
		calls  int
		took   int
		fails  string
	}{
		{"nothing to send", 0, nil, 0, 0, ""},
		{"ten in a call", 10, nil, 1, 10, ""},
		{"eleven in two", 11, nil, 2, 11, ""},
		{"three fail once", 10, []fault{{refuse: []int{0, 4, 9}}}, 2, 10, ""},
		{"one is not mentioned", 10, []fault{{silence: []int{3}}}, 2, 10, ""},
		{"the second part fails once", 12, []fault{{}, {refuse: []int{1}}}, 3, 12, ""},
		{"one fails to the end", 3, []fault{later, later, later}, 3, 2, "1 of 3 wakes: an entry failed: InternalError: try later"},
		{"none is ever mentioned", 2, []fault{{silence: []int{0, 1}}, {silence: []int{0, 1}}, {silence: []int{0, 1}}}, 3, 0, "leaves entries out"},
		{"one is at fault itself", 3, []fault{{refuse: []int{1}, faulty: true}}, 1, 2, "1 of 3 wakes"},
		{"at fault, and its neighbours go on", 15, []fault{{refuse: []int{1}, faulty: true}}, 2, 14, "1 of 15 wakes"},
		{"the call itself fails", 35, []fault{{}, {status: 400, code: "AccessDenied"}}, 2, 10, "25 of 35 wakes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{faults: tt.faults}
				err := over(t, s, 1).SendAll(t.Context(), wakes(tt.wakes))
				if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("error %v, want %q", err, tt.fails)
				}
				seen := map[string]bool{}
				for _, e := range s.took[attemptURL] {
					if seen[e.MessageBody] {
						t.Errorf("%s was sent twice", e.MessageBody)
					}
					seen[e.MessageBody] = true
				}
				if s.calls != tt.calls || len(seen) != tt.took {
					t.Errorf("%d calls and %d wakes, want %d and %d", s.calls, len(seen), tt.calls, tt.took)
				}
			})
		})
	}
}

// One queue's trouble does not keep the wakes of the other back, and a wake
// that cannot be sent does not keep back its neighbours.
func TestBatchOverQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{faults: []fault{{status: 403, code: "AccessDenied"}}}
		err := over(t, s, 1).SendAll(t.Context(), []queue.Wake{wake(queue.Attempt, "a"), wake("other", "o"), wake(queue.Settle, "s"), wake(queue.Settle, "\xff")})
		if len(s.took[attemptURL]) != 0 || len(s.took[settleURL]) != 1 {
			t.Errorf("took %v", s.took)
		}
		for _, want := range []string{"AccessDenied", `no queue for "other" wakes`, "not UTF-8"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
	})
}

// A context that ends stops the repetitions.
func TestBatchStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{faults: []fault{{refuse: []int{0}}, {refuse: []int{0}}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := over(t, s, 1).SendAll(ctx, wakes(2)); err == nil || s.calls != 1 || time.Since(began) > time.Millisecond {
			t.Errorf("%v after %d calls, %s", err, s.calls, time.Since(began))
		}
	})
}

// Replies carry their id, on a FIFO queue as what it deduplicates by, in the
// order of their conversation.
func TestReply(t *testing.T) {
	s := &service{}
	q := over(t, s, 1)
	for _, to := range []string{"done", "ordered"} {
		if err := q.Reply(t.Context(), sqsqueue.Reply{To: to, ID: "run-1", Tenant: "acme", Conversation: "c 1", Body: map[string]string{"city": "Zürich"}}); err != nil {
			t.Fatal(err)
		}
	}
	plain, ordered := s.took[replyURL][0], s.took[fifoURL][0]
	if plain.MessageBody != `{"city":"Z\u00fcrich"}` || plain.MessageAttributes["id"].StringValue != "run-1" || plain.MessageGroupId != "acme" || plain.MessageDeduplicationId != "" {
		t.Errorf("%+v", plain)
	}
	if ordered.MessageBody != plain.MessageBody || ordered.MessageDeduplicationId != "run-1" || !strings.HasPrefix(ordered.MessageGroupId, "sha256-") {
		t.Errorf("%+v", ordered)
	}
	if err := q.Reply(t.Context(), sqsqueue.Reply{To: "nobody", ID: "run-1"}); !errors.Is(err, sqsqueue.ErrNoReplyQueue) || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("%v", err)
	}
	if err := q.Reply(t.Context(), sqsqueue.Reply{To: "done", Body: 1}); err == nil {
		t.Error("a reply without an id was sent")
	}
	if err := q.Reply(t.Context(), sqsqueue.Reply{To: "done", ID: "r", Body: func() {}}); err == nil {
		t.Error("a function was sent")
	}
	// The largest that is taken: its body has quotes, its id counts too.
	largest := strings.Repeat("x", 1<<20-len(`""`)-len("idStringr"))
	if err := q.Reply(t.Context(), sqsqueue.Reply{To: "done", ID: "r", Body: largest}); err != nil {
		t.Error(err)
	}
	sent := s.calls
	if err := q.Reply(t.Context(), sqsqueue.Reply{To: "done", ID: "r", Body: largest + "x"}); !errors.Is(err, sqsqueue.ErrTooLarge) || s.calls != sent {
		t.Errorf("a reply that SQS would refuse: %v", err)
	}
	s.faults = []fault{{status: 400, code: "QueueDoesNotExist"}}
	var missing *types.QueueDoesNotExist
	if err := q.Reply(t.Context(), sqsqueue.Reply{To: "done", ID: "r"}); !errors.As(err, &missing) || !strings.Contains(err.Error(), `"done"`) {
		t.Errorf("%v", err)
	}
}

func TestConfigRefused(t *testing.T) {
	ok := map[queue.Kind]string{queue.Attempt: attemptURL}
	for want, c := range map[string]sqsqueue.Config{
		"Client and":         {Wakes: ok},
		"and Config.Wakes":   {Client: client()},
		"no queue URL":       {Client: client(), Wakes: map[queue.Kind]string{queue.Attempt: "attempt"}},
		"use a standard one": {Client: client(), Wakes: map[queue.Kind]string{queue.Attempt: attemptURL + ".fifo"}},
		`queue "done"`:       {Client: client(), Wakes: ok, Replies: map[string]string{"done": "arn:aws:sqs:us-east-1:1:done"}},
	} {
		if _, err := sqsqueue.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
