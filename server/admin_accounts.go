package server

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/internal/ledger"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// How many rows a page has unless another number is asked for, and at most.
const (
	pageSize    = 1_000
	maxPageSize = 10_000
)

// paged reads ?after= and ?limit=, and answers with the page that find gives. It is
// asked for one row more, which shows whether there is another page.
func paged[T any](q *adminRequest, find func(after string, limit int) ([]T, error)) (adminapi.List[T], error) {
	limit, err := q.limit()
	if err != nil {
		return adminapi.List[T]{}, err
	}
	rows, err := find(q.r.URL.Query().Get("after"), limit+1)
	if err != nil {
		return adminapi.List[T]{}, err
	}
	page := adminapi.NewList(rows[:min(limit, len(rows))])
	page.HasMore = len(rows) > limit
	return page, nil
}

// limit reads ?limit=.
func (q *adminRequest) limit() (int, error) {
	text := q.r.URL.Query().Get("limit")
	if text == "" {
		return pageSize, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPageSize {
		return 0, fault.Invalid("limit", fmt.Sprintf(`"limit" must be a number from 1 to %d.`, maxPageSize))
	}
	return n, nil
}

// listAccounts is GET /admin/v1/accounts.
func (q *adminRequest) listAccounts() (any, error) {
	return paged(q, func(after string, limit int) ([]adminapi.Balance, error) {
		balances, err := q.o.Accounts.Balances(q.ctx, after, limit)
		var views []adminapi.Balance
		for _, b := range balances {
			v := newBalance(q.o.Accounts, b)
			v.Account = b.Account
			views = append(views, v)
		}
		return views, err
	})
}

// showAccount is GET /admin/v1/accounts/{name}.
func (q *adminRequest) showAccount() (any, error) {
	if err := q.requireAccount(q.name); err != nil {
		return nil, err
	}
	return q.balanceView(q.name)
}

// createAccount is POST /admin/v1/accounts.
func (q *adminRequest) createAccount() (any, error) {
	var in struct {
		Name   string `json:"name"`
		Credit string `json:"credit"`
	}
	if err := q.readJSON(&in); err != nil {
		return nil, err
	}
	q.addAudit("target", redact(in.Name))
	credit, err := parseAmount("credit", in.Credit)
	if err != nil {
		return nil, err
	}
	if err := q.o.Accounts.CreateAccount(q.ctx, in.Name, credit); err != nil {
		return nil, err
	}
	q.addAudit("credit", credit.String())
	return q.balanceView(in.Name)
}

// creditAccount is POST /admin/v1/accounts/{name}/credit. The same reference
// again changes nothing.
func (q *adminRequest) creditAccount() (any, error) {
	var in struct {
		Amount    string `json:"amount"`
		Reference string `json:"reference"`
	}
	if err := q.readJSON(&in); err != nil {
		return nil, err
	}
	sum, err := parseAmount("amount", in.Amount)
	if err != nil {
		return nil, err
	}
	if err := q.o.Accounts.Credit(q.ctx, q.name, sum, in.Reference); err != nil {
		return nil, err
	}
	q.addAudit("amount", sum.String(), "reference", safetext.Quoted(in.Reference))
	return q.balanceView(q.name)
}

// balanceView is one account with its balance.
func (q *adminRequest) balanceView(name string) (adminapi.Balance, error) {
	balance, err := q.o.Accounts.Balance(q.ctx, name)
	if err != nil {
		return adminapi.Balance{}, err
	}
	v := newBalance(q.o.Accounts, balance)
	v.Account = name
	return v, nil
}

// requireAccount is 404 for an account that does not exist. It does not ask for
// the balance, since a ledger that only counts has one
// for every name.
func (q *adminRequest) requireAccount(name string) error {
	found, err := q.o.Accounts.Exists(q.ctx, name)
	if err != nil {
		return err
	}
	if !found {
		return fault.New(fault.NotFound, fmt.Sprintf("There is no account %q.", safetext.Quoted(name)))
	}
	return nil
}

// usageQuery reads what sums are asked for, of one account that exists or of all.
func (q *adminRequest) usageQuery() (query billing.Query, format string, err error) {
	query, format, err = parseUsageQuery(q.r, billing.ByModel, billing.ByKey, billing.ByDay, billing.ByAccount)
	if err != nil {
		return query, "", err
	}
	if query.Account = q.r.URL.Query().Get("account"); query.Account != "" {
		err = q.requireAccount(query.Account)
	}
	return query, format, err
}

// usage is GET /admin/v1/usage, of one account or of all. With ?limit= or ?after= it is a page
// of a report by key or by account; without, it is whole, and bounded in time.
func (q *adminRequest) usage() (any, error) {
	query, format, err := q.usageQuery()
	if err != nil {
		return nil, err
	}
	values, limit := q.r.URL.Query(), 0
	if values.Has("limit") || values.Has("after") {
		if limit, err = q.limit(); err == nil {
			query.Limit = limit + 1
			query.After.Account, query.After.Key, _ = strings.Cut(values.Get("after"), "/")
		}
		if err != nil {
			return nil, err
		}
	}
	rows, err := q.o.Accounts.Usage(q.ctx, query)
	if err != nil {
		return nil, err
	}
	next := ""
	if limit > 0 && len(rows) > limit {
		rows = rows[:limit]
		next = rowName(query.By, &rows[limit-1])
	}
	if format == "csv" {
		if next != "" {
			values.Set("after", next)
			q.w.Header().Set("Link", "<"+q.r.URL.Path+"?"+values.Encode()+`>; rel="next"`)
		}
		return rawAnswer{"text/csv; charset=utf-8", usageCSV(query.By, rows)}, nil
	}
	report := newUsage(query.By, rows)
	report.HasMore, report.Next = next != "", next
	if query.By == billing.ByKey {
		err = q.nameKeys(report.Data)
	}
	return report, err
}

// rowName is what a client sends back as ?after= for the rows after one. It is the account,
// which has no slash; for a key, a slash and its id follow.
func rowName(by billing.GroupBy, r *billing.UsageRow) string {
	if by == billing.ByKey {
		return r.Account + "/" + r.Group
	}
	return r.Account
}

// nameKeys adds the names of keys to rows of usage, also of keys that were deleted.
func (q *adminRequest) nameKeys(rows []map[string]any) error {
	k, keeps := q.o.Keys.(auth.KeyNames)
	if !keeps {
		return nil
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i], _ = r[string(billing.ByKey)].(string)
	}
	names, err := k.Names(q.ctx, ids)
	for i, r := range rows {
		if name := names[ids[i]]; name != "" {
			r["name"] = name
		}
	}
	return err
}

