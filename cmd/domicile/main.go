// Command domicile runs and operates the regions of a federation: an independent
// durable broker per region, a residency policy in front of it, and links between
// them. Each command has a file of its own; run ties them together.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(int(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)))
}
