package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/record"
)

// bodyOf is the sealed body of one golden sample.
func bodyOf(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile(goldenPath(name))
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	return string(g.Body)
}

// swap replaces the one place where old stands.
func swap(t *testing.T, body, old, new string) string {
	t.Helper()
	if strings.Count(body, old) != 1 {
		t.Fatalf("%q stands %d times in %s", old, strings.Count(body, old), body)
	}
	return strings.Replace(body, old, new, 1)
}

// What this build does not know, and what nobody wrote, is refused with a typed
// error although its digest is right.
func TestOpenRefuses(t *testing.T) {
	for _, test := range []struct {
		what, sample, old, new string
		want                   error
	}{
		{"envelope version", "callPrepared", `,"v":1}` + "\n", `,"v":2}`, record.ErrUnknownVersion},
		{"no envelope version", "callPrepared", `,"v":1}` + "\n", `}`, record.ErrUnknownVersion},
		{"envelope version of another type", "callPrepared", `,"v":1}` + "\n", `,"v":"1"}`, record.ErrUnknownVersion},
		{"record version", "callPrepared", `,"v":1}],`, `,"v":2}],`, record.ErrUnknownVersion},
		{"no record version", "callPrepared", `,"v":1}],`, `}],`, record.ErrUnknownVersion},
		{"kind", "callPrepared", `"callPrepared"`, `"callDreamt"`, record.ErrUnknownKind},
		{"kind of another case", "callPrepared", `"callPrepared"`, `"CallPrepared"`, record.ErrUnknownKind},
		{"no kind", "callPrepared", `"kind":"callPrepared",`, ``, record.ErrUnknownKind},
		{"kind of another type", "callPrepared", `"callPrepared"`, `1`, record.ErrUnknownKind},
		{"record that is null", "callPrepared", `"records":[{`, `"records":[null,{`, record.ErrUnknownKind},
		{"record that is a list", "callPrepared", `"records":[{`, `"records":[[{}],{`, record.ErrUnknownKind},
		{"field of the envelope", "callPrepared", `{"at"`, `{"add":1,"at"`, record.ErrUnknownKind},
		{"last field of the envelope", "callPrepared", `,"v":1}` + "\n", `,"v":1,"w":1}`, record.ErrUnknownKind},
		{"field of a record", "callPrepared", `"operation"`, `"hint":{"a":["}"]},"operation"`, record.ErrUnknownKind},
		{"last field of a record", "callPrepared", `,"v":1}],`, `,"v":1,"zeal":1}],`, record.ErrUnknownKind},
		{"escaped field of a record", "callPrepared", `"operation"`, `"k\"\\":1,"operation"`, record.ErrUnknownKind},
		{"field of another case", "callSettled", `"tag"`, `"tAg"`, record.ErrUnknownKind},
		{"field of a part", "responseRecorded", `"provider":"demo","text"`, `"provider":"demo","sum":1,"text"`, record.ErrUnknownKind},
		{"field of a value", "callSettled.min", `{"inline":null}`, `{"inline":null,"kms":1}`, record.ErrUnknownKind},
		{"field of a nested list", "responseRecorded", `{"name":"other"}`, `{"name":"other","why":1}`, record.ErrUnknownKind},
		{"part type", "responseRecorded", `"type":"media"`, `"type":"hologram"`, record.ErrUnknownKind},
		{"no part type", "responseRecorded", `"name":"a.png","type":"media"`, `"name":"a.png"`, record.ErrUnknownKind},
		{"part that is null", "responseRecorded.min", `"parts":[`, `"parts":[null,`, record.ErrUnknownKind},
		{"role", "responseRecorded", `"role":"system"`, `"role":"oracle"`, record.ErrUnknownKind},
		{"class", "responseRecorded", `"uncertain"`, `"harmless"`, record.ErrUnknownKind},
		{"decision", "approvalResolved", `"denied"`, `"maybe"`, record.ErrUnknownKind},
		{"outcome", "callSettled", `"failure"`, `"fine"`, record.ErrUnknownKind},
		{"resolution", "callResolved", `"notHappened"`, `"hm"`, record.ErrUnknownKind},
		{"status", "runSettled.min", `"completed"`, `"interrupted"`, record.ErrUnknownKind},
		{"child's status", "childSettled", `"failed"`, `"lost"`, record.ErrUnknownKind},

		{"missing field", "callPrepared", `,"operation":"op1"`, ``, record.ErrCorrupt},
		{"missing object", "responseRecorded.min", `"message":{"parts":[{"text":{"inline":"done"},"type":"text"}],"role":"assistant"},`, ``, record.ErrCorrupt},
		{"field that is null", "callPrepared", `"op1"`, `null`, record.ErrCorrupt},
		{"text that is a number", "callPrepared", `"op1"`, `1`, record.ErrCorrupt},
		{"count that is text", "budgetWarned", `"limit":10`, `"limit":"10"`, record.ErrCorrupt},
		{"count with a fraction", "budgetWarned", `"limit":10`, `"limit":10.5`, record.ErrCorrupt},
		{"count beyond 64 bits", "budgetWarned", `"limit":10`, `"limit":9223372036854775808`, record.ErrCorrupt},
		{"negative slot", "runReleased", `"entry":9`, `"entry":-9`, record.ErrCorrupt},
		{"truth that is text", "budgetAnswered", `true`, `"true"`, record.ErrCorrupt},
		{"list that is an object", "runSettled", `["s4"]`, `{"a":"s4"}`, record.ErrCorrupt},
		{"object that is a list", "budgetReserved.min", `"allowance":{}`, `"allowance":[]`, record.ErrCorrupt},
		{"name that is a number", "runSettled", `["s4"]`, `["s4",4]`, record.ErrCorrupt},
		{"optional field that is empty", "callSettled", `"tag":"timeout"`, `"tag":""`, record.ErrCorrupt},
		{"optional count of 0", "callSettled", `"entry":6`, `"entry":0`, record.ErrCorrupt},
		{"optional list that is empty", "runSettled", `["s4"]`, `[]`, record.ErrCorrupt},
		{"optional object that is empty", "submissionQueued.min", `"agent":"refund",`, `"agent":"refund","allowance":{},`, record.ErrCorrupt},
		{"optional value that is empty", "runSettled", `"joined"`, `"joined":["x"],"output":{},"p"`, record.ErrCorrupt},
		{"time that is none", "runHeld", `"until":"2026-03-01T12:00:01.5Z"`, `"until":"soon"`, record.ErrCorrupt},
		{"time of another zone", "runHeld", `"until":"2026-03-01T12:00:01.5Z"`, `"until":"2026-03-01T12:00:01.5+01:00"`, record.ErrCorrupt},
		{"time finer than milliseconds", "runHeld", `"until":"2026-03-01T12:00:01.5Z"`, `"until":"2026-03-01T12:00:01.50001Z"`, record.ErrCorrupt},
		{"time in another spelling", "runHeld", `"until":"2026-03-01T12:00:01.5Z"`, `"until":"2026-03-01T12:00:01.500Z"`, record.ErrCorrupt},
		{"bytes that are not base64", "responseRecorded", `"AAH+/w=="`, `"AAH+/w"`, record.ErrCorrupt},
		{"bytes with spare bits", "responseRecorded", `"AAH+/w=="`, `"AAH+/x=="`, record.ErrCorrupt},
		{"value inline and aside", "runSettled.exhausted", `"size":1048576}`, `"size":1048576},"inline":1`, record.ErrCorrupt},
		{"payload digest that is none", "runSettled.exhausted", `"d35c`, `"D35C`, record.ErrCorrupt},
		{"payload of negative size", "runSettled.exhausted", `1048576`, `-1`, record.ErrCorrupt},
		{"media digest that is none", "responseRecorded", `{"content":{"sha256":"d35c`, `{"content":{"sha256":"d35`, record.ErrCorrupt},
		{"no records", "runReleased.min", `{"kind":"runReleased","v":1}`, ``, record.ErrCorrupt},
		{"too many records", "runReleased.min", `{"kind":"runReleased","v":1}`, strings.Repeat(`{"kind":"runReleased","v":1},`, record.RecordLimit) + `{"kind":"runReleased","v":1}`, record.ErrCorrupt},
		{"white space", "callPrepared", `"op1"`, ` "op1"`, record.ErrCorrupt},
		{"another spelling of text", "callPrepared", `"op1"`, `"\u006fp1"`, record.ErrCorrupt},
		{"another spelling of a number", "budgetWarned", `"limit":10`, `"limit":1e1`, record.ErrCorrupt},
		{"other order", "callPrepared", `"call":"c1","kind":"callPrepared"`, `"kind":"callPrepared","call":"c1"`, record.ErrCorrupt},
		{"duplicate field", "callPrepared", `"call":"c1"`, `"call":"c1","call":"c1"`, record.ErrCorrupt},
		{"data behind", "callPrepared", `,"v":1}` + "\n", `,"v":1}{}`, record.ErrCorrupt},

		{"tenant", "callPrepared", `"tenant":"acme"`, `"tenant":"acme2"`, record.ErrForeign},
		{"conversation", "callPrepared", `conversation \"1\"`, `conversation \"2\"`, record.ErrForeign},
		{"slot", "callPrepared", `"slot":7`, `"slot":8`, record.ErrForeign},
		{"batch id", "callPrepared", `"batch-7"`, `"batch-8"`, record.ErrForeign},
		{"epoch", "callPrepared", `"epoch":2`, `"epoch":3`, record.ErrForeign},
	} {
		t.Run(test.what, func(t *testing.T) {
			body := swap(t, bodyOf(t, test.sample)+"\n", test.old, test.new)
			_, err := open(sealBody(t, strings.TrimSuffix(body, "\n")))
			if !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), "slot") {
				t.Errorf("the error does not name the slot: %v", err)
			}
		})
	}
}

