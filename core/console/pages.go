package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/layover-run/layover/core/client"
	"github.com/layover-run/layover/core/client/wire"
)

const (
	// pageLanes is how many conversations the first page lists.
	pageLanes = 30
	// pageRuns is how many runs of a conversation one page shows.
	pageRuns = 20
)

// homePage lists what waits, what runs, and everything else, each once.
type homePage struct {
	Approvals []approval
	Active    []wire.Status
	All       []wire.Status // but for the active ones
	Next      string
	Paged     bool
	NoList    string // why there is no list of everything
}

func (c *console) home(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	data := homePage{Paged: r.URL.Query().Has("cursor")}
	pending, err := c.api.Approvals(ctx)
	if err != nil {
		return err
	}
	data.Approvals = approvalsOf(pending, "/")
	if data.Active, err = c.api.Active(ctx); err != nil {
		return err
	}
	list, err := c.api.Conversations(ctx, r.URL.Query().Get("cursor"), pageLanes)
	var p *client.Problem
	switch {
	case err == nil:
		data.All, data.Next = list.Conversations, list.Next
		shown := map[string]bool{}
		for _, s := range data.Active {
			shown[s.Conversation] = true
		}
		data.All = slices.DeleteFunc(data.All, func(s wire.Status) bool { return shown[s.Conversation] })
	case asUnsupported(err, &p):
		data.NoList = upperFirst(p.Detail) + "."
	default:
		return err
	}
	return c.render(w, r, http.StatusOK, "home", page{Title: "Conversations", Stream: "/v1/events", Data: data, Waiting: len(pending)})
}

// approval is a question with the form that answers it.
type approval struct {
	wire.Approval
	Back string // where the answer leads
	Here bool   // on the page of its conversation
}

func approvalsOf(pending []wire.Approval, back string) []approval {
	list := make([]approval, len(pending))
	for i, p := range pending {
		list[i] = approval{Approval: p, Back: back}
	}
	return list
}

func (c *console) approvals(w http.ResponseWriter, r *http.Request) error {
	pending, err := c.api.Approvals(r.Context())
	if err != nil {
		return err
	}
	return c.render(w, r, http.StatusOK, "approvals", page{Title: "Approvals", Stream: "/v1/events", Waiting: len(pending),
		Data: approvalsOf(pending, "/ui/approvals")})
}

// decide carries an answer to the API, bound to the arguments that were shown.
func (c *console) decide(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return refused(http.StatusBadRequest, "The form did not arrive whole", "Go back and try again.")
	}
	if err := checkForm(r); err != nil {
		return err
	}
	_, err := c.api.Decide(r.Context(), r.PathValue("approval"), wire.Decide{Decision: r.PostForm.Get("decision"),
		Reason: r.PostForm.Get("reason"), ArgsDigest: r.PostForm.Get("argsDigest")})
	if err != nil {
		return err
	}
	http.Redirect(w, r, local(r.PostForm.Get("back")), http.StatusSeeOther)
	return nil
}

// conversationPage is one conversation with its timeline.
type conversationPage struct {
	wire.Status
	Runs      []*run
	Approvals []approval
	Earlier   string // address of the page before
	Later     string
}

func (c *console) conversation(w http.ResponseWriter, r *http.Request) error {
	ctx, name := r.Context(), r.PathValue("conversation")
	var t timeline
	for e, err := range c.api.Events(ctx, name, client.EventsOptions{}) {
		if err != nil {
			return err
		}
		if err := t.add(e.ID, e.JSON); err != nil {
			return err
		}
	}
	status, err := c.api.Status(ctx, name)
	if err != nil {
		return err
	}
	pending, err := c.api.Approvals(ctx)
	if err != nil {
		return err
	}
	self := "/ui/conversations/" + pathSegment(name)
	waiting := len(pending)
	pending = slices.DeleteFunc(pending, func(p wire.Approval) bool { return p.Conversation != name })
	data := conversationPage{Status: status, Approvals: approvalsOf(pending, self)}
	for i := range data.Approvals {
		data.Approvals[i].Here = true
	}
	begin, end := data.window(len(t.Runs), r.URL.Query().Get("page"), self)
	data.Runs = t.Runs[begin:end]
	if err := c.inputs(ctx, name, data.Runs); err != nil {
		return err
	}
	stream := ""
	if data.Later == "" { // what is old does not change
		stream = "/v1/conversations/" + pathSegment(name) + "/events"
	}
	return c.render(w, r, http.StatusOK, "conversation", page{Title: name, Stream: stream, After: t.Last, Data: data, Waiting: waiting})
}

// window picks the runs of a page; the first page has the newest.
func (p *conversationPage) window(runs int, given, self string) (begin, end int) {
	n, err := strconv.Atoi(cmp.Or(given, "1"))
	if pages := max(1, (runs+pageRuns-1)/pageRuns); err != nil || n < 1 || n > pages {
		n = 1
	}
	end = max(runs-(n-1)*pageRuns, 0)
	begin = max(end-pageRuns, 0)
	if begin > 0 {
		p.Earlier = fmt.Sprintf("%s?page=%d", self, n+1)
	}
	if n > 1 {
		p.Later = fmt.Sprintf("%s?page=%d", self, n-1)
	}
	return begin, end
}

func (c *console) agents(w http.ResponseWriter, r *http.Request) error {
	agents, err := c.api.Agents(r.Context())
	if err != nil {
		return err
	}
	return c.render(w, r, http.StatusOK, "agents", page{Title: "Agents", Data: agents, Waiting: -1})
}

// pathSegment is an id as one segment of a path.
func pathSegment(id string) string {
	switch id {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(id)
}
