package server

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/webhook"
)

// Webhooks are the webhook deliveries of video tasks that have ended, and the
// secrets that sign them: memory.Tasks and store.DB implement
// it. Implementations are safe for concurrent use.
type Webhooks interface {
	// WebhookSecret is the secret that signs the account's webhooks; one is made if
	// there is none yet. rotate makes a new one: the one before goes on signing
	// beside it for a while.
	WebhookSecret(ctx context.Context, account string, rotate bool) (webhook.Secret, error)
	// Deliveries are at most limit of the account's deliveries, the newest first;
	// everybody's if account is empty.
	Deliveries(ctx context.Context, account string, limit int) ([]webhook.Status, error)
	// Resend makes a delivery due now, whatever its state; false if there is none
	// by that id.
	Resend(ctx context.Context, id string) (bool, error)
}

// describeDelivery shows a delivery with its receiver's host alone: the rest of the address
// may hold a password or a token.
func describeDelivery(e *webhook.Status) adminapi.Delivery {
	var event struct {
		Type string `json:"type"`
		Data struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	_ = json.Unmarshal(e.Body, &event, jsontext.AllowDuplicateNames(true)) // ours; what cannot be read is not shown
	v := adminapi.Delivery{
		ID: e.ID, Account: e.Account, Type: event.Type, Task: event.Data.ID,
		State: string(e.State), Tries: e.Tries, Reason: e.Reason, Created: e.CreatedAt.UTC(), Next: adminapi.Time(e.Next), Ended: adminapi.Time(e.Ended),
	}
	if u, err := url.Parse(e.URL); err == nil {
		v.Host = u.Hostname()
	}
	return v
}

// webhooks are the store's, if it has any.
func (q *adminRequest) webhooks() (Webhooks, error) {
	if q.o.Webhooks == nil {
		return nil, fault.New(fault.NotFound, "This server's store keeps no webhooks.")
	}
	return q.o.Webhooks, nil
}

// webhookSecret is GET /admin/v1/accounts/{name}/webhook-secret, and POST of its
// rotate.
func (q *adminRequest) webhookSecret(rotate bool) (any, error) {
	hooks, err := q.webhooks()
	if err == nil {
		err = q.requireAccount(q.name)
	}
	if err != nil {
		return nil, err
	}
	s, err := hooks.WebhookSecret(q.ctx, q.name, rotate)
	if err != nil {
		return nil, err
	}
	return adminapi.WebhookSecret{Account: q.name, Secret: s.Reveal()}, nil
}

// The numbers of deliveries in a list.
const (
	defaultNotices = 100
	maxNotices     = 1000
)

// listNotices is GET /admin/v1/webhooks, of one account or of all.
func (q *adminRequest) listNotices() (any, error) {
	hooks, err := q.webhooks()
	if err != nil {
		return nil, err
	}
	query := q.r.URL.Query()
	limit := defaultNotices
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxNotices {
			return nil, fault.Invalid("limit", fmt.Sprintf("limit must be a whole number from 1 to %d.", maxNotices))
		}
	}
	account := query.Get("account")
	if account != "" {
		if err := q.requireAccount(account); err != nil {
			return nil, err
		}
	}
	entries, err := hooks.Deliveries(q.ctx, account, limit)
	if err != nil {
		return nil, err
	}
	var views []adminapi.Delivery
	for i := range entries {
		views = append(views, describeDelivery(&entries[i]))
	}
	return adminapi.NewList(views), nil
}

// resendNotice is POST /admin/v1/webhooks/{id}/resend.
func (q *adminRequest) resendNotice() (any, error) {
	hooks, err := q.webhooks()
	if err != nil {
		return nil, err
	}
	found, err := hooks.Resend(q.ctx, q.name)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fault.New(fault.NotFound, fmt.Sprintf("There is no webhook %q.", safetext.Quoted(q.name)))
	}
	return map[string]any{"id": q.name, "state": webhook.Waiting}, nil
}