// showServer is GET /admin/v1/server.
func (q *adminRequest) showServer() (any, error) {
	v := adminapi.Server{Store: q.o.Store, Billing: "prepaid", Currency: q.o.Accounts.Currency()}
	if q.o.Accounts.Counting() {
		v.Billing = "count"
	}
	return v, nil
}

// verifyLedger is GET /admin/v1/ledger/verify: an error names the first invariant that does
// not hold. With ?archives=true the answer lists the files that receipts were moved into, so
// that their owner can compare them.
func (q *adminRequest) verifyLedger() (any, error) {
	if err := q.o.Accounts.Verify(q.ctx); err != nil {
		return nil, err
	}
	t, err := q.o.Accounts.Totals(q.ctx)
	if err != nil {
		return nil, err
	}
	archives, err := q.archives()
	if err != nil {
		return nil, err
	}
	return adminapi.Ledger{
		Archives: archives,
		Status:   "ok", Accounts: t.Accounts, Posted: ledger.FormatSum(t.Posted), Held: ledger.FormatSum(t.Held),
		Credited: ledger.FormatSum(t.Credited), Revenue: ledger.FormatSum(t.Revenue), Overrun: ledger.FormatSum(t.Overrun),
		Currency: q.o.Accounts.Currency(),
	}, nil
}

