package record_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/layover-run/layover/core/record"
)

// store is a put that keeps what it is given.
func store(into map[string]string) func(string, []byte) error {
	return func(digest string, body []byte) error {
		into[digest] = string(body)
		return nil
	}
}

func step(name string, size int) record.StepRecorded {
	return record.StepRecorded{Call: "c1", Step: name, Result: sized(size)}
}

// sized is a value of exactly size bytes.
func sized(size int) record.Value { return record.TextValue(strings.Repeat("x", size-2)) }

// sizesAside lists the sizes of what went aside, in record order.
func sizesAside(records record.Records) []int {
	var sizes []int
	for _, r := range records {
		if v := r.(record.StepRecorded).Result; v.Aside != nil {
			sizes = append(sizes, v.Aside.Size)
		}
	}
	return sizes
}

func TestOutsize(t *testing.T) {
	repeat := func(size, times int) []int { return slices.Repeat([]int{size}, times) }
	for what, row := range map[string]struct{ sizes, aside []int }{
		"nothing":                       {nil, nil},
		"small":                         {[]int{100, 200}, nil},
		"at the inline limit":           {[]int{record.InlineLimit}, nil},
		"over the inline limit":         {[]int{record.InlineLimit + 1}, []int{record.InlineLimit + 1}},
		"large goes, medium stays":      {[]int{300, 200 << 10, 20 << 10, 31 << 10}, []int{200 << 10}},
		"half a batch of medium":        {repeat(32<<10, 4), nil},
		"more than half of medium":      {append(repeat(32<<10, 4), 10<<10, 100), repeat(32<<10, 4)},
		"the largest first":             {append(repeat(20<<10, 4), repeat(6<<10, 16)...), repeat(20<<10, 4)},
		"very many small":               {repeat(255, record.RecordLimit), nil},
		"very many, a little over that": {repeat(400, 400), repeat(400, 400)},
	} {
		var records record.Records
		for _, size := range row.sizes {
			records = append(records, step("s", size))
		}
		out, err := record.Outsize(records, store(map[string]string{}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row.aside, sizesAside(out)); diff != "" {
			t.Errorf("%s (-want aside +got):\n%s", what, diff)
		}
	}
}

// Whatever values a batch holds, it seals after Outsize, every payload it
// refers to was put under its own digest, and the records it was made of are as
// they were.
func TestOutsizeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(2, 600), rapid.IntRange(2, 80<<10)), 1, 40).Draw(t, "sizes")
		var records, before record.Records
		for _, size := range sizes {
			records, before = append(records, step("s", size)), append(before, step("s", size))
		}
		kept := map[string]string{}
		out, err := record.Outsize(records, store(kept))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(records, before) {
			t.Fatal("the original records changed")
		}
		least, most := 1<<30, 0
		for i, r := range out {
			v := r.(record.StepRecorded).Result
			was := records[i].(record.StepRecorded).Result
			if v.Digest() != was.Digest() || v.Size() != was.Size() {
				t.Fatalf("value %d is another one", i)
			}
			if v.Aside == nil {
				most = max(most, v.Size())
				continue
			}
			least = min(least, v.Size())
			if body, ok := kept[v.Aside.SHA256]; !ok || body != string(was.Inline) {
				t.Fatalf("payload of value %d was not put", i)
			}
		}
		if most > record.InlineLimit || least <= most {
			t.Fatalf("%d bytes went aside, %d stayed", least, most)
		}
		b := batchOf(out...)
		if _, err := record.Seal(&b); err != nil {
			t.Fatal(err)
		}
		again, err := record.Outsize(out, func(string, []byte) error { return errors.New("put again") })
		if err != nil || !reflect.DeepEqual(again, out) {
			t.Fatalf("a small batch changed: %v", err)
		}
	})
}

// Every value of every kind goes aside when it is large.
func TestOutsizeReachesEveryValue(t *testing.T) {
	for _, s := range samples() {
		filled, count := inflate(s.record)
		kept := map[string]string{}
		out, err := record.Outsize(record.Records{filled}, store(kept))
		if err != nil {
			t.Fatal(err)
		}
		if inline, _ := tally(reflect.ValueOf(out[0])); inline != 0 || len(kept) != min(count, 1) {
			t.Errorf("%s: %d of %d values stayed, %d payloads", s.name, inline, count, len(kept))
		}
		if inline, _ := tally(reflect.ValueOf(filled)); inline != count {
			t.Errorf("%s: the original changed", s.name)
		}
		if count > 0 && reflect.DeepEqual(out[0], filled) {
			t.Errorf("%s: unchanged", s.name)
		}
	}
}

// inflate makes every value of a record large and inline, and counts them.
func inflate(r record.Record) (record.Record, int) {
	v := reflect.New(reflect.TypeOf(r)).Elem()
	v.Set(reflect.ValueOf(r))
	n := blow(v)
	return v.Interface().(record.Record), n
}

var valueType = reflect.TypeFor[record.Value]()

func blow(v reflect.Value) (n int) {
	switch {
	case v.Type() == valueType:
		v.Set(reflect.ValueOf(sized(40 << 10)))
		return 1
	case v.Kind() == reflect.Interface:
		e := reflect.New(v.Elem().Type()).Elem()
		e.Set(v.Elem())
		n = blow(e)
		v.Set(e)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			n += blow(v.Index(i))
		}
	case v.Kind() == reflect.Struct && v.Type().PkgPath() != "time":
		for i := range v.NumField() {
			n += blow(v.Field(i))
		}
	}
	return n
}

// tally counts the values inline and aside.
func tally(v reflect.Value) (inline, aside int) {
	each := func(v reflect.Value) {
		i, a := tally(v)
		inline, aside = inline+i, aside+a
	}
	switch {
	case v.Type() == valueType:
		value := v.Interface().(record.Value)
		return min(len(value.Inline), 1), min(value.Size()-len(value.Inline), 1)
	case v.Kind() == reflect.Interface:
		each(v.Elem())
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			each(v.Index(i))
		}
	case v.Kind() == reflect.Struct && v.Type().PkgPath() != "time":
		for i := range v.NumField() {
			each(v.Field(i))
		}
	}
	return inline, aside
}

func TestOutsizeFails(t *testing.T) {
	full := errors.New("disk full")
	out, err := record.Outsize(record.Records{step("a", 100), step("b", 40<<10)}, func(string, []byte) error { return full })
	if !errors.Is(err, full) || out != nil {
		t.Errorf("%v, %v", out, err)
	}
}

// MapMessage brings payloads back and leaves its message alone.
func TestMapMessage(t *testing.T) {
	m := record.Message{Role: record.User, Parts: record.Parts{
		record.TextPart{Text: aside}, record.ReasoningPart{}, record.ToolResultPart{Result: aside}, record.InputPart{}}}
	seen := 0
	got, err := record.MapMessage(m, func(v record.Value) (record.Value, error) {
		if seen++; v.Aside == nil {
			t.Errorf("asked about %s", v.Inline)
		}
		return record.MustValue(seen), nil
	})
	if err != nil || seen != 2 {
		t.Fatal(seen, err)
	}
	want := record.Message{Role: record.User, Parts: record.Parts{
		record.TextPart{Text: record.MustValue(1)}, record.ReasoningPart{}, record.ToolResultPart{Result: record.MustValue(2)}, record.InputPart{}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !cmp.Equal(m.Parts[0], record.Part(record.TextPart{Text: aside})) {
		t.Error("the original changed")
	}
	gone := errors.New("gone")
	if _, err := record.MapMessage(m, func(record.Value) (record.Value, error) { return record.Value{}, gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
}
