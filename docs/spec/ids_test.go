package spec_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

var (
	rowID     = regexp.MustCompile(`^\| ([A-Z]{2,}-\d+[a-z]?) \|`) // D-01: a decision, not a row
	failureID = regexp.MustCompile(`^### (A\d\d) `)
	naming    = regexp.MustCompile(`//\s*(conformance|failure):\s*([^\n]*)`)
	anID      = regexp.MustCompile(`^([A-Z]+-\d+[a-z]?|A\d\d)$`)
)

// TestNamedRowsExist holds the tests to the catalogue: an id above a test is a
// row of conformance.md or a failure of failures.md, so that a reader can look
// it up, and the words beside it are assemblies.
func TestNamedRowsExist(t *testing.T) {
	rows := ids(t, "conformance.md", rowID)
	failures := ids(t, "failures.md", failureID)
	if len(rows) != 391 || len(failures) != 38 {
		t.Fatalf("the catalogue has %d rows and %d failures, want 391 and 38: a row was lost or its form changed", len(rows), len(failures))
	}
	named := map[string]bool{}
	for file, text := range sources(t) {
		for _, m := range naming.FindAllStringSubmatch(text, -1) {
			known := rows
			if m[1] == "failure" {
				known = failures
			}
			for _, word := range strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' }) {
				switch {
				case word == "@embedded" || word == "@serverless":
				case !anID.MatchString(word):
					t.Errorf("%s: %q is neither an id nor an assembly, in %q", file, word, m[0])
				case !known[word]:
					t.Errorf("%s: %s is in no list, in %q", file, word, m[0])
				default:
					named[word] = true
				}
			}
		}
	}
	if len(named) == 0 {
		t.Error("no test names a row")
	}
	t.Logf("%d ids are named by a test", len(slices.Collect(maps.Keys(named))))
}

func ids(t *testing.T, file string, form *regexp.Regexp) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if m := form.FindStringSubmatch(line); m != nil {
			if found[m[1]] {
				t.Errorf("%s: %s stands there twice", file, m[1])
			}
			found[m[1]] = true
		}
	}
	return found
}

// sources is every Go file that may name rows: tests, and the packages that
// certify adapters.
func sources(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "node_modules" || path != root && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") && !(strings.HasSuffix(path, ".go") && strings.HasSuffix(filepath.Dir(path), "test")) {
			return nil
		}
		text, err := os.ReadFile(path)
		found[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
