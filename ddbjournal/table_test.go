package ddbjournal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/engine/enginetest"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/ddbjournal"
)

func stringOf(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func numberOf(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }

func textOf(it map[string]types.AttributeValue, name string) string {
	s, _ := it[name].(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}

func (b bench) put(t *testing.T, it map[string]types.AttributeValue) {
	t.Helper()
	_, err := b.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &b.table, Item: it})
	check(t, err)
}

// failure: A13
//
// A cancelled transaction cannot be mistaken for anything, because there is
// none: the store is reached through five calls, none of which writes more
// than one item, and twenty children that settle against one parent while it
// is claimed all get through.
func TestNoTransactions(t *testing.T) {
	var calls []string
	for m := range reflect.TypeFor[ddbjournal.API]().Methods() {
		calls = append(calls, m.Name)
	}
	if want := []string{"BatchGetItem", "GetItem", "PutItem", "Query", "UpdateItem"}; !slices.Equal(calls, want) {
		t.Errorf("the store is reached through %v, want %v", calls, want)
	}
	many := regexp.MustCompile(`Transact|BatchWrite|ExecuteStatement|PartiQL`)
	files, err := filepath.Glob("*.go")
	check(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		check(t, err)
		if found := many.Find(source); found != nil && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s: %s", file, found)
		}
	}

	b := newBench(t, 3)
	j := openOn(t, b.client, b.table)
	_, err = j.Admit(t.Context(), submission(lane, "parent"), start, time.Minute)
	check(t, err)
	const children = 20
	errs := make([]error, children+1)
	var wg sync.WaitGroup
	for n := range children {
		wg.Go(func() {
			e := journal.Entry{Kind: journal.EntryChild, Key: fmt.Sprint("child ", n), Digest: "d", By: "settle"}
			_, errs[n] = j.Signal(t.Context(), lane, e, 0, start, time.Minute)
		})
	}
	wg.Go(func() { _, errs[children] = j.Claim(t.Context(), claimRequest(lane, "a1", start)) })
	wg.Wait()
	for n, err := range errs {
		if err != nil {
			t.Errorf("writer %d: %v", n, err)
		}
	}
	h, entries, err := j.Inbox(t.Context(), lane, 1)
	check(t, err)
	if len(entries) != children || h.Epoch != 1 || h.State != journal.Running {
		t.Errorf("%d children in the inbox, head %+v", len(entries), h)
	}
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	for call := range b.net.calls {
		if many.MatchString(call) {
			t.Errorf("the store was asked for %s", call)
		}
	}
}

// What lies in the table, item by item: the persisted format.
func TestFormat(t *testing.T) {
	b := newBench(t, 3)
	j := openOn(t, b.client, b.table)
	ctx := t.Context()
	l := journal.Lane{Tenant: "a#b", Conversation: "c%\xff/1"}
	s := submission(l, "s1")
	s.Allowance, s.Parent = record.Allowance{Turns: 3}, record.ParentLink{Conversation: "p", Run: "r", Call: "c", Depth: 1}
	_, err := j.Admit(ctx, s, start, time.Minute)
	check(t, err)
	h, err := j.Claim(ctx, journal.ClaimRequest{Lane: l, Owner: "a1", Boot: "boot", Now: start, Lease: start.Add(lease)})
	check(t, err)
	check(t, j.Append(ctx, l, sealed(1, 1, "b1")))
	check(t, j.PutPayload(ctx, "a#b", record.Digest([]byte("x")), []byte("x")))
	got := map[string]string{}
	for _, it := range b.scan(t) {
		got[textOf(it, "pk")+" "+textOf(it, "sk")] = describe(it)
	}
	millis := fmt.Sprint(start.UnixMilli())
	end := fmt.Sprint(h.Lease.UnixMilli())
	expect := map[string]string{
		"a%23b#H#c%25%FF/1 H": "boot=S(boot) drained=N(0) dueAt=N(" + end + ") dueShard=S(02) epoch=N(1) leaseEnd=N(" + end + ") of=S(a%23b#c%25%FF/1)" +
			" owner=S(a1) settled=N(0) state=S(running) v=N(1) version=N(1)",
		"a%23b#L#c%25%FF/1 00000000000000000001": "body=B(b1) digest=S(" + record.Digest([]byte("b1")) + ") epoch=N(1) id=S(b1) of=S(a%23b#c%25%FF/1) v=N(1)",
		"a%23b#I#c%25%FF/1 00000000000000000001": "actor=S(ann) at=N(" + millis + ") digest=S(digest of s1) key=S(s1) kind=S(submit) nonce of=S(a%23b#c%25%FF/1) ref=S(s1) v=N(1)",
		"a%23b#S#s1 S": "admittedAt=N(" + millis + ") agent=S(a) allowance=B({\"turns\":3}) conversation=S(c%25%FF/1) digest=S(digest of s1) input=B({}) key=S(s1)" +
			" nonce of=S(a%23b#s1) parent=B({\"conversation\":\"p\",\"run\":\"r\",\"call\":\"c\",\"depth\":1}) principal=S(ann) tail=N(0) v=N(1)",
		"a%23b#B#" + record.Digest([]byte("x")) + " 000000": "body=B(x) chunks=N(1) of=S(a%23b#" + record.Digest([]byte("x")) + ") v=N(1)",
	}
	if len(got) != len(expect) {
		t.Errorf("%d items, want %d", len(got), len(expect))
	}
	for place, text := range expect {
		if got[place] != text {
			t.Errorf("%s:\n got %s\nwant %s", place, got[place], text)
		}
	}
}

