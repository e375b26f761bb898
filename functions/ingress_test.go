package functions_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/model/demo"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/examples/refund"
	"github.com/layover-run/layover/functions"
)

// shop is the three functions around the refund agent, on a store in memory.
type shop struct {
	*testing.T
	journal *memjournal.Journal
	queue   *memqueue.Queue
	log     bytes.Buffer
	admit   *functions.Admit
	attempt *functions.Attempt
	settle  *functions.Settle
}

func newShop(t *testing.T) *shop {
	t.Helper()
	t.Setenv("LAYOVER_DATA", t.TempDir())
	s := &shop{T: t, journal: memjournal.New(), queue: memqueue.New()}
	log := slog.New(slog.NewTextHandler(&s.log, nil))
	cfg := engine.Config{Journal: s.journal, Queue: s.queue, Boot: s.journal.Boot(), Log: log}
	registry, err := engine.NewRegistry(0, refund.Agent().Bind(demo.New()).Engine())
	if err != nil {
		t.Fatal(err)
	}
	admitter, err1 := engine.NewAdmitter(cfg, registry.Manifest())
	attempter, err2 := engine.NewAttempter(cfg, registry)
	settler, err3 := engine.NewSettler(cfg)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	s.admit = functions.NewAdmit(admitter, functions.AdmitOptions{Log: log})
	s.attempt, s.settle = functions.NewAttempt(attempter, log), functions.NewSettle(settler, log)
	return s
}

func batch(messages ...events.SQSMessage) events.SQSEvent { return events.SQSEvent{Records: messages} }

// message is a queue message as Lambda delivers it.
func message(id, body string, change ...func(*events.SQSMessage)) events.SQSMessage {
	m := events.SQSMessage{MessageId: id, Body: body, Attributes: map[string]string{"SenderId": "AIDA:ada"}}
	for _, f := range change {
		f(&m)
	}
	return m
}

func tenant(name string) func(*events.SQSMessage) {
	return func(m *events.SQSMessage) {
		m.MessageAttributes = map[string]events.SQSMessageAttribute{"tenant": {StringValue: &name, DataType: "String"}}
	}
}

func sender(id string) func(*events.SQSMessage) {
	return func(m *events.SQSMessage) { m.Attributes = map[string]string{"SenderId": id} }
}

const order = `{"orderId":"A-1001","reason":"arrived broken"}`

// submit is an ingress message with further members.
func submit(more string) string {
	return `{"v":1,"type":"submit","agent":"refund","input":` + order + more + `}`
}

// failed lists the message ids of a batch response.
func failed(r events.SQSEventResponse, err error) []string {
	if err != nil {
		return []string{"the whole batch: " + err.Error()}
	}
	var ids []string
	for _, f := range r.BatchItemFailures {
		ids = append(ids, f.ItemIdentifier)
	}
	return ids
}

// lanes lists every lane that is not idle.
func (s *shop) lanes() []string {
	s.Helper()
	heads, err := s.journal.Due(s.Context(), time.Now().Add(24*time.Hour), 100)
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, h := range heads {
		names = append(names, h.Lane.Tenant+"/"+h.Lane.Conversation)
	}
	slices.Sort(names)
	return names
}

// admitted processes messages that all have to succeed.
func (s *shop) admitted(messages ...events.SQSMessage) []engine.Receipt {
	s.Helper()
	var receipts []engine.Receipt
	for _, r := range s.admit.Process(s.Context(), batch(messages...)) {
		if r.Err != nil || r.Receipt == nil {
			s.Fatalf("message %s: %v", r.MessageID, r.Err)
		}
		receipts = append(receipts, *r.Receipt)
	}
	return receipts
}

func (s *shop) row(tenant, id string) journal.Submission {
	s.Helper()
	row, err := s.journal.Submission(s.Context(), tenant, id)
	if err != nil {
		s.Fatal(err)
	}
	return row
}

