package cli

import (
	"bytes"
	"log/slog"
	"testing"
)

func TestLogHandler(t *testing.T) {
	for stacks, want := range map[bool]string{
		true:  "layover: defect: where=tool\\x1b[31m, n=1.\n    goroutine 1\n        main.go:1\n",
		false: `layover: defect: where=tool\x1b[31m, n=1, stack=goroutine 1; main.go:1.` + "\n",
	} {
		var out bytes.Buffer
		log := slog.New(newLogHandler(&out, stacks)).With("where", "tool\x1b[31m")
		log.Info("not shown")
		log.Error("defect", "n", 1, "stack", "goroutine 1\n\tmain.go:1\n")
		if out.String() != want {
			t.Errorf("stacks %t:\n%q, want\n%q", stacks, out.String(), want)
		}
	}
}

func TestProgramName(t *testing.T) {
	for arg0, want := range map[string]string{"layover": "layover", "./bin/layover": "./bin/layover", "/nowhere/layover": "/nowhere/layover"} {
		if got := programName(arg0); got != want {
			t.Errorf("%s: %s, want %s", arg0, got, want)
		}
	}
}
