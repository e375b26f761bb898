package sqlitejournal

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/layover-run/layover/core/journal"
)

var _ journal.Lister = (*Journal)(nil)

// Lanes implements journal.Lister. The cursor is the rowid of the last head of
// a page: rowids rise with the opening of lanes.
func (j *Journal) Lanes(ctx context.Context, tenant, cursor string, limit int) ([]journal.Head, string, error) {
	below := int64(math.MaxInt64)
	if cursor != "" {
		n, err := strconv.ParseInt(cursor, 10, 64)
		if err != nil || n <= 0 {
			return nil, "", failed("lanes", journal.Lane{}, journal.ErrCursor)
		}
		below = n
	}
	limit = max(limit, 1)
	var heads []journal.Head
	var ids []int64
	err := j.live(ctx)
	if err == nil {
		err = j.read(ctx, func(r *reader) error {
			var bad error
			err := r.lanes.text(tenant).int(below).int(int64(limit) + 1).each(func(r row) bool {
				var h journal.Head
				h, bad = headOf(r, journal.Lane{Tenant: r.text(9), Conversation: r.text(10)})
				heads, ids = append(heads, h), append(ids, r.int(11))
				return bad == nil
			})
			return errors.Join(err, bad)
		})
	}
	if err != nil {
		return nil, "", failed("lanes", journal.Lane{}, err)
	}
	if len(heads) <= limit {
		return heads, "", nil
	}
	return heads[:limit], strconv.FormatInt(ids[limit-1], 10), nil
}
