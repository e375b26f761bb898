package engine

import (
	"testing"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// Media of the conversation, which the log has aside, come with the request too.
func TestStoredMediaComeWithTheRequest(t *testing.T) {
	body := []byte("image bytes")
	ref := record.Ref{SHA256: record.Digest(body), Size: len(body)}
	a := &attempt{}
	a.payloads.keep(ref.SHA256, body)
	req := &model.Request{}
	msg := record.Message{Role: record.User, Parts: record.Parts{record.MediaPart{MediaType: "image/png", Content: ref}}}
	for range 2 {
		got, err := job{a: a}.message(t.Context(), msg, record.Value{}, req)
		if err != nil || len(got.Parts) != 1 || len(req.Media) != 1 || string(req.Media[ref.SHA256]) != string(body) {
			t.Errorf("%v, %v, %v", got, req.Media, err)
		}
	}
}
