package server

import (
	"fmt"
	"strconv"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// listView is a list in OpenAI's form.
type listView[T any] struct {
	Object string `json:"object"` // "list"
	Data   []T    `json:"data"`
	// HasMore says that there is another page: ask for it with ?after= the name or
	// the id of the last of Data.
	HasMore bool `json:"has_more,omitempty"`
}

func newList[T any](data []T) listView[T] {
	if data == nil {
		data = []T{}
	}
	return listView[T]{Object: "list", Data: data}
}

// mostListed is how many rows a page has at the most, and unless fewer are asked
// for.
const mostListed = 1000

// paged reads ?after= and ?limit=, and answers with the page that find gives. It is
// asked for one row more, which tells whether there is another page.
func paged[T any](q *adminRequest, find func(after string, limit int) ([]T, error)) (listView[T], error) {
	values, limit := q.r.URL.Query(), mostListed
	if s := values.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > mostListed {
			return listView[T]{}, fault.Invalid("limit", fmt.Sprintf(`"limit" must be a number from 1 to %d.`, mostListed))
		}
		limit = n
	}
	rows, err := find(values.Get("after"), limit+1)
	if err != nil {
		return listView[T]{}, err
	}
	page := newList(rows[:min(limit, len(rows))])
	page.HasMore = len(rows) > limit
	return page, nil
}

// listAccounts is GET /admin/v1/accounts.
func (q *adminRequest) listAccounts() (any, error) {
	return paged(q, func(after string, limit int) ([]BalanceView, error) {
		balances, err := q.o.Accounts.Balances(q.ctx, after, limit)
		var views []BalanceView
		for _, b := range balances {
			v := NewBalanceView(q.o.Accounts, b)
			v.Account = b.Account
			views = append(views, v)
		}
		return views, err
	})
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
	found, err := q.o.Accounts.Exists(q.ctx, name)
	if err != nil {
		return err
	}
	if !found {
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

// VerifyView is the answer of GET /admin/v1/ledger/verify, with the trial balance:
// what the customers have is what they were given, less what was delivered, plus
// what of that the operator bore. Amounts are decimals.
type VerifyView struct {
	Status   string `json:"status"` // "ok"
	Accounts int64  `json:"accounts"`
	Posted   string `json:"posted"`
	Held     string `json:"held"`
	Credited string `json:"credited"`
	Revenue  string `json:"revenue"`
	Overrun  string `json:"overrun"`
	Currency string `json:"currency"`
}

// verifyLedger is GET /admin/v1/ledger/verify: an error names the first
// invariant that does not hold.
func (q *adminRequest) verifyLedger() (any, error) {
	if err := q.o.Accounts.Verify(q.ctx); err != nil {
		return nil, err
	}
	t, err := q.o.Accounts.Totals(q.ctx)
	if err != nil {
		return nil, err
	}
	return VerifyView{
		Status: "ok", Accounts: t.Accounts, Posted: billing.FormatSum(t.Posted), Held: billing.FormatSum(t.Held),
		Credited: billing.FormatSum(t.Credited), Revenue: billing.FormatSum(t.Revenue), Overrun: billing.FormatSum(t.Overrun),
		Currency: q.o.Accounts.Currency(),
	}, nil
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
