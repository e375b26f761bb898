package weather

import (
	"os"
	"strings"
	"testing"

	"github.com/layover-run/layover/core/agent/agenttest"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/demo"
	"github.com/layover-run/layover/core/model/modeltest"
)

func TestOnAScript(t *testing.T) {
	h := agenttest.New(t, Agent(),
		modeltest.Calls(modeltest.Call{Tool: "weather", Args: Question{Location: "Oslo"}}, modeltest.Call{Tool: "weather", Args: Question{Location: "Atlantis"}}),
		modeltest.Text("Oslo is wet, and of Atlantis nobody knows."))
	run := h.Run(Question{Location: "Oslo"})
	run.Completed(nil)
	run.Said(`
		user: {"location":"Oslo"}
		assistant: weather {"location":"Oslo"}
		assistant: weather {"location":"Atlantis"}
		tool: weather {"celsius":3,"location":"Oslo, Norway","sky":"rain"}
		tool: weather failed {"error":{"message":"there is no report for Atlantis","tag":"no-report"}}
		assistant: Oslo is wet, and of Atlantis nobody knows.`)
}

func TestOnTheDemoModel(t *testing.T) {
	var answer string
	agenttest.Bind(t, Agent().Bind(demo.New())).Run(Question{Location: "Florence, Italy"}).Completed(&answer)
	if !strings.Contains(answer, "40") {
		t.Error(answer)
	}
}

// A provider's recorded answers; with a key, LAYOVER_RECORD=1 records them anew.
func TestOnARecording(t *testing.T) {
	client, key := agenttest.Provider(t, "testdata/florence.json", "ANTHROPIC_API_KEY")
	m, err := anthropic.New(anthropic.Config{APIKey: key, Model: anthropic.DefaultModel, BaseURL: os.Getenv("ANTHROPIC_BASE_URL"), HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	var answer string
	run := agenttest.Bind(t, Agent().Bind(m)).Run(Question{Location: "Florence, Italy"})
	run.Completed(&answer)
	if !strings.Contains(answer, "40") || !strings.Contains(run.Transcript(), `tool: weather {"celsius":40`) {
		t.Errorf("%s\n%s", answer, run.Transcript())
	}
}
