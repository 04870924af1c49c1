// Package model holds a small pure model of the ledger's protocol and explores
// every interleaving of it, as a test. It exports nothing.
package model
