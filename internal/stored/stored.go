// Package stored keeps responses, and lets requests go on from them. It puts the items that a
// request refers to into its input, or finds out which vendor keeps them.
package stored

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/outage"
	"github.com/tollhouse-ai/gateway/internal/seal"
	"github.com/tollhouse-ai/gateway/responses/state"
)

// Mode says where responses are kept.
type Mode int

// The modes.
const (
	Off       Mode = iota // nowhere
	AtVendors             // at vendors that store them; here is kept whose they are
	Here                  // in the Store, encrypted
)

// The most that a request may bring in by reference.
const (
	mostResponses = 1_000
	MostBytes     = 32 << 20 // of their items
)

// purpose is that for which responses are encrypted.
const purpose = "responses"

// Options are those of a Responses. All of them are needed.
type Options struct {
	Mode      Mode
	Store     state.Store
	Retention time.Duration
	Meter     billing.Meter // that may keep the responses of Store with its settlements
	Timeout   time.Duration // of one write outside of a settlement
	Secrets   *seal.Secrets
	Now       func() time.Time
	Logger    *slog.Logger
}

// Responses are those that are kept. It is safe for concurrent use.
type Responses struct {
	options Options
	// quotaLogged is when a response was not stored for its account's quota and that was
	// logged, in Unix nanoseconds; 0 for never.
	quotaLogged atomic.Int64
}

// New returns the responses of a Store.
func New(o Options) *Responses { return &Responses{options: o} }

// Mode is the mode of the options.
func (s *Responses) Mode() Mode { return s.options.Mode }

// Memory counts the bytes that a request has read, until its end.
type Memory interface {
	// Reserve counts n more bytes. Its error is a 503.
	Reserve(n int64) error
}

// Find returns the account's response by its id or an item's; nil if it has none. The error
// is a 503.
func (s *Responses) Find(ctx context.Context, account, id string) (_ *state.Response, err error) {
	if !responsesop.IsID(id) {
		return nil, nil
	}
	defer fault.Recover(&err)
	found, err := s.options.Store.Get(ctx, account, id)
	return found, outage.Error(err)
}

// has reports whether Find would find a response.
func (s *Responses) has(ctx context.Context, account, id string) (found bool, err error) {
	if !responsesop.IsID(id) {
		return false, nil
	}
	defer fault.Recover(&err)
	found, err = s.options.Store.Has(ctx, account, id)
	return found, outage.Error(err)
}

// Delete deletes a response. It is false if there was none.
func (s *Responses) Delete(ctx context.Context, account, id string) (deleted bool, err error) {
	defer fault.Recover(&err)
	deleted, err = s.options.Store.Delete(ctx, account, id)
	return deleted, outage.Error(err)
}

// Open decrypts a response. It is nil if there is nothing of it here, and if it was encrypted
// with a secret that the deployment no longer has.
func (s *Responses) Open(row *state.Response) *responsesop.Stored {
	if row == nil || len(row.Body) == 0 {
		return nil
	}
	data, ok := s.options.Secrets.Open(purpose, row.Account, row.Body)
	opened, whole := responsesop.ReadStored(data)
	if !ok || !whole {
		s.options.Logger.Error("a stored response cannot be read: it was encrypted with another secret, or is damaged", "response", row.ID, "account", row.Account)
		return nil
	}
	return &opened
}

// Page chooses items of the input of a response.
type Page struct {
	Limit     int
	Ascending bool   // the oldest first, else the newest
	After     string // the id of the item before the page; empty for the beginning
}

// Input returns the items that made a response, in the order of the page, and no more of the
// oldest than it needs. It is false if there is nothing of the response here.
func (s *Responses) Input(ctx context.Context, row *state.Response, page Page, memory Memory) (items []responsesop.ListedItem, found bool, err error) {
	first, size := row.ID, 0
	after, seen := page.After == "", 0 // whether the page has begun, and how many of its items are there
	add := func(all []responsesop.ListedItem) {
		for _, item := range slices.Backward(all) {
			if items = append(items, item); after {
				seen++
			}
			after = after || item.ID == page.After
		}
	}
	for count := 1; ; count++ {
		opened := s.Open(row)
		if opened == nil && row.ID == first {
			return nil, false, nil
		}
		if size += len(row.Body); opened == nil || size > MostBytes {
			break
		}
		if row.ID != first {
			add(opened.ListedOutput())
		}
		add(opened.ListedInput())
		if row.Previous == "" || row.Previous == row.ID || count == mostResponses || !page.Ascending && seen > page.Limit {
			break
		}
		before, err := s.Find(ctx, row.Account, row.Previous)
		if err != nil {
			return nil, false, err
		}
		if before == nil || before.ID != row.Previous {
			break
		}
		if err := memory.Reserve(int64(len(before.Body))); err != nil {
			return nil, false, err
		}
		row = before
	}
	if page.Ascending {
		slices.Reverse(items)
	}
	return items, true, nil
}
