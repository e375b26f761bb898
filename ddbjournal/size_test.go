package ddbjournal_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
	"github.com/layover-run/layover/ddbjournal"
)

// noise is text of n bytes that compresses to a little more than half.
func noise(n int) string {
	const digits = "0123456789abcdef"
	out := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(out)
	for i, b := range out {
		out[i] = digits[b&15]
	}
	return string(out)
}

func random(n int) []byte {
	out := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(out)
	return out
}

// failure: A11
//
// Work is recorded whatever its size: an input, a tool's result and an answer
// each too large for an item, while the store refuses every third request for
// its rate.
func TestNoSizeAtWhichARunIsLost(t *testing.T) {
	b := newBench(t, 3)
	var requests atomic.Int64
	b.net.set(func() {
		b.net.answer = func(string, string) *http.Response {
			if requests.Add(1)%3 == 0 {
				return refusal(400, "ProvisionedThroughputExceededException")
			}
			return nil
		}
	})
	j := openOn(t, b.client, b.table)
	type in struct {
		Text string `json:"text"`
	}
	talk := tool.New("talk", "Says a lot.", func(context.Context, lookIn) (string, error) { return noise(5 << 20), nil }, tool.Readonly())
	def := agent.MustDefine[in, string]("large", agent.Config[in]{Instructions: agent.Text[in]("Talk."), Tools: []*tool.Tool{talk}})
	answer := noise(450_000)
	s := newServices(t, j, def.Bind(modeltest.Script(modeltest.Calls(modeltest.Call{Tool: "talk", Args: `{"order":"1"}`}), modeltest.Text(answer))))
	lane := journal.Lane{Tenant: "acme", Conversation: "large"}
	receipt, err := s.admitter.Submit(t.Context(), engine.SubmitRequest{Tenant: "acme", Principal: "ann", Agent: "large", Conversation: "large",
		Input: []byte(`{"text":"` + noise(1_000_000) + `"}`)})
	check(t, err)
	ended, err := s.attempts.Attempt(t.Context(), lane)
	if err != nil || ended != engine.HandedOver {
		t.Fatalf("the attempt ended as %q, %v", ended, err)
	}
	_, err = s.settler.Settle(t.Context(), lane)
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := s.admitter.Await(ctx, "acme", receipt.Submission, engine.UntilSettled)
	if p.Status != "completed" || !strings.Contains(string(p.Output), answer) {
		t.Errorf("the run is %s with an answer of %d bytes, want %d: %v", p.Status, len(p.Output), len(answer), err)
	}
	if requests.Load() < 60 {
		t.Errorf("only %d requests: was anything refused?", requests.Load())
	}
}

// What cannot be one item is refused before anything is sent, names counted.
func TestSizeIsCheckedBeforeTheWrite(t *testing.T) {
	b := newBench(t, 1)
	j := openOn(t, b.client, b.table)
	puts := func() int {
		b.net.mu.Lock()
		defer b.net.mu.Unlock()
		return b.net.calls["PutItem"] + b.net.calls["UpdateItem"]
	}
	ctx, before := t.Context(), puts()
	large := func(size int) record.Sealed {
		return record.Sealed{Slot: 1, ID: "b1", Epoch: 1, Digest: "d", Body: random(size)}
	}
	want(t, j.Append(ctx, lane, large(ddbjournal.ItemLimit)), record.ErrTooLarge)
	long := journal.Lane{Tenant: "acme", Conversation: strings.Repeat("c", 2048)}
	want(t, j.Append(ctx, long, sealed(1, 1, "b1")), record.ErrTooLarge)
	s := submission(lane, "s1")
	s.ReplyTo = strings.Repeat("r", ddbjournal.ItemLimit)
	_, err := j.Admit(ctx, s, start, time.Minute)
	want(t, err, record.ErrTooLarge)
	s.ReplyTo = "not \xff UTF-8"
	if _, err := j.Admit(ctx, s, start, time.Minute); err == nil || !strings.Contains(err.Error(), "replyTo") {
		t.Errorf("text the store would change silently: %v", err)
	}
	if n := puts() - before; n != 0 {
		t.Errorf("%d writes were sent", n)
	}
	// The largest that fits is taken: the store and this package count alike.
	fits := large(ddbjournal.ItemLimit)
	for overhead := 0; ; overhead++ {
		fits.Body = fits.Body[:ddbjournal.ItemLimit-overhead]
		if err = j.Append(ctx, lane, fits); err == nil {
			break
		}
		if want(t, err, record.ErrTooLarge); overhead > 200 { // the keys and the other attributes are less
			t.Fatalf("the store counts otherwise: %v", err)
		}
	}
	for got, err := range j.Read(ctx, lane, 1) {
		check(t, err)
		if !bytes.Equal(got.Body, fits.Body) {
			t.Error("the largest batch came back changed")
		}
	}
}