// A message that cannot be admitted is reported, with a line that says why,
// and leaves nothing behind; what came with it is admitted.
func TestRefusedAlone(t *testing.T) {
	long := strings.Repeat("x", 257)
	for name, row := range map[string]struct {
		body   string
		why    string
		change func(*events.SQSMessage)
	}{
		"empty":                 {body: "", why: "malformed"},
		"not JSON":              {body: "refund please", why: "malformed"},
		"cut off":               {body: submit("")[:40], why: "malformed"},
		"two values":            {body: submit("") + submit(""), why: "malformed"},
		"null":                  {body: "null", why: "not a JSON object"},
		"a list":                {body: "[" + submit("") + "]", why: "not a JSON object"},
		"invalid UTF-8":         {body: submit(`,"replyTo":"` + "\xff" + `"`), why: "UTF-8"},
		"lone surrogate":        {body: submit(`,"replyTo":"\ud800"`), why: "surrogate"},
		"duplicate key":         {body: submit(`,"agent":"refund"`), why: "duplicate member"},
		"duplicate, escaped":    {body: submit(`,"\u0061gent":"refund"`), why: "duplicate member"},
		"duplicate in input":    {body: strings.Replace(submit(""), `"reason"`, `"orderId":"A-1002","reason"`, 1), why: "duplicate member"},
		"unknown field":         {body: submit(`,"priority":1`), why: "priority"},
		"field in other case":   {body: submit(`,"Conversation":"victim"`), why: "Conversation"},
		"field of other type":   {body: submit(`,"text":"hello"`), why: "text"},
		"allowance's field":     {body: submit(`,"allowance":{"tokens":1}`), why: "tokens"},
		"allowance, other case": {body: submit(`,"allowance":{"Turns":1}`), why: "Turns"},
		"agent that is a list":  {body: strings.Replace(submit(""), `"refund"`, `["refund"]`, 1), why: "agent"},
		"no type":               {body: strings.Replace(submit(""), `"type":"submit",`, ``, 1), why: "type"},
		"unknown type":          {body: strings.Replace(submit(""), `"submit"`, `"order"`, 1), why: "order"},
		"approve":               {body: `{"v":1,"type":"approve","submission":"s1"}`, why: "cannot prove"},
		"deny":                  {body: `{"v":1,"type":"deny","submission":"s1"}`, why: "cannot prove"},
		"resolve":               {body: `{"v":1,"type":"resolve","submission":"s1"}`, why: "cannot prove"},
		"steer":                 {body: `{"v":1,"type":"steer","conversation":"victim","text":"hi"}`, why: "no conversation"},
		"steering with nothing": {body: `{"v":1,"type":"steer","conversation":"victim"}`, why: "text is empty"},
		"follow-up":             {body: `{"v":1,"type":"followUp","conversation":"victim","input":"hi"}`, why: "no conversation"},
		"follow-up with text":   {body: `{"v":1,"type":"followUp","conversation":"victim","agent":"refund","text":"hi"}`, why: `\"text\" does not belong in a followUp`},
		"abort of nothing":      {body: `{"v":1,"type":"abort","conversation":"victim"}`, why: "no conversation"},
		"no version":            {body: strings.Replace(submit(""), `"v":1,`, ``, 1), why: `\"v\"`},
		"newer version":         {body: strings.Replace(submit(""), `"v":1`, `"v":2`, 1), why: "version 2"},
		"version as text":       {body: strings.Replace(submit(""), `"v":1`, `"v":"1"`, 1), why: `\"v\"`},
		"unknown agent":         {body: strings.Replace(submit(""), `"refund"`, `"shipping"`, 1), why: "shipping"},
		"no agent":              {body: strings.Replace(submit(""), `"agent":"refund",`, ``, 1), why: "agent"},
		"input of other shape":  {body: strings.Replace(submit(""), `"A-1001"`, `1001`, 1), why: "orderId"},
		"input lacks a field":   {body: strings.Replace(submit(""), `"orderId":"A-1001",`, ``, 1), why: "orderId"},
		"input is null":         {body: strings.Replace(submit(""), order, `null`, 1), why: "input"},
		"no input":              {body: strings.Replace(submit(""), `,"input":`+order, ``, 1), why: "input is missing"},
		"over 1 MiB":            {body: strings.Replace(submit(""), "arrived broken", strings.Repeat("x", 1<<20), 1), why: "limit"},
		"unprintable id":        {body: submit(`,"conversation":"vic\u0000tim"`), why: "conversation"},
		"unprintable key":       {body: submit(`,"key":"a\nb"`), why: "key"},
		"right-to-left key":     {body: submit(`,"key":"a\u202eb"`), why: "key"},
		"long id":               {body: submit(`,"conversation":"` + long + `"`), why: "256"},
		"long key":              {body: submit(`,"key":"` + long + `"`), why: "256"},
		"long reply queue":      {body: submit(`,"replyTo":"` + long + `"`), why: "replyTo"},
		"unprintable tenant":    {body: submit(""), change: tenant("a\x07"), why: "tenant"},
		"empty tenant":          {body: submit(""), change: tenant(""), why: "tenant"},
		"unprintable sender":    {body: submit(""), change: sender("a\tb"), why: "principal"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			bad := message("bad", row.body)
			if row.change != nil {
				row.change(&bad)
			}
			got := failed(s.admit.Handle(t.Context(), batch(
				message("first", submit(`,"conversation":"before"`)), bad, message("last", submit(`,"conversation":"after"`)))))
			if diff := cmp.Diff([]string{"bad"}, got); diff != "" {
				t.Errorf("batch item failures: %s", diff)
			}
			if diff := cmp.Diff([]string{"local/after", "local/before"}, s.lanes()); diff != "" {
				t.Errorf("lanes: %s", diff)
			}
			const perSubmission = 3 // row, inbox entry, head
			if n := s.journal.Writes(); n != 2*perSubmission {
				t.Errorf("%d writes for two submissions", n)
			}
			if n := s.queue.Len(queue.Attempt); n != 2 {
				t.Errorf("%d wakes for two submissions", n)
			}
			head, entries, err := s.journal.Inbox(t.Context(), journal.Lane{Tenant: "local", Conversation: "victim"}, 0)
			if err != nil || head.Version != 0 || head.State != journal.Idle || len(entries) != 0 {
				t.Errorf("the refused message left %+v %v, %v", head, entries, err)
			}
			if line := s.log.String(); strings.Count(line, "message refused") != 1 || !strings.Contains(line, "message=bad") || !strings.Contains(line, row.why) {
				t.Errorf("the log says %q, not %s", line, row.why)
			}
		})
	}
}

