package agenttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/agent/agenttest"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// fake is a test that may fail.
type fake struct {
	testing.TB
	cleanups []func()
	failures []string
}

func (f *fake) Helper()                   {}
func (f *fake) Failed() bool              { return len(f.failures) > 0 }
func (f *fake) Cleanup(g func())          { f.cleanups = append(f.cleanups, g) }
func (f *fake) Errorf(s string, a ...any) { f.failures = append(f.failures, fmt.Sprintf(s, a...)) }
func (f *fake) Fatalf(s string, a ...any) {
	f.Errorf(s, a...)
	runtime.Goexit()
}

// during runs what may end its test, and its cleanups, and gives the failures.
func during(g func(f *fake)) string {
	f, done := &fake{}, make(chan struct{})
	go func() {
		defer close(done)
		g(f)
	}()
	<-done
	for _, c := range f.cleanups {
		c()
	}
	return strings.Join(f.failures, "\n")
}

// Each assertion fails where it should, and says how things are instead.
func TestAssertionsFail(t *testing.T) {
	var opened []string
	waiting := func(f *fake) *agenttest.Run {
		return agenttest.New(f, doors(&opened), north, modeltest.Text("Done.")).Run(Door{Door: "north"})
	}
	ended := func(f *fake) *agenttest.Run {
		return agenttest.New(f, doors(&opened), modeltest.Text("Done.")).Run(Door{Door: "north"})
	}
	for name, tc := range map[string]struct {
		do   func(f *fake)
		says string
	}{
		"completed":        {func(f *fake) { waiting(f).Completed(nil) }, "parked, waiting for approval; it should have completed"},
		"output":           {func(f *fake) { var n int; ended(f).Completed(&n) }, `the output "Done." does not decode`},
		"failed":           {func(f *fake) { ended(f).Failed("X") }, "completed; it should have failed with X"},
		"failed otherwise": {func(f *fake) { agenttest.New(f, doors(&opened)).Run(Door{Door: "x"}).Failed("X") }, "failed with ModelRefusedError"},
		"aborted":          {func(f *fake) { ended(f).Aborted() }, "it should have been aborted"},
		"parked":           {func(f *fake) { ended(f).Parked("approval") }, "completed; it should wait for approval"},
		"parked otherwise": {func(f *fake) { waiting(f).Parked("unknown") }, "it should wait for unknown"},
		"no such approval": {func(f *fake) { waiting(f).Approve("close_door") }, "no call of close_door waits"},
		"nothing unknown":  {func(f *fake) { waiting(f).Resolve("open_door", record.NotHappened, nil) }, "no call of open_door has an unknown outcome"},
		"transcript": {func(f *fake) { ended(f).Said("user: {\"door\":\"north\"}\ntool: x\nassistant: Done.\nassistant: Bye.") },
			"  user: {\"door\":\"north\"}\n- tool: x\n  assistant: Done.\n- assistant: Bye.\n"},
		"longer transcript": {func(f *fake) { ended(f).Said("user: {\"door\":\"north\"}") }, "  user: {\"door\":\"north\"}\n+ assistant: Done.\n"},
		"hint":              {func(f *fake) { agenttest.New(f, doors(&opened)).Run(Door{Door: "x"}).Completed(nil) }, "(check the provider's key"},
		"a panic": {func(f *fake) {
			agenttest.New(f, broken(), modeltest.Calls(modeltest.Call{Tool: "break"})).Run(Door{"x"}).Completed(nil)
		}, "error in tool break: "},
		"input":     {func(f *fake) { agenttest.New(f, doors(&opened)).Submit(map[string]int{"door": 7}) }, "submit"},
		"no input":  {func(f *fake) { agenttest.New(f, doors(&opened)).Submit(func() {}) }, "input"},
		"no script": {func(f *fake) { agenttest.Bind(f, doors(&opened).Bind(modeltest.Script())).Model() }, "no scripted model"},
	} {
		if got := during(tc.do); !strings.Contains(got, tc.says) {
			t.Errorf("%s: %q, want %q", name, got, tc.says)
		}
	}
	if got := during(func(f *fake) { w := waiting(f); w.Parked("approval"); w.Approve("open_door"); w.Completed(nil) }); got != "" {
		t.Error(got)
	}
}

