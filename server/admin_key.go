package server

import (
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// KeyView is what the operator sees of a key that exists.
type KeyView struct {
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

func newKeyView(k *auth.Key) KeyView {
	v := KeyView{ID: k.ID, Account: k.Account, Name: k.Name, Models: k.Models, Limits: k.Limits, Disabled: k.Disabled}
	if v.Models == nil {
		v.Models = []string{}
	}
	if !k.Created.IsZero() {
		v.Created = &k.Created
	}
	if !k.Expires.IsZero() {
		v.Expires = &k.Expires
	}
	return v
}

// NewKeyView is the one answer that holds a key: the server keeps its hash only.
type NewKeyView struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	Account string `json:"account"`
	Name    string `json:"name"`
}

// listKeys is GET /admin/v1/keys, of one account or of all.
func (q *adminRequest) listKeys() (any, error) {
	account := q.r.URL.Query().Get("account")
	return paged(q, func(after string, limit int) ([]KeyView, error) {
		keys, err := q.o.Keys.Page(q.ctx, account, after, limit)
		if err != nil {
			return nil, err
		}
		left, err := q.budgetsLeft(keys)
		if err != nil {
			return nil, err
		}
		var views []KeyView
		for i, k := range keys {
			v := newKeyView(&keys[i])
			if budget, ok := left[billing.KeyOf{Account: k.Account, Key: k.ID}]; ok {
				v.BudgetLeft = &budget
			}
			views = append(views, v)
		}
		return views, nil
	})
}

// budgetsLeft are the budgets of keys, if the ledger can tell them.
func (q *adminRequest) budgetsLeft(keys []auth.Key) (map[billing.KeyOf]billing.Money, error) {
	ledger, ok := q.o.Accounts.(billing.Budgets)
	if !ok {
		return nil, nil
	}
	var of []billing.KeyOf
	for _, k := range keys {
		of = append(of, billing.KeyOf{Account: k.Account, Key: k.ID})
	}
	return ledger.BudgetsOf(q.ctx, of)
}

// keyRequest is the body of POST /admin/v1/keys. Only the account is required.
type keyRequest struct {
	Account string    `json:"account"`
	Name    string    `json:"name"`
	Models  []string  `json:"models"`
	Expires time.Time `json:"expires"` // RFC 3339
	Budget  string    `json:"budget"`
	auth.Limits
}

// createKey is POST /admin/v1/keys.
func (q *adminRequest) createKey() (any, error) {
	var in keyRequest
	if err := q.body(&in); err != nil {
		return nil, err
	}
	q.note("account", discreet(in.Account))
	if in.Account == "" {
		return nil, fault.Invalid("account", "A key needs the name of the account that pays for it.")
	}
	if err := q.exists(in.Account); err != nil {
		return nil, err
	}
	key, token, err := auth.NewKey(auth.KeyOptions{
		Account: in.Account, Name: in.Name, Models: in.Models, Limits: in.Limits, Expires: in.Expires,
		Now: q.o.Now, Random: q.o.Random,
	})
	if err == nil {
		err = q.add(key, in.Budget)
	}
	if err != nil {
		return nil, err
	}
	q.note("target", key.ID, "name", discreet(key.Name), "budget", in.Budget)
	return NewKeyView{ID: key.ID, Key: token.Reveal(), Account: key.Account, Name: key.Name}, nil
}

// add bounds the key before it can spend.
func (q *adminRequest) add(key auth.Key, budget string) error {
	if budget == "" {
		return q.o.Keys.Add(q.ctx, key)
	}
	bound, err := amount("budget", budget)
	if err == nil {
		err = q.budget(key, &bound)
	}
	if err != nil {
		return err
	}
	if err = q.o.Keys.Add(q.ctx, key); err != nil {
		_ = q.budget(key, nil) // a bound on a key that does not exist bounds nothing
	}
	return err
}

func (q *adminRequest) budget(key auth.Key, bound *billing.Money) error {
	return q.o.Accounts.SetBudget(q.ctx, key.Account, key.ID, bound)
}

// disableKey is POST /admin/v1/keys/{id}/disable.
func (q *adminRequest) disableKey() (any, error) { return q.setDisabled(true) }

// enableKey is POST /admin/v1/keys/{id}/enable.
func (q *adminRequest) enableKey() (any, error) { return q.setDisabled(false) }

func (q *adminRequest) setDisabled(disabled bool) (any, error) {
	if err := q.o.Keys.SetDisabled(q.ctx, q.name, disabled); err != nil {
		return nil, err
	}
	return map[string]any{"id": q.name, "disabled": disabled}, nil
}

// deleteKey is DELETE /admin/v1/keys/{id}.
func (q *adminRequest) deleteKey() (any, error) {
	if err := q.o.Keys.Delete(q.ctx, q.name); err != nil {
		return nil, err
	}
	return map[string]any{"id": q.name, "deleted": true}, nil
}
