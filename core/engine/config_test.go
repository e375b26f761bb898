package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal/memjournal"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/queue/memqueue"
	"github.com/layover-run/layover/core/tool"
)

// What cannot work is refused when the services are made, by every one of them.
func TestConfigRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*engine.Config)
		says   string // nothing: it is accepted
	}{
		"the defaults":                {func(*engine.Config) {}, ""},
		"no journal":                  {func(c *engine.Config) { c.Journal = nil }, "Config.Journal and Config.Queue are required"},
		"no queue":                    {func(c *engine.Config) { c.Queue = nil }, "Config.Journal and Config.Queue are required"},
		"an attempt too short":        {func(c *engine.Config) { c.AttemptTimeout = 15*time.Second - 1 }, "at least 15s are needed"},
		"an attempt just long":        {func(c *engine.Config) { c.AttemptTimeout = 15 * time.Second }, ""},
		"a skew below the cleanup":    {func(c *engine.Config) { c.Skew = 30*time.Second - 1 }, "below CleanupTimeout"},
		"a cleanup above the skew":    {func(c *engine.Config) { c.CleanupTimeout = 31 * time.Second }, "below CleanupTimeout"},
		"a skew equal to the cleanup": {func(c *engine.Config) { c.Skew, c.CleanupTimeout = time.Minute, time.Minute }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := engine.Config{Journal: memjournal.New(), Queue: memqueue.New()}
			row.change(&cfg)
			_, admit := engine.NewAdmitter(cfg, nil)
			_, attempt := engine.NewAttempter(cfg, nil)
			_, settle := engine.NewSettler(cfg)
			for _, err := range []error{admit, attempt, settle} {
				if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
					t.Errorf("%v, want %q", err, row.says)
				}
			}
		})
	}
}

// A registry holds agents that can run: each name once, each with a model, and
// no tool that an attempt has no time for.
func TestRegistryRefuses(t *testing.T) {
	c := &counter{}
	bound := func(timeout time.Duration) engine.Definition {
		return define(t, agent.Policy{}, handler(c, "look", tool.Timeout(timeout))).Bind(modeltest.Script()).Engine()
	}
	unbound := bound(time.Minute)
	unbound.Model = nil
	for name, row := range map[string]struct {
		attempt time.Duration
		defs    []engine.Definition
		says    string
	}{
		"nothing":               {0, nil, ""},
		"one agent":             {0, []engine.Definition{bound(time.Hour)}, ""},
		"two of one name":       {0, []engine.Definition{bound(time.Minute), bound(time.Minute)}, `two agents are named "a"`},
		"no model":              {0, []engine.Definition{unbound}, `agent "a" has no model`},
		"a timeout that fits":   {75 * time.Second, []engine.Definition{bound(time.Minute)}, ""},
		"a timeout beyond that": {75*time.Second - 1, []engine.Definition{bound(time.Minute)}, `tool "look" may take 1m0s`},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := engine.NewRegistry(row.attempt, row.defs...)
			if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Fatalf("%v, want %q", err, row.says)
			}
			if err == nil && len(r.Manifest()) != len(row.defs) {
				t.Errorf("the manifest has %d agents", len(r.Manifest()))
			}
		})
	}
}

// A lost wake goes unnoticed for two seconds and a lease lasts a quarter of an
// hour, unless the configuration says otherwise.
func TestConfigDefaults(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, define(t, agent.Policy{}), modeltest.Hang())
		r.submit(kim)
		if due := time.Until(r.head().Due); due != 2*time.Second {
			t.Errorf("a submission is due in %s", due)
		}
		go func() { _, _ = r.attempt.Attempt(bg, r.lane) }()
		time.Sleep(time.Second)
		if lease := time.Until(r.head().Lease); lease != 15*time.Minute-time.Second {
			t.Errorf("a lease of %s", lease+time.Second)
		}
		time.Sleep(15 * time.Minute)
	})
}
