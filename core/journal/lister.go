package journal

import "context"

// Lister is what a store may offer besides the port: a list of the
// conversations of a tenant, for people who look for one. It is no part of the
// certified port: nothing the engine decides depends on it, and an adapter
// without it is complete.
type Lister interface {
	// Lanes lists the lanes of a tenant, the one that was opened last first, at
	// most limit of them. An empty cursor begins; the returned one goes on
	// behind the page and is empty after the last. A lane that is opened
	// meanwhile may be missing, no lane is listed twice. Heads are a hint. A
	// cursor of anything else is ErrCursor.
	Lanes(ctx context.Context, tenant, cursor string, limit int) (heads []Head, next string, err error)
}
