package journaltest

import (
	"fmt"
	"testing"

	"github.com/layover-run/layover/core/journal"
)

// RunLister holds an adapter that lists lanes to what journal.Lister says.
// open returns an empty journal, which is a journal.Lister.
func RunLister(t *testing.T, open func(t *testing.T) journal.Journal) {
	f := newFixture(t, open(t))
	list, ok := f.Journal.(journal.Lister)
	if !ok {
		t.Fatal("the journal is no journal.Lister")
	}
	const lanes = 7
	for i := range lanes {
		for _, tenant := range []string{"acme", "other"} {
			s := f.submission(fmt.Sprintf("%s-%d", tenant, i))
			s.Lane = journal.Lane{Tenant: tenant, Conversation: fmt.Sprintf("c%d", i)}
			_, err := f.Admit(f.ctx, s, t0, grace)
			f.check(err)
		}
	}
	var got []string
	cursor, pages := "", 0
	for {
		heads, next, err := list.Lanes(f.ctx, "acme", cursor, 3)
		f.check(err)
		if len(heads) > 3 {
			t.Fatalf("a page of %d", len(heads))
		}
		for _, h := range heads {
			if h.Lane.Tenant != "acme" || h.State != journal.Ready || h.Version == 0 {
				t.Errorf("listed %+v", h)
			}
			got = append(got, h.Lane.Conversation)
		}
		if pages++; next == "" {
			break
		}
		if pages == 1 { // what is opened now is not in later pages
			s := f.submission("late")
			s.Lane = journal.Lane{Tenant: "acme", Conversation: "late"}
			_, err := f.Admit(f.ctx, s, t0, grace)
			f.check(err)
		}
		cursor = next
	}
	f.equal(got, []string{"c6", "c5", "c4", "c3", "c2", "c1", "c0"})
	heads, next, err := list.Lanes(f.ctx, "nobody", "", 3)
	f.check(err)
	if len(heads) != 0 || next != "" {
		t.Errorf("lanes of nobody: %v, next %q", heads, next)
	}
	for _, cursor := range []string{"x", "-1", "0", "1.5"} {
		_, _, err := list.Lanes(f.ctx, "acme", cursor, 3)
		f.want(err, journal.ErrCursor)
	}
}
