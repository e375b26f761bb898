package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/agent/agenttest"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/record"
	"github.com/layover-run/layover/core/tool"
)

// streams are the conversations to replay: those of testdata, and the recorded
// ones where their folder is there.
func streams(t *testing.T) []modeltest.Recording {
	t.Helper()
	own, err := modeltest.LoadRecordings("testdata")
	if err != nil {
		t.Fatal(err)
	}
	dir := os.Getenv("LAYOVER_STREAMS")
	if dir == "" {
		dir = "../../../../shared/streams"
	}
	recorded, err := modeltest.LoadRecordings(filepath.Join(dir, "anthropic-messages"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Run("recordings", func(t *testing.T) {
			t.Skipf("no recorded streams at %s: set LAYOVER_STREAMS to their folder; the ones in testdata are played", dir)
		})
	} else if err != nil {
		t.Fatal(err)
	}
	return append(own, recorded...)
}

func newModel(t *testing.T, c anthropic.Config) *anthropic.Model {
	t.Helper()
	if c.APIKey == "" {
		c.APIKey = "key-for-tests"
	}
	if c.Model == "" {
		c.Model = "claude-test-1"
	}
	m, err := anthropic.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Parameters of the tools that the recorded conversations use.
type (
	place struct {
		Location string `json:"location"`
	}
	action struct {
		Action string `json:"action"`
	}
	author struct {
		Name        string `json:"name"`
		Nationality string `json:"nationality"`
	}
	book struct {
		Title         string   `json:"title"`
		Author        author   `json:"author"`
		Genres        []string `json:"genres"`
		PublishedYear int      `json:"published_year"`
	}
)

// webSearch is a tool that the provider executes.
var webSearch = model.ProviderTool{Name: "web_search", Config: json.RawMessage(`{"type":"web_search_20250305","name":"web_search","max_uses":2}`)}

// reader is an agent with every tool of the recordings. It counts its handlers.
func reader(t *testing.T, instructions string, ran *[]string) *agent.Definition {
	t.Helper()
	d, err := agent.Define[string, string]("reader", agent.Config[string]{
		Instructions:  agent.Text[string](instructions),
		Examples:      []string{"What's the weather?"},
		ProviderTools: []model.ProviderTool{webSearch},
		Tools: []*tool.Tool{
			tool.New("weather", "Get weather information for a location", func(_ context.Context, in place) (string, error) {
				*ran = append(*ran, "weather "+in.Location)
				return "40 C", nil
			}, tool.Readonly(), tool.Sequential()),
			tool.New("clock", "Tells the time.", func(context.Context, struct{}) (string, error) {
				*ran = append(*ran, "clock")
				return "noon", nil
			}, tool.Readonly(), tool.Sequential()),
			tool.New("computer", "Uses the computer.", func(_ context.Context, in action) (string, error) {
				*ran = append(*ran, "computer "+in.Action)
				return "done", nil
			}, tool.Readonly(), tool.Sequential()),
			tool.New("Book", "A book with title, author, genres, and publication year", func(_ context.Context, in book) (string, error) {
				*ran = append(*ran, "Book "+in.Title)
				return "noted", nil
			}, tool.Readonly(), tool.Sequential()),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// asked is the request of an exchange as JSON to compare: the conversation
// without its cache marks.
func asked(t *testing.T, body []byte) []any {
	t.Helper()
	var req struct {
		Messages []any `json:"messages"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		t.Fatalf("request %s: %v", body, err)
	}
	for _, m := range req.Messages {
		for _, b := range m.(map[string]any)["content"].([]any) {
			delete(b.(map[string]any), "cache_control")
		}
	}
	return req.Messages
}

// firstWords is what the user and the system say in a recorded request.
func firstWords(t *testing.T, e modeltest.Exchange) (system, user string) {
	t.Helper()
	if e.Request == "" {
		return "You are a helpful assistant", "What's the weather?"
	}
	var req struct {
		System   []struct{ Text string }
		Messages []struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal([]byte(e.Request), &req); err != nil {
		t.Fatal(err)
	}
	for _, block := range req.System {
		system += block.Text
	}
	return system, req.Messages[0].Content[0].Text
}

// firstImage is the image in a recorded request, if there is one.
func firstImage(t *testing.T, e modeltest.Exchange) []byte {
	t.Helper()
	var req struct {
		Messages []struct {
			Content []struct{ Source struct{ Data []byte } }
		}
	}
	if e.Request != "" {
		if err := json.Unmarshal([]byte(e.Request), &req); err != nil {
			t.Fatal(err)
		}
		for _, block := range req.Messages[0].Content {
			if len(block.Source.Data) > 0 {
				return block.Source.Data
			}
		}
	}
	return nil
}

// viewer is an agent that shows the model an image with the question.
func viewer(t *testing.T, instructions string, image []byte) *agent.Definition {
	t.Helper()
	d, err := agent.Define[string, string]("viewer", agent.Config[string]{
		Instructions: agent.Text[string](instructions),
		Examples:     []string{"What is this?"},
		Prompt: func(_ context.Context, in string) (agent.Prompt, error) {
			return agent.Prompt{Text: in, Media: []agent.Media{{MediaType: "image/png", Bytes: image}}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// closing ends a conversation whose recording stops at a tool call.
var closing = modeltest.Stream(stream(start, textBlock(0, "Noted."), finish("end_turn")))

// Every recorded conversation runs to its end through the whole product, over a
// real connection, and each request after a tool call says what the recorded one
// said, reasoning and its signature included.
//
// conformance: RUN-012, TURN-15
// failure: A30
func TestRecordingsRunToTheirEnd(t *testing.T) {
	for _, rec := range streams(t) {
		t.Run(rec.Name, func(t *testing.T) {
			exchanges := rec.Exchanges
			last := exchanges[len(exchanges)-1]
			if strings.Contains(last.Response, `"stop_reason":"tool_use"`) {
				exchanges = append(exchanges[:len(exchanges):len(exchanges)], closing)
			}
			replay := modeltest.NewReplay(exchanges...)
			server := httptest.NewServer(replay)
			defer server.Close()
			system, user := firstWords(t, exchanges[0])
			var ran []string
			m := newModel(t, anthropic.Config{BaseURL: server.URL, Thinking: anthropic.Thinking{Budget: 4000}})
			definition := reader(t, system, &ran)
			if image := firstImage(t, exchanges[0]); image != nil {
				definition = viewer(t, system, image)
			}
			run := agenttest.Bind(t, definition.Bind(m)).Run(user)
			var answer string
			run.Completed(&answer)
			if replay.Left() != 0 || answer == "" {
				t.Errorf("%d exchanges left, answer %q", replay.Left(), answer)
			}
			for i, e := range exchanges {
				if e.Request == "" || strings.Contains(rec.Name, "ComputerUse") && i > 0 { // whose tool answers with an image
					continue
				}
				if diff := cmp.Diff(asked(t, []byte(e.Request)), asked(t, replay.Requests()[i])); diff != "" {
					t.Errorf("request %d is not the recorded one (-recorded +sent):\n%s", i+1, diff)
				}
			}
			t.Logf("%d handlers, answer %.60q", len(ran), answer)
		})
	}
}

// ask reduces one answer without a network.
func ask(t *testing.T, c anthropic.Config, e modeltest.Exchange) (model.Response, error) {
	t.Helper()
	replay := modeltest.NewReplay(e)
	c.HTTPClient = replay.Client()
	resp, err := modeltest.Ask(t.Context(), newModel(t, c), hello)
	if replay.Open() != 0 {
		t.Error("the answer's body was not closed")
	}
	return resp, err
}

// read reduces the body of an answer.
func read(m *anthropic.Model, body string) (model.Response, error) {
	r := model.NewReducer(model.Limits{})
	if err := m.Read(strings.NewReader(body), r.Add); err != nil {
		return model.Response{}, err
	}
	return r.Response()
}

var hello = &model.Request{Messages: []record.Message{record.TextMessage(record.User, "Hello.")}}

// Every recorded answer, cut behind each of its bytes, is no answer; in pieces
// of any sizes it is the same one.
//
// conformance: RUN-004, RSP-12
// failure: A10
func TestRecordingsCutAnywhere(t *testing.T) {
	cuts := 0
	m := newModel(t, anthropic.Config{})
	for _, rec := range streams(t) {
		for n, e := range rec.Exchanges {
			name := fmt.Sprintf("%s, exchange %d", rec.Name, n+1)
			whole, wholeErr := ask(t, anthropic.Config{}, e)
			if wholeErr != nil && !strings.Contains(e.Response, "event: error") {
				t.Fatalf("%s: %v", name, wholeErr)
			}
			// The answer is whole once the empty line behind message_stop is in.
			complete := strings.LastIndex(e.Response, "message_stop")
			if complete >= 0 {
				complete += strings.Index(e.Response[complete:], "\n\n") + 2
			} else {
				complete = len(e.Response) + 1
			}
			for cut := 0; cut < len(e.Response); cut += stride {
				cuts++
				// A connection for every cut takes a minute and shows nothing new, so
				// most of them begin behind it.
				got, err := read(m, e.Response[:cut])
				if cut%(97*stride) == 0 || cut > complete-100 {
					got, err = ask(t, anthropic.Config{}, e.Cut(cut))
				}
				switch {
				case cut < complete && err == nil:
					t.Fatalf("%s cut at %d of %d became %+v", name, cut, len(e.Response), got)
				case cut < complete && len(got.Message.Parts) > 0:
					t.Fatalf("%s cut at %d left %+v", name, cut, got)
				case cut >= complete && !cmp.Equal(got, whole):
					t.Fatalf("%s cut at %d, behind its end: %+v, %v", name, cut, got, err)
				case err != nil && model.ClassOf(err) != model.Transient:
					t.Fatalf("%s cut at %d: %v, want a transient error", name, cut, err)
				}
			}
			for seed := range uint64(20) {
				got, err := ask(t, anthropic.Config{}, e.Rechunk(seed))
				if fmt.Sprint(err) != fmt.Sprint(wholeErr) || !cmp.Equal(got, whole) {
					t.Fatalf("%s in pieces of seed %d: %+v, %v", name, seed, got, err)
				}
			}
		}
	}
	t.Logf("%d cuts", cuts)
}

// A stream that breaks, wherever it does, has no consequences for the run: no
// handler, no record of the response, and the model is asked again.
//
// failure: A09, A10
func TestCutStreamHasNoConsequences(t *testing.T) {
	whole := modeltest.Stream(stream(start, toolBlock(0, "toolu_1", "weather", `{"location":"Oslo"}`), finish("tool_use")))
	overload := "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	broken := map[string]modeltest.Exchange{
		"silence":             modeltest.Stream(whole.Response[:200]).Silent(),
		"overload at once":    modeltest.Stream(overload),
		"overload after text": modeltest.Stream(stream(start, textBlock(0, "It is")) + overload),
		"overload after call": modeltest.Stream(stream(start, toolBlock(0, "toolu_1", "weather", `{"location":"Oslo"}`)) + overload),
	}
	for cut := 0; cut < len(whole.Response)-1; cut += 37 {
		broken[fmt.Sprint("cut at ", cut)] = whole.Cut(cut)
	}
	for name, e := range broken {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replay := modeltest.NewReplay(e, whole, modeltest.Stream(stream(start, textBlock(0, "Warm."), finish("end_turn"))))
				var ran []string
				run := agenttest.Bind(t, reader(t, "Help.", &ran).Bind(newModel(t, anthropic.Config{HTTPClient: replay.Client()}))).Run("Oslo?")
				run.Completed(nil)
				responses := 0
				for _, r := range run.Records() {
					if _, ok := r.(record.ResponseRecorded); ok {
						responses++
					}
				}
				if len(ran) != 1 || responses != 2 || replay.Left() != 0 || replay.Open() != 0 {
					t.Errorf("%d handlers, %d responses recorded, %d exchanges left, %d bodies open", len(ran), responses, replay.Left(), replay.Open())
				}
				a, b := replay.Requests()[0], replay.Requests()[1]
				if string(a) != string(b) {
					t.Errorf("the request changed:\n%s\n%s", a, b)
				}
			})
		})
	}
}
