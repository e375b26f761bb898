package cli

import (
	"bytes"
	"embed"
	"errors"
	"go/build"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/layover-run/layover/core/event"
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
	guessed             bool   // nobody named that copy
}

func (a *app) newCommand() *cobra.Command {
	var module, replace string
	cmd := a.command("new NAME [flags]", "Makes a program with an agent of its own",
		`A Go module in a new directory NAME: an agent with two tools, one of which needs an
approval, a test of it, and a main. It is ready for `+"`go test ./...` and `go run . dev`"+`.

A program that was built from a copy of Layover, and not from a version of it, makes
modules that use this copy; --replace names another one.`,
		a.Program+" new orders\n"+a.Program+" new orders --module example.com/shop/orders",
		exactly("NAME"), func(cmd *cobra.Command, args []string) error {
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
	if path, err := filepath.Abs(dir); err == nil {
		name = filepath.Base(path) // of "." too
	}
	p := newProgram{Name: name, Agent: name, Module: module, Go: "1.26.0", Version: moduleVersion(), Replace: replace}
	if !nameShape.MatchString(name) {
		return p, usage("NAME %q is not lower-case letters, digits and hyphens", name)
	}
	if p.Module == "" {
		if _, err := os.Stat(filepath.Join(build.Default.GOROOT, "src", name)); err == nil && build.Default.GOROOT != "" {
			f := usage("NAME %q is one of Go's own packages, so it cannot be the path of a module too", name)
			f.todo = "give it a path with --module example.com/" + name
			return p, f
		}
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
	if fromSource() {
		p.Version = "v0.0.0" // no version that could be fetched
		if replace == "" {
			if p.Replace, p.guessed = sourceDir(), true; p.Replace == "" {
				f := usage("this program was built from a copy of Layover that is not here any more, so Go could not find Layover for a new module")
				f.todo = "name a copy with --replace DIR"
				return p, f
			}
		}
	}
	return p, nil
}

// fromSource reports a program without a version of this module: one built in a
// copy of it, or with a copy in its go.mod.
func fromSource() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok || !strings.HasPrefix(moduleVersion(), "v") {
		return true
	}
	return info.Main.Path == module && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs" })
}

// sourceDir is the copy of this module that the program was built from; empty
// where it is gone, or has a name that go.mod cannot hold.
func sourceDir() string {
	_, file, _, ok := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(file))) // of core/cli/new.go
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if !ok || err != nil || !strings.HasPrefix(string(mod), "module "+module+"\n") || strings.ContainsAny(root, " \t\n\"'`") {
		return ""
	}
	return root
}

// write makes the directory. It never touches one that has something in it.
func (p newProgram) write(dir string) error {
	const todo = "choose another NAME, or go where you may write"
	err := os.Mkdir(dir, 0o755)
	if there, readErr := os.ReadDir(dir); errors.Is(err, fs.ErrExist) && readErr == nil && len(there) == 0 {
		err = nil
	}
	if err != nil {
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
	said, err := tidy.CombinedOutput()
	next := []string{"go test ./...", "go run . dev"}
	why := ""
	if err != nil {
		next = append([]string{"go mod tidy"}, next...)
		if why = oneLine(string(said)); why == "" {
			why = err.Error()
		}
	}
	if filepath.Clean(dir) != "." {
		next = append([]string{"cd " + event.Quote(dir)}, next...)
	}
	if a.json {
		made := map[string]any{"directory": dir, "module": p.Module, "agent": p.Agent, "next": next}
		if why != "" {
			made["problem"] = why
		}
		return a.printJSON(made)
	}
	if why != "" {
		a.note("%s\n", fail(exitBroken, "go mod tidy", "The files are there: solve this, then go on as below", "%s", why).line())
	}
	if p.guessed {
		defer a.printf("\nIt uses the copy of Layover in %s: see replace in its go.mod.\n", show(p.Replace, 0))
	}
	a.printf("%s is an agent in module %s\n\n  %s\n", show(p.Name, 0), show(p.Module, 0), strings.Join(next, "\n  "))
	return nil
}
