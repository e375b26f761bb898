package embedded_test

import (
	"cmp"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/ddbjournal/ddbtest"
	"github.com/layover-run/layover/functions"
	"github.com/layover-run/layover/functions/cloudtest"
	"github.com/layover-run/layover/localstack/peers"
)

// assembly is the environment variable that says on which assembly the tests
// of a house run: the embedded one unless it says "serverless".
const assembly = "LAYOVER_ASSEMBLY"

// dynamoDB is where the serverless assembly keeps its tables.
var dynamoDB *ddbtest.Peer

func TestMain(m *testing.M) {
	if os.Getenv(assembly) == "serverless" {
		dynamoDB = ddbtest.NewPeer()
	}
	os.Exit(m.Run())
}

// TestServerless runs the tests of a house once more on the serverless
// assembly: the functions on DynamoDB and SQS, every message delivered twice. A
// row that a test of a house names for @serverless is proven by this run. It
// needs `make peers`.
func TestServerless(t *testing.T) {
	if os.Getenv(assembly) != "" {
		t.Skip("this is that run")
	}
	run := exec.Command(os.Args[0], "-test.failfast", "-test.timeout=20m", "-test.run", "^("+strings.Join(houses(t), "|")+")$")
	run.Env = append(os.Environ(), assembly+"=serverless", "LAYOVER_DYNAMODB_ENDPOINT="+peers.DynamoDB(t), "LAYOVER_SQS_ENDPOINT="+peers.SQS(t))
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// houses lists the tests that build a house.
func houses(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			builds := false
			ast.Inspect(f.Body, func(n ast.Node) bool {
				id, is := n.(*ast.Ident)
				builds = builds || is && (id.Name == "build" || id.Name == "buildOn")
				return !builds
			})
			if builds {
				names = append(names, f.Name.Name)
			}
		}
	}
	if len(names) == 0 {
		t.Fatal("no test builds a house")
	}
	return names
}

// deployed is a deployment with the methods of a runtime.
type deployed struct{ *cloudtest.Deployment }

func deploy(t *testing.T, a *cloudtest.Account, c embedded.Config) building {
	t.Helper()
	var defs []engine.Definition
	for _, b := range c.Bindings {
		defs = append(defs, b.Engine())
	}
	registry, err := engine.NewRegistry(c.AttemptTimeout, defs...)
	if err != nil {
		t.Fatal(err)
	}
	return deployed{a.Deploy(engine.Config{AttemptTimeout: c.AttemptTimeout, Authorize: c.Authorize, ToolLimits: c.ToolLimits, Limits: c.Limits,
		Log: c.Log, OnUserError: c.OnUserError, Tracing: c.Tracing, OnBatch: c.OnBatch}, registry)}
}

func (d deployed) service() *engine.Admitter { return d.Deployment.Admit.Admitter() }

func (d deployed) Admit() *functions.Admit { return d.Deployment.Admit }

func (d deployed) Submit(ctx context.Context, r engine.SubmitRequest) (engine.Receipt, error) {
	r.Tenant, r.Principal = cmp.Or(r.Tenant, "local"), cmp.Or(r.Principal, "anonymous")
	return d.service().Submit(ctx, r)
}

func (d deployed) FollowUp(ctx context.Context, r engine.FollowUpRequest) (engine.Receipt, error) {
	r.Tenant, r.Principal = cmp.Or(r.Tenant, "local"), cmp.Or(r.Principal, "anonymous")
	return d.service().FollowUp(ctx, r)
}

func (d deployed) Steer(ctx context.Context, r engine.SteerRequest) (engine.SteerReceipt, error) {
	r.Tenant, r.Principal = cmp.Or(r.Tenant, "local"), cmp.Or(r.Principal, "anonymous")
	return d.service().Steer(ctx, r)
}

func (d deployed) Await(ctx context.Context, tenant, submission string, until engine.Until) (engine.Progress, error) {
	return d.service().Await(ctx, cmp.Or(tenant, "local"), submission, until)
}

func (d deployed) Events(ctx context.Context, tenant, conversation string, o engine.EventsOptions) iter.Seq2[engine.Numbered, error] {
	return d.service().Events(ctx, journal.Lane{Tenant: cmp.Or(tenant, "local"), Conversation: conversation}, o)
}

func (d deployed) Approvals(ctx context.Context, tenant string) ([]engine.Approval, error) {
	return d.service().Approvals(ctx, cmp.Or(tenant, "local"))
}

func (d deployed) Decide(ctx context.Context, r engine.DecisionRequest) (engine.Decision, error) {
	r.Tenant, r.Principal = cmp.Or(r.Tenant, "local"), cmp.Or(r.Principal, "anonymous")
	return d.service().Decide(ctx, r)
}

func (d deployed) RequestAbort(ctx context.Context, r engine.AbortRequest) (string, error) {
	r.Tenant, r.Principal = cmp.Or(r.Tenant, "local"), cmp.Or(r.Principal, "anonymous")
	return d.service().RequestAbort(ctx, r)
}

// Quiet waits until every lane is idle or parked for later.
func (d deployed) Quiet(ctx context.Context) error {
	for ; ; time.Sleep(20 * time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		due, err := d.Journal().Due(ctx, d.Now().Add(15*time.Minute), 1)
		if err != nil || len(due) == 0 {
			return err
		}
	}
}

// Close lets what runs come to an end, unless ctx has ended: then it stops
// where it is.
func (d deployed) Close(ctx context.Context) error {
	if err := d.Quiet(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	d.Kill()
	return nil
}
