// Package adminapi has the JSON bodies of the admin API and of the reports on
// accounts, which package server writes and cmd/tollhouse reads.
package adminapi

import (
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
)

// List is a list in OpenAI's form.
type List[T any] struct {
	Object string `json:"object"` // "list"
	Data   []T    `json:"data"`
	// HasMore says that there is another page: ask for it with ?after= the name or
	// the id of the last of Data.
	HasMore bool `json:"has_more,omitempty"`
}

// NewList returns a list without further pages.
func NewList[T any](data []T) List[T] {
	if data == nil {
		data = []T{}
	}
	return List[T]{Object: "list", Data: data}
}

// Time is t as the admin API gives times, in UTC; nil for the zero time, which is left out.
func Time(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Balance is the answer of GET /v1/balance and an account of the admin API.
// Amounts are decimal strings.
type Balance struct {
	Account   string         `json:"account,omitempty"` // of the admin API only
	Currency  string         `json:"currency"`
	Posted    *billing.Money `json:"posted,omitempty"`
	Held      *billing.Money `json:"held,omitempty"`
	Available *billing.Money `json:"available,omitempty"`
	Billing   string         `json:"billing,omitempty"` // "count" where no money moves
}

// Receipt is the answer of GET /v1/receipts/{id}.
type Receipt struct {
	ID           string                 `json:"id"`
	CreatedAt    int64                  `json:"created_at"` // Unix seconds
	Model        string                 `json:"model"`
	Operation    string                 `json:"operation"`
	Status       string                 `json:"status"`
	Units        map[billing.Unit]int64 `json:"units"`
	Estimated    bool                   `json:"estimated"`
	PriceVersion string                 `json:"price_version"`
	Hold         billing.Money          `json:"hold"`
	Charge       billing.Money          `json:"charge"`
	Currency     string                 `json:"currency"`
	Reason       string                 `json:"reason"`
	Channel      string                 `json:"channel,omitempty"`
}

// Request is the answer of GET /admin/v1/requests/{id}: a receipt of any account
// with the attempts that failed before.
type Request struct {
	Receipt
	Account  string        `json:"account"`
	Key      string        `json:"key,omitempty"`
	Overrun  billing.Money `json:"overrun"`
	Attempts []Attempt     `json:"failed_attempts"`
}

// Attempt is a failed attempt of a request.
type Attempt struct {
	Channel    string                 `json:"channel"`
	Model      string                 `json:"model"`      // the upstream's id
	StartedAt  int64                  `json:"started_at"` // Unix seconds
	DurationMS int64                  `json:"duration_ms"`
	Code       string                 `json:"code"`
	Status     int                    `json:"status,omitempty"` // the vendor's
	Billable   bool                   `json:"billable"`         // by the vendor
	Units      map[billing.Unit]int64 `json:"units,omitempty"`
	Waste      billing.Money          `json:"waste"`
}

// Waste is a row of GET /admin/v1/waste.
type Waste struct {
	Channel  string        `json:"channel"`
	Model    string        `json:"model"` // the upstream's id
	Failed   int64         `json:"failed"`
	Billable int64         `json:"billable"`
	Waste    billing.Money `json:"waste"`
}

// Server is the answer of GET /admin/v1/server.
type Server struct {
	Store    string `json:"store,omitempty"` // where accounts and keys are kept
	Billing  string `json:"billing"`         // "prepaid" or "count"
	Currency string `json:"currency"`
}

// Ledger is the answer of GET /admin/v1/ledger/verify, with the trial balance. What the
// customers have is what they were given, less what was delivered, plus what the operator bore
// of that. Amounts are decimals.
type Ledger struct {
	Status   string `json:"status"` // "ok"
	Accounts int64  `json:"accounts"`
	Posted   string `json:"posted"`
	Held     string `json:"held"`
	Credited string `json:"credited"`
	Revenue  string `json:"revenue"`
	Overrun  string `json:"overrun"`
	Currency string `json:"currency"`
	// Archives are the files that receipts were moved into, with ?archives=true only.
	Archives []Archive `json:"archives,omitempty"`
}

// Archive is a file that receipts were moved into.
type Archive struct {
	File     string `json:"file"` // the name alone
	Receipts int64  `json:"receipts"`
	Charge   string `json:"charge"`
	SHA256   string `json:"sha256"`
}

// Key is an API key that exists.
type Key struct {
	ID          string     `json:"id"`
	Account     string     `json:"account"`
	Name        string     `json:"name"`
	Models      []string   `json:"models"` // empty means all
	auth.Limits            // 0 or absent: the server's default
	Created     *time.Time `json:"created,omitempty"` // absent for a key of the config file
	Expires     *time.Time `json:"expires,omitempty"`
	Disabled    bool       `json:"disabled"`
	// BudgetLeft is what the key may still spend of its own budget; absent for a
	// key without one.
	BudgetLeft *billing.Money `json:"budget_left,omitempty"`
}

// KeyRequest is the body of POST /admin/v1/keys. Only the account is required.
type KeyRequest struct {
	Account string    `json:"account"`
	Name    string    `json:"name,omitzero"`
	Models  []string  `json:"models,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	Budget  string    `json:"budget,omitzero"`
	auth.Limits
}

// NewKey is the one answer that holds a key: the server keeps its hash only.
type NewKey struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	Account string `json:"account"`
	Name    string `json:"name"`
}

// Channel is a channel of a running server. The counters begin with the server.
type Channel struct {
	Name      string     `json:"name"`
	State     string     `json:"state"`              // "ready", "resting", "probing" or "paused"
	Cooldown  bool       `json:"cooldown,omitempty"` // "resting" not after failures, but because its vendor said when to come back
	Until     *time.Time `json:"until,omitempty"`    // when an open circuit or a cooldown ends
	Models    []string   `json:"models"`             // public ids; "*" for all
	Priority  int        `json:"priority"`
	Weight    int        `json:"weight"`
	InFlight  int        `json:"in_flight"`
	Requests  int64      `json:"requests"`
	Failures  int64      `json:"failures"`
	LatencyMS int64      `json:"latency_ms"`           // of late, to the first byte; 0 before there was one
	LastError string     `json:"last_error,omitempty"` // code and status
	Discovers bool       `json:"discovers,omitempty"`  // its vendor is asked for its models
	Listed    *time.Time `json:"listed,omitempty"`     // when the vendor's last good list came
	ListError string     `json:"list_error,omitempty"` // why the last request for one failed
}

// WebhookSecret is the one answer that holds the secret of an account's webhooks.
type WebhookSecret struct {
	Account string `json:"account"`
	Secret  string `json:"secret"` // "whsec_…"
}

// Delivery is a webhook delivery, without its address, which may hold a password,
// and without its body.
type Delivery struct {
	ID      string     `json:"id"` // "evt_…", the webhook-id of each attempt
	Account string     `json:"account"`
	Type    string     `json:"type"` // "video.generation.succeeded"
	Task    string     `json:"task"` // the id that the account knows
	Host    string     `json:"host"` // of the receiver
	State   string     `json:"state"`
	Tries   int        `json:"tries"`            // that failed
	Reason  string     `json:"reason,omitempty"` // why the last one did
	Created time.Time  `json:"created"`
	Next    *time.Time `json:"next,omitempty"`  // of the next attempt; absent once it has ended
	Ended   *time.Time `json:"ended,omitempty"` // absent while it waits
}
