package sqsqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/layover-run/layover/core/queue"
)

const (
	batchSize = 10 // entries SQS takes at once; lanes' names are short, so 1 MiB is far
	tries     = 3  // of a call, and of a batch whose entries failed
	pause     = 100 * time.Millisecond
)

// SendAll sends many wakes, ten in a call. SQS answers a batch with success
// although entries of it failed: those are sent again, up to three times in all,
// unless the entry itself is at fault. The error joins one for each queue that
// did not take everything.
func (q *Queue) SendAll(ctx context.Context, wakes []queue.Wake) error {
	var errs []error
	entries := map[queue.Kind][]types.SendMessageBatchRequestEntry{}
	var kinds []queue.Kind
	for i, w := range wakes {
		_, body, err := q.prepare(w)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if entries[w.Kind] == nil {
			kinds = append(kinds, w.Kind)
		}
		entries[w.Kind] = append(entries[w.Kind], types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: &body, MessageGroupId: group(w.Tenant),
		})
	}
	for _, kind := range kinds {
		lost, err := q.sendEntries(ctx, q.cfg.Wakes[kind], entries[kind])
		if err != nil {
			errs = append(errs, failed(fmt.Sprintf("the %s queue: %d of %d wakes", kind, lost, len(entries[kind])), err))
		}
	}
	return errors.Join(errs...)
}

// sendEntries sends one queue's entries and counts those that may be lost.
func (q *Queue) sendEntries(ctx context.Context, url string, entries []types.SendMessageBatchRequestEntry) (lost int, err error) {
	sent := 0
	for part := range slices.Chunk(entries, batchSize) {
		n, problem := q.sendBatch(ctx, url, part)
		lost, sent = lost+n, sent+len(part)
		if err == nil {
			err = problem
		}
		if n == len(part) { // nothing went in: the rest would only wait as long
			return lost + len(entries) - sent, err
		}
	}
	return lost, err
}

// sendBatch sends up to ten entries until each is in, at fault, or was tried
// often enough.
func (q *Queue) sendBatch(ctx context.Context, url string, entries []types.SendMessageBatchRequestEntry) (lost int, err error) {
	for try := 1; ; try++ {
		out, problem := q.cfg.Client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
		if problem != nil {
			return lost + len(entries), problem // the client has repeated the call already
		}
		again, faulty, why := sortOut(entries, out)
		if lost += faulty; why != nil {
			err = why
		}
		if len(again) == 0 {
			return lost, onlyIf(lost > 0, err)
		}
		if try == tries {
			return lost + len(again), err
		}
		sleep(ctx, pause<<(try-1)) // the next call finds a context that has ended
		entries = again
	}
}

func onlyIf(really bool, err error) error {
	if really {
		return err
	}
	return nil
}

// sortOut finds the entries that are to be sent again and counts those that
// never will be taken. An entry the answer does not mention was not sent.
func sortOut(entries []types.SendMessageBatchRequestEntry, out *sqs.SendMessageBatchOutput) (again []types.SendMessageBatchRequestEntry, faulty int, why error) {
	const taken, refused = 1, 2
	state := map[string]int{}
	for _, ok := range out.Successful {
		state[aws.ToString(ok.Id)] = taken
	}
	for _, bad := range out.Failed {
		why = fmt.Errorf("an entry failed: %s: %s", aws.ToString(bad.Code), aws.ToString(bad.Message))
		if bad.SenderFault {
			state[aws.ToString(bad.Id)] = refused
		}
	}
	for _, e := range entries {
		switch state[aws.ToString(e.Id)] {
		case taken:
		case refused:
			faulty++
		default:
			again = append(again, e)
		}
	}
	if len(again) > 0 && why == nil {
		why = errors.New("the answer to a batch leaves entries out")
	}
	return again, faulty, why
}

// sleep waits for about d, or for the end of the context.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
