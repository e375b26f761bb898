package snippets_test

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/model/modeltest"
	"github.com/layover-run/layover/core/tool"
)

const root = "../.."

// The Go code of a page is somewhere in the tree as it stands there,
// indentation aside, where it compiles and runs.
func TestPagesShowCompiledCode(t *testing.T) {
	var code strings.Builder
	for _, dir := range []string{".", root + "/core", root + "/examples"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.WriteString(flush(string(text)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	blocks := 0
	for _, page := range pages(t) {
		for _, block := range fenced(t, page, "go") {
			blocks++
			if !strings.Contains(code.String(), "\n"+flush(block)) {
				t.Errorf("%s: this code is in no Go file:\n%s", page, block)
			}
		}
	}
	if blocks < 8 {
		t.Errorf("only %d blocks of code were found", blocks)
	}
}

// Every page says when to read it, and its links to files of the tree lead
// somewhere.
func TestPagesSayWhenToReadThem(t *testing.T) {
	for _, page := range pages(t) {
		text := read(t, page)
		if filepath.Base(page) != "README.md" && !strings.Contains(text, "\n\nWhen to read this: ") {
			t.Errorf("%s does not say when to read it", page)
		}
		for i, part := range strings.Split(text, "](") {
			link, _, ok := strings.Cut(part, ")")
			if i == 0 || !ok || strings.Contains(link, "://") || strings.HasPrefix(link, "#") || strings.ContainsAny(link, " \n") {
				continue
			}
			link, _, _ = strings.Cut(link, "#")
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), link)); err != nil {
				t.Errorf("%s links to %s: %v", page, link, err)
			}
		}
	}
}

// A command shown on a page exists, with the flags it is shown with.
func TestPagesShowCommandsThatExist(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "layover")
	if out, err := exec.Command("go", "build", "-o", binary, root+"/cmd/layover").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	help := map[string]string{}
	shown := 0
	for _, page := range pages(t) {
		for _, block := range fenced(t, page, "console") {
			for line := range strings.Lines(block) {
				args, ok := strings.CutPrefix(strings.TrimSpace(line), "$ layover ")
				if !ok {
					continue
				}
				shown++
				words := strings.Fields(args)
				name := words[0]
				if help[name] == "" {
					out, err := exec.Command(binary, name, "--help").CombinedOutput()
					if err != nil || !strings.Contains(string(out), "layover "+name) {
						t.Errorf("%s: layover %s: %v\n%s", page, name, err, out)
						continue
					}
					help[name] = string(out)
				}
				for _, w := range words[1:] {
					flag, _, _ := strings.Cut(w, "=")
					if strings.HasPrefix(flag, "--") && !strings.Contains(help[name], flag) {
						t.Errorf("%s: layover %s has no flag %s", page, name, flag)
					}
				}
			}
		}
	}
	if shown < 5 {
		t.Errorf("only %d commands were found", shown)
	}
}

// The tools of the pages are fit for an agent, and the embedding page's
// program does what it says.
func TestToolsOfThePages(t *testing.T) {
	for _, one := range []*tool.Tool{Charge, Refund, Ship, Delete} {
		if err := one.Err(); err != nil {
			t.Error(err)
		}
	}
}

func TestRefundApprovedInProcess(t *testing.T) {
	refunds := agent.MustDefine[Payment, string]("refunds", agent.Config[Payment]{
		Instructions: agent.Text[Payment]("Refund the order."), Tools: []*tool.Tool{Refund}})
	script := modeltest.Script(
		modeltest.Calls(modeltest.Call{Tool: "refund", Args: `{"order":"A-1","cents":4900}`}),
		modeltest.Text("Refunded."))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer, err := refundOne(ctx, t.TempDir(), refunds.Bind(script))
	if err != nil || answer != `"Refunded."` {
		t.Errorf("%s, %v", answer, err)
	}
	if len(payments) != 1 {
		t.Errorf("paid %d times", len(payments))
	}
}

// refundOne is the program of docs/embedding.md.
func refundOne(ctx context.Context, dir string, refunds *agent.Binding) (answer string, err error) {
	rt, err := embedded.Open(dir, embedded.Config{Bindings: []*agent.Binding{refunds}})
	if err != nil {
		return "", err
	}
	defer func() { _ = rt.Close(ctx) }()

	receipt, err := rt.Submit(ctx, engine.SubmitRequest{
		Agent:        "refunds",
		Conversation: "order-A-1",
		Key:          "ticket-17",
		Input:        []byte(`{"order":"A-1","cents":4900}`),
	})
	if err != nil {
		return "", err
	}
	if _, err := rt.Await(ctx, "", receipt.Submission, engine.UntilParked); err != nil {
		return "", err
	}
	if err := approveAll(ctx, rt); err != nil {
		return "", err
	}
	progress, err := rt.Await(ctx, "", receipt.Submission, engine.UntilSettled)
	return string(progress.Output), err
}

func approveAll(ctx context.Context, rt *embedded.Runtime) error {
	open, err := rt.Approvals(ctx, "")
	if err != nil {
		return err
	}
	for _, a := range open {
		if _, err := rt.Decide(ctx, engine.DecisionRequest{
			Approval:   a.ID,
			Approve:    true,
			ArgsDigest: a.ArgsDigest, // exactly what was looked at
			Principal:  "operator@example.org",
			Reason:     "checked the order",
		}); err != nil {
			return err
		}
	}
	return nil
}

func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(found) < 5 {
		t.Fatalf("%d pages, %v", len(found), err)
	}
	return append(found, root+"/README.md")
}

// fenced is the content of every block of a language.
func fenced(t *testing.T, page, language string) []string {
	t.Helper()
	parts := strings.Split(read(t, page), "\n```"+language+"\n")
	blocks := make([]string, 0, len(parts))
	for _, p := range parts[1:] {
		block, _, ok := strings.Cut(p, "```")
		if !ok {
			t.Errorf("%s: a block without an end", page)
		}
		blocks = append(blocks, block)
	}
	return blocks
}

// flush takes the indentation away.
func flush(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimSpace(line))
		b.WriteByte('\n')
	}
	return b.String()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
