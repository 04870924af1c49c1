// Package state is the port to what keeps responses, for requests that go on from them.
package state

import (
	"context"
	"time"
)

// Response is a response as a [Store] keeps it.
type Response struct {
	ID       string // as the client saw it
	Account  string
	Created  time.Time
	Expires  time.Time // from when on it is not found
	Previous string    // the id of the response that it continues; may be empty
	Model    string    // public id
	// Channel and Key are what made the response, as upstream.Reply names them. Where there
	// is no Body the vendor behind them keeps it.
	Channel, Key string
	// Tokens are those of the conversation up to its end, where a vendor keeps it.
	Tokens int64
	// Items are the ids of its output's items, each once and none of them the response's own.
	// Get finds the response by them too. What Get returns has no Items.
	Items []string
	// Body is what the gateway keeps of it, encrypted.
	Body []byte
}

// RecordKind is "response": a response is a billing.Record of the settlement of its request,
// where the meter keeps it (see [Store]).
func (Response) RecordKind() string { return "response" }

// Store keeps responses. It is safe for concurrent use.
//
// A response must not be stored unless its request was charged. A Store that shares its
// database with the meter says so (KeptBy), and the meter stores the response in the
// transaction of the settlement. With any other Store, the response is put before the
// settlement and deleted if there is none.
type Store interface {
	// KeptBy reports whether a billing.Meter stores the [Response] that is among the records
	// of a settlement, so that both are durable or neither is.
	KeptBy(meter any) bool
	// Admit counts the bytes of a response that will be stored. It fails with a
	// fault.InvalidRequest if its account keeps as much as it may.
	Admit(account string, bytes int) error
	// Put stores a response that was admitted. It replaces one of the same account and id.
	Put(ctx context.Context, r Response) error
	// Get returns the account's response with that id, or the one whose output has an item with
	// that id. It returns nil if there is none, if it is another account's, or if it has
	// expired.
	Get(ctx context.Context, account, id string) (*Response, error)
	// Has reports whether Get would find something by the id, and reads no body for that.
	Has(ctx context.Context, account, id string) (bool, error)
	// Delete deletes the account's response of that id; false if there is none.
	Delete(ctx context.Context, account, id string) (bool, error)
}
