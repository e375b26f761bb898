package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// DefaultTimeout bounds one handler execution unless Timeout says otherwise.
const DefaultTimeout = 60 * time.Second

var validName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,63}$`)

// Tool is a typed handler with the facts the engine decides by. It is
// immutable and safe for concurrent use.
type Tool struct {
	facts   Facts
	schema  *Schema
	in, out reflect.Type
	handle  func(ctx context.Context, args json.RawMessage) (any, error)
	probe   func(ctx context.Context, args json.RawMessage) (any, Resolution, error)

	classSet bool
	problems []error
}

// Facts is what is known about a tool without running it.
type Facts struct {
	Name        string
	Description string
	Version     string
	Class       record.Class
	Approval    bool // a person decides about every call
	DenyFails   bool // a denial fails the run instead of the call
	Sequential  bool // never beside another handler of the run
	Group       string
	Timeout     time.Duration
	Probe       bool            // has a reconcile probe
	Schema      json.RawMessage // JSON Schema of the arguments, canonical
}

// Option changes one fact of a tool.
type Option func(*Tool)

// New makes a tool of a handler. In is a struct with a schema (SchemaFor): its
// fields are the tool's parameters. Out is any type that encoding/json can
// write. The execution class is Uncertain unless an option says otherwise. New
// never fails; what is wrong with the definition is returned by Err, and
// agent.Define refuses a tool that has an Err.
func New[In, Out any](name, description string, handler func(ctx context.Context, in In) (Out, error), opts ...Option) *Tool {
	t := &Tool{
		facts: Facts{Name: name, Description: description, Class: record.Uncertain, Timeout: DefaultTimeout},
		in:    reflect.TypeFor[In](), out: reflect.TypeFor[Out](),
	}
	if !validName.MatchString(name) {
		t.refuse("the name must match %s", validName)
	}
	if description == "" {
		t.refuse("the description is empty: it is how a model knows when to call the tool")
	}
	if handler == nil {
		t.refuse("the handler is nil")
	}
	if t.in.Kind() != reflect.Struct {
		t.refuse("the input type %s is no struct: parameters are the fields of a struct", t.in)
	} else if schema, err := SchemaFor[In](); err != nil {
		t.refuse("the input type: %w", err)
	} else if !schema.isObject() {
		t.refuse("the input type %s chooses its own JSON: parameters are the fields of a struct", t.in)
	} else {
		t.schema, t.facts.Schema = schema, schema.JSON()
	}
	if err := encodable(t.out); err != nil {
		t.refuse("the output type %s: %w", typeName(t.out), err)
	}
	t.handle = func(ctx context.Context, args json.RawMessage) (any, error) {
		in, err := Decode[In](t.schema, args)
		if err != nil {
			return nil, &invalidArguments{err}
		}
		return handler(ctx, in)
	}
	for i, option := range opts {
		if option == nil {
			t.refuse("option %d is nil", i+1)
			continue
		}
		option(t)
	}
	t.facts.Probe = t.probe != nil
	if t.facts.DenyFails && !t.facts.Approval {
		t.refuse("DenialFailsRun without RequireApproval: nobody is asked")
	}
	if t.facts.Probe && t.facts.Class != record.Uncertain {
		t.refuse("Reconcile on a %s tool: such calls run again, so nobody asks the probe", t.facts.Class)
	}
	return t
}

func (t *Tool) refuse(format string, args ...any) {
	t.problems = append(t.problems, fmt.Errorf(format, args...))
}

// Err is everything that is wrong with the definition, or nil.
func (t *Tool) Err() error {
	if t.handle == nil {
		return errors.New("a tool that was not made by tool.New")
	}
	if len(t.problems) == 0 {
		return nil
	}
	return fmt.Errorf("tool %q: %w", t.facts.Name, errors.Join(t.problems...))
}

// Facts returns a copy of the tool's facts.
func (t *Tool) Facts() Facts {
	f := t.facts
	f.Schema = slices.Clone(f.Schema)
	return f
}

// ForModel is the tool as a model sees it.
func (t *Tool) ForModel() model.Tool {
	return model.Tool{Name: t.facts.Name, Description: t.facts.Description, Schema: slices.Clone(t.facts.Schema)}
}

// Check validates the arguments of a call against the schema and the input
// type, without running anything. Its error is an *ArgumentsError, whose text
// is what the model is told.
func (t *Tool) Check(args json.RawMessage) error {
	if t.schema == nil {
		return t.Err()
	}
	canonical, err := record.Canonical(args)
	if err != nil {
		return notJSON(err)
	}
	if err := t.schema.check(canonical); err != nil {
		return err
	}
	// Some values pass the schema and still do not fit the Go type, such as an
	// integer beyond 64 bits.
	return decodeInto(canonical, reflect.New(t.in).Interface())
}

// Readonly says that the handler changes nothing: it may run again freely.
func Readonly() Option { return class(record.Readonly) }

// Idempotent says that executions with the same operation key (CallInfo) have
// one effect together: the handler may run again with that key.
func Idempotent() Option { return class(record.Idempotent) }

// Uncertain says that the handler must never run again on a guess. It is the
// default.
func Uncertain() Option { return class(record.Uncertain) }

func class(c record.Class) Option {
	return func(t *Tool) {
		if t.classSet && t.facts.Class != c {
			t.refuse("declared both %s and %s", t.facts.Class, c)
		}
		t.facts.Class, t.classSet = c, true
	}
}

// RequireApproval lets a person decide about every call before it runs.
func RequireApproval() Option { return func(t *Tool) { t.facts.Approval = true } }

// DenialFailsRun ends the run when a call is denied. Without it the model is
// told about the denial and goes on.
func DenialFailsRun() Option { return func(t *Tool) { t.facts.DenyFails = true } }

// Sequential keeps the handler from running beside any other handler of the
// same run.
func Sequential() Option { return func(t *Tool) { t.facts.Sequential = true } }

// Group puts the tool into a group that shares limits: Policy.GroupConcurrency
// within a run, ToolLimits.Groups within a process. A tool is in one group at most.
func Group(name string) Option {
	return func(t *Tool) {
		switch {
		case !validName.MatchString(name):
			t.refuse("Group(%q): a group's name must match %s", name, validName)
		case t.facts.Group != "" && t.facts.Group != name:
			t.refuse("in both group %s and %s", t.facts.Group, name)
		}
		t.facts.Group = name
	}
}

// Timeout bounds one handler execution; the context ends then. It must be
// positive. Defaults to DefaultTimeout. A handler only starts when its whole
// timeout fits into the remaining life of the invocation.
func Timeout(d time.Duration) Option {
	return func(t *Tool) {
		if d <= 0 {
			t.refuse("Timeout(%s): a timeout is positive", d)
			return
		}
		t.facts.Timeout = d
	}
}

// Version names the behaviour of the handler. Open calls bind to it: a build
// with another version of the tool leaves a run that waits on such a call alone,
// held, until a build has the version again. It has no control characters.
func Version(v string) Option {
	return func(t *Tool) {
		if !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
			t.refuse("Version(%q): a version is text without control characters", v)
		}
		t.facts.Version = v
	}
}

// Resolution is what a probe found out about a call.
type Resolution = record.Resolution

// The answers of a probe.
const (
	Happened    = record.Happened    // with the result of the call
	NotHappened = record.NotHappened // the call may run
	SafeToRetry = record.SafeToRetry // it may have happened, and may run all the same
)

// Reconcile gives an uncertain tool a probe: after a crash it finds out what
// became of a call that may have started. It answers Happened with the call's
// result, NotHappened, or SafeToRetry; an error means it does not know, and the run waits for a person. In and Out are those of the
// tool. The probe looks the effect up by the operation key of CallInfo and
// changes nothing.
func Reconcile[In, Out any](probe func(ctx context.Context, in In) (Out, Resolution, error)) Option {
	return func(t *Tool) {
		in, out := reflect.TypeFor[In](), reflect.TypeFor[Out]()
		switch {
		case probe == nil:
			t.refuse("Reconcile(nil)")
		case in != t.in || out != t.out:
			t.refuse("Reconcile takes %s and returns %s, the handler takes %s and returns %s", in, out, t.in, t.out)
		case t.probe != nil:
			t.refuse("two Reconcile options")
		default:
			t.probe = func(ctx context.Context, args json.RawMessage) (any, Resolution, error) {
				v, err := Decode[In](t.schema, args)
				if err != nil {
					return nil, "", &invalidArguments{err}
				}
				return probe(ctx, v)
			}
		}
	}
}
