package agent_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/event"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/tool"
)

// looker is an agent whose one tool takes a second and counts itself.
func looker(looked *atomic.Int64) *agent.Definition {
	look := tool.New("look", "Looks.", func(ctx context.Context, _ Question) (Weather, error) {
		select {
		case <-time.After(time.Second):
			looked.Add(1)
			return Weather{Celsius: 3}, nil
		case <-ctx.Done():
			return Weather{}, ctx.Err()
		}
	}, tool.Readonly())
	return agent.MustDefine[Question, string]("looker", agent.Config[Question]{Instructions: agent.Text[Question]("Look."), Tools: []*tool.Tool{look}})
}

func looking(more ...modeltest.Step) *modeltest.Model {
	return modeltest.Script(append([]modeltest.Step{
		modeltest.Calls(modeltest.Call{Tool: "look", Args: Question{City: "Oslo"}}), modeltest.Text("cold")}, more...)...)
}

// A consumer that leaves ends its run, unless it is detached.
func TestDetachedGoesOn(t *testing.T) {
	for _, detached := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var looked atomic.Int64
			m := looking()
			opts := []agent.Option{agent.Log(quiet)}
			if detached {
				opts = append(opts, agent.Detached())
			}
			for e, err := range agent.Stream(t.Context(), looker(&looked).Bind(m), Question{City: "Oslo"}, opts...) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Data.Kind() == event.KindToolCallStarted {
					break
				}
			}
			time.Sleep(time.Minute)
			if done := looked.Load() == 1 && len(m.Requests()) == 2; done != detached {
				t.Errorf("detached %v: looked %d times, %d requests", detached, looked.Load(), len(m.Requests()))
			}
		})
	}
}

// A full buffer holds the run; the default has room for more than this run says.
func TestBufferHoldsTheRun(t *testing.T) {
	for _, buffer := range []int{1, 64} {
		synctest.Test(t, func(t *testing.T) {
			var looked atomic.Int64
			for e, err := range agent.Stream(t.Context(), looker(&looked).Bind(looking()), Question{City: "Oslo"}, agent.Log(quiet), agent.Buffer(buffer)) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Data.Kind() != event.KindRunStarted {
					continue
				}
				time.Sleep(time.Minute)
				if ran := looked.Load() == 1; ran != (buffer == 64) {
					t.Errorf("with a buffer of %d it looked %d times", buffer, looked.Load())
				}
			}
			if looked.Load() != 1 {
				t.Errorf("read to the end, it looked %d times", looked.Load())
			}
		})
	}
}

// Limits and an authorizer reach the run.
func TestOptionsReachTheRun(t *testing.T) {
	deny := func(context.Context, engine.AuthorizeRequest) (engine.Authorization, error) {
		return engine.Authorization{}, nil
	}
	for name, row := range map[string]struct {
		option agent.Option
		kind   string
	}{
		"limits":    {agent.Limits(agent.BufferLimits{RunEvents: 3}), core.ModelProtocolError},
		"authorize": {agent.Authorize(deny), core.AuthorizationDenied},
	} {
		synctest.Test(t, func(t *testing.T) {
			var looked atomic.Int64
			_, err := agent.Run[string](t.Context(), looker(&looked).Bind(looking()), Question{City: "Oslo"}, agent.Log(quiet), row.option)
			var failed *agent.RunError
			if !errors.As(err, &failed) || failed.Kind != row.kind || looked.Load() != 0 {
				t.Errorf("%s: %v, looked %d times", name, err, looked.Load())
			}
		})
	}
}

// Another input joins a started run where it would end.
func TestHandleTakesAFollowUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looked atomic.Int64
		m := looking(modeltest.Text("warm"))
		h, err := agent.Start[string](t.Context(), looker(&looked).Bind(m), Question{City: "Oslo"}, agent.Log(quiet), agent.InConversation("c"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := h.FollowUp(t.Context(), Question{City: "Rome"}); err != nil {
			t.Fatal(err)
		}
		result, err := h.Await(t.Context())
		if err != nil || result.Output != "warm" || len(m.Requests()) != 3 || h.Conversation() != "c" {
			t.Errorf("%+v, %v, %d requests in %s", result, err, len(m.Requests()), h.Conversation())
		}
	})
}
