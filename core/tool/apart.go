package tool

import (
	"fmt"
	"runtime/debug"
)

// Defect is code of the author that did not return: it panicked, or it ended
// its goroutine with runtime.Goexit, as the FailNow of a test does.
type Defect struct {
	Value string // the panic rendered, at most 1 KiB
	Stack []byte // at most 16 KiB
	Panic any    // the value itself; nil without a panic

	ended bool // without a panic
}

func (d *Defect) Error() string {
	if d.ended {
		return d.Value
	}
	return "panic: " + d.Value
}

// ended is what is known about code that called runtime.Goexit.
const ended = "the handler ended its goroutine"

// apart runs code of the author and returns when it has ended, however it
// did. It has a goroutine of its own, since runtime.Goexit takes the whole
// goroutine with it.
func apart(run func()) *Defect {
	end := make(chan *Defect, 1)
	go func() {
		var defect *Defect
		returned := false
		defer func() { end <- defect }()
		defer func() {
			v := recover() // a value, even of panic(nil)
			if v == nil && returned {
				return
			}
			defect = &Defect{Value: ended, Stack: stack(), Panic: v, ended: v == nil}
			if v != nil {
				defect.Value = "a value that cannot be rendered"
				defect.Value = bounded(fmt.Sprint(v), 1<<10)
			}
		}()
		run()
		returned = true
	}()
	return <-end
}

func stack() []byte {
	s := debug.Stack()
	if len(s) > 16<<10 {
		s = s[:16<<10]
	}
	return s
}
