package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/layover-run/layover/core/record"
)

func TestCanonical(t *testing.T) {
	hundred := strings.Repeat("1234567890", 10)
	for in, want := range map[string]string{
		// numbers: one spelling for one value, no digit lost
		"0": "0", "-0": "0", "-0.0": "0", "0e9": "0", "0.000e-5": "0",
		"1": "1", "1.0": "1", "1e0": "1", "10e-1": "1", "100E-2": "1", "-1.50": "-1.5",
		"1E-7": "1e-7", "0.0000001": "1e-7", "0.000001": "0.000001", "1.25e-6": "0.00000125", "12e-8": "1.2e-7",
		"0.1": "0.1", "1e-1": "0.1", "0.10": "0.1", "100e-3": "0.1",
		"9007199254740993": "9007199254740993", "9007199254740993.0": "9007199254740993", "900719925474099.3e1": "9007199254740993",
		"18446744073709551616": "18446744073709551616",
		hundred:                hundred, hundred + ".0": hundred, "-" + hundred: "-" + hundred,
		"0." + hundred: "0.123456789" + strings.Repeat("0123456789", 9),
		"1e40":         "1" + strings.Repeat("0", 40), "1" + strings.Repeat("0", 40): "1" + strings.Repeat("0", 40),
		"1e41": "1e41", "1" + strings.Repeat("0", 41): "1e41", "12" + strings.Repeat("0", 41): "1.2e42",
		"1e400": "1e400", "1E+400": "1e400", "1" + strings.Repeat("0", 400): "1e400", "1e-400": "1e-400", "0.1e-399": "1e-400",
		// text: the shortest escapes
		`"a\/b\u0041\u00e9é"`:                          `"a/bAéé"`,
		`"\b\f\n\r\t\"\\\u0000\u001f"`:                 `"\b\f\n\r\t\"\\\u0000\u001f"`,
		`"\u0008\u000C\u000a\u000d\u0009\u0022\u005C"`: `"\b\f\n\r\t\"\\"`,
		"\"\u2028\\u2029\"":                            `"\u2028\u2029"`,
		"\"\\ud83d\\ude00\U0001F600\"":                 "\"\U0001F600\U0001F600\"",
		"\"\\ufffd\ufffd\\u007f\x7f\"":                 "\"\ufffd\ufffd\x7f\x7f\"",
		`"<>&"`:                                        `"<>&"`,
		// structure
		" \t\r\n[ 1 , true,false , null ]\n": `[1,true,false,null]`,
		`{}`:                                 `{}`, `[]`: `[]`, `{ }`: `{}`, `[ ]`: `[]`,
		`{"b":1,"a":{"d":2,"c":3}}`:                                   `{"a":{"c":3,"d":2},"b":1}`,
		`{"aa":1,"a":2,"":3,"A":4,"a b":5}`:                           `{"":3,"A":4,"a":2,"a b":5,"aa":1}`,
		`{"\u0062":1,"a":2}`:                                          `{"a":2,"b":1}`,
		`{"\n":1,"\t":2,"é":3,"\"":4,"z":5}`:                          `{"\t":2,"\n":1,"\"":4,"z":5,"é":3}`,
		"{\"\U0001F600\":1,\"\ufffd\":2}":                             "{\"\ufffd\":2,\"\U0001F600\":1}", // by UTF-8, not UTF-16
		`{"a\\":1,"a":2,"a!":3}`:                                      `{"a":2,"a!":3,"a\\":1}`,
		nested(record.MaxDepth):                                       nested(record.MaxDepth),
		strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100): strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100),
	} {
		got, err := record.Canonical([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
			continue
		}
		if again, err := record.Canonical(got); err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: %s is not its own canonical form: %s, %v", in, got, again, err)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for _, in := range []string{
		"", " ", "nul", "True", "'a'", "//", "\ufeff1", "1 2", "{} {}", "[1]]", "[1", "[1,", "[1,]", "[,1]", "[1 2]",
		`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{1:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{,}`,
		// numbers
		"01", "-01", "+1", "-", ".5", "1.", "1.e1", "1e", "1e+", "0x1", "NaN", "Infinity", "1_0", "--1", "1e401", "1e-401",
		"1e999999999999999999999", "12e400", "0.01e-399", strings.Repeat("1", 401), "1." + strings.Repeat("1", 400),
		// text
		`"`, `"a`, `"\`, `"\u`, `"\u12`, `"\u12"`, `"\u123x"`, `"\x41"`, `"\'"`, `"\U0041"`,
		"\"\n\"", "\"\t\"", "\"\x00\"", "\"\x1f\"",
		`"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud83d\u0041"`, `"\ud83d "`, `"\ude00\ud83d"`,
		"\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\"\xe2\x80\"", "\"\xf4\x90\x80\x80\"",
		// names
		`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `{"b":1,"a":2,"b":3}`, `{"\n":1,"\u000a":2}`, `{"é":1,"\u00e9":2}`,
		`{"😀":1,"\ud83d\ude00":2}`, `[{"x":{"":1,"":2}}]`, `{"\\":1,"\u005c":2}`, `{"a/b":1,"a\/b":2}`,
		nested(record.MaxDepth + 1), strings.Repeat("[", record.MaxDepth+1) + "1" + strings.Repeat("]", record.MaxDepth+1), strings.Repeat(`{"a":`, record.MaxDepth+1), strings.Repeat("[", 1<<20),
	} {
		if got, err := record.Canonical([]byte(in)); !errors.Is(err, record.ErrInvalidJSON) || got != nil {
			t.Errorf("%.60q: %s, %v", in, got, err)
		}
	}
}

