package engine_test

import (
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/tool"
)

// Attempt and batch ids are fresh ids of one invocation (F5): none is made from
// an epoch, a slot or a message, which two deliveries share.
func TestIDsAreMinted(t *testing.T) {
	r := newRig(t, define(t, agent.Policy{}, handler(&counter{}, "look", tool.Readonly())), modeltest.Calls(call("look", 0)), modeltest.Text("done"))
	r.submit(kim)
	registry, err := engine.NewRegistry(0, r.def.Bind(r.model).Engine())
	if err != nil {
		t.Fatal(err)
	}
	minted, used := map[string]bool{}, map[string]bool{}
	attempter, err := engine.NewAttempter(engine.Config{Journal: r.journal, Queue: memqueue.New(), Boot: r.journal.Boot(),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), NewID: func() string {
			id := fmt.Sprint("minted ", len(minted))
			minted[id] = true
			return id
		}}, registry)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attempter.Attempt(bg, r.lane); err != nil {
		t.Fatal(err)
	}
	batches := 0
	for b, err := range r.admitter.Records(bg, r.lane) {
		if err != nil {
			t.Fatal(err)
		}
		batches++
		if !minted[b.ID] || used[b.ID] || !minted[b.Attempt] || b.Attempt == b.ID {
			t.Errorf("slot %d: batch id %q of attempt %q", b.Slot, b.ID, b.Attempt)
		}
		used[b.ID] = true
	}
	if batches < 2 {
		t.Fatalf("%d batches", batches)
	}
}
