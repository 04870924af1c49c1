// Package webhook posts notices to addresses that customers name: signed by the
// Standard Webhooks scheme, only to public hosts, again and again for three days.
package webhook
