package tool

import (
	"reflect"
	"regexp"
	"strings"
	"unicode"
)

// field is one struct field as encoding/json sees it.
type field struct {
	name        string // in JSON
	path        string // in Go
	kind        reflect.Type
	depth       int
	tagged      bool // it has a JSON name of its own
	optional    bool
	addressable bool
	description string
}

// structure is the schema of a struct: its fields are required unless they are
// tagged omitempty or omitzero, and nothing else is allowed.
func (d *deriver) structure(t reflect.Type, addressable bool) (object, error) {
	fields, err := d.fields(t, 0, field{path: d.path, addressable: addressable})
	if err != nil {
		return nil, err
	}
	byName := map[string][]field{}
	for _, f := range fields {
		byName[f.name] = append(byName[f.name], f)
	}
	properties, required := object{}, []any{}
	for _, f := range fields { // in the order of the source, so that the first problem is reported
		if properties[f.name] != nil {
			continue
		}
		if f, err = d.dominant(byName[f.name]); err != nil {
			return nil, err
		}
		s, err := d.at(f.path, f.kind, f.addressable)
		if err != nil {
			return nil, err
		}
		if f.description != "" {
			if s["description"] == nanoseconds {
				f.description += ", " + nanoseconds
			}
			s["description"] = f.description
		}
		properties[f.name] = s
		if !f.optional {
			required = append(required, f.name)
		}
	}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s, nil
}

// dominant picks the field that encoding/json uses of those with one name: the
// shallowest, and of these the one that has the name from its tag.
func (d *deriver) dominant(fields []field) (field, error) {
	best := fields[:1]
	for _, f := range fields[1:] {
		switch b := best[0]; {
		case f.depth < b.depth, f.depth == b.depth && f.tagged && !b.tagged:
			best = []field{f}
		case f.depth == b.depth && f.tagged == b.tagged:
			best = append(best, f)
		}
	}
	if len(best) > 1 {
		d.path = best[1].path
		return field{}, d.refuse("%s is also named %q in JSON, so encoding/json leaves both out: rename one", best[0].path, best[0].name)
	}
	return best[0], nil
}

// fields lists the fields of t and those of the structs embedded in it. What
// all of them have in common is in from.
func (d *deriver) fields(t reflect.Type, depth int, from field) ([]field, error) {
	outer := d.path
	defer func() { d.path = outer }()
	var fields []field
	for i := range t.NumField() {
		sf := t.Field(i)
		d.path = strings.TrimPrefix(from.path+"."+sf.Name, ".")
		tag := sf.Tag.Get("json")
		embedded, byPointer := sf.Type, false
		if sf.Anonymous && embedded.Kind() == reflect.Pointer {
			embedded, byPointer = embedded.Elem(), true
		}
		if tag == "-" || !sf.IsExported() && (!sf.Anonymous || embedded.Kind() != reflect.Struct) {
			continue
		}
		if byPointer && !sf.IsExported() {
			return nil, d.refuse("encoding/json cannot decode into an embedded pointer to an unexported struct: export %s, or embed it without the pointer", embedded)
		}
		f, err := d.field(sf, tag)
		if err != nil {
			return nil, err
		}
		f.path, f.depth = d.path, depth
		f.addressable = from.addressable
		if !sf.Anonymous || f.tagged || embedded.Kind() != reflect.Struct {
			f.optional = f.optional || from.optional
			fields = append(fields, f)
			continue
		}
		// The fields of an embedded struct are the outer struct's own; behind a
		// nil pointer they are left out.
		if err := d.enter(embedded); err != nil {
			return nil, err
		}
		inner, err := d.fields(embedded, depth+1, field{
			path: d.path, optional: from.optional || byPointer, addressable: from.addressable || byPointer,
		})
		if err != nil {
			return nil, err
		}
		d.leave()
		fields = append(fields, inner...)
	}
	return fields, nil
}

// field reads the tags of one struct field.
func (d *deriver) field(sf reflect.StructField, tag string) (field, error) {
	name, options, _ := strings.Cut(tag, ",")
	f := field{name: sf.Name, kind: sf.Type}
	if name != "" {
		if strings.IndexFunc(name, notInName) >= 0 {
			return f, d.refuse("the json name %q has characters that encoding/json does not allow, so it would ignore the name", name)
		}
		f.name, f.tagged = name, true
	}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty", "omitzero":
			f.optional = true
		case "string":
			return f, d.refuse("the json option string is not supported: make the field a string and convert it in the handler")
		}
	}
	description, given := sf.Tag.Lookup("jsonschema")
	switch {
	case given && strings.TrimSpace(description) == "":
		return f, d.refuse("an empty jsonschema tag: it is the description of the field")
	case keyword.MatchString(description):
		return f, d.refuse("the jsonschema tag is the description of the field, in plain words, and takes no %q: "+
			"a field is required unless its json tag says omitempty or omitzero, and a string type lists its values with a method Enum", keyword.FindString(description))
	}
	f.description = description
	return f, nil
}

// keyword finds tags that were written for another library.
var keyword = regexp.MustCompile(`^(required|optional|nullable|omitempty|omitzero|enum|-)(,.*)?$|^[^\s=]*=`)

// notInName is what encoding/json does not accept in a name.
func notInName(c rune) bool {
	return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
}