// A message of exactly the limit is admitted.
func TestLargestMessage(t *testing.T) {
	s := newShop(t)
	body := submit(`,"conversation":"c"`)
	body = strings.Replace(body, "arrived broken", "arrived broken"+strings.Repeat("x", functions.MaxBody-len(body)), 1)
	r := s.admitted(message("m", body))[0]
	if row := s.row("local", r.Submission); len(body) != 1<<20 || len(row.Input) < 1<<20-200 {
		t.Errorf("%d bytes of %d", len(row.Input), len(body))
	}
	if got := failed(s.admit.Handle(t.Context(), batch(message("n", body+" ")))); len(got) != 1 {
		t.Error("one byte more is taken too")
	}
}

// The store that does not answer is reported too, and a redelivery finishes
// what was begun, wherever it broke.
func TestStoreFails(t *testing.T) {
	for _, after := range []bool{false, true} {
		s := newShop(t)
		s.journal.SetFault(func(op string, at bool) error {
			if op == "admit" && at == after {
				return errors.New("no answer")
			}
			return nil
		})
		m := message("m", submit(`,"conversation":"c"`))
		if got := failed(s.admit.Handle(t.Context(), batch(m))); len(got) != 1 {
			t.Fatal(got)
		}
		s.journal.SetFault(nil)
		r := s.admitted(m)[0]
		if r.Duplicate != after || s.entries(r) != 1 {
			t.Errorf("broken after the write %v: duplicate %v, %d entries", after, r.Duplicate, s.entries(r))
		}
	}
}

