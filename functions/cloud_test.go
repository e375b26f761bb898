package functions_test

import (
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/ddbjournal/ddbtest"
	"github.com/layover-run/layover/functions"
	"github.com/layover-run/layover/functions/cloudtest"
)

// cloud is the serverless assembly around one agent. What is outside is the
// ingress queue and the HTTP API.
type cloud struct {
	*cloudtest.Account
	*cloudtest.Deployment
	t     *testing.T
	model *modeltest.Model
	api   *client.Client
	log   lockedBuffer
}

var dynamoDB = ddbtest.NewPeer()

func newCloud(t *testing.T, def *agent.Definition, steps ...modeltest.Step) *cloud {
	t.Helper()
	c := &cloud{Account: cloudtest.NewAccount(t, dynamoDB), t: t, model: modeltest.Script(steps...)}
	registry, err := engine.NewRegistry(0, def.Bind(c.model).Engine())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&c.log, nil))
	c.Deployment = c.Deploy(engine.Config{Log: log}, registry)
	server := httptest.NewServer(functions.NewAPI(c.Admit, functions.APIOptions{Log: log}))
	t.Cleanup(server.Close)
	if c.api, err = client.New(server.URL, client.Options{Principal: "ann"}); err != nil {
		t.Fatal(err)
	}
	return c
}

const cloudLane = "c"

// submit sends a submission and waits until it is durable.
func (c *cloud) submit(key string) (id string) {
	c.t.Helper()
	c.Send(`{"v":1,"type":"submit","agent":"a","conversation":"` + cloudLane + `","key":"` + key + `","input":"go"}`)
	j, before := c.Table.Open(c.t), 0
	c.until("the submission is admitted", func() bool {
		_, entries, err := j.Inbox(c.t.Context(), local(cloudLane), 0)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, e := range entries {
			row, err := j.Submission(c.t.Context(), "local", e.Ref)
			if e.Kind == journal.EntrySubmit && err == nil && row.Key == key {
				id, before = e.Ref, before+1
			}
		}
		return id != ""
	})
	if before != 1 {
		c.t.Fatalf("%d submissions of one key", before)
	}
	return id
}

// until waits for what the functions have to bring about by themselves.
func (c *cloud) until(what string, done func() bool) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("not within a minute: %s\n%s", what, c.log.String())
		}
	}
}

// await is where a submission stands once it has come as far as asked.
func (c *cloud) await(id string, until client.Until) wire.Progress {
	c.t.Helper()
	p, err := c.api.Await(c.t.Context(), cloudLane, id, until, time.Minute)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// ends holds a submission to its outcome, the log to what every log has to be,
// and the functions to leave no dead letter and no lane behind.
func (c *cloud) ends(id, status string) wire.Progress {
	c.t.Helper()
	p := c.await(id, client.UntilSettled)
	if p.Status != status {
		c.t.Fatalf("the run is %s %+v, want %s\n%s", p.Status, p.Error, status, c.log.String())
	}
	v, err := c.api.Verify(c.t.Context(), cloudLane)
	if err != nil || !v.OK {
		c.t.Errorf("verify: %+v, %v", v, err)
	}
	if dead := c.Dead(); len(dead) > 0 {
		c.t.Errorf("dead letters: %q", dead)
	}
	return p
}

// rests waits until the lane is idle.
func (c *cloud) rests() {
	c.t.Helper()
	c.until("the lane is idle", func() bool {
		s, err := c.api.Status(c.t.Context(), cloudLane)
		if err != nil {
			c.t.Fatal(err)
		}
		return s.State == string(journal.Idle) && s.Queued == 0
	})
}

// records lists what the log holds of one kind.
func (c *cloud) records(kind record.Kind) (found []record.Record) {
	c.t.Helper()
	for raw, err := range c.Table.Open(c.t).Read(c.t.Context(), local(cloudLane), 1) {
		if err != nil {
			c.t.Fatal(err)
		}
		b, err := record.Open(raw, "local", cloudLane)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, r := range b.Records {
			if r.Kind() == kind {
				found = append(found, r)
			}
		}
	}
	return found
}
