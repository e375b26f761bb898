package engine

import (
	"context"
	"fmt"

	"github.com/layover-run/layover/core"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/record"
)

// Prompt is what the model is shown of a run's input.
type Prompt struct {
	Text  string
	Media []Media
}

// Media is an image or a document for the model.
type Media struct {
	MediaType string // such as image/png
	Name      string
	Bytes     []byte
}

// MaxMedia is how many bytes of media one request may have.
const MaxMedia = 24 << 20

// promptError is a prompt that the author's own code did not give.
type promptError struct{ err error }

func (e *promptError) Error() string { return e.err.Error() }

// contextError makes the fact of a request that could not be prepared.
func (j job) contextError(err error) core.Fact {
	if failed, ok := err.(*promptError); ok {
		j.a.cfg.OnUserError(UserError{Conversation: j.conversation, Run: j.run, Where: "Config.Prompt", Err: failed.err})
		return core.ContextPrepared{Err: &record.Error{Kind: core.InstructionsError, Message: "the agent's prompt could not be made of the input",
			Hint: "the server tells its cause to whoever runs it"}}
	}
	return core.ContextPrepared{Err: payloadError(err)}
}

// shown is what stands for the input in a request: its text, and the media that
// the author's prompt adds. The media's bytes go with the request; the digests
// in its parts pin them.
func (j job) shown(ctx context.Context, input record.Value, req *model.Request) (record.Parts, error) {
	in, err := j.resolve(ctx, input)
	if err != nil {
		return nil, err
	}
	if j.def.Hooks.Prompt == nil {
		return record.Parts{record.TextPart{Text: record.TextValue(in.Text())}}, nil
	}
	prompt, err := j.def.Hooks.Prompt(ctx, in.Inline)
	if err != nil {
		return nil, &promptError{err}
	}
	parts := record.Parts{record.TextPart{Text: record.TextValue(prompt.Text)}}
	for _, m := range prompt.Media {
		ref := record.Ref{SHA256: record.Digest(m.Bytes), Size: len(m.Bytes)}
		if err := attach(req, ref, m.Bytes); err != nil {
			return nil, &promptError{err}
		}
		parts = append(parts, record.MediaPart{MediaType: m.MediaType, Content: ref, Name: m.Name})
	}
	return parts, nil
}

// media brings the bytes of a message's media to the request.
func (j job) media(ctx context.Context, msg record.Message, req *model.Request) error {
	for _, p := range msg.Parts {
		m, ok := p.(record.MediaPart)
		if _, there := req.Media[m.Content.SHA256]; !ok || there {
			continue
		}
		v, err := j.resolve(ctx, record.Value{Aside: &m.Content})
		if err != nil {
			return err
		}
		if err := attach(req, m.Content, v.Inline); err != nil {
			return &promptError{err}
		}
	}
	return nil
}

func attach(req *model.Request, ref record.Ref, body []byte) error {
	if req.Media == nil {
		req.Media = map[string][]byte{}
	}
	req.Media[ref.SHA256] = body
	total := 0
	for _, b := range req.Media {
		total += len(b)
	}
	if total > MaxMedia {
		return fmt.Errorf("the media of one request have %d bytes; the limit is %d", total, MaxMedia)
	}
	return nil
}
