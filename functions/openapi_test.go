package functions_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/layover-run/layover/functions"
)

// contract is docs/openapi.json. Here its objects are closed: what a server
// says and the file does not is a difference.
type contract struct {
	doc        map[string]any
	operations []string // "POST /v1/conversations/{conversation}/steer"

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema
}

var openAPI = sync.OnceValue(func() *contract {
	raw, err := os.ReadFile("../docs/openapi.json")
	if err != nil {
		panic(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		panic(err)
	}
	closeObjects(doc)
	c := &contract{doc: doc.(map[string]any), compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource("mem:openapi.json", doc); err != nil {
		panic(err)
	}
	for path, item := range c.doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			c.operations = append(c.operations, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(c.operations)
	return c
})

func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, open := v["additionalProperties"]; !open && v["type"] == "object" && v["properties"] != nil {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			closeObjects(inner)
		}
	case []any:
		for _, inner := range v {
			closeObjects(inner)
		}
	}
}

// at finds what the file says at a place.
func (c *contract) at(place ...string) (any, bool) {
	var v any = c.doc
	for _, name := range place {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[name]; !ok {
			return nil, false
		}
	}
	return v, true
}

// check validates a value against the schema at a place.
func (c *contract) check(body []byte, place ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pointer := "mem:openapi.json#"
	for _, name := range place {
		pointer += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	schema := c.schemas[pointer]
	if schema == nil {
		var err error
		if schema, err = c.compiler.Compile(pointer); err != nil {
			return err
		}
		c.schemas[pointer] = schema
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w in %q", err, body)
	}
	return schema.Validate(v)
}

// operation is the method and path of the file that a request is for.
func (c *contract) operation(method, path string) (string, string, bool) {
	path, _, _ = strings.Cut(path, "?")
	given := strings.Split(path, "/")
	for _, op := range c.operations {
		m, pattern, _ := strings.Cut(op, " ")
		want := strings.Split(pattern, "/")
		match := m == method && len(want) == len(given)
		for i := 0; match && i < len(want); i++ {
			match = want[i] == given[i] || strings.HasPrefix(want[i], "{")
		}
		if match {
			return pattern, strings.ToLower(method), true
		}
	}
	return "", "", false
}

// answered holds one answer of the API against the file, and the request too
// when it was taken.
func (c *contract) answered(method, path, sent string, resp *http.Response, got []byte) error {
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if resp.StatusCode/100 != 2 {
		if mediaType != "application/problem+json" {
			return fmt.Errorf("a refusal is %s", mediaType)
		}
		return c.check(got, "components", "schemas", "Problem")
	}
	pattern, verb, ok := c.operation(method, path)
	if !ok {
		return fmt.Errorf("not in the file, and answered with %s", resp.Status)
	}
	place := []string{"paths", pattern, verb, "responses", fmt.Sprint(resp.StatusCode), "content", mediaType, "schema"}
	if _, ok := c.at(place...); !ok {
		return fmt.Errorf("%s %s: the file has no answer %d of %s", verb, pattern, resp.StatusCode, mediaType)
	}
	var values [][]byte
	switch mediaType {
	case "application/x-ndjson":
		values = bytes.Split(bytes.TrimSpace(got), []byte("\n"))
	case "text/event-stream":
		place[6] = "application/x-ndjson" // says what each data is
		for line := range bytes.Lines(got) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				values = append(values, data)
			}
		}
	default:
		values = [][]byte{got}
	}
	for _, v := range values {
		if len(v) == 0 {
			continue
		}
		if err := c.check(v, place...); err != nil {
			return err
		}
	}
	if _, takes := c.at("paths", pattern, verb, "requestBody"); takes && sent != "" {
		return c.check([]byte(sent), "paths", pattern, verb, "requestBody", "content", "application/json", "schema")
	}
	return nil
}

// The file and the server have the same routes.
func TestOpenAPIRoutes(t *testing.T) {
	if got, want := openAPI().operations, functions.Routes(); !slices.Equal(got, want) {
		t.Errorf("docs/openapi.json has\n%s\nthe server has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Every operation has a name of its own, every place it points at exists, and
// a problem for what it refuses.
func TestOpenAPIIsWhole(t *testing.T) {
	c := openAPI()
	ids := map[string]bool{}
	for _, op := range c.operations {
		method, path, _ := strings.Cut(op, " ")
		v, _ := c.at("paths", path, strings.ToLower(method))
		m := v.(map[string]any)
		id, _ := m["operationId"].(string)
		if id == "" || ids[id] || m["summary"] == "" {
			t.Errorf("%s: the id %q is empty or not its own", op, id)
		}
		ids[id] = true
		responses := m["responses"].(map[string]any)
		if responses["default"] == nil {
			t.Errorf("%s has no problem", op)
		}
		for name := range strings.SplitSeq(path, "{") {
			if name, _, ok := strings.Cut(name, "}"); ok && !strings.Contains(fmt.Sprint(m["parameters"]), "parameters/"+name) {
				t.Errorf("%s does not describe {%s}", op, name)
			}
		}
	}
	refs(c.doc, func(ref string) {
		if _, ok := c.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...); !ok {
			t.Errorf("%s is not there", ref)
		}
	})
	schemas, _ := c.at("components", "schemas")
	for name := range schemas.(map[string]any) {
		if err := c.check([]byte("null"), "components", "schemas", name); err == nil || strings.Contains(err.Error(), "compil") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func refs(v any, each func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if ref, ok := inner.(string); ok && name == "$ref" {
				each(ref)
			}
			refs(inner, each)
		}
	case []any:
		for _, inner := range v {
			refs(inner, each)
		}
	}
}

// The server gives the file away as it is.
func TestOpenAPIIsServed(t *testing.T) {
	w := newWorld(t)
	got, err := io.ReadAll(w.call("GET", "/v1/openapi.json", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../docs/openapi.json")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("another file is served: %v", err)
	}
	var doc struct{ Paths map[string]any }
	if err := json.Unmarshal(got, &doc); err != nil || len(slices.Collect(maps.Keys(doc.Paths))) < 15 {
		t.Errorf("%d paths, %v", len(doc.Paths), err)
	}
}
