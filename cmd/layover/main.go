// Command layover is Layover with the example agents, on Anthropic where
// ANTHROPIC_API_KEY is set and else on the demo model. A program of your own is
// as short: see examples/ownapp.
package main

import (
	"fmt"
	"os"

	"github.com/layover-run/layover/core/cli"
	"github.com/layover-run/layover/examples/models"
	"github.com/layover-run/layover/examples/refund"
	"github.com/layover-run/layover/examples/triage"
	"github.com/layover-run/layover/examples/weather"
)

func main() {
	agents, err := models.Bind(os.Getenv, refund.Agent(), triage.Agent(), weather.Agent())
	if err != nil {
		fmt.Fprintf(os.Stderr, "layover: environment: %v.\n", err)
		os.Exit(2)
	}
	cli.Main(agents...)
}
