package cli

import (
	"bytes"
	"embed"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
)

//go:embed scaffold
var scaffold embed.FS

// scaffolded says which template becomes which file.
var scaffolded = []struct{ template, file string }{
	{"go.mod.tmpl", "go.mod"}, {"main.go.tmpl", "main.go"}, {"agent.go.tmpl", "agent.go"}, {"agent_test.go.tmpl", "agent_test.go"},
	{"README.md.tmpl", "README.md"}, {"gitignore.tmpl", ".gitignore"},
}

// newProgram is what the templates are filled with.
type newProgram struct {
	Name, Agent, Module string
	Go, Version         string
	Replace             string // a copy of Layover on this machine
}

func (a *app) newCommand() *cobra.Command {
	var module, replace string
	cmd := a.command("new NAME [flags]", "Makes a program with an agent of its own",
		`A Go module in a new directory NAME: an agent with two tools, one of which needs an
approval, a test of it, and a main. It is ready for `+"`go test ./...` and `go run . dev`"+`.`,
		a.Program+" new orders\n"+a.Program+" new orders --module example.com/shop/orders",
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			p, err := describe(args[0], module, replace)
			if err != nil {
				return err
			}
			if err := p.write(args[0]); err != nil {
				return err
			}
			return a.tidied(cmd, args[0], p)
		})
	cmd.Flags().StringVar(&module, "module", "", "the module's path (default: NAME)")
	cmd.Flags().StringVar(&replace, "replace", "", "use the copy of Layover in this directory")
	return cmd
}

var (
	nameShape   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	moduleShape = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._~/-]{0,200}$`)
)

func describe(dir, module, replace string) (newProgram, error) {
	name := filepath.Base(filepath.Clean(dir))
	p := newProgram{Name: name, Agent: name, Module: module, Go: "1.26.0", Version: moduleVersion(), Replace: replace}
	if !nameShape.MatchString(name) {
		return p, usage("NAME %q is not lower-case letters, digits and hyphens", name)
	}
	if p.Module == "" {
		p.Module = name
	}
	if !moduleShape.MatchString(p.Module) || strings.Contains(p.Module, "//") || strings.HasSuffix(p.Module, "/") {
		return p, usage("--module %q is no path of a module", p.Module)
	}
	if replace != "" {
		path, err := filepath.Abs(replace)
		if err != nil {
			return p, usage("--replace: %v", err)
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err != nil || strings.ContainsAny(path, " \t\n\"'`") {
			return p, usage("--replace %q is no directory with a go.mod, or has spaces in its name", replace)
		}
		p.Replace = path
	}
	if !strings.HasPrefix(p.Version, "v") { // a build from source
		p.Version = "v0.0.0"
	}
	return p, nil
}

// write makes the directory. It never touches one that is there.
func (p newProgram) write(dir string) error {
	const todo = "choose another NAME, or go where you may write"
	if err := os.Mkdir(dir, 0o755); err != nil {
		code := exitBroken
		if errors.Is(err, fs.ErrExist) {
			code = exitRefused
		}
		return fail(code, "new", todo, "%v", err)
	}
	for _, f := range scaffolded {
		t, err := template.ParseFS(scaffold, "scaffold/"+f.template)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := t.Execute(&out, p); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.file), out.Bytes(), 0o644); err != nil {
			return fail(exitBroken, "new", todo, "%v", err)
		}
	}
	return nil
}

// tidied lets Go find the dependencies. Where it cannot, the files are good all
// the same, and the reader is told what to run.
func (a *app) tidied(cmd *cobra.Command, dir string, p newProgram) error {
	tidy := exec.CommandContext(cmd.Context(), "go", "mod", "tidy")
	tidy.Dir = dir
	_, err := tidy.CombinedOutput()
	next := []string{"cd " + dir, "go test ./...", "go run . dev"}
	if err != nil {
		next = append(next[:1], append([]string{"go mod tidy"}, next[1:]...)...)
	}
	if a.json {
		return a.printJSON(map[string]any{"directory": dir, "module": p.Module, "agent": p.Agent, "next": next})
	}
	a.printf("%s is an agent in module %s\n\n  %s\n", show(dir, 0), show(p.Module, 0), strings.Join(next, "\n  "))
	return nil
}
