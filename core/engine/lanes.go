package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/layover-run/layover/core/journal"
)

// MaxPage is the most conversations one page lists.
const MaxPage = 200

// Conversations lists the conversations of a tenant, the one that was opened
// last first, and where the next page begins: empty after the last. A limit
// outside 1 to MaxPage is MaxPage. Where the store cannot list them it is
// KindUnsupported.
func (a *Admitter) Conversations(ctx context.Context, tenant, cursor string, limit int) ([]Status, string, error) {
	const op = "list"
	store, ok := a.cfg.Journal.(journal.Lister)
	if !ok {
		return nil, "", refuse(KindUnsupported, op, "ask for active conversations, or name the one you mean", "this store cannot list every conversation")
	}
	if limit < 1 || limit > MaxPage {
		limit = MaxPage
	}
	heads, next, err := store.Lanes(ctx, tenant, cursor, limit)
	if errors.Is(err, journal.ErrCursor) {
		return nil, "", refuse(KindInvalid, op, "begin without a cursor", "%q is not where a page ended", cursor)
	}
	if err != nil {
		return nil, "", AsError(op, err)
	}
	list, err := a.statuses(ctx, heads)
	return list, next, err
}

// Active lists the conversations of a tenant that are not idle, what is due
// first, at most MaxPage of them.
func (a *Admitter) Active(ctx context.Context, tenant string) ([]Status, error) {
	const everything = 1 << 20
	heads, err := a.cfg.Journal.Due(ctx, time.Unix(1<<40, 0), everything)
	if err != nil {
		return nil, AsError("list", err)
	}
	heads = slices.DeleteFunc(heads, func(h journal.Head) bool { return h.Lane.Tenant != tenant })
	return a.statuses(ctx, heads[:min(len(heads), MaxPage)])
}

// statuses reads every lane. One that is damaged is listed with its head: its
// neighbours can still be looked at.
func (a *Admitter) statuses(ctx context.Context, heads []journal.Head) ([]Status, error) {
	list := make([]Status, 0, len(heads))
	for _, h := range heads {
		st, err := a.Status(ctx, h.Lane)
		switch {
		case damaged(err):
			a.cfg.Log.Error("a conversation is damaged", "conversation", h.Lane.Conversation, "error", err)
			st = Status{Conversation: h.Lane.Conversation, State: h.State, Epoch: h.Epoch, Damaged: true}
		case err != nil:
			return nil, AsError("list", err)
		}
		list = append(list, st)
	}
	return list, nil
}