// broken is an agent whose tool has a bug.
func broken() *agent.Definition {
	return agent.MustDefine[Door, string]("breaker", agent.Config[Door]{Instructions: agent.Text[Door]("Break."), Tools: []*tool.Tool{
		tool.New("break", "Breaks.", func(context.Context, struct{}) (string, error) { panic("it broke") }, tool.Readonly())}})
}

// A host of two agents: the name says which one is asked, in one conversation
// too.
func TestTwoAgents(t *testing.T) {
	var opened []string
	greeter := agent.MustDefine[Door, string]("greeter", agent.Config[Door]{Instructions: agent.Text[Door]("Greet.")})
	h := agenttest.Bind(t, doors(&opened).Bind(modeltest.Script(modeltest.Text("Open."))), greeter.Bind(modeltest.Script(modeltest.Text("Hello."))))
	first := h.Run(Door{"north"}, agenttest.To("greeter"))
	var said string
	if first.Completed(&said); said != "Hello." {
		t.Errorf("the greeter said %q", said)
	}
	second := h.Run(Door{"north"}, agenttest.To(doors(&opened).Name()), agenttest.In(first.Conversation()))
	if second.Completed(&said); said != "Open." || second.Conversation() != first.Conversation() {
		t.Errorf("%q in %s behind %s", said, second.Conversation(), first.Conversation())
	}
	h.Verify()
}

func TestDenyAbortAndQueue(t *testing.T) {
	var opened []string
	h := agenttest.New(t, doors(&opened), north, modeltest.Text("Not allowed."), north, modeltest.Text("Never said."))
	denied := h.Run(Door{Door: "north"}, agenttest.In("a"))
	denied.Deny("open_door", "at night")
	denied.Completed(nil)
	if !strings.Contains(denied.Transcript(), "open_door failed") || !strings.Contains(denied.Transcript(), "at night") {
		t.Error(denied.Transcript())
	}
	aborted := h.Run(Door{Door: "north"}, agenttest.In("a"))
	queued := h.Submit(Door{Door: "south"}, agenttest.In("a"))
	aborted.Abort("enough")
	aborted.Aborted()
	if p := queued.Progress(); p.Status != "completed" || len(opened) != 0 || len(h.Model().Requests()) != 4 {
		t.Errorf("%+v, opened %v, %d requests", p, opened, len(h.Model().Requests()))
	}
	h.Verify()
	if again := h.Run(Door{Door: "x"}, agenttest.In("b"), agenttest.Key("same")); again.ID() != h.Submit(Door{Door: "x"}, agenttest.In("b"), agenttest.Key("same")).ID() {
		t.Error("the same key gave two submissions")
	}
}

// An uncertain tool whose end a crash hid waits for an operator.
func TestUnknownIsResolved(t *testing.T) {
	for _, resolution := range []record.Resolution{record.Happened, record.NotHappened, record.SafeToRetry} {
		var h *agenttest.Host
		ran := 0
		pay := tool.New("pay", "Pays.", func(context.Context, Door) (Opened, error) {
			if ran++; ran == 1 {
				h.Kill(1, false) // what it did is never recorded
			}
			return Opened{Opened: "north"}, nil
		})
		d := agent.MustDefine[Door, string]("payer", agent.Config[Door]{Instructions: agent.Text[Door]("Pay."), Tools: []*tool.Tool{pay}})
		h = agenttest.Bind(t, d.Bind(modeltest.Turns(modeltest.Calls(modeltest.Call{Tool: "pay", Args: Door{"north"}}), modeltest.Text("Paid."))))
		run := h.Run(Door{"north"})
		if !h.Killed() {
			t.Fatal("not killed")
		}
		h.Restart()
		h.Advance(time.Hour) // the dead invocation is certainly over
		run.Parked("unknown")
		run.Resolve("pay", resolution, Opened{Opened: "found in the books"})
		run.Completed(nil)
		h.Verify()
		if want := map[record.Resolution]int{record.Happened: 1, record.NotHappened: 2, record.SafeToRetry: 2}[resolution]; ran != want {
			t.Errorf("%s: %d runs of the handler, want %d", resolution, ran, want)
		}
		if resolution == record.Happened != strings.Contains(run.Transcript(), "found in the books") {
			t.Errorf("%s: %s", resolution, run.Transcript())
		}
	}
}

