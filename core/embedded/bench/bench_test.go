// Package bench_test measures run W on the embedded assembly. It stands apart so
// that what is measured is the weight of a program that embeds Layover, not that
// of the other tests and the SDKs they bring along.
package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/embedded"
	"github.com/layover-run/layover/core/engine"
	"github.com/layover-run/layover/core/engine/enginetest"
)

func openReference(t testing.TB) *embedded.Runtime {
	t.Helper()
	rt, err := embedded.Open(t.TempDir(), embedded.Config{Agents: []*agent.Definition{enginetest.ReferenceAgent()}, Model: enginetest.Instant{},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return rt
}

func runReference(ctx context.Context, rt *embedded.Runtime) error {
	r, err := rt.Submit(ctx, engine.SubmitRequest{Agent: "reference", Input: []byte(`{"order":"A-1001"}`)})
	if err != nil {
		return err
	}
	p, err := rt.Await(ctx, "local", r.Submission, engine.UntilSettled)
	if err != nil {
		return err
	}
	if p.Status != "completed" || p.Turns != 3 {
		return fmt.Errorf("%s after %d turns", p.Status, p.Turns)
	}
	return nil
}

// Run W makes at most 12 journal writes, counted at the SQL statement.
func TestReferenceRunWrites(t *testing.T) {
	rt := openReference(t)
	ctx := context.Background()
	const runs = 5
	for range runs {
		if err := runReference(ctx, rt); err != nil {
			t.Fatal(err)
		}
	}
	quiet(t, rt)
	if got := rt.Writes(); got > 12*runs {
		t.Errorf("%d runs made %d writes, want at most %d", runs, got, 12*runs)
	}
}

// quiet waits until every lane is idle.
func quiet(t *testing.T, rt *embedded.Runtime) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := rt.Quiet(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestBench prints the figures of `make bench` as JSON lines.
func TestBench(t *testing.T) {
	if os.Getenv("LAYOVER_BENCH") == "" {
		t.Skip("figures only: run `make bench`, or set LAYOVER_BENCH=1")
	}
	rt := openReference(t)
	ctx := context.Background()
	for range 200 {
		if err := runReference(ctx, rt); err != nil {
			t.Fatal(err)
		}
	}
	alone := make([]time.Duration, 500)
	for i := range alone {
		began := time.Now()
		if err := runReference(ctx, rt); err != nil {
			t.Fatal(err)
		}
		alone[i] = time.Since(began)
	}
	slices.Sort(alone)
	disk := fsyncs(t, 200)
	figure("append 4 KiB and fsync, p50", ms(disk), "ms")
	figure("W sqlite FULL p50 alone", ms(alone[len(alone)/2]), "ms")
	figure("W sqlite FULL p50 alone / fsync", float64(alone[len(alone)/2])/float64(disk), "ratio")
	figure("W sqlite FULL p99 alone", ms(alone[len(alone)*99/100]), "ms")
	for _, clients := range []int{8, 32, 128} {
		const each = 3 * time.Second
		began, cpu, before := time.Now(), cpuTime(t), rt.Writes()
		var done sync.WaitGroup
		counts := make([]int, clients)
		for i := range clients {
			done.Add(1)
			go func() {
				defer done.Done()
				for time.Since(began) < each {
					if err := runReference(ctx, rt); err != nil {
						t.Error(err)
						return
					}
					counts[i]++
				}
			}()
		}
		done.Wait()
		wall, total := time.Since(began), 0
		for _, n := range counts {
			total += n
		}
		name := fmt.Sprintf("W sqlite FULL at %d", clients)
		figure(name, float64(total)/wall.Seconds(), "runs/s")
		figure(name+", CPU", (cpuTime(t)-cpu).Seconds()/float64(total)*1000, "s per 1000 runs")
		figure(name+", writes", float64(rt.Writes()-before)/float64(total), "per run")
		figure(name+", peak RSS so far", peakRSS(t), "MB")
	}
}

// peakRSS is the most memory this process has held, in MB.
func peakRSS(t *testing.T) float64 {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return float64(usage.Maxrss) / 1024
}

// fsyncs is what this disk takes, in the middle of n, to make 4 KiB durable:
// the yardstick for what a run costs on it.
func fsyncs(t *testing.T, n int) time.Duration {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "yardstick"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	took, page := make([]time.Duration, n), make([]byte, 4096)
	for i := range took {
		began := time.Now()
		if _, err := f.Write(page); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[n/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func figure(name string, value float64, unit string) {
	line, err := json.Marshal(map[string]any{"name": name, "value": float64(int(value*100+0.5)) / 100, "unit": unit})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