func TestInteger(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "7": "7", "-7.0": "-7", "1e3": "1000", "12.5e1": "125", "1e40": "1" + strings.Repeat("0", 40),
		"1e41": "1" + strings.Repeat("0", 41), "9007199254740993": "9007199254740993", "-1.2e100": "-12" + strings.Repeat("0", 99),
		"0.5": "", "1e-1": "", "1e401": "", `"7"`: "", "null": "", "true": "", "[]": "", "": "", "7 7": "",
	} {
		got, ok := record.Integer([]byte(in))
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%s: %v, %v; want %s", in, got, ok, want)
		}
	}
}

// text draws strings that hold what escaping is about.
func textGen() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("ab\"\\/\n\t\x00\x1f\x7f<&é\u2028\u2029\ufffd😀"))))
}

func numberGen() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.Custom(func(t *rapid.T) string { return strconv.FormatInt(rapid.Int64().Draw(t, "n"), 10) }),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?`),
		rapid.StringMatching(`-?[1-9]0{0,60}(\.0{1,3})?([eE][+-]?[0-9]{1,2})?`))
}

// valueGen draws what json.Decoder.UseNumber reads.
func valueGen(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Map(textGen(), func(s string) any { return strings.ToValidUTF8(s, "\ufffd") }),
		rapid.Map(numberGen(), func(s string) any { return json.Number(s) }),
		rapid.SampledFrom([]any{nil, true, false}))
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(valueGen(depth-1), 0, 5), func(v []any) any { return v }),
		rapid.Map(rapid.MapOfN(textGen(), valueGen(depth-1), 0, 20), func(m map[string]any) any {
			valid := map[string]any{}
			for k, v := range m {
				valid[strings.ToValidUTF8(k, "\ufffd")] = v
			}
			return valid
		}))
}

// write spells a value with members in a drawn order, with drawn white space
// and drawn escapes.
func write(t *rapid.T, out *strings.Builder, v any) {
	space := func() { out.WriteString(rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space")) }
	space()
	defer space()
	switch v := v.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(v))
	case json.Number:
		out.WriteString(v.String())
	case string:
		spell(t, out, v)
	case []any:
		out.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			write(t, out, e)
		}
		out.WriteByte(']')
	case map[string]any:
		var keys []string
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		out.WriteByte('{')
		for i, k := range rapid.Permutation(keys).Draw(t, "order") {
			if i > 0 {
				out.WriteByte(',')
			}
			space()
			spell(t, out, k)
			space()
			out.WriteByte(':')
			write(t, out, v[k])
		}
		out.WriteByte('}')
	}
}

func spell(t *rapid.T, out *strings.Builder, s string) {
	how := rapid.IntRange(0, 2).Draw(t, "spelling")
	if how == 0 {
		raw, _ := json.Marshal(s)
		out.Write(raw)
		return
	}
	out.WriteByte('"')
	for _, r := range s {
		switch {
		case r >= 1<<16:
			out.WriteRune(r)
		case how == 1 || r < 0x20 || r == '"' || r == '\\':
			const hex = "0123456789abcdefABCDEF"
			out.WriteString(`\u`)
			for shift := 12; shift >= 0; shift -= 4 {
				out.WriteByte(hex[r>>shift&15])
			}
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
}

// However a value is spelled, its canonical form is one, is its own canonical
// form, and means the value to encoding/json.
func TestCanonicalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := valueGen(3).Draw(t, "value")
		var a, b strings.Builder
		write(t, &a, v)
		write(t, &b, v)
		first, err := record.Canonical([]byte(a.String()))
		if err != nil {
			t.Fatalf("%v: %s", err, a.String())
		}
		second, err := record.Canonical([]byte(b.String()))
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%v: %s and %s become\n%s\n%s", err, a.String(), b.String(), first, second)
		}
		if again, err := record.Canonical(first); err != nil || !bytes.Equal(again, first) {
			t.Fatalf("%v: %s becomes %s", err, first, again)
		}
		if got := meaning(decode(t, first)); !reflect.DeepEqual(got, meaning(v)) {
			t.Fatalf("%#v reads back as %#v from %s", meaning(v), got, first)
		}
	})
}

func decode(t *rapid.T, text []byte) any {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %s: %v", text, err)
	}
	return v
}

// meaning replaces numbers by their exact value.
func meaning(v any) any {
	switch v := v.(type) {
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return "not a number: " + v.String()
		}
		return r.RatString()
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, meaning(e))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = meaning(e)
		}
		return out
	}
	return v
}

// For texts, integers and maps the canonical form is what encoding/json writes
// without escaping for HTML.
func TestCanonicalIsPlainJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.MapOf(textGen(), rapid.OneOf(
			rapid.Map(textGen(), func(s string) any { return s }),
			rapid.Map(rapid.Int64(), func(n int64) any { return n }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }))).Draw(t, "value")
		for k := range v {
			if !utf8.ValidString(k) {
				delete(v, k) // two invalid names may become one
			}
		}
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		got, err := record.Canonical(want.Bytes())
		if err != nil || !bytes.Equal(got, bytes.TrimSpace(want.Bytes())) {
			t.Fatalf("%v: %s, want %s", err, got, want.Bytes())
		}
	})
}

func TestValues(t *testing.T) {
	if v := record.TextValue("a\xff\"<é"); string(v.Inline) != "\"a\ufffd\\\"<é\"" || v.Text() != "a\ufffd\"<é" {
		t.Errorf("%s %q", v.Inline, v.Text())
	}
	if v := record.MustValue(map[string]any{"b": "<&>", "a": 1.0}); string(v.Inline) != `{"a":1,"b":"<&>"}` || v.Text() != `{"a":1,"b":"<&>"}` {
		t.Errorf("%s %q", v.Inline, v.Text())
	}
	if _, err := record.JSONValue([]byte(`{"a":1,"a":2}`)); !errors.Is(err, record.ErrInvalidJSON) {
		t.Error(err)
	}
	inline := record.MustValue("payload")
	stored := record.Value{Aside: &record.Ref{SHA256: inline.Digest(), Size: inline.Size()}}
	if inline.Digest() != stored.Digest() || inline.Size() != stored.Size() || inline.Size() != 9 {
		t.Error("a value aside has another digest or size than inline")
	}
	if !(record.Value{}).IsZero() || record.MustValue(nil).IsZero() || stored.IsZero() {
		t.Error("absent is not null")
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1.50,-0,1e400],"a":"\ud83d\ude00\u2028"}`, `{"a":1,"\u0061":2}`, `[[[[]]]]`, `"\ud800"`, "\"\xff\"", `12e400`,
		`{"a":{},"":null}`, `1e41`, `-0.000001`, ` true `, `{"\"":"\\"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := record.Canonical(in)
		if err != nil {
			if !errors.Is(err, record.ErrInvalidJSON) {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		if !json.Valid(in) || !json.Valid(out) || !utf8.Valid(out) {
			t.Fatalf("%q became %q", in, out)
		}
		if again, err := record.Canonical(out); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q became %q and then %q, %v", in, out, again, err)
		}
	})
}