// archives are the files that receipts were moved into, if the request asks for them.
func (q *adminRequest) archives() ([]adminapi.Archive, error) {
	a, kept := q.o.Accounts.(billing.Archives)
	if !kept || q.r.URL.Query().Get("archives") != "true" {
		return nil, nil
	}
	files, err := a.Archived(q.ctx)
	var views []adminapi.Archive
	for _, f := range files {
		views = append(views, adminapi.Archive{File: f.Name, Receipts: f.Receipts, Charge: ledger.FormatSum(f.Charge), SHA256: f.SHA256})
	}
	return views, err
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

// describeKey shows a key without its secret and its hash.
func describeKey(k *auth.Key) adminapi.Key {
	v := adminapi.Key{ID: k.ID, Account: k.Account, Name: k.Name, Models: k.Models, Limits: k.Limits, Disabled: k.Disabled}
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

// listKeys is GET /admin/v1/keys, of one account or of all.
func (q *adminRequest) listKeys() (any, error) {
	account := q.r.URL.Query().Get("account")
	return paged(q, func(after string, limit int) ([]adminapi.Key, error) {
		keys, err := q.o.Keys.Page(q.ctx, account, after, limit)
		if err != nil {
			return nil, err
		}
		left, err := q.budgetsLeft(keys)
		if err != nil {
			return nil, err
		}
		var views []adminapi.Key
		for i, k := range keys {
			v := describeKey(&keys[i])
			if budget, ok := left[billing.KeyOf{Account: k.Account, Key: k.ID}]; ok {
				v.BudgetLeft = &budget
			}
			views = append(views, v)
		}
		return views, nil
	})
}

// budgetsLeft are the budgets of keys.
func (q *adminRequest) budgetsLeft(keys []auth.Key) (map[billing.KeyOf]billing.Money, error) {
	var of []billing.KeyOf
	for _, k := range keys {
		of = append(of, billing.KeyOf{Account: k.Account, Key: k.ID})
	}
	return q.o.Accounts.BudgetsOf(q.ctx, of)
}

// createKey is POST /admin/v1/keys.
func (q *adminRequest) createKey() (any, error) {
	var in adminapi.KeyRequest
	if err := q.readJSON(&in); err != nil {
		return nil, err
	}
	q.addAudit("account", redact(in.Account))
	if in.Account == "" {
		return nil, fault.Invalid("account", "A key needs the name of the account that pays for it.")
	}
	if err := q.requireAccount(in.Account); err != nil {
		return nil, err
	}
	key, token, err := auth.NewKey(auth.KeyOptions{
		Account: in.Account, Name: in.Name, Models: in.Models, Limits: in.Limits, Expires: in.Expires,
		Now: q.o.Now, Random: q.o.Random,
	})
	if err == nil {
		err = q.addKey(key, in.Budget)
	}
	if err != nil {
		return nil, err
	}
	q.addAudit("target", key.ID, "name", redact(key.Name), "budget", in.Budget)
	return adminapi.NewKey{ID: key.ID, Key: token.Reveal(), Account: key.Account, Name: key.Name}, nil
}

// addKey sets the budget of the key before the key can spend.
func (q *adminRequest) addKey(key auth.Key, budget string) error {
	if budget == "" {
		return q.o.Keys.Add(q.ctx, key)
	}
	bound, err := parseAmount("budget", budget)
	if err == nil {
		err = q.setBudget(key, &bound)
	}
	if err != nil {
		return err
	}
	if err = q.o.Keys.Add(q.ctx, key); err != nil {
		_ = q.setBudget(key, nil) // a bound on a key that does not exist bounds nothing
	}
	return err
}

func (q *adminRequest) setBudget(key auth.Key, bound *billing.Money) error {
	return q.o.Accounts.SetBudget(q.ctx, key.Account, key.ID, bound)
}

// setDisabled is POST /admin/v1/keys/{id}/disable and enable.
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

// showRequest is GET /admin/v1/requests/{id}: a receipt of any account with the
// attempts that failed before.
func (q *adminRequest) showRequest() (any, error) {
	r, attempts, err := q.o.Accounts.Request(q.ctx, q.name)
	if err != nil {
		return nil, err
	}
	v := adminapi.Request{
		Receipt: newReceipt(q.o.Accounts, r), Account: r.Account, Key: r.Key, Overrun: r.Overrun,
		Attempts: make([]adminapi.Attempt, len(attempts)),
	}
	for i, a := range attempts {
		v.Attempts[i] = adminapi.Attempt{
			Channel: a.Channel, Model: a.Model, StartedAt: a.StartedAt.Unix(), DurationMS: a.Duration.Milliseconds(),
			Code: a.Code, Status: a.Status, Billable: a.Billable, Units: maps.Collect(a.Used.Units), Waste: a.Waste,
		}
	}
	return v, nil
}

// waste is GET /admin/v1/waste: what failed attempts may have cost the operator.
func (q *adminRequest) waste() (any, error) {
	query, _, err := q.usageQuery()
	if err != nil {
		return nil, err
	}
	rows, err := q.o.Accounts.Waste(q.ctx, query)
	if err != nil {
		return nil, err
	}
	views := make([]adminapi.Waste, len(rows))
	for i, r := range rows {
		views[i] = adminapi.Waste(r)
	}
	return adminapi.NewList(views), nil
}
