// Package model holds a small pure model of the ledger's protocol and explores
// every interleaving of it, as a test (ledger.md, Proof). It exports nothing.
package model
