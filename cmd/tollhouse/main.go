// Command tollhouse serves an AI gateway and manages the one that runs.
package main

import (
	"context"
	"io"
	"log"
	"os"
)

func main() {
	// net/http prints to the standard logger what a vendor sends unasked, which
	// may be another caller's answer. All that is to be told goes elsewhere.
	log.SetOutput(io.Discard)
	os.Exit(run(context.Background(), os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout, os.Stderr))
}