// describe renders an item without its keys and without what is random.
func describe(it map[string]types.AttributeValue) string {
	var parts []string
	for name, value := range it {
		if name == "pk" || name == "sk" {
			continue
		}
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			if name == "nonce" {
				parts = append(parts, name)
				continue
			}
			parts = append(parts, fmt.Sprintf("%s=S(%s)", name, v.Value))
		case *types.AttributeValueMemberN:
			parts = append(parts, fmt.Sprintf("%s=N(%s)", name, v.Value))
		case *types.AttributeValueMemberB:
			parts = append(parts, fmt.Sprintf("%s=B(%s)", name, v.Value))
		default:
			parts = append(parts, fmt.Sprintf("%s=%T", name, value))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// failure: A35
//
// A settled row expires some day; until the store has really removed it, it
// answers, whatever the clock says. Nothing else ever expires (F13, F18).
func TestOnlySettledRowsExpire(t *testing.T) {
	b := newBench(t, 3)
	j, err := ddbjournal.New(b.client, ddbjournal.Config{Table: b.table, Retention: time.Second})
	check(t, err)
	ctx := t.Context()
	_, err = j.Admit(ctx, submission(lane, "s1"), start, time.Minute)
	check(t, err)
	h, err := j.Claim(ctx, claimRequest(lane, "a1", start))
	check(t, err)
	check(t, j.Append(ctx, lane, sealed(1, 1, "b1")))
	expiring := func() (found []string) {
		for _, it := range b.scan(t) {
			if it[ddbjournal.AttrExpiry] != nil {
				found = append(found, textOf(it, "pk"))
			}
		}
		return found
	}
	if got := expiring(); len(got) > 0 {
		t.Errorf("before the run settled %v expire", got)
	}
	check(t, j.Finish(ctx, journal.FinishRequest{Lane: lane, Outcomes: []record.RunSettled{{Run: "s1", Status: record.StatusCompleted}}, At: start,
		Settled: 1, Version: h.Version, To: journal.Idle, Drained: 1}))
	if got := expiring(); !slices.Equal(got, []string{"acme#S#s1"}) {
		t.Errorf("%v expire", got)
	}
	// Its time is long over, and it is still there.
	again, err := j.Admit(ctx, submission(lane, "s1"), start, time.Minute)
	check(t, err)
	if !again.Duplicate || again.Submission.Outcome == nil {
		t.Errorf("answered %+v", again)
	}
	if h, err = j.Head(ctx, lane); err != nil || h.State != journal.Idle {
		t.Errorf("the lane is %s, %v", h.State, err)
	}
}

// conformance: RUN-030a @serverless
// failure: A05
//
// Two deliveries of one attempt message, on two hosts at the same instant and
// once more after the end: one of them works, the others leave the lane alone,
// and each model call is made once.
func TestOneDeliveryWorks(t *testing.T) {
	b := newBench(t, 3)
	var asked counted
	hosts := []services{}
	for range 2 {
		hosts = append(hosts, newServices(t, openOn(t, b.client, b.table), enginetest.ReferenceAgent().Bind(&asked)))
	}
	ctx, l := t.Context(), journal.Lane{Tenant: "acme", Conversation: "c"}
	_, err := hosts[0].admitter.Submit(ctx, engine.SubmitRequest{Tenant: "acme", Principal: "ann", Agent: "reference", Conversation: "c", Input: []byte(`{"order":"1"}`)})
	check(t, err)
	ends := make([]engine.Ended, len(hosts))
	errs := make([]error, len(hosts))
	var wg sync.WaitGroup
	for n, host := range hosts {
		wg.Go(func() { ends[n], errs[n] = host.attempts.Attempt(ctx, l) })
	}
	wg.Wait()
	slices.Sort(ends)
	if !slices.Equal(ends, []engine.Ended{engine.NotClaimed, engine.HandedOver}) || errs[0] != nil || errs[1] != nil {
		t.Errorf("the deliveries ended as %v, %v", ends, errs)
	}
	_, err = hosts[0].settler.Settle(ctx, l)
	check(t, err)
	before := b.dump(t)
	if ended, err := hosts[1].attempts.Attempt(ctx, l); err != nil || ended != engine.NotClaimed {
		t.Errorf("a delivery after the end: %q, %v", ended, err)
	}
	if b.dump(t) != before {
		t.Error("a delivery after the end wrote something")
	}
	started := 0
	for b, err := range hosts[0].admitter.Records(ctx, l) {
		check(t, err)
		for _, r := range b.Records {
			if r.Kind() == record.KindRunStarted {
				started++
			}
		}
	}
	if started != 1 {
		t.Errorf("%d runs were started, want 1", started)
	}
	if n := asked.n.Load(); n != 3 {
		t.Errorf("%d model calls, want 3", n)
	}
}