// A batch belongs to the place it was read from.
func TestOpenElsewhere(t *testing.T) {
	body := bodyOf(t, "callPrepared")
	for what, lane := range map[string][2]string{
		"another tenant":       {"acme2", "conversation \"1\""},
		"another conversation": {"acme", "conversation \"2\""},
	} {
		if _, err := record.Open(sealBody(t, body), lane[0], lane[1]); !errors.Is(err, record.ErrForeign) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, move := range map[string]func(*record.Sealed){
		"slot":  func(s *record.Sealed) { s.Slot++ },
		"id":    func(s *record.Sealed) { s.ID += "x" },
		"epoch": func(s *record.Sealed) { s.Epoch-- },
	} {
		s := sealBody(t, body)
		if move(&s); s.Slot == 0 {
			t.Fatal(what)
		}
		if _, err := open(s); !errors.Is(err, record.ErrForeign) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Every flipped byte and every cut is seen: by the digest, and by the decoder
// when somebody computed a new digest over the damage.
func TestOpenDamaged(t *testing.T) {
	body := bodyOf(t, "callSettled")
	whole := sealBody(t, body)
	for i := range len(body) {
		flipped := whole
		flipped.Body = bytes.Clone(whole.Body)
		flipped.Body[i] ^= 0x20
		if _, err := open(flipped); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("byte %d flipped: %v", i, err)
		}
		cut := whole
		cut.Body = whole.Body[:i]
		if _, err := open(cut); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("cut at %d: %v", i, err)
		}
		if _, err := open(sealBody(t, body[:i])); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("cut at %d with a new digest: %v", i, err)
		}
	}
	for _, other := range []string{"null", "[]", `"x"`, "7"} {
		if _, err := open(sealBody(t, other)); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("a body of %s: %v", other, err)
		}
	}
}

