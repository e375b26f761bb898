package queuetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/layover-run/layover/core/queue"
)

const second = time.Second

// tests are the promises, one each.
var tests = []test{
	{"a wake arrives as it was sent", nil, intact},
	{"a wake that is done does not come again", nil, doneForGood},
	{"a kind sees its own wakes only", nil, kinds},
	{"a wake does not come before its delay is over", nil, delayed},
	{"a delay past the longest is taken", nil, longDelay},
	{"a delay below zero is none", nil, negativeDelay},
	{"equal wakes that wait arrive at least once", nil, equalWakes},
	{"a wake sent after a delivery is delivered after it", nil, sentMeanwhile},
	{"many lanes and receivers: every wake arrives", nil, manyLanes},
	{"a batch: every wake arrives", nil, batch},
	{"a delivery that is not done comes again after its visibility timeout", redelivers, comesAgain},
	{"a delivery knows how often it was received", redelivers, counts},
	{"too many receives make a dead letter", buries, deadLetter},
	{"a dead letter leaves the others alone", buries, deadAlone},
	{"a wake doubled on its way arrives twice", disturbs, doubled},
	{"a wake lost on its way does not arrive, the next one does", disturbs, lost},
}

func redelivers(s Subject) string {
	if s.Visibility == 0 {
		return "it does not deliver again"
	}
	return ""
}

func buries(s Subject) string {
	if s.MaxReceives == 0 || s.Dead == nil {
		return "it has no dead letters"
	}
	return redelivers(s)
}

func disturbs(s Subject) string {
	if s.Copies == nil {
		return "it cannot be told to lose and double wakes"
	}
	return ""
}

// oddNames are what callers choose as conversation ids, and more.
var oddNames = []string{
	"plain", "with space", `quotes " and \ slash/`, "<b>&amp;</b>", "é 漢字 🛫", "\u2028\u2029", "\uFFFE\uFFFF", "\x7f\u0085", "tab\tline\nnul\x00",
	"long" + fmt.Sprintf("%01000d", 7),
}

func intact(f *fixture) {
	for i, name := range oddNames {
		w := wake(queue.Attempt, name)
		w.Tenant = oddNames[len(oddNames)-1-i]
		f.send(w, 0)
		d := f.receive(queue.Attempt, second)
		f.is(d, w, 1)
		f.done(d)
	}
}

func doneForGood(f *fixture) {
	f.send(wake(queue.Attempt, "a"), 0)
	f.done(f.receive(queue.Attempt, second))
	f.none(queue.Attempt, f.Visibility+second)
}

func kinds(f *fixture) {
	f.send(wake(queue.Attempt, "a"), 0)
	f.send(wake(queue.Settle, "s"), 0)
	f.is(f.receive(queue.Settle, second), wake(queue.Settle, "s"), 1)
	f.none(queue.Settle, 0)
	f.is(f.receive(queue.Attempt, second), wake(queue.Attempt, "a"), 1)
	f.none(queue.Attempt, 0)
}

func delayed(f *fixture) {
	sent := time.Now()
	f.send(wake(queue.Attempt, "late"), 2*second)
	f.send(wake(queue.Attempt, "now"), 0)
	d := f.receive(queue.Attempt, second)
	f.is(d, wake(queue.Attempt, "now"), 1)
	f.done(d)
	f.is(f.receive(queue.Attempt, 2*second), wake(queue.Attempt, "late"), 1)
	if waited := time.Since(sent); waited < 2*second {
		f.t.Errorf("came after %s, before its delay was over", waited)
	}
}

func longDelay(f *fixture) {
	f.send(wake(queue.Attempt, "next week"), 7*24*time.Hour)
	f.none(queue.Attempt, 0)
}

func negativeDelay(f *fixture) {
	f.send(wake(queue.Attempt, "overdue"), -time.Hour)
	f.is(f.receive(queue.Attempt, second), wake(queue.Attempt, "overdue"), 1)
}

func equalWakes(f *fixture) {
	for range 3 {
		f.send(wake(queue.Attempt, "a"), 0)
	}
	for taken := 0; ; taken++ {
		d, ok, err := f.Receive(f.ctx, queue.Attempt, second)
		switch {
		case err != nil:
			f.t.Fatal(err)
		case !ok && taken == 0:
			f.t.Fatal("three equal wakes were delivered as none")
		case !ok:
			return
		case taken == 3:
			f.t.Fatal("three wakes were delivered four times, though each was done")
		}
		f.is(d, wake(queue.Attempt, "a"), 1)
		f.done(d)
	}
}

func sentMeanwhile(f *fixture) {
	w := wake(queue.Attempt, "a")
	f.send(w, 0)
	first := f.receive(queue.Attempt, second)
	f.send(w, 0) // tells of something the first receiver may not have seen
	f.done(first)
	f.is(f.receive(queue.Attempt, second), w, 1)
}

