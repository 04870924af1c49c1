// Package mutation holds a test that takes every guard of the money path out of
// the code in its turn and demands that another test notices (ledger.md,
// Proof). It exports nothing.
package mutation
