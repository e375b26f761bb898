// Command layover is Layover with the example agents. A program of your own is
// as short: see examples/ownapp.
package main

import (
	"github.com/layover-run/layover/core/cli"
	"github.com/layover-run/layover/examples/refund"
	"github.com/layover-run/layover/examples/triage"
)

func main() { cli.Main(refund.Agent(), triage.Agent()) }
