package memjournal

import (
	"context"
	"strconv"

	"github.com/layover-run/layover/core/journal"
)

var _ journal.Lister = (*Journal)(nil)

// Lanes implements journal.Lister. The cursor is a number of opened lanes.
func (j *Journal) Lanes(ctx context.Context, tenant, cursor string, limit int) (heads []journal.Head, next string, err error) {
	err = j.read(ctx, func(s *store) error {
		from := len(s.opened)
		if cursor != "" {
			n, err := strconv.Atoi(cursor)
			if err != nil || n <= 0 || n > len(s.opened) {
				return journal.ErrCursor
			}
			from = n
		}
		for i := from - 1; i >= 0; i-- {
			if s.opened[i].Tenant != tenant {
				continue
			}
			if len(heads) >= max(limit, 1) {
				next = strconv.Itoa(i + 1)
				return nil
			}
			heads = append(heads, s.lanes[s.opened[i]].head)
		}
		return nil
	})
	return heads, next, failed("lanes", journal.Lane{}, err)
}