// In a synctest bubble not even the pauses inside an attempt take time.
func TestPausesInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened []string
		down := modeltest.Fail(&model.Error{Class: model.RateLimited, Message: "slow down", RetryAfter: 9 * time.Second})
		h := agenttest.New(t, doors(&opened), down, down, down, modeltest.Text("Done."))
		began := h.Now()
		run := h.Run(Door{"x"})
		run.Parked("backoff")
		if waited := h.Now().Sub(began); waited < 18*time.Second {
			t.Errorf("two pauses of 9 s were %s", waited)
		}
		h.Advance(time.Hour)
		run.Completed(nil)
	})
}

// asker asks a provider's address as an adapter would.
type asker struct {
	client *http.Client
	url    string
	body   string
}

func (a asker) ask(key string) (string, error) {
	req, err := http.NewRequest(http.MethodPost, a.url+"/v1/ask?key="+key, strings.NewReader(a.body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := a.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// failure: A36
func TestProviderRecordsAndReplays(t *testing.T) {
	const canary = "sk-canary-0815"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; "+canary)
		w.Header().Set("Set-Cookie", canary)
		w.Header().Set("Request-Id", canary)
		w.Header().Set("Retry-After", "2 "+canary)
		_, _ = w.Write([]byte("data: you are " + r.Header.Get("Authorization") + "\n\n"))
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "testdata", "talk.json")
	t.Setenv(agenttest.RecordVariable, "1")
	if got := during(func(f *fake) { agenttest.Provider(f, path, "TEST_PROVIDER_KEY") }); !strings.Contains(got, "set TEST_PROVIDER_KEY") {
		t.Error(got)
	}
	t.Setenv("TEST_PROVIDER_KEY", canary)
	problems := during(func(f *fake) {
		client, key := agenttest.Provider(f, path, "TEST_PROVIDER_KEY")
		got, err := asker{client, server.URL, `{"a":1,"key":"` + canary + `"}`}.ask(key)
		if key != canary || err != nil || got != "data: you are Bearer "+canary+"\n\n" {
			f.Errorf("%s, %q, %v", key, got, err)
		}
	})
	file, err := os.ReadFile(path)
	if problems != "" || err != nil || strings.Contains(string(file), canary) || !strings.Contains(string(file), "you are Bearer [redacted]") {
		t.Fatalf("%s\n%s, %v", problems, file, err)
	}
	var kept modeltest.Recording
	if err := json.Unmarshal(file, &kept); err != nil || len(kept.Exchanges[0].Header) != 1 || kept.Exchanges[0].Path != "/v1/ask" {
		t.Errorf("%v, %+v", err, kept)
	}
	if err := os.Unsetenv(agenttest.RecordVariable); err != nil {
		t.Fatal(err)
	}
	replay := func(bodies ...string) string {
		return during(func(f *fake) {
			client, key := agenttest.Provider(f, path, "TEST_PROVIDER_KEY")
			for _, body := range bodies {
				if got, err := (asker{client, "http://nowhere.invalid", body}).ask(key); err == nil && got != "data: you are Bearer [redacted]\n\n" && !strings.Contains(got, "no more answers") {
					f.Errorf("%q", got)
				}
			}
		})
	}
	const same = ` {"key": "[redacted]", "a": 1}`
	for _, tc := range []struct {
		bodies []string
		says   string
	}{
		{[]string{same}, ""}, {nil, "1 of the 1 exchanges"}, {[]string{`{"a":2}`}, "request 1 is not the one in"}, {[]string{same, same}, "a request behind the last one"},
	} {
		if got := replay(tc.bodies...); got != tc.says && (tc.says == "" || !strings.Contains(got, tc.says)) {
			t.Errorf("%q: %s, want %s", tc.bodies, got, tc.says)
		}
	}
	if got := during(func(f *fake) { agenttest.Provider(f, path+"x", "TEST_PROVIDER_KEY") }); !strings.Contains(got, "LAYOVER_RECORD=1") {
		t.Error(got)
	}
}
