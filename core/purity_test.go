package core_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
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
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Local", "LoadLocation"},
	"fmt":  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"maps": {"Keys", "Values", "All"},
}

// conformance: TURN-21
//
// The pure packages import the standard library and record only, and use no
// clock, goroutine, channel, randomness, I/O or map order.
func TestPurity(t *testing.T) {
	for dir, local := range pure {
		for _, path := range sources(t, dir) {
			for _, problem := range impurities(t, path, local) {
				t.Error(problem)
			}
		}
	}
}

// The check itself goes red for each thing it forbids.
func TestPurityCheckSees(t *testing.T) {
	for what, source := range map[string]string{
		"clock":          `import "time"; var _ = time.Now()`,
		"clock alias":    `import tm "time"; var _ = tm.Now()`,
		"clock method":   `import "time"; func f(t time.Time) { _ = time.Since(t) }`,
		"goroutine":      `func f() { go f() }`,
		"channel":        `var c chan int`,
		"select":         `func f() { select {} }`,
		"randomness":     `import "math/rand/v2"; var _ = rand.Int()`,
		"I/O":            `import "os"; var _ = os.Args`,
		"printing":       `import "fmt"; func f() { fmt.Println() }`,
		"context":        `import "context"; var _ context.Context`,
		"sync":           `import "sync"; var _ sync.Mutex`,
		"map order":      `var m map[string]int; func f() { for range m {} }`,
		"map order, arg": `func f(m map[string]int) { for k := range m { _ = k } }`,
		"map field":      `type s struct{ m map[string]int }; func f(x s) { for k := range x.m { _ = k } }`,
		"engine":         `import "` + module + `core/engine"; var _ = engine.Config{}`,
		"third party":    `import "github.com/google/uuid"; var _ = uuid.Nil`,
		"dot import":     `import . "time"; var _ = Now()`,
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.go")
			if err := os.WriteFile(path, []byte("package x; "+source), 0o600); err != nil {
				t.Fatal(err)
			}
			if len(impurities(t, path, []string{"core/record"})) == 0 {
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
	var out []string
	for _, path := range all {
		if !strings.HasSuffix(path, "_test.go") {
			out = append(out, path)
		}
	}
	return out
}

func impurities(t *testing.T, path string, local []string) []string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var problems []string
	report := func(n ast.Node, what string) {
		problems = append(problems, fset.Position(n.Pos()).String()+": "+what)
	}
	imported := map[string]string{} // local name → path
	for _, spec := range file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := p[strings.LastIndexByte(p, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = p
		model := strings.Contains(filepath.ToSlash(path), "model/") && p == "context"
		ours := false
		for _, l := range local {
			ours = ours || p == module+l
		}
		if !allowedStd[p] && !ours && !model || name == "." {
			report(spec, "imports "+p)
		}
	}
	maps := mapNames(file)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "starts a goroutine")
		case *ast.ChanType:
			report(n, "uses a channel")
		case *ast.SelectStmt:
			report(n, "selects")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				for _, name := range forbidden[imported[x.Name]] {
					if n.Sel.Name == name {
						report(n, "uses "+imported[x.Name]+"."+name)
					}
				}
			}
		case *ast.RangeStmt:
			if name := rangedName(n.X); maps[name] {
				report(n, "ranges over the map "+name)
			}
		}
		return true
	})
	return problems
}

// mapNames collects every variable, field and parameter of a map type.
func mapNames(file *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if _, ok := n.Type.(*ast.MapType); ok {
				for _, id := range n.Names {
					names[id.Name] = true
				}
			}
		case *ast.ValueSpec:
			if _, ok := n.Type.(*ast.MapType); ok {
				for _, id := range n.Names {
					names[id.Name] = true
				}
			}
			for i, v := range n.Values {
				if isMap(v) {
					names[n.Names[i].Name] = true
				}
			}
		case *ast.AssignStmt:
			for i, v := range n.Rhs {
				if id, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && isMap(v) {
					names[id.Name] = true
				}
			}
		}
		return true
	})
	return names
}

func isMap(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit:
		_, ok := e.Type.(*ast.MapType)
		return ok
	case *ast.CallExpr:
		if id, ok := e.Fun.(*ast.Ident); ok && id.Name == "make" && len(e.Args) > 0 {
			_, ok := e.Args[0].(*ast.MapType)
			return ok
		}
	}
	return false
}

func rangedName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
