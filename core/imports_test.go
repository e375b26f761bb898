package core_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayImport says, for each package, which packages of this module it may
// import. It is the import direction of the design; a package that is missing
// here fails the test until somebody decides where it belongs.
var mayImport = parseImports(`
core/record:
core/failpoint:
core: core/record
core/event: core/record
core/model: core/record
core/journal: core/record
core/queue: core/journal
core/tool: core/model core/record
core/engine: core core/event core/failpoint core/journal core/model core/queue core/record core/tool
core/engine/explore:
core/agent: core core/engine core/event core/journal core/journal/memjournal core/model core/record core/tool
core/client/wire: core/record
core/client: core/client/wire core/record
functions: core core/client/wire core/engine core/event core/journal core/queue core/record docs
core/console: core/client core/client/wire core/engine core/event core/record functions
core/embedded: core/agent core/console core/engine core/event core/journal core/journal/sqlitejournal core/model core/queue core/queue/memqueue core/record functions
core/cli: core/agent core/client core/client/wire core/embedded core/engine core/event core/failpoint core/journal core/model core/model/demo core/record functions
cmd/layover: core/cli examples/models examples/refund examples/triage examples/weather
core/embedded/bench:
core/model/demo: core/model core/record
core/model/modeltest: core/model core/record
core/engine/enginetest: core core/agent core/engine core/failpoint core/journal core/model core/queue core/queue/memqueue core/record core/tool
core/journal/explore:
core/journal/memjournal: core/failpoint core/journal core/record
core/model/sse:
core/model/provider: core/model
core/model/anthropic: core/model core/model/provider core/model/sse core/record
core/agent/agenttest: core core/agent core/engine core/journal core/journal/memjournal core/model core/model/modeltest core/queue/memqueue core/record
core/journal/sqlitejournal: core/failpoint core/journal core/record
core/journal/journaltest: core/journal core/record
core/queue/memqueue: core/queue
ddbjournal: core/failpoint core/journal core/record
ddbjournal/ddbtest: core/journal ddbjournal localstack/peers
docs/snippets:
docs/snippets/agent: core/agent core/cli core/tool
docs:
docs/spec:
functions/sqsqueue: core/queue
functions/cloudtest: core/engine core/queue ddbjournal ddbjournal/ddbtest functions functions/sqsqueue localstack/peers
core/queue/queuetest: core/journal core/queue
examples/refund: core/agent core/tool
examples/triage: core/agent core/tool
localstack/peers:
examples/weather: core/agent core/tool
examples/models: core/agent core/model core/model/anthropic core/model/demo
core/event/jsonl: core/event
`)

func parseImports(table string) map[string][]string {
	rows := map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		pkg, imports, _ := strings.Cut(strings.TrimSpace(line), ":")
		rows[pkg] = strings.Fields(imports)
	}
	return rows
}

// onlyIn bounds where a dependency may appear.
var onlyIn = map[string][]string{
	"modernc.org/sqlite":           {"core/journal/sqlitejournal"},
	"github.com/aws/aws-lambda-go": {"functions", "core/embedded", "core/cli"},
	"github.com/aws/aws-sdk-go-v2": {"ddbjournal", "core/model/bedrock", "functions", "cmd", "infra"},
	"github.com/aws/smithy-go":     {"ddbjournal", "core/model/bedrock", "functions", "cmd", "infra"},
	"github.com/spf13/cobra":       {"core/cli"},
	"github.com/anthropics":        {"core/model/anthropic"},
	"github.com/santhosh-tekuri":   {"core/tool"},
	// The API only: which SDK exports spans is the main's choice.
	"go.opentelemetry.io/otel":     {"core/engine", "core/embedded"},
	"go.opentelemetry.io/otel/sdk": {},
}

// conformance: RUN-012 @embedded @serverless
func TestImportDirection(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "github.com/layover-run/layover/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		allowed, known := mayImport[pkg]
		if !known {
			t.Errorf("%s has no place in the import direction: add it to mayImport", pkg)
		}
		for _, imp := range fields[1:] {
			if local, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(allowed, local) {
				t.Errorf("%s imports %s", pkg, local)
			}
			for dep, places := range onlyIn {
				if strings.HasPrefix(imp, dep) && !slices.ContainsFunc(places, func(p string) bool { return pkg == p || strings.HasPrefix(pkg, p+"/") }) {
					t.Errorf("%s imports %s, which belongs in %v", pkg, imp, places)
				}
			}
		}
	}
}

// conformance: RUN-001b @embedded @serverless
//
// There is one loop: nothing but the engine asks a model, and nothing but the
// engine asks the transitions what to do.
func TestOneLoop(t *testing.T) {
	allowed := map[string][]string{
		".Stream(":   {"core/engine/request.go", "core/model/modeltest/play.go", "core/model/modeltest/suite.go"},
		"core.Next(": {"core/engine/attempter.go"},
	}
	seen := map[string]int{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file := strings.TrimPrefix(filepath.ToSlash(path), "../")
		for line := range strings.Lines(string(source)) {
			for call, files := range allowed {
				if !strings.Contains(line, call) || strings.HasPrefix(strings.TrimSpace(line), "//") {
					continue
				}
				if seen[call]++; !slices.Contains(files, file) {
					t.Errorf("%s: %s", file, strings.TrimSpace(line))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for call := range allowed {
		if seen[call] == 0 {
			t.Errorf("%s was not found at all: the check looks for the wrong thing", call)
		}
	}
}
