package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
	"github.com/layover-run/layover/core/record"
)

// What a person does to a run beside approving: end it, and say what became of
// a call nobody knows about.

// abort asks the run that was shown to end, and no later one.
func (c *console) abort(w http.ResponseWriter, r *http.Request) error {
	return c.act(w, r, func(ctx context.Context, conversation string) error {
		_, err := c.api.Abort(ctx, conversation, wire.Abort{Submission: r.PostForm.Get("submission"), Reason: r.PostForm.Get("reason")})
		return err
	})
}

func (c *console) resolve(w http.ResponseWriter, r *http.Request) error {
	return c.act(w, r, func(ctx context.Context, conversation string) error {
		in := wire.Resolve{Call: r.PostForm.Get("call"), Resolution: record.Resolution(r.PostForm.Get("resolution")), Reason: r.PostForm.Get("reason")}
		if in.Resolution == record.Happened {
			if in.Result = json.RawMessage(bytes.TrimSpace([]byte(r.PostForm.Get("result")))); !json.Valid(in.Result) {
				return refused(http.StatusBadRequest, "A call that happened needs its result",
					`Go back and give what it would have returned, as JSON: {"id":"17"}, or null where there is nothing to tell.`)
			}
		}
		_, err := c.api.Resolve(ctx, conversation, in)
		return err
	})
}

// act carries a form about a conversation to the API and shows it again.
func (c *console) act(w http.ResponseWriter, r *http.Request, do func(context.Context, string) error) error {
	if err := r.ParseForm(); err != nil {
		return refused(http.StatusBadRequest, "The form did not arrive whole", "Go back and try again.")
	}
	if err := checkForm(r); err != nil {
		return err
	}
	conversation := r.PathValue("conversation")
	if err := do(r.Context(), conversation); err != nil {
		return err
	}
	http.Redirect(w, r, "/ui/conversations/"+pathSegment(conversation), http.StatusSeeOther)
	return nil
}

// inputs reads what the runs of a page were asked. Events do not tell it, the
// records do.
func (c *console) inputs(ctx context.Context, conversation string, runs []*run) error {
	missing := map[string]*run{}
	for _, r := range runs {
		missing[r.ID] = r
	}
	for line, err := range c.api.Records(ctx, conversation) {
		var gone *client.Problem
		switch {
		case errors.As(err, &gone) && gone.Status == http.StatusNotFound:
			return nil // it was never opened: its page says so
		case err != nil:
			return err
		case !bytes.Contains(line, []byte(`"kind":"submissionQueued"`)):
			continue
		}
		var batch struct{ Records []record.SubmissionQueued }
		if err := json.Unmarshal(line, &batch); err != nil {
			return err
		}
		for _, q := range batch.Records {
			if r := missing[q.Submission]; r != nil && q.Entry > 0 {
				r.Input, r.InputAside = q.Input.Inline, q.Input.Aside
				delete(missing, q.Submission)
			}
		}
		if len(missing) == 0 {
			return nil
		}
	}
	return nil
}
