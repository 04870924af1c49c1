package server

import (
	"fmt"
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// listView is a list in OpenAI's form.
type listView[T any] struct {
	Object string `json:"object"` // "list"
	Data   []T    `json:"data"`
}

func newList[T any](data []T) listView[T] {
	if data == nil {
		data = []T{}
	}
	return listView[T]{"list", data}
}

// listAccounts is GET /admin/v1/accounts.
func (q *adminRequest) listAccounts() (any, error) {
	names, err := q.o.Accounts.AccountNames(q.ctx)
	if err != nil {
		return nil, err
	}
	var views []BalanceView
	for _, name := range names {
		v, err := q.account(name)
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return newList(views), nil
}

// showAccount is GET /admin/v1/accounts/{name}.
func (q *adminRequest) showAccount() (any, error) {
	if err := q.exists(q.name); err != nil {
		return nil, err
	}
	return q.account(q.name)
}

// createAccount is POST /admin/v1/accounts.
func (q *adminRequest) createAccount() (any, error) {
	var in struct {
		Name   string `json:"name"`
		Credit string `json:"credit"`
	}
	if err := q.body(&in); err != nil {
		return nil, err
	}
	q.note("target", discreet(in.Name))
	credit, err := amount("credit", in.Credit)
	if err != nil {
		return nil, err
	}
	if err := q.o.Accounts.CreateAccount(q.ctx, in.Name, credit); err != nil {
		return nil, err
	}
	q.note("credit", credit.String())
	return q.account(in.Name)
}

// creditAccount is POST /admin/v1/accounts/{name}/credit. The same reference
// again changes nothing.
func (q *adminRequest) creditAccount() (any, error) {
	var in struct {
		Amount    string `json:"amount"`
		Reference string `json:"reference"`
	}
	if err := q.body(&in); err != nil {
		return nil, err
	}
	sum, err := amount("amount", in.Amount)
	if err != nil {
		return nil, err
	}
	if err := q.o.Accounts.Credit(q.ctx, q.name, sum, in.Reference); err != nil {
		return nil, err
	}
	q.note("amount", sum.String(), "reference", clip(in.Reference))
	return q.account(q.name)
}

// account is one account with its balance.
func (q *adminRequest) account(name string) (BalanceView, error) {
	balance, err := q.o.Accounts.Balance(q.ctx, name)
	if err != nil {
		return BalanceView{}, err
	}
	v := NewBalanceView(q.o.Accounts, balance)
	v.Account = name
	return v, nil
}

// exists does not ask for the balance, since a ledger that only counts has one
// for every name.
func (q *adminRequest) exists(name string) error {
	names, err := q.o.Accounts.AccountNames(q.ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(names, name) {
		return fault.New(fault.NotFound, fmt.Sprintf("There is no account %q.", clip(name)))
	}
	return nil
}

// query reads what sums are asked for, of one account that exists or of all.
func (q *adminRequest) query() (query billing.Query, format string, err error) {
	query, format, err = UsageQuery(q.r)
	if err != nil {
		return query, "", err
	}
	if query.Account = q.r.URL.Query().Get("account"); query.Account != "" {
		err = q.exists(query.Account)
	}
	return query, format, err
}

// usage is GET /admin/v1/usage, of one account or of all.
func (q *adminRequest) usage() (any, error) {
	query, format, err := q.query()
	if err != nil {
		return nil, err
	}
	rows, err := q.o.Accounts.Usage(q.ctx, query)
	if err != nil {
		return nil, err
	}
	if format == "csv" {
		return raw{"text/csv; charset=utf-8", usageCSV(query.By, rows)}, nil
	}
	return NewUsageView(query.By, rows), nil
}

// ServerView is what the operator sees of the server itself.
type ServerView struct {
	Store    string `json:"store,omitempty"` // where accounts and keys are kept
	Billing  string `json:"billing"`         // "prepaid" or "count"
	Currency string `json:"currency"`
}

// about is GET /admin/v1/server.
func (q *adminRequest) about() (any, error) {
	v := ServerView{q.o.Store, "prepaid", q.o.Accounts.Currency()}
	if q.o.Accounts.Counting() {
		v.Billing = "count"
	}
	return v, nil
}

// verifyLedger is GET /admin/v1/ledger/verify: an error names the first
// invariant that does not hold.
func (q *adminRequest) verifyLedger() (any, error) {
	if err := q.o.Accounts.Verify(q.ctx); err != nil {
		return nil, err
	}
	return map[string]string{"status": "ok"}, nil
}

// reload is POST /admin/v1/reload.
func (q *adminRequest) reload() (any, error) {
	if q.o.Reload == nil {
		return nil, fault.New(fault.InvalidRequest, "The server runs without a config file, so there is nothing to reload.")
	}
	if err := q.o.Reload(q.ctx); err != nil {
		return nil, err
	}
	return map[string]string{"status": "reloaded"}, nil
}
