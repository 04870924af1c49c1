package server

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
)

// reportsAPI answers the key holder's questions about money: the balance, what
// was used, and single receipts.
type reportsAPI struct{ reports billing.Reports }

// balance is GET /v1/balance.
func (a reportsAPI) balance(x *httpExchange) error {
	balance, err := a.reports.Balance(x.entry.Context(), x.entry.Principal().Account)
	if err != nil {
		return err
	}
	return x.writeJSON(newBalance(a.reports, balance))
}

// usage is GET /v1/usage, of the key's own account whatever the query says.
func (a reportsAPI) usage(x *httpExchange) error {
	q, format, err := parseUsageQuery(x.r, billing.ByModel, billing.ByKey, billing.ByDay)
	if err != nil {
		return err
	}
	q.Account = x.entry.Principal().Account
	rows, err := a.reports.Usage(x.entry.Context(), q)
	if err != nil {
		return err
	}
	if format == "csv" {
		x.write(http.StatusOK, "text/csv; charset=utf-8", usageCSV(q.By, rows))
		return nil
	}
	return x.writeJSON(newUsage(q.By, rows))
}

// receipt is GET /v1/receipts/{id}. One of another account is a 404, as if it were not there.
func (a reportsAPI) receipt(x *httpExchange) error {
	r, err := a.reports.Receipt(x.entry.Context(), x.entry.Principal().Account, x.id)
	if err != nil {
		return err
	}
	return x.writeJSON(newReceipt(a.reports, r))
}

// newBalance shows a balance.
func newBalance(reports billing.Reports, b billing.Balance) adminapi.Balance {
	v := adminapi.Balance{Currency: reports.Currency()}
	if reports.Counting() {
		v.Billing = "count"
		return v
	}
	available := b.Available()
	v.Posted, v.Held, v.Available = &b.Posted, &b.Held, &available
	return v
}

// newReceipt shows a receipt.
func newReceipt(reports billing.Reports, r billing.Receipt) adminapi.Receipt {
	return adminapi.Receipt{
		ID: r.ID, CreatedAt: r.CreatedAt.Unix(), Model: r.Model, Operation: r.Operation, Status: r.Status,
		Units: maps.Collect(r.Usage.Units), Estimated: r.Usage.Estimated, PriceVersion: r.PriceVersion,
		Hold: r.Hold, Charge: r.Charge, Currency: reports.Currency(), Reason: r.Reason, Channel: r.Channel,
	}
}

// usageReport is the answer of GET /v1/usage, and of the admin API's.
type usageReport struct {
	Object string           `json:"object"`
	By     billing.GroupBy  `json:"by"`
	Data   []map[string]any `json:"data"`
	// HasMore says that there is another page, and Next what to ask for as ?after=.
	HasMore bool   `json:"has_more,omitempty"`
	Next    string `json:"next,omitempty"`
}

// newUsage shows usage: each row has the group under the name of by.
func newUsage(by billing.GroupBy, rows []billing.UsageRow) usageReport {
	data := make([]map[string]any, len(rows))
	for i, r := range rows {
		data[i] = map[string]any{
			string(by): r.Group, "requests": r.Requests, "units": maps.Collect(r.Usage.Units), "charge": r.Charge,
		}
		if r.Account != "" {
			data[i]["account"] = r.Account
		}
	}
	return usageReport{Object: "list", By: by, Data: data}
}

// usageCSV writes one line a group, with a column for each unit.
func usageCSV(by billing.GroupBy, rows []billing.UsageRow) []byte {
	columns := billing.Units()
	head := []string{string(by), "requests"}
	for _, c := range columns {
		head = append(head, string(c))
	}
	var buf bytes.Buffer
	w := csv.NewWriter(&buf)
	_ = w.Write(append(head, "charge")) // a buffer takes everything
	for _, r := range rows {
		counts := maps.Collect(r.Usage.Units)
		line := []string{r.Group, strconv.FormatInt(r.Requests, 10)}
		for _, c := range columns {
			line = append(line, strconv.FormatInt(counts[c], 10))
		}
		_ = w.Write(append(line, r.Charge.String()))
	}
	w.Flush()
	return buf.Bytes()
}

// parseUsageQuery reads since, until, by, which is one of groupings, and format of a usage
// request. Moments are RFC 3339 or Unix seconds; format is json or csv.
func parseUsageQuery(r *http.Request, groupings ...billing.GroupBy) (billing.Query, string, error) {
	values := r.URL.Query()
	q := billing.Query{By: billing.ByModel}
	if values.Has("by") {
		q.By = billing.GroupBy(values.Get("by"))
	}
	if !slices.Contains(groupings, q.By) {
		var names []string
		for _, by := range groupings {
			names = append(names, strconv.Quote(string(by)))
		}
		last := len(names) - 1
		return q, "", fault.Invalid("by", `"by" must be `+strings.Join(names[:last], ", ")+" or "+names[last]+".")
	}
	var err error
	if q.Since, err = parseTime(values, "since"); err != nil {
		return q, "", err
	}
	if q.Until, err = parseTime(values, "until"); err != nil {
		return q, "", err
	}
	format := "json"
	if values.Has("format") {
		format = values.Get("format")
	}
	if format != "json" && format != "csv" {
		return q, "", fault.Invalid("format", `"format" must be "json" or "csv".`)
	}
	return q, format, nil
}

// The years for which usage can be asked. A number beyond is in the wrong unit, and would mean
// all or nothing.
const (
	firstYear = 1900
	lastYear  = 9999
)

// parseTime reads a moment of a query; the zero time for none.
func parseTime(values url.Values, name string) (time.Time, error) {
	if !values.Has(name) {
		return time.Time{}, nil
	}
	s := values.Get(name)
	var t time.Time
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		t = time.Unix(n, 0)
	} else if t, err = time.Parse(time.RFC3339, s); err != nil {
		return t, fault.Invalid(name, fmt.Sprintf("%q must be a moment such as 2026-01-31T00:00:00Z, or Unix seconds.", name))
	}
	if year := t.UTC().Year(); year < firstYear || year > lastYear {
		return t, fault.Invalid(name, fmt.Sprintf("%q must be between the years %d and %d; a number counts seconds, not milliseconds.", name, firstYear, lastYear))
	}
	return t, nil
}
