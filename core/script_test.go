package core_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/record"
)

var update = flag.Bool("update", false, "rewrite the scripts in testdata")

// A script is a play of a lane: what happens outside, line by line, and the
// plans the transitions answer with. `next` asks, folds what is appended, and
// asks again until the plan rests.
//
//	spec KEY=VALUE…            limits of the agent under test
//	tool NAME CLASS [FLAG…]    approval, sequential, probe, deny-fails, timeout=D, version=V
//	attempt ID [settled=N] [authorizes] [permits]   a new attempt with an empty desk, one epoch on
//	clock +D | end=D           time passes; the invocation ends in D
//	fact …                     something ended or arrived
//	drop                       the attempt dies: nothing after it sees its desk
//	next
//
// conformance: TURN-03, TURN-19, TURN-20
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := newPlay(t).run(string(source))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(source) {
				t.Errorf("the play differs; look at it and run with -update if it is right:\n%s", diffLines(string(source), got))
			}
		})
	}
}

// play is a script's world.
type play struct {
	t     *testing.T
	spec  core.Spec
	state *core.State
	desk  *core.Desk
	epoch uint64
	now   time.Time
	end   time.Time
	boot  string
	slot  uint64 // of the last inbox entry
	batch int
	last  *core.Response
	none  bool // this build does not have the agent
}

var epoch0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func defaultPolicy() core.Policy {
	return core.Policy{MaxTurns: 12, MaxToolCalls: 24, MaxDuration: 24 * time.Hour, OnExhaustion: core.FinalAnswer,
		OnInvalidCall: core.ReturnInvalid, RepeatedFailureLimit: 3, ToolConcurrency: 4, ModelRetries: 2}
}

func newPlay(t *testing.T) *play {
	return &play{t: t, now: epoch0, state: &core.State{}, boot: "boot1",
		spec: core.Spec{Agent: "a", Version: "1", Digest: "def1", Policy: defaultPolicy()}}
}

func (p *play) run(source string) string {
	var out bytes.Buffer
	for line := range strings.Lines(source) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "  ") { // an earlier answer
			continue
		}
		out.WriteString(line + "\n")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "spec":
			p.specLine(strings.Fields(rest))
		case "tool":
			p.toolLine(strings.Fields(rest))
		case "attempt":
			p.attempt(strings.Fields(rest))
		case "clock":
			p.clock(rest)
		case "fact":
			core.Note(p.desk, p.fact(rest))
		case "drop":
			p.desk = nil
		case "next":
			p.next(&out)
		default:
			p.t.Fatalf("script line %q", line)
		}
	}
	return out.String()
}

func (p *play) specLine(fields []string) {
	for _, f := range fields {
		key, value, _ := strings.Cut(f, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "none":
			p.none = true
		case "back":
			p.none = false
		case "turns":
			p.spec.Policy.MaxTurns = n
		case "calls":
			p.spec.Policy.MaxToolCalls = n
		case "duration":
			p.spec.Policy.MaxDuration = mustDuration(p.t, value)
		case "exhaustion":
			p.spec.Policy.OnExhaustion = core.Exhaustion(value)
		case "invalid":
			p.spec.Policy.OnInvalidCall = core.InvalidCall(value)
		case "failures":
			p.spec.Policy.RepeatedFailureLimit = n
		case "concurrency":
			p.spec.Policy.ToolConcurrency = n
		case "expiry":
			p.spec.Policy.ApprovalExpiry = mustDuration(p.t, value)
		case "provider":
			p.spec.ProviderTools = append(p.spec.ProviderTools, value)
		case "group":
			name, limit, _ := strings.Cut(value, ":")
			n, _ := strconv.Atoi(limit)
			p.spec.Policy.Groups = map[string]int{name: n}
		case "drain":
			p.spec.Policy.Drain = core.Drain(value)
		case "digest":
			p.spec.Digest = value
		case "agent":
			p.spec.Agent = value
		case "untool":
			p.spec.Tools = slices.DeleteFunc(p.spec.Tools, func(t core.ToolSpec) bool { return t.Name == value })
		case "contract":
			p.spec.Contract = value
		default:
			p.t.Fatalf("spec %s", f)
		}
	}
}

func (p *play) toolLine(fields []string) {
	tool := core.ToolSpec{Name: fields[0], Class: record.Class(fields[1]), Timeout: time.Minute}
	for _, f := range fields[2:] {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "approval":
			tool.Approval = true
		case "deny-fails":
			tool.DenyFails = true
		case "sequential":
			tool.Sequential = true
		case "group":
			tool.Group = value
		case "probe":
			tool.Probe = true
		case "timeout":
			tool.Timeout = mustDuration(p.t, value)
		case "version":
			tool.Version = value
		default:
			p.t.Fatalf("tool %s", f)
		}
	}
	for i := range p.spec.Tools {
		if p.spec.Tools[i].Name == tool.Name {
			p.spec.Tools[i] = tool
			return
		}
	}
	p.spec.Tools = append(p.spec.Tools, tool)
}

