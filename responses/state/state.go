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
	Previous string    // the id of the response that it goes on from; empty for none
	Model    string    // public id
	// Channel and Key are what made the response, as upstream.Reply names them. Where there
	// is no Body the vendor behind them keeps it.
	Channel, Key string
	// Tokens are those of the conversation up to its end, where a vendor keeps it.
	Tokens int64
	// Items are ids of its output's items, by which Get finds it too: each of them once,
	// and none of them its own. What Get returns has none.
	Items []string
	// Body is what the gateway keeps of it, encrypted.
	Body []byte
}

// Store keeps responses. It is safe for concurrent use.
type Store interface {
	// Put stores a response, in the place of one of the same account and id.
	Put(ctx context.Context, r Response) error
	// Get is the account's response of that id, or the one whose output has an item of
	// that id; nil if there is none, which is so for another account's and for one that
	// has expired.
	Get(ctx context.Context, account, id string) (*Response, error)
	// Delete deletes the account's response of that id; false if there is none.
	Delete(ctx context.Context, account, id string) (bool, error)
}