// A name that makes a key too long is refused by every operation, before the
// store is asked, which would refuse to read by such a key too.
func TestKeysAreCheckedBeforeTheStore(t *testing.T) {
	b := newBench(t, 1)
	j := openOn(t, b.client, b.table)
	b.net.set(func() { b.net.calls = map[string]int{} })
	ctx, long := t.Context(), journal.Lane{Tenant: "acme", Conversation: strings.Repeat("c", 2048)}
	_, admitted := j.Admit(ctx, submission(long, "s1"), start, time.Minute)
	_, signalled := j.Signal(ctx, long, journal.Entry{Kind: journal.EntrySteer, Key: "k"}, 0, start, time.Minute)
	_, claimed := j.Claim(ctx, claimRequest(long, "a1", start))
	_, _, looked := j.Inbox(ctx, long, 0)
	_, found := j.Submission(ctx, "acme", long.Conversation)
	for op, err := range map[string]error{"admit": admitted, "signal": signalled, "claim": claimed, "inbox": looked, "submission": found,
		"append": j.Append(ctx, long, sealed(1, 2, "b2"))} {
		if !errors.Is(err, record.ErrTooLarge) {
			t.Errorf("%s: %v", op, err)
		}
	}
	for _, err := range j.Read(ctx, long, 1) {
		want(t, err, record.ErrTooLarge)
	}
	if len(b.net.calls) > 0 {
		t.Errorf("the store was asked: %v", b.net.calls)
	}
}

// A payload over one item is chunks of at most 300 KB in a partition of its
// own, and what compresses is stored compressed and named so.
func TestChunksAndEncodings(t *testing.T) {
	b := newBench(t, 3)
	j := openOn(t, b.client, b.table)
	for name, body := range map[string][]byte{"random": random(1 << 20), "zeros": make([]byte, 1<<20), "one": random(ddbjournal.ChunkSize), "empty": nil} {
		digest := record.Digest(body)
		check(t, j.PutPayload(t.Context(), "acme", digest, body))
		chunks, packed := 0, 0
		for _, it := range b.scan(t) {
			if textOf(it, "pk") != "acme#B#"+digest {
				continue
			}
			chunks++
			if textOf(it, "bodyEnc") == "gzip" {
				packed++
			}
		}
		wantChunks := max(1, (len(body)+ddbjournal.ChunkSize-1)/ddbjournal.ChunkSize)
		wantPacked := map[string]int{"zeros": wantChunks}[name]
		if chunks != wantChunks || packed != wantPacked {
			t.Errorf("%s: %d chunks, %d compressed; want %d and %d", name, chunks, packed, wantChunks, wantPacked)
		}
	}
}

// A body that claims to be small and is not is refused as far as it was read.
func TestACompressedBodyIsBounded(t *testing.T) {
	for _, claim := range []string{"10", "99999999999"} {
		b := newBench(t, 3)
		j := openOn(t, b.client, b.table)
		body := make([]byte, 200_000)
		check(t, j.PutPayload(t.Context(), "acme", record.Digest(body), body))
		it := b.scan(t)[0]
		it["bodyLen"] = numberOf(claim)
		b.put(t, it)
		_, err := j.Payload(t.Context(), "acme", record.Digest(body))
		want(t, err, record.ErrCorrupt)
	}
}

// An encoding this build does not know is a newer build's.
func TestAnUnknownEncodingIsNewer(t *testing.T) {
	b := newBench(t, 3)
	j := openOn(t, b.client, b.table)
	body := make([]byte, 2000)
	check(t, j.PutPayload(t.Context(), "acme", record.Digest(body), body))
	it := b.scan(t)[0]
	it["bodyEnc"] = stringOf("zstd")
	b.put(t, it)
	_, err := j.Payload(t.Context(), "acme", record.Digest(body))
	want(t, err, journal.ErrNewer)
}