// Seal refuses what Open refuses: a batch nobody can read would end its
// conversation.
func TestSealRefuses(t *testing.T) {
	good := record.TextMessage(record.Assistant, "ok")
	response := func(change func(*record.ResponseRecorded)) record.Record {
		r := record.ResponseRecorded{Message: good}
		change(&r)
		return r
	}
	for what, test := range map[string]struct {
		record record.Record
		want   error
	}{
		"nil record":          {nil, record.ErrCorrupt},
		"nil part":            {response(func(r *record.ResponseRecorded) { r.Message.Parts = record.Parts{nil} }), record.ErrCorrupt},
		"value that is none":  {record.StepRecorded{Result: record.Value{Inline: []byte(`{"a"`)}}, record.ErrInvalidJSON},
		"value both ways":     {record.StepRecorded{Result: record.Value{Inline: []byte(`1`), Aside: aside.Aside}}, record.ErrCorrupt},
		"payload reference":   {record.StepRecorded{Result: record.Value{Aside: &record.Ref{SHA256: "x"}}}, record.ErrCorrupt},
		"raw usage":           {response(func(r *record.ResponseRecorded) { r.Usage.Raw = []byte(`nope`) }), record.ErrInvalidJSON},
		"negative usage":      {response(func(r *record.ResponseRecorded) { r.Usage.InputTokens = n(-1) }), record.ErrCorrupt},
		"role":                {response(func(r *record.ResponseRecorded) { r.Prefix = []record.Message{{}} }), record.ErrUnknownKind},
		"response of a user":  {response(func(r *record.ResponseRecorded) { r.Message.Role = record.User }), record.ErrCorrupt},
		"outcome":             {record.CallSettled{Outcome: "done"}, record.ErrUnknownKind},
		"no outcome":          {record.CallSettled{}, record.ErrUnknownKind},
		"settlement families": {record.RunSettled{Status: record.StatusFailed, FinishReason: record.ModelStop}, record.ErrCorrupt},
		"year 10000":          {record.RunHeld{Until: noon.AddDate(8000, 0, 0)}, record.ErrCorrupt},
	} {
		b := batchOf(test.record)
		if _, err := record.Seal(&b); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", what, err, test.want)
		}
	}
	for _, count := range []int{0, record.RecordLimit + 1} {
		b := batchOf(slices.Repeat([]record.Record{record.RunReleased{}}, count)...)
		if _, err := record.Seal(&b); !errors.Is(err, record.ErrTooLarge) {
			t.Errorf("%d records: %v", count, err)
		}
	}
	b := batchOf(slices.Repeat([]record.Record{record.RunReleased{}}, record.RecordLimit)...)
	if _, err := record.Seal(&b); err != nil {
		t.Errorf("%d records: %v", record.RecordLimit, err)
	}
	big := batchOf(record.RunReleased{Reason: strings.Repeat("x", record.BatchLimit)})
	if _, err := record.Seal(&big); !errors.Is(err, record.ErrTooLarge) {
		t.Errorf("over %d bytes: %v", record.BatchLimit, err)
	}
}

