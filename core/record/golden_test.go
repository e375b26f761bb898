package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/layover-run/layover/core/record"
)

var update = flag.Bool("update", false, "rewrite the golden files; a change of an existing one breaks every log there is")

// golden is one sealed batch as stored: what was written once has to be read,
// and written again with the same bytes, for good.
type golden struct {
	Digest string          `json:"digest"`
	Body   json.RawMessage `json:"body"`
}

func goldenPath(name string) string { return filepath.Join("testdata", name+".json") }

func (g golden) sealed() record.Sealed {
	return record.Sealed{Slot: 7, ID: "batch-7", Epoch: 2, Digest: g.Digest, Body: g.Body}
}

func open(s record.Sealed) (record.Batch, error) {
	return record.Open(s, "acme", "conversation \"1\"")
}

func TestGolden(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			b := batchOf(s.record)
			sealed, err := record.Seal(&b)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				raw := fmt.Appendf(nil, "{\"digest\":%q,\"body\":%s}\n", sealed.Digest, sealed.Body)
				if err := os.WriteFile(goldenPath(s.name), raw, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			raw, err := os.ReadFile(goldenPath(s.name))
			if err != nil {
				t.Fatal(err)
			}
			var stored golden
			if err := json.Unmarshal(raw, &stored); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(stored.Body), string(sealed.Body)); diff != "" {
				t.Errorf("the persisted form changed; it is for good (-golden +now):\n%s", diff)
			}
			if stored.Digest != sealed.Digest {
				t.Errorf("digest %s, golden %s", sealed.Digest, stored.Digest)
			}
			opened, err := open(stored.sealed())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(b, opened); diff != "" {
				t.Errorf("the golden batch reads differently (-written +read):\n%s", diff)
			}
			again, err := record.Seal(&opened)
			if err != nil || !bytes.Equal(again.Body, stored.Body) || again.Digest != stored.Digest {
				t.Errorf("read and sealed again (%v):\n%s\nwas\n%s", err, again.Body, stored.Body)
			}
		})
	}
}

// Every kind has a golden file with everything in it and, where something can
// be absent, one without; no file is left over.
func TestGoldenCoverage(t *testing.T) {
	have, partTypes := map[string]bool{}, map[string]bool{}
	var names []string
	for _, s := range samples() {
		have[kindOf(s.name)] = true
		names = append(names, goldenPath(s.name))
		if string(s.record.Kind()) != kindOf(s.name) {
			t.Errorf("sample %s is a %s", s.name, s.record.Kind())
		}
		if r, ok := s.record.(record.ResponseRecorded); ok {
			for _, p := range r.Message.Parts {
				partTypes[record.PartType(p)] = true
			}
		}
	}
	for _, kind := range record.Kinds() {
		if !have[kind] {
			t.Errorf("no golden file of kind %s", kind)
		}
	}
	for _, part := range record.PartTypes() {
		if !partTypes[part] {
			t.Errorf("no golden file with a %s part", part)
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, files); diff != "" {
		t.Errorf("golden files (-samples +found):\n%s", diff)
	}
	for field, filled := range filledFields() {
		if !filled {
			t.Errorf("no golden file fills %s", field)
		}
	}
}

// filledFields says of every field of every kind whether a sample fills it.
func filledFields() map[string]bool {
	filled := map[string]bool{}
	for _, s := range samples() {
		fill(filled, reflect.ValueOf(s.record))
	}
	return filled
}

func fill(filled map[string]bool, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			fill(filled, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(filled, v.Index(i))
		}
	case reflect.Struct:
		if v.Type().PkgPath() == "time" {
			return
		}
		for i := range v.NumField() {
			path := v.Type().Name() + "." + v.Type().Field(i).Name
			filled[path] = filled[path] || !v.Field(i).IsZero()
			fill(filled, v.Field(i))
		}
	}
}

// The struct tags and the field lists describe one format: encoding/json in
// canonical form writes every sample the same way.
func TestTagsAgreeWithFields(t *testing.T) {
	for _, s := range samples() {
		if diff := cmp.Diff(string(tagged(t, s.record)), element(t, s.record)); diff != "" {
			t.Errorf("%s (-tags +fields):\n%s", s.name, diff)
		}
	}
}

// tagged encodes a record by its struct tags alone.
func tagged(t *testing.T, r record.Record) []byte {
	t.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	members["kind"], members["v"] = json.RawMessage(`"`+r.Kind()+`"`), json.RawMessage("1")
	if raw, err = json.Marshal(members); err != nil {
		t.Fatal(err)
	}
	canonical, err := record.Canonical(raw)
	if err != nil {
		t.Fatal(err)
	}
	return canonical
}

func element(t *testing.T, r record.Record) string {
	t.Helper()
	raw, err := record.Records{r}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(raw), "["), "]")
}

// conformance: RUN-011g
//
// What was written before a settlement had these fields still reads, and reads
// as without them.
func TestOldSettlementReads(t *testing.T) {
	body := sealBody(t, `{"at":"2026-03-01T12:00:01.5Z","attempt":"attempt-2","batch":"batch-7","conversation":"conversation \"1\"",`+
		`"epoch":2,"prev":"","records":[{"attempts":1,"kind":"runSettled","output":{"inline":"ok"},"run":"s1","status":"completed","turns":2,"v":1}],`+
		`"slot":7,"tenant":"acme","v":1}`)
	b, err := open(body)
	if err != nil {
		t.Fatal(err)
	}
	want := record.RunSettled{Run: "s1", Status: record.StatusCompleted, Output: record.TextValue("ok"), Attempts: 1, Turns: 2}
	if diff := cmp.Diff(record.Records{want}, b.Records); diff != "" {
		t.Error(diff)
	}
}

// sealBody gives a body the digest that belongs to it.
func sealBody(t *testing.T, body string) record.Sealed {
	t.Helper()
	return record.Sealed{Slot: 7, ID: "batch-7", Epoch: 2, Digest: record.Digest([]byte(body)), Body: []byte(body)}
}

// The batch as outsiders see it is its sealed body with its digest.
func TestBatchJSON(t *testing.T) {
	b := batchOf(record.CallPrepared{Call: "c1", Operation: "op1"})
	sealed, err := record.Seal(&b)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := b.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var with, without map[string]any
	if err := errors.Join(json.Unmarshal(shown, &with), json.Unmarshal(sealed.Body, &without)); err != nil {
		t.Fatal(err)
	}
	without["digest"] = sealed.Digest
	if diff := cmp.Diff(without, with); diff != "" {
		t.Error(diff)
	}
	if canonical, err := record.Canonical(shown); err != nil || !bytes.Equal(canonical, shown) {
		t.Errorf("not canonical: %v %s", err, shown)
	}
	if _, err := open(sealBody(t, string(shown))); !errors.Is(err, record.ErrUnknownKind) {
		t.Errorf("a stored body with a digest inside: %v", err)
	}
}

// Drained knows every kind that consumes an inbox entry.
func TestDrained(t *testing.T) {
	for _, s := range samples() {
		v := reflect.New(reflect.TypeOf(s.record)).Elem()
		want := uint64(0)
		if f := v.FieldByName("Entry"); f.IsValid() {
			f.SetUint(77)
			want = 77
		}
		if got := record.Drained(v.Interface().(record.Record)); got != want {
			t.Errorf("Drained of a %s is %d, want %d", s.record.Kind(), got, want)
		}
	}
}
