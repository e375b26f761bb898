package record

import (
	"encoding/json"
	"fmt"
)

// recordVersion is the version every kind is written with. A later version of
// a kind is one more entry of the table; it replaces none.
const recordVersion = "1"

// kind is how the records of one kind are walked.
type kind struct {
	tags []tag
	walk func(*coder, Record, []tag) Record
}

// kinds is every kind this build reads and writes.
var kinds = table(
	kindOf[AttemptStarted](), kindOf[SubmissionQueued](), kindOf[RunStarted](), kindOf[SteeringApplied](),
	kindOf[SteeringQueued](), kindOf[SteeringDropped](), kindOf[FollowUpApplied](), kindOf[ResponseRecorded](), kindOf[ApprovalRequested](),
	kindOf[ApprovalResolved](), kindOf[CallPrepared](), kindOf[CallSettled](), kindOf[CallWaiting](),
	kindOf[CallUnknown](), kindOf[CallResolved](), kindOf[StepRecorded](), kindOf[ChildLinked](), kindOf[ChildSettled](),
	kindOf[BudgetReserved](), kindOf[BudgetReleased](), kindOf[BudgetAnswered](), kindOf[BudgetWarned](),
	kindOf[CompactionCreated](), kindOf[BackoffScheduled](), kindOf[RunHeld](), kindOf[RunReleased](),
	kindOf[AbortRequested](), kindOf[EntryIgnored](), kindOf[RunSettled](),
)

func kindOf[R Record, P interface {
	*R
	fielder
}]() kind {
	var zero R
	return kind{
		tags: []tag{{"kind", `"` + string(zero.Kind()) + `"`}, {"v", recordVersion}},
		walk: func(c *coder, in Record, tags []tag) Record {
			r, _ := in.(R) // nil when decoding
			c.body(P(&r), tags)
			return r
		},
	}
}

func table(all ...kind) map[string]kind {
	byTag := map[string]kind{}
	for _, k := range all {
		byTag[k.tags[0].raw] = k
	}
	return byTag
}

// part is how the message parts of one type are walked.
type part struct {
	tags []tag
	walk func(*coder, Part, []tag) Part
}

var partTypes = func() map[string]part {
	byTag := map[string]part{}
	for _, p := range []part{
		partOf[TextPart](), partOf[ReasoningPart](), partOf[ToolCallPart](), partOf[ToolResultPart](),
		partOf[MediaPart](), partOf[InputPart](),
	} {
		byTag[p.tags[0].raw] = p
	}
	return byTag
}()

func partOf[T Part, P interface {
	*T
	fielder
}]() part {
	var zero T
	return part{
		tags: []tag{{"type", `"` + zero.partType() + `"`}},
		walk: func(c *coder, in Part, tags []tag) Part {
			p, _ := in.(T)
			c.body(P(&p), tags)
			return p
		},
	}
}

// record walks one record. Kinds and versions this build does not know are
// refused.
func (c *coder) record(r *Record) {
	var name string
	switch {
	case c.err != nil:
		return
	case c.mode == decoding:
		name = string(c.peek("kind"))
	case *r == nil:
		c.fail(corrupt("a nil record"))
		return
	default:
		name = `"` + string((*r).Kind()) + `"`
	}
	k, known := kinds[name]
	if !known {
		c.fail(fmt.Errorf("%w: record kind %s", ErrUnknownKind, orNone(name)))
		return
	}
	if c.mode == decoding {
		if v := c.peek("v"); string(v) != recordVersion {
			c.fail(fmt.Errorf("%w: record %s v%s", ErrUnknownVersion, name, orNone(string(v))))
			return
		}
	}
	*r = k.walk(c, *r, k.tags)
}

func (c *coder) part(p *Part) {
	var name string
	switch {
	case c.err != nil:
		return
	case c.mode == decoding:
		name = string(c.peek("type"))
	case *p == nil:
		c.fail(corrupt("a nil message part"))
		return
	default:
		name = `"` + (*p).partType() + `"`
	}
	t, known := partTypes[name]
	if !known {
		c.fail(fmt.Errorf("%w: message part %s", ErrUnknownKind, orNone(name)))
		return
	}
	*p = t.walk(c, *p, t.tags)
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// Records is the content of a batch in order.
type Records []Record

// MarshalJSON writes each record with its kind and version.
func (rs Records) MarshalJSON() ([]byte, error) {
	c := coder{mode: encoding}
	elements(&c, (*[]Record)(&rs), (*coder).record)
	return c.out, c.err
}

// UnmarshalJSON refuses kinds, versions, fields and values this build does not
// know.
func (rs *Records) UnmarshalJSON(b []byte) error {
	c, err := decoder(b)
	if err == nil {
		elements(c, (*[]Record)(rs), (*coder).record)
		err = c.err
	}
	return err
}

// MarshalJSON writes each part with its type.
func (ps Parts) MarshalJSON() ([]byte, error) {
	c := coder{mode: encoding}
	elements(&c, (*[]Part)(&ps), (*coder).part)
	return c.out, c.err
}

// UnmarshalJSON refuses part types and fields this build does not know.
func (ps *Parts) UnmarshalJSON(b []byte) error {
	c, err := decoder(b)
	if err == nil {
		elements(c, (*[]Part)(ps), (*coder).part)
		err = c.err
	}
	return err
}

// batchDepth is how deep a value lies inside its batch at most.
const batchDepth = 16

func decoder(b []byte) (*coder, error) {
	canonical, err := canonicalize(b, MaxDepth+batchDepth)
	if err != nil {
		return nil, corrupt("%v", err)
	}
	return &coder{mode: decoding, src: canonical}, nil
}

// marshal encodes without HTML escaping; v is known to encode.
func marshal(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err == nil {
		raw, err = Canonical(raw)
	}
	if err != nil {
		panic(fmt.Sprintf("record: %T does not encode: %v", v, err))
	}
	return raw
}
