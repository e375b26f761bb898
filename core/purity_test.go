package core_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pure lists the packages that must stay free of effects, and which packages
// of this module each may import.
var pure = map[string][]string{
	".":      {"core/record"},
	"record": {},
	"event":  {"core/record"},
	"model":  {"core/record"},
}

const module = "github.com/layover-run/layover/"

// allowedStd is what pure code may use of the standard library: values and
// algorithms, nothing that waits, draws, reads or writes. context appears in
// the model port's signature only.
var allowedStd = map[string]bool{
	"bytes": true, "cmp": true, "crypto/sha256": true, "encoding/base64": true, "encoding/hex": true, "encoding/json": true,
	"errors": true, "fmt": true, "hash/fnv": true, "iter": true, "maps": true, "math": true, "math/big": true, "slices": true,
	"sort": true, "strconv": true, "strings": true, "time": true, "unicode": true, "unicode/utf16": true, "unicode/utf8": true,
}

// forbidden names what even an allowed package must not be used for.
var forbidden = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "LoadLocation"},
	"fmt":  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"maps": {"Keys", "Values", "All"},
}

// conformance: TURN-21
//
// The pure packages import the standard library and record only, and use no
// clock, goroutine, channel, randomness, I/O or map order.
func TestPurity(t *testing.T) {
	exports := exportData(t)
	for dir, local := range pure {
		for _, problem := range impurities(t, sources(t, dir), local, exports) {
			t.Error(problem)
		}
	}
}

// The check itself goes red for each thing it forbids.
func TestPurityCheckSees(t *testing.T) {
	exports := exportData(t)
	for what, source := range map[string]string{
		"clock":                `import "time"; var _ = time.Now()`,
		"clock alias":          `import tm "time"; var _ = tm.Now()`,
		"clock as a value":     `import "time"; var now = time.Now`,
		"goroutine":            `func f() { go f() }`,
		"channel":              `var c chan int`,
		"select":               `func f() { select {} }`,
		"randomness":           `import "math/rand/v2"; var _ = rand.Int()`,
		"I/O":                  `import "os"; var _ = os.Args`,
		"printing":             `import "fmt"; func f() { fmt.Println() }`,
		"writing":              `import "fmt"; func f() { fmt.Printf("") }`,
		"context":              `import "context"; var _ context.Context`,
		"sync":                 `import "sync"; var _ sync.Mutex`,
		"map order":            `var m map[string]int; func f() { for range m {} }`,
		"map order, parameter": `func f(m map[string]int) { for k := range m { _ = k } }`,
		"map order, field":     `type s struct{ m map[string]int }; func f(x s) { for k := range x.m { _ = k } }`,
		"map order, call":      `func g() map[string]int { return nil }; func f() { for k := range g() { _ = k } }`,
		"map order, named":     `type m map[string]int; func f(x m) { for k := range x { _ = k } }`,
		"map order, iterator":  `import "maps"; func f(m map[string]int) { for k := range maps.Keys(m) { _ = k } }`,
		"engine":               `import "` + module + `core/engine"; var _ = engine.Config{}`,
		"third party":          `import "github.com/google/uuid"; var _ = uuid.Nil`,
		"dot import":           `import . "time"; var _ = Now()`,
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.go")
			if err := os.WriteFile(path, []byte("package x; "+source), 0o600); err != nil {
				t.Fatal(err)
			}
			if len(impurities(t, []string{path}, []string{"core/record"}, exports)) == 0 {
				t.Errorf("not seen: %s", source)
			}
		})
	}
}

func sources(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no sources in %s: %v", dir, err)
	}
	return slices.DeleteFunc(all, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
}

// exportData finds the compiled form of every package the pure ones may use,
// so that types are known and not guessed.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}",
		module+"core/...", "maps", "math/rand/v2", "os").Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[path] = file
		}
	}
	return exports
}

// impurities type-checks the files of one package and lists what they must not do.
func impurities(t *testing.T, paths, local []string, exports map[string]string) []string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		file, ok := exports[path]
		if !ok {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(file)
	})}
	if _, err := config.Check("checked", fset, files, info); err != nil {
		t.Fatal(err)
	}
	var problems []string
	report := func(n ast.Node, format string, args ...any) {
		problems = append(problems, fset.Position(n.Pos()).String()+": "+fmt.Sprintf(format, args...))
	}
	for _, file := range files {
		for _, spec := range file.Imports {
			p, _ := strconv.Unquote(spec.Path.Value)
			port := p == "context" && strings.HasPrefix(filepath.ToSlash(fset.Position(file.Pos()).Filename), "model/")
			ours := slices.ContainsFunc(local, func(l string) bool { return p == module+l })
			if !allowedStd[p] && !ours && !port || spec.Name != nil && spec.Name.Name == "." {
				report(spec, "imports %s", p)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				report(n, "starts a goroutine")
			case *ast.ChanType:
				report(n, "uses a channel")
			case *ast.SelectStmt:
				report(n, "selects")
			case *ast.Ident:
				f, ok := info.Uses[n].(*types.Func)
				if ok && f.Pkg() != nil && slices.Contains(forbidden[f.Pkg().Path()], f.Name()) && f.Signature().Recv() == nil {
					report(n, "uses %s.%s", f.Pkg().Path(), f.Name())
				}
			case *ast.RangeStmt:
				if _, ok := info.Types[n.X].Type.Underlying().(*types.Map); ok {
					report(n, "ranges over a map")
				}
			}
			return true
		})
	}
	return problems
}
