package demo

import (
	"encoding/json"
	"slices"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// call is one tool call the model decided on.
type call struct {
	tool string
	args json.RawMessage
}

// plan chooses the calls of this response; none means it is time to answer.
func plan(req *model.Request, r *reading) []call {
	if req.Choice == model.None {
		return nil
	}
	var reads, acts []call
	acted := slices.ContainsFunc(req.Tools, func(t model.Tool) bool { return r.called[t.Name] && !reader(t) })
	for _, t := range req.Tools {
		if r.called[t.Name] {
			continue
		}
		args, taken, ok := arguments(t.Schema, r)
		switch {
		case !ok:
		case reader(t):
			reads = append(reads, call{t.Name, args})
		case taken && r.asked.about(t) && (!acted || needsActing(req, t)):
			acts = append(acts, call{t.Name, args})
		}
	}
	switch {
	case len(reads) > 0:
		return reads
	case len(acts) > 0 && !r.failed:
		return acts[:1]
	}
	return nil
}

// needsActing reports whether only what a tool that acted returned makes t
// callable.
func needsActing(req *model.Request, t model.Tool) bool {
	acting := map[string]bool{}
	for _, other := range req.Tools {
		acting[other.Name] = !reader(other)
	}
	before := read(req, func(p record.ToolResultPart) bool { return !acting[p.Tool] })
	_, _, ok := arguments(t.Schema, before)
	return !ok
}

// arguments fills the parameters of a tool from the pool. It is false when a
// required one cannot be filled; taken says whether the pool filled any of
// those that are required.
func arguments(schema json.RawMessage, r *reading) (args json.RawMessage, taken, ok bool) {
	root, isObject := parse(schema).(object)
	if !isObject {
		return json.RawMessage("{}"), false, true
	}
	f := newFiller(root, r)
	properties, _ := root["properties"].(object)
	for name := range required(root) {
		if _, found := f.value([]string{name}, properties[name]); !found {
			return nil, false, false
		}
	}
	taken = *f.taken > 0
	v, ok := newFiller(root, r).object(nil, root)
	if !ok {
		return nil, false, false
	}
	raw, err := json.Marshal(v)
	return raw, taken, err == nil
}