// entries is how many inbox entries the receipt's conversation has.
func (s *shop) entries(r engine.Receipt) int {
	s.Helper()
	_, entries, err := s.journal.Inbox(s.Context(), journal.Lane{Tenant: "local", Conversation: r.Conversation}, 0)
	if err != nil {
		s.Fatal(err)
	}
	return len(entries)
}

// However often a message is delivered, in a batch or later, it is one
// submission, and every delivery gets its receipt.
func TestRedelivery(t *testing.T) {
	for name, row := range map[string]struct{ first, again events.SQSMessage }{
		"with a key":                     {message("m1", submit(`,"conversation":"c","key":"k"`)), message("m2", submit(`,"conversation":"c","key":"k"`))},
		"with a key, no conversation":    {message("m1", submit(`,"key":"k"`)), message("m2", submit(`,"key":"k"`))},
		"without a key":                  {message("m1", submit(`,"conversation":"c"`)), message("m1", submit(`,"conversation":"c"`))},
		"without key and conversation":   {message("m1", submit("")), message("m1", submit(""))},
		"spelled in another way":         {message("m1", submit(`,"key":"k","allowance":{"turns":3}`)), message("m2", ` {"key":"\u006b","allowance":{"turns":3.0},"input":{"reason":"arrived broken", "orderId":"A-1001"},"agent":"refund","type":"submit","v":1e0}`)},
		"with the id of an earlier one":  {message("m1", submit(`,"conversation":"c"`)), message("m2", submit(`,"conversation":"c","key":"m1"`))},
		"of a sender without a name":     {message("m1", submit(""), sender("")), message("m1", submit(""), sender("anonymous"))},
		"of a tenant that is given once": {message("m1", submit("")), message("m1", submit(""), tenant("local"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			receipts := append(s.admitted(row.first, row.again), s.admitted(row.first)...)
			want := receipts[0]
			if want.Duplicate || want.Submission == "" || want.Conversation == "" || want.At.IsZero() {
				t.Errorf("first receipt %+v", want)
			}
			want.Duplicate = true
			if diff := cmp.Diff([]engine.Receipt{want, want}, receipts[1:]); diff != "" {
				t.Errorf("later receipts: %s", diff)
			}
			if len(s.lanes()) != 1 || s.entries(want) != 1 {
				t.Errorf("%d entries in lanes %v", s.entries(want), s.lanes())
			}
		})
	}
}

// Two messages without a key are two submissions, and two conversations unless
// they name one.
func TestMessagesAreSubmissions(t *testing.T) {
	s := newShop(t)
	r := s.admitted(message("m1", submit("")), message("m2", submit("")),
		message("m3", submit(`,"conversation":"c"`)), message("m4", submit(`,"conversation":"c"`)))
	if r[0].Conversation == r[1].Conversation || r[2].Conversation != "c" || r[3].Conversation != "c" {
		t.Errorf("%+v", r)
	}
	ids := map[string]bool{}
	for _, r := range r {
		ids[r.Submission] = true
	}
	if len(ids) != 4 {
		t.Errorf("%d submissions of 4 messages", len(ids))
	}
}

// A key that was used for something else is refused for good, and what it was
// used for stays as it was.
func TestKeyConflict(t *testing.T) {
	s := newShop(t)
	first := s.admitted(message("m1", submit(`,"conversation":"c","key":"k"`)))[0]
	before, writes := s.row("local", first.Submission), s.journal.Writes()
	for name, body := range map[string]string{
		"other input":     strings.Replace(submit(`,"conversation":"c","key":"k"`), "A-1001", "A-1002", 1),
		"other reply":     submit(`,"conversation":"c","key":"k","replyTo":"q"`),
		"other allowance": submit(`,"conversation":"c","key":"k","allowance":{"turns":1}`),
	} {
		got := s.admit.Process(t.Context(), batch(message("m2", body)))[0]
		if got.Err == nil || got.Err.Kind != engine.KindConflict || got.Receipt != nil || !strings.Contains(got.Err.Message, `"k"`) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if diff := cmp.Diff(before, s.row("local", first.Submission)); diff != "" || s.journal.Writes() != writes {
		t.Errorf("the first submission changed: %s", diff)
	}
	if r := s.admitted(message("m3", submit(`,"conversation":"c","key":"k"`)))[0]; !r.Duplicate {
		t.Error("the first content is not a duplicate any more")
	}
}

// The tenant attribute and the sender of a message are part of who asks: the
// same names of others are other things.
func TestTenantsAndSenders(t *testing.T) {
	s := newShop(t)
	body := submit(`,"conversation":"c","key":"k"`)
	r := s.admitted(message("m1", body), message("m2", body, tenant("acme")), message("m3", body, sender("AIDA:max")),
		message("m4", body, sender("")), message("m5", body, tenant("acme"), sender("AIDA:max")))
	for i, want := range []struct{ tenant, principal string }{
		{"local", "AIDA:ada"}, {"acme", "AIDA:ada"}, {"local", "AIDA:max"}, {"local", "anonymous"}, {"acme", "AIDA:max"},
	} {
		row := s.row(want.tenant, r[i].Submission)
		if r[i].Duplicate || row.Lane.Tenant != want.tenant || row.Principal != want.principal || row.Lane.Conversation != "c" {
			t.Errorf("message %d: %+v, want %+v", i+1, row, want)
		}
		other := map[string]string{"local": "acme", "acme": "local"}[want.tenant]
		if _, err := s.journal.Submission(t.Context(), other, r[i].Submission); !errors.Is(err, journal.ErrNotFound) {
			t.Errorf("message %d is seen in tenant %s: %v", i+1, other, err)
		}
	}
	for lane, want := range map[string]int{"local": 3, "acme": 2, "other": 0} {
		_, entries, err := s.journal.Inbox(t.Context(), journal.Lane{Tenant: lane, Conversation: "c"}, 0)
		if err != nil || len(entries) != want {
			t.Errorf("%d entries in the inbox of %s, want %d (%v)", len(entries), lane, want, err)
		}
	}
	for _, m := range []string{"m6", "m7"} {
		got := s.admit.Process(t.Context(), batch(message(m, `{"v":1,"type":"abort","conversation":"c","submission":"`+r[1].Submission+`"}`)))[0]
		if got.Err == nil || got.Err.Kind != engine.KindNotFound {
			t.Errorf("another tenant's submission can be aborted: %+v", got)
		}
	}
	if mint := s.admitted(message("m8", submit(`,"key":"k"`)), message("m9", submit(`,"key":"k"`), tenant("acme"))); mint[0].Conversation == mint[1].Conversation {
		t.Error("two tenants were given one conversation id")
	}
}

// The tenant of messages without one is a setting.
func TestDefaultTenant(t *testing.T) {
	s := newShop(t)
	f := functions.NewAdmit(s.admit.Admitter(), functions.AdmitOptions{Tenant: "acme"})
	for _, r := range f.Process(t.Context(), batch(message("m1", submit("")), message("m2", submit(""), tenant("local")))) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		s.row(map[string]string{"m1": "acme", "m2": "local"}[r.MessageID], r.Receipt.Submission)
	}
}

// An abort over the queue is taken once, however often it is delivered.
func TestAbortMessage(t *testing.T) {
	s := newShop(t)
	r := s.admitted(message("m1", submit(`,"conversation":"c"`)))[0]
	abort := message("m2", fmt.Sprintf(`{"v":1,"type":"abort","conversation":"c","submission":%q,"reason":"by mistake"}`, r.Submission))
	if got := failed(s.admit.Handle(t.Context(), batch(abort, abort))); len(got) != 0 {
		t.Fatal(got)
	}
	_, entries, err := s.journal.Inbox(t.Context(), journal.Lane{Tenant: "local", Conversation: "c"}, 0)
	if err != nil || len(entries) != 2 || entries[1].Kind != journal.EntryAbort || entries[1].By != "AIDA:ada" {
		t.Errorf("%+v, %v", entries, err)
	}
}
