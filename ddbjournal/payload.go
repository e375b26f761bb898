package ddbjournal

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

var pointPayload = newPoint("payload")

// payloadLimit bounds a payload, in bytes: what its chunk keys can count.
const payloadLimit = ChunkSize * 1_000_000

// chunksOf is how many chunks hold size bytes; nothing is one empty chunk.
func chunksOf(size int) int { return max(1, (size+ChunkSize-1)/ChunkSize) }

func chunk(body []byte, n int) []byte {
	from := n * ChunkSize
	return body[from:min(from+ChunkSize, len(body))]
}

// PutPayload implements journal.Journal. A payload has a partition of its own
// and is split at fixed places, each chunk compressed for itself: whoever
// writes the same payload writes the same chunks. They are written in order,
// so the last one says that all are there.
func (j *Journal) PutPayload(ctx context.Context, tenant, digest string, body []byte) error {
	return failedKey("put payload", tenant, digest, j.putPayload(ctx, tenant, digest, body))
}

func (j *Journal) putPayload(ctx context.Context, tenant, digest string, body []byte) error {
	if record.Digest(body) != digest {
		return fmt.Errorf("%w: the bytes have another digest", record.ErrCorrupt)
	}
	count := chunksOf(len(body))
	if len(body) > payloadLimit {
		return fmt.Errorf("%w: payload of %d bytes, limit %d", record.ErrTooLarge, len(body), payloadLimit)
	}
	if count > 1 {
		last, err := j.get(ctx, chunkKey(tenant, digest, count-1))
		if err != nil {
			return err
		}
		if last != nil {
			// All are there, unless the table was damaged: reading costs a fraction
			// of writing, and an answer that says "stored" has to be true.
			if _, err := j.payload(ctx, tenant, digest); !errors.Is(err, record.ErrCorrupt) {
				return err
			}
		}
	}
	for n := range count {
		it := newItem(chunkKey(tenant, digest, n), ownerOf(tenant, digest))
		it[attrCount] = number(uint64(count))
		it.setBody(attrBody, chunk(body, n))
		occupant, err := j.put(ctx, pointPayload, it)
		if err != nil {
			return err
		}
		if occupant != nil {
			if err := sameChunk(occupant, tenant, digest, count, chunk(body, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

func sameChunk(it item, tenant, digest string, count int, want []byte) error {
	got, total, err := chunkOf(it, tenant, digest)
	if err != nil {
		return err
	}
	if total != count || !bytes.Equal(got, want) {
		return fmt.Errorf("%w: a chunk of the payload is there with other bytes", record.ErrCorrupt)
	}
	return nil
}

func chunkOf(it item, tenant, digest string) (body []byte, total int, err error) {
	f, err := it.open(ownerOf(tenant, digest))
	if err != nil {
		return nil, 0, err
	}
	f.need(attrCount)
	body, total = f.body(attrBody), int(f.number(attrCount))
	if len(body) > ChunkSize {
		f.fail(attrBody, "is longer than a chunk")
	}
	return body, total, f.err
}

// Payload implements journal.Journal.
func (j *Journal) Payload(ctx context.Context, tenant, digest string) ([]byte, error) {
	body, err := j.payload(ctx, tenant, digest)
	if err != nil {
		return nil, failedKey("payload", tenant, digest, err)
	}
	return body, nil
}

func (j *Journal) payload(ctx context.Context, tenant, digest string) ([]byte, error) {
	var body []byte
	seen, total := 0, 0
	err := j.query(ctx, chunkKey(tenant, digest, 0), func(it item) error {
		part, count, err := chunkOf(it, tenant, digest)
		if err != nil {
			return err
		}
		if it.key() != chunkKey(tenant, digest, seen) || total != 0 && total != count || count <= seen {
			return fmt.Errorf("%w: chunk %d is missing", record.ErrCorrupt, seen)
		}
		total, seen, body = count, seen+1, append(body, part...)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case seen == 0:
		return nil, journal.ErrNotFound
	case seen < total:
		// Its writer died on the way, or it is being written: nothing refers to
		// it yet, unless it is damaged.
		return nil, fmt.Errorf("%w: %d of %d chunks are there", record.ErrCorrupt, seen, total)
	case record.Digest(body) != digest:
		return nil, fmt.Errorf("%w: the bytes have another digest", record.ErrCorrupt)
	}
	return body, nil
}
