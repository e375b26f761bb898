package engine_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/sqlitejournal"
	"github.com/layover-run/layover/core/model/demo"
	"github.com/layover-run/layover/core/queue"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/examples/refund"
)

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	os.Setenv("LAYOVER_DATA", dir)
	j, err := sqlitejournal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	q := memqueue.New()
	def := refund.Agent().Bind(demo.New()).Engine()
	reg, err := engine.NewRegistry(0, def)
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{Journal: j, Queue: q, Boot: j.Boot(), OnBatch: func(l journal.Lane, b record.Batch) {
		js, _ := b.JSON()
		t.Log(string(js))
	}}
	ad, err := engine.NewAdmitter(cfg, reg.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	at, _ := engine.NewAttempter(cfg, reg)
	se, _ := engine.NewSettler(cfg)
	ctx := context.Background()
	r, err := ad.Submit(ctx, engine.SubmitRequest{Tenant: "local", Principal: "me", Agent: "refund", Conversation: "demo", Input: []byte(`{"orderId":"A-1001","reason":"arrived broken"}`)})
	if err != nil {
		t.Fatal(err)
	}
	lane := journal.Lane{Tenant: "local", Conversation: "demo"}
	end, err := at.Attempt(ctx, lane)
	t.Log(end, err)
	aps, err := ad.Approvals(ctx, "local")
	t.Log(aps, err)
	d, err := ad.Decide(ctx, engine.DecisionRequest{Tenant: "local", Principal: "me", Approval: aps[0].ID, Approve: true})
	t.Log(d, err)
	d, err = ad.Decide(ctx, engine.DecisionRequest{Tenant: "local", Principal: "me", Approval: aps[0].ID, Approve: true})
	t.Log(d, err)
	end, err = at.Attempt(ctx, lane)
	t.Log(end, err)
	ok, err := se.Settle(ctx, lane)
	t.Log(ok, err)
	p, err := ad.Await(ctx, "local", r.Submission, engine.UntilSettled)
	t.Log(p.Status, string(p.Output), err)
	v, err := ad.Verify(ctx, lane)
	t.Logf("%+v %v", v, err)
	d, err = ad.Decide(ctx, engine.DecisionRequest{Tenant: "local", Principal: "me", Approval: aps[0].ID, Approve: true})
	t.Log(d, err)
	_ = queue.Attempt
	_ = time.Now
	t.Log(j.Writes())
}
