package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/agent/agenttest"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

type photo struct {
	Question string `json:"question"`
	Image    []byte `json:"image"`
}

func viewer(t *testing.T, prompt func(context.Context, photo) (agent.Prompt, error)) *agent.Definition {
	t.Helper()
	d, err := agent.Define[photo, string]("viewer", agent.Config[photo]{
		Instructions: agent.Text[photo]("Answer."), Prompt: prompt, Tools: []*tool.Tool{getWeather},
		Examples: []photo{{Question: "What is this?", Image: []byte("x")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func withImage(_ context.Context, in photo) (agent.Prompt, error) {
	return agent.Prompt{Text: in.Question, Media: []agent.Media{{MediaType: "image/png", Name: "photo", Bytes: in.Image}, {MediaType: "image/png", Bytes: in.Image}}}, nil
}

// The prompt's media reach the model in every request, and none of their bytes
// the log; the digest of the request pins them.
func TestPromptShowsMedia(t *testing.T) {
	image := []byte("\x89PNG image bytes that are nowhere else")
	look := modeltest.Check(func(req *model.Request) error {
		parts := req.Messages[1].Parts
		m, ok := parts[1].(record.MediaPart)
		if len(parts) != 3 || parts[0].(record.TextPart).Text.Text() != "What is this?" || !ok || m.MediaType != "image/png" || m.Name != "photo" {
			return errors.New("the message is not what the prompt made")
		}
		if string(req.Media[m.Content.SHA256]) != string(image) || m.Content.Size != len(image) || len(req.Media) != 1 {
			return errors.New("the bytes are not there")
		}
		return nil
	})
	digests := map[string]string{}
	for _, bytes := range []string{string(image), "other bytes"} {
		var steps []modeltest.Step
		if bytes == string(image) {
			steps = []modeltest.Step{look, modeltest.Calls(modeltest.Call{Tool: "get_weather", Args: `{"city":"Oslo"}`}), look, modeltest.Text("A door.")}
		} else {
			steps = []modeltest.Step{modeltest.Text("A wall.")}
		}
		h := agenttest.New(t, viewer(t, withImage), steps...)
		run := h.Run(photo{Question: "What is this?", Image: []byte(bytes)})
		run.Completed(nil)
		h.Verify()
		for _, r := range run.Records() {
			if response, ok := r.(record.ResponseRecorded); ok && response.Turn == 1 {
				digests[bytes] = response.Request
			}
		}
	}
	if a, b := digests[string(image)], digests["other bytes"]; a == "" || a == b {
		t.Errorf("the requests' digests are %q and %q", a, b)
	}
}

func TestPromptThatFails(t *testing.T) {
	secret := errors.New("the secret cause")
	for name, tc := range map[string]struct {
		prompt func(context.Context, photo) (agent.Prompt, error)
		kind   string
	}{
		"error": {func(context.Context, photo) (agent.Prompt, error) { return agent.Prompt{}, secret }, "InstructionsError"},
		"too large": {func(context.Context, photo) (agent.Prompt, error) {
			return agent.Prompt{Text: "x", Media: []agent.Media{{MediaType: "image/png", Bytes: make([]byte, engine.MaxMedia+1)}}}, nil
		}, "InstructionsError"},
		"panic": {func(context.Context, photo) (agent.Prompt, error) { panic("the secret cause") }, "Defect"},
	} {
		t.Run(name, func(t *testing.T) {
			h := agenttest.New(t, viewer(t, tc.prompt))
			run := h.Run(photo{Question: "?", Image: []byte("x")})
			run.Failed(tc.kind)
			o := run.Progress().Outcome.Error
			if strings.Contains(o.Message+o.Hint, "secret") || name == "panic" && !strings.Contains(o.Message, "Config.Prompt") {
				t.Errorf("%+v", o)
			}
			heard := slices.ContainsFunc(h.UserErrors(), func(e engine.UserError) bool { return e.Where == "Config.Prompt" })
			if !heard { // a panic too: only the author may know its text
				t.Errorf("heard %v", h.UserErrors())
			}
			if n := len(h.Model().Requests()); n != 0 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