func manyLanes(f *fixture) {
	const lanes, receivers = 60, 4
	var sending, receiving sync.WaitGroup
	var mu sync.Mutex
	left := map[string]bool{}
	for i := range lanes {
		left[fmt.Sprint("lane-", i)] = true
	}
	for name := range left {
		sending.Go(func() {
			if err := f.Send(f.ctx, wake(queue.Attempt, name), 0); err != nil {
				f.t.Errorf("send %s: %v", name, err)
			}
		})
	}
	sending.Wait()
	for range receivers {
		receiving.Go(func() {
			for {
				d, ok, err := f.Receive(f.ctx, queue.Attempt, second)
				if err != nil || !ok {
					return
				}
				mu.Lock()
				delete(left, d.Wake.Conversation)
				mu.Unlock()
				if err := f.Done(f.ctx, d); err != nil {
					f.t.Errorf("done: %v", err)
				}
			}
		})
	}
	receiving.Wait()
	for name := range left {
		f.t.Errorf("the wake for %s did not arrive", name)
	}
}

func batch(f *fixture) {
	left := map[queue.Wake]bool{}
	var wakes []queue.Wake
	for i := range 23 { // more than two batches of a queue service
		w := wake([]queue.Kind{queue.Attempt, queue.Settle}[i%2], fmt.Sprint("lane-", i))
		wakes, left[w] = append(wakes, w), true
	}
	if err := queue.SendAll(f.ctx, f.Queue, wakes); err != nil {
		f.t.Fatal(err)
	}
	for i := range wakes {
		d := f.receive(wakes[i].Kind, second)
		delete(left, d.Wake)
		f.done(d)
	}
	for w := range left {
		f.t.Errorf("the %s wake for %s did not arrive", w.Kind, w.Conversation)
	}
}

func comesAgain(f *fixture) {
	f.send(wake(queue.Attempt, "a"), 0)
	before := time.Now()
	f.is(f.receive(queue.Attempt, second), wake(queue.Attempt, "a"), 1)
	f.none(queue.Attempt, 0)
	f.is(f.receive(queue.Attempt, f.Visibility), wake(queue.Attempt, "a"), 2)
	if hidden := time.Since(before); hidden < f.Visibility {
		f.t.Errorf("came again after %s, before its visibility timeout of %s", hidden, f.Visibility)
	}
}

func counts(f *fixture) {
	limit := 3
	if f.MaxReceives > 0 {
		limit = min(limit, f.MaxReceives)
	}
	f.send(wake(queue.Attempt, "a"), 0)
	for n := 1; n <= limit; n++ {
		f.is(f.receive(queue.Attempt, f.Visibility+second), wake(queue.Attempt, "a"), n)
	}
}

// fail receives a wake and leaves it, as often as the limit allows.
func (f *fixture) fail(w queue.Wake) {
	f.t.Helper()
	for n := 1; n <= f.MaxReceives; n++ {
		f.is(f.receive(w.Kind, f.Visibility+second), w, n)
	}
	f.none(w.Kind, f.Visibility+second) // some queues bury at the next receive
}

func (f *fixture) dead(kind queue.Kind, want ...queue.Wake) {
	f.t.Helper()
	dead, err := f.Dead(f.ctx, kind)
	if err != nil {
		f.t.Fatal(err)
	}
	if fmt.Sprint(dead) != fmt.Sprint(want) {
		f.t.Fatalf("dead letters %v, want %v", dead, want)
	}
}

func deadLetter(f *fixture) {
	w := wake(queue.Attempt, "poison")
	f.send(w, 0)
	f.fail(w)
	f.dead(queue.Attempt, w)
	f.none(queue.Attempt, 0)
}

func deadAlone(f *fixture) {
	poison, fresh := wake(queue.Attempt, "poison"), wake(queue.Attempt, "fresh")
	f.send(poison, 0)
	f.fail(poison)
	f.send(fresh, 0)
	f.send(poison, 0) // a new wake for the same lane has all its deliveries
	got := map[queue.Wake]int{}
	for range 2 {
		d := f.receive(queue.Attempt, second)
		got[d.Wake] = d.Receives
		f.done(d)
	}
	if got[poison] != 1 || got[fresh] != 1 {
		f.t.Errorf("received %v, want both for the first time", got)
	}
	f.dead(queue.Attempt, poison)
}

func doubled(f *fixture) {
	f.Copies(2)
	f.send(wake(queue.Attempt, "a"), 0)
	for range 2 {
		d := f.receive(queue.Attempt, second)
		f.is(d, wake(queue.Attempt, "a"), 1)
		f.done(d)
	}
	f.none(queue.Attempt, 0)
}

func lost(f *fixture) {
	f.Copies(0)
	f.send(wake(queue.Attempt, "lost"), 0)
	f.none(queue.Attempt, second)
	f.Copies(1)
	f.send(wake(queue.Attempt, "next"), 0)
	f.is(f.receive(queue.Attempt, second), wake(queue.Attempt, "next"), 1)
}
