package functions_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/queue"
)

func local(conversation string) journal.Lane {
	return journal.Lane{Tenant: "local", Conversation: conversation}
}

// wakeFor is the queue message of a wake.
func wakeFor(id string, kind queue.Kind, conversation string) events.SQSMessage {
	body, err := json.Marshal(queue.For(kind, local(conversation)))
	if err != nil {
		panic(err)
	}
	return events.SQSMessage{MessageId: id, Body: string(body)}
}

// head reads a lane's head.
func (s *shop) head(conversation string) journal.Head {
	s.Helper()
	head, err := s.journal.Head(s.Context(), local(conversation))
	if err != nil {
		s.Fatal(err)
	}
	return head
}

// ended admits a submission, aborts it, and works until its terminal record
// waits to be handed over.
func (s *shop) ended(conversation string) string {
	s.Helper()
	r := s.admitted(message("m-"+conversation, submit(`,"conversation":"`+conversation+`"`)))[0]
	abort := message("a-"+conversation, `{"v":1,"type":"abort","conversation":"`+conversation+`","submission":"`+r.Submission+`"}`)
	if got := failed(s.admit.Handle(s.Context(), batch(abort))); len(got) != 0 {
		s.Fatal(s.log.String())
	}
	if got := failed(s.attempt.Handle(s.Context(), batch(wakeFor("w", queue.Attempt, conversation)))); len(got) != 0 {
		s.Fatal(s.log.String())
	}
	return r.Submission
}

// A wake that says nothing this build understands is reported; its neighbours
// are worked on.
func TestBadWakes(t *testing.T) {
	for name, row := range map[string]struct{ body, why string }{
		"empty":            {``, "malformed"},
		"not JSON":         {`wake up`, "malformed"},
		"a list":           {`[]`, "malformed"},
		"null":             {`null`, "version 0"},
		"two values":       {`{"v":1,"kind":"KIND","tenant":"local","conversation":"c"} {}`, "malformed"},
		"duplicate member": {`{"v":1,"kind":"KIND","tenant":"local","conversation":"c","tenant":"x"}`, "duplicate"},
		"unknown field":    {`{"v":1,"kind":"KIND","tenant":"local","conversation":"c","epoch":3}`, "epoch"},
		"no version":       {`{"kind":"KIND","tenant":"local","conversation":"c"}`, "version 0"},
		"newer version":    {`{"v":2,"kind":"KIND","tenant":"local","conversation":"c"}`, "version 2"},
		"unknown kind":     {`{"v":1,"kind":"dream","tenant":"local","conversation":"c"}`, "dream"},
		"other kind":       {`{"v":1,"kind":"OTHER","tenant":"local","conversation":"c"}`, "OTHER"},
		"no tenant":        {`{"v":1,"kind":"KIND","conversation":"c"}`, "without a lane"},
		"no conversation":  {`{"v":1,"kind":"KIND","tenant":"local"}`, "without a lane"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			s.admitted(message("m1", submit(`,"conversation":"a1"`)), message("m2", submit(`,"conversation":"a2"`)))
			first, second := s.ended("s1"), s.ended("s2")
			fill := func(text string, kind, other queue.Kind) string {
				return strings.NewReplacer("KIND", string(kind), "OTHER", string(other)).Replace(text)
			}
			got := failed(s.attempt.Handle(t.Context(), batch(
				wakeFor("w1", queue.Attempt, "a1"),
				events.SQSMessage{MessageId: "bad", Body: fill(row.body, queue.Attempt, queue.Settle)},
				wakeFor("w2", queue.Attempt, "a2"))))
			if diff := cmp.Diff([]string{"bad"}, got); diff != "" {
				t.Errorf("attempt: %s", diff)
			}
			if a, b := s.head("a1"), s.head("a2"); a.State != journal.Parked || b.State != journal.Parked {
				t.Errorf("the neighbours are %s and %s, want parked for approval", a.State, b.State)
			}
			if line := s.log.String(); !strings.Contains(line, "message=bad") || !strings.Contains(line, fill(row.why, queue.Attempt, queue.Settle)) {
				t.Errorf("the log says %q, not %q", line, row.why)
			}
			got = failed(s.settle.Handle(t.Context(), batch(
				wakeFor("w1", queue.Settle, "s1"),
				events.SQSMessage{MessageId: "bad", Body: fill(row.body, queue.Settle, queue.Attempt)},
				wakeFor("w2", queue.Settle, "s2"))))
			if diff := cmp.Diff([]string{"bad"}, got); diff != "" {
				t.Errorf("settle: %s", diff)
			}
			for _, id := range []string{first, second} {
				if s.row("local", id).Outcome == nil {
					t.Errorf("the neighbour %s was not settled", id)
				}
			}
		})
	}
}