func (p *play) attempt(fields []string) {
	p.epoch++
	info := core.AttemptInfo{ID: fields[0], Boot: p.boot, Epoch: p.epoch, Version: 1, Exclusive: true}
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "settled":
			info.Settled = mustUint(p.t, value)
		case "boot":
			info.Boot = value
		case "epoch":
			p.epoch = mustUint(p.t, value)
			info.Epoch = p.epoch
		case "authorizes":
			info.Authorizes = true
		case "permits":
			info.Permits = true
		case "exclusive":
			info.Exclusive = value == "true"
		case "leaked":
			info.Leaked = []string{value}
		default:
			p.t.Fatalf("attempt %s", f)
		}
	}
	p.desk = core.NewDesk(info)
}

func (p *play) clock(rest string) {
	for f := range strings.FieldsSeq(rest) {
		if end, ok := strings.CutPrefix(f, "end="); ok {
			p.end = p.now.Add(mustDuration(p.t, end))
			continue
		}
		p.now = p.now.Add(mustDuration(p.t, strings.TrimPrefix(f, "+")))
	}
}

func (p *play) next(out *bytes.Buffer) {
	for range 20 {
		spec := &p.spec
		if p.none {
			spec = nil
		}
		plan := core.Next(spec, p.state, p.desk, core.Clock{Now: p.now, InvocationEnd: p.end, LongestInvocation: 15 * time.Minute})
		p.print(out, plan)
		if len(plan.Append) == 0 {
			return
		}
		p.batch++
		info := p.desk.Attempt
		b := record.Batch{Tenant: "t", Conversation: "c", Slot: p.state.Slot + 1, ID: fmt.Sprint("b", p.batch), Epoch: info.Epoch,
			Attempt: info.ID, Prev: p.state.Digest, At: p.now, Records: plan.Append}
		sealed, err := record.Seal(&b)
		if err != nil {
			p.t.Fatal(err)
		}
		opened, err := record.Open(sealed, "t", "c")
		if err != nil {
			p.t.Fatal(err)
		}
		if err := core.Fold(p.state, opened); err != nil {
			p.t.Fatal(err)
		}
	}
	p.t.Fatal("the transitions keep appending")
}

func (p *play) print(out *bytes.Buffer, plan core.Plan) {
	for _, s := range plan.Steps {
		fmt.Fprintf(out, "  step %s\n", s)
	}
	for _, r := range plan.Append {
		fmt.Fprintf(out, "  append %s %s\n", r.Kind(), compact(r))
	}
	for _, e := range plan.Then {
		fmt.Fprintf(out, "  then %s %s\n", reflect.TypeOf(e).Name(), compact(e))
	}
	if len(plan.Append) > 0 {
		return
	}
	fmt.Fprintf(out, "  rest %s", plan.Rest.Kind)
	if plan.Rest.Kind == core.RestPark {
		reason := plan.Rest.Reason
		if plan.Rest.Due.IsZero() {
			reason = "idle"
		}
		fmt.Fprintf(out, " %s version=%d", reason, plan.Rest.Version)
		if !plan.Rest.Due.IsZero() {
			fmt.Fprintf(out, " due=+%s", plan.Rest.Due.Sub(p.now))
		}
	}
	if !plan.Rest.Wake.IsZero() {
		fmt.Fprintf(out, " wake=+%s", plan.Rest.Wake.Sub(p.now))
	}
	out.WriteString("\n")
}

// compact renders a value as JSON without its empty fields.
func compact(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	var m any
	if json.Unmarshal(raw, &m) != nil {
		return string(raw)
	}
	raw, _ = json.Marshal(strip(m))
	return string(raw)
}

func strip(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if x = strip(x); x == nil || x == "" || x == float64(0) || x == false || reflect.DeepEqual(x, map[string]any{}) ||
				reflect.DeepEqual(x, []any{}) || x == "0001-01-01T00:00:00Z" {
				delete(v, k)
				continue
			}
			v[k] = x
		}
	case []any:
		for i := range v {
			v[i] = strip(v[i])
		}
	}
	return v
}

func diffLines(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\n- %s\n+ %s", i+1, a, b)
		}
	}
	return ""
}

func mustDuration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustUint(t *testing.T, s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
