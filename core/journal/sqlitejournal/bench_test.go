package sqlitejournal_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/sqlitejournal"
	"github.com/layover-run/layover/core/record"
)

// BenchmarkRun is the storage side of the reference run W: 12 row writes in 9
// operations, and 4 looks at the inbox.
func BenchmarkRun(b *testing.B) {
	for _, lanes := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) { benchmarkRun(b, lanes) })
	}
}

func benchmarkRun(b *testing.B, lanes int) {
	j, err := sqlitejournal.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	body := make([]byte, 1000)
	for i := range body {
		body[i] = byte('a' + i%26)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, lanes)
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	var wg sync.WaitGroup
	for worker := range lanes {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := runW(j, journal.Lane{Tenant: "acme", Conversation: uuid.NewString()}, body); err != nil {
					b.Error(err)
					return
				}
				took[worker] = append(took[worker], time.Since(began))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	cpu = cpuTime(b) - cpu
	all := slices.Concat(took...)
	slices.Sort(all)
	if len(all) > 0 {
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
		b.ReportMetric(float64(cpu.Microseconds())/float64(len(all)), "cpu-µs/run")
		b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "runs/s")
		b.ReportMetric(float64(j.Writes())/float64(len(all)), "writes/run")
	}
}

// cpuTime is what the process has used so far, in user and kernel mode.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// runW does what the reference run does to the journal.
func runW(j *sqlitejournal.Journal, lane journal.Lane, body []byte) error {
	ctx, now := context.Background(), time.Now()
	id := uuid.NewString()
	_, err := j.Admit(ctx, journal.Submission{
		Lane: lane, ID: id, Key: id, Digest: "digest", Agent: "agent", Principal: "someone", Input: body[:100], AdmittedAt: now,
	}, now, time.Minute)
	if err != nil {
		return err
	}
	h, err := j.Claim(ctx, journal.ClaimRequest{Lane: lane, Owner: id, Boot: j.Boot(), Now: now, Lease: now.Add(time.Minute)})
	if err != nil {
		return err
	}
	for slot := range uint64(6) {
		batch := record.Sealed{Slot: slot + 1, ID: fmt.Sprintf("%s-%d", id, slot), Epoch: h.Epoch, Digest: id, Body: body}
		if err := j.Append(ctx, lane, batch); err != nil {
			return err
		}
		if slot < 4 {
			if h, _, err = j.Inbox(ctx, lane, 1); err != nil {
				return err
			}
		}
	}
	return j.Finish(ctx, journal.FinishRequest{
		Lane: lane, Outcomes: []record.RunSettled{{Run: id, Status: record.StatusCompleted, Output: record.TextValue("done")}},
		At: now, Settled: 6, Version: h.Version, To: journal.Idle, Drained: 1,
	})
}