// A wake for a lane without work, of one nobody ever used, of one that waits
// or has another owner is acknowledged, and nothing is written for it.
func TestIdleWakes(t *testing.T) {
	s := newShop(t)
	s.ended("settled")
	s.admitted(message("m1", submit(`,"conversation":"parked"`)), message("m2", submit(`,"conversation":"owned"`)))
	now := time.Now()
	_, err := s.journal.Claim(t.Context(), journal.ClaimRequest{Lane: local("owned"), Owner: "another attempt", Boot: s.journal.Boot(), Now: now, Lease: now.Add(time.Hour)})
	got := append(failed(s.settle.Handle(t.Context(), batch(wakeFor("w", queue.Settle, "settled")))),
		failed(s.attempt.Handle(t.Context(), batch(wakeFor("w", queue.Attempt, "parked"))))...)
	if err != nil || len(got) != 0 {
		t.Fatal(err, got)
	}
	writes := s.journal.Writes()
	for _, conversation := range []string{"never used", "settled", "parked", "owned"} {
		got := append(failed(s.attempt.Handle(t.Context(), batch(wakeFor("w1", queue.Attempt, conversation)))),
			failed(s.settle.Handle(t.Context(), batch(wakeFor("w2", queue.Settle, conversation))))...)
		if len(got) != 0 {
			t.Errorf("%s: %v was not acknowledged: %s", conversation, got, s.log.String())
		}
		if n := s.journal.Writes(); n != writes {
			t.Errorf("%s: %d writes", conversation, n-writes)
		}
	}
}

// A wake that comes twice in one batch is worked on once.
func TestDoubledWake(t *testing.T) {
	s := newShop(t)
	s.admitted(message("m1", submit(`,"conversation":"c"`)))
	w := wakeFor("w", queue.Attempt, "c")
	if got := failed(s.attempt.Handle(t.Context(), batch(w, w, w))); len(got) != 0 {
		t.Error(got)
	}
	if h := s.head("c"); h.Epoch != 1 || h.State != journal.Parked {
		t.Errorf("%+v", h)
	}
}

// A lane whose store does not answer is delivered again, its neighbour is not.
func TestWakeStoreFails(t *testing.T) {
	s := newShop(t)
	s.admitted(message("m1", submit(`,"conversation":"c1"`)), message("m2", submit(`,"conversation":"c2"`)))
	claims := 0
	s.journal.SetFault(func(op string, after bool) error {
		if op == "claim" && !after {
			if claims++; claims <= 4 { // every try of the first message
				return errors.New("no answer")
			}
		}
		return nil
	})
	got := failed(s.attempt.Handle(t.Context(), batch(wakeFor("w1", queue.Attempt, "c1"), wakeFor("w2", queue.Attempt, "c2"))))
	if diff := cmp.Diff([]string{"w1"}, got); diff != "" {
		t.Error(diff)
	}
	if s.head("c2").State != journal.Parked || !strings.Contains(s.log.String(), "no answer") {
		t.Errorf("%+v %s", s.head("c2"), s.log.String())
	}
	if got := failed(s.attempt.Handle(t.Context(), batch(wakeFor("w1", queue.Attempt, "c1")))); len(got) != 0 || s.head("c1").State != journal.Parked {
		t.Errorf("the redelivery: %v, %+v", got, s.head("c1"))
	}
}

// A process that is told to stop reports what it did not do, without an alarm.
func TestStoppedWakes(t *testing.T) {
	s := newShop(t)
	s.admitted(message("m1", submit(`,"conversation":"c"`)))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if got := failed(s.attempt.Handle(ctx, batch(wakeFor("w", queue.Attempt, "c")))); len(got) != 1 {
		t.Error("a wake that was not worked on is acknowledged")
	}
	if s.log.Len() != 0 {
		t.Errorf("the log says %s", s.log.String())
	}
}

// The functions speak the wire of Lambda.
func TestBatchResponseWire(t *testing.T) {
	s := newShop(t)
	r, err := s.admit.Handle(t.Context(), batch(message("bad", "x"), message("good", submit(""))))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(r); err != nil || string(got) != `{"batchItemFailures":[{"itemIdentifier":"bad"}]}` {
		t.Errorf("%s, %v", got, err)
	}
}