// A value as deep as Canonical takes seals and opens wherever it stands.
func TestDeepValues(t *testing.T) {
	deepest := nested(record.MaxDepth)
	v, err := record.JSONValue([]byte(deepest))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []record.Record{
		record.StepRecorded{Call: "c", Step: "s", Result: v},
		record.ResponseRecorded{Message: record.Message{Role: record.Assistant, Parts: record.Parts{
			record.ToolCallPart{ID: "c", Tool: "t", Args: v}}},
			Prefix: []record.Message{{Role: record.User, Parts: record.Parts{record.TextPart{Text: v}}}}},
		record.CompactionCreated{Usage: record.Usage{Raw: v.Inline}},
	} {
		b := batchOf(r)
		sealed, err := record.Seal(&b)
		if err != nil {
			t.Errorf("%s: %v", r.Kind(), err)
			continue
		}
		opened, err := open(sealed)
		if err != nil || !cmp.Equal(opened, b) {
			t.Errorf("%s: %v", r.Kind(), err)
		}
	}
}

// The records a caller keeps are the records another process reads: times are
// cut to milliseconds, text is valid.
func TestSealNormalises(t *testing.T) {
	b := batchOf(record.RunHeld{Reason: "a\xffb", Until: later.Add(1234).In(noon.Location())})
	b.At = b.At.Add(999)
	sealed, err := record.Seal(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !b.At.Equal(later) || b.Digest != sealed.Digest {
		t.Errorf("at %s, digest %s", b.At, b.Digest)
	}
	opened, err := open(sealed)
	if err != nil {
		t.Fatal(err)
	}
	want := record.RunHeld{Reason: "a\ufffdb", Until: later}
	if diff := cmp.Diff(record.Records{want}, opened.Records); diff != "" {
		t.Error(diff)
	}
}

// Records and message parts read back from any JSON that says the same, with
// encoding/json, and keep refusing what they do not know.
func TestJSONOfParts(t *testing.T) {
	for _, s := range samples() {
		r, ok := s.record.(record.ResponseRecorded)
		if !ok {
			continue
		}
		raw, err := json.MarshalIndent(r.Message, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var back record.Message
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r.Message, back); diff != "" {
			t.Errorf("%s: %s", s.name, diff)
		}
	}
	var m record.Message
	if err := json.Unmarshal([]byte(`{"role":"user","parts":[{"type":"riddle"}]}`), &m); !errors.Is(err, record.ErrUnknownKind) {
		t.Error(err)
	}
	var rs record.Records
	if err := json.Unmarshal([]byte(`[{"kind":"riddle","v":1}]`), &rs); !errors.Is(err, record.ErrUnknownKind) {
		t.Error(err)
	}
	for _, bad := range []string{`7`, `null`, `{}`, `"x"`} {
		if err := json.Unmarshal([]byte(bad), &rs); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// FuzzOpen: Open never panics, and accepts exactly what Seal writes.
func FuzzOpen(f *testing.F) {
	for _, s := range samples() {
		f.Add([]byte(bodyOf(f, s.name)))
	}
	f.Add([]byte(`{"v":1}`))
	f.Add([]byte(`[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var head struct {
			Tenant, Conversation, Batch string
			Slot, Epoch                 uint64
		}
		_ = json.Unmarshal(body, &head) // so that more than ErrForeign is reached
		b, err := record.Open(record.Sealed{Slot: head.Slot, ID: head.Batch, Epoch: head.Epoch, Digest: record.Digest(body), Body: body},
			head.Tenant, head.Conversation)
		if err != nil {
			typed := []error{record.ErrCorrupt, record.ErrForeign, record.ErrUnknownKind, record.ErrUnknownVersion}
			if !slices.ContainsFunc(typed, func(e error) bool { return errors.Is(err, e) }) {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		again, err := record.Seal(&b)
		if errors.Is(err, record.ErrTooLarge) {
			return
		}
		if err != nil || !bytes.Equal(again.Body, body) {
			t.Fatalf("accepted\n%s\nsealed again (%v)\n%s", body, err, again.Body)
		}
	})
}
