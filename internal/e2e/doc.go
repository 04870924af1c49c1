// Package e2e holds the proofs that need real processes: the program is built
// once and started on ports of the system's choice, killed, cut off from its
// database and started again, while clients count over HTTP what they got and
// a vendor counts what it was asked. It exports nothing.
package e2e
