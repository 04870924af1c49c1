// Package messages is the Messages capability: Anthropic's wire types, the rules
// of its fields, what reads usage from its answers, and the translation between
// it and chat completions, both ways.
package messages
