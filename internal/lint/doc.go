// Package lint holds tests that read the whole tree: the rules of the house
// that no public linter checks as we mean them, and whether the documents are
// true. It exports nothing.
package lint
