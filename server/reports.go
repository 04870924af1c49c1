package server

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// reportsAPI answers the key holder's questions about money: the balance, what
// was used, and single receipts.
type reportsAPI struct{ reports billing.Reports }

func (a reportsAPI) balance(x *exchange) error {
	balance, err := a.reports.Balance(x.r.Context(), x.response.Principal().Account)
	if err != nil {
		return err
	}
	return x.writeJSON(NewBalanceView(a.reports, balance))
}

func (a reportsAPI) usage(x *exchange) error {
	q, format, err := UsageQuery(x.r)
	if err != nil {
		return err
	}
	q.Account = x.response.Principal().Account
	rows, err := a.reports.Usage(x.r.Context(), q)
	if err != nil {
		return err
	}
	if format == "csv" {
		x.write(http.StatusOK, "text/csv; charset=utf-8", usageCSV(q.By, rows))
		return nil
	}
	return x.writeJSON(NewUsageView(q.By, rows))
}

func (a reportsAPI) receipt(x *exchange) error {
	r, err := a.reports.Receipt(x.r.Context(), x.response.Principal().Account, x.id)
	if err != nil {
		return err
	}
	return x.writeJSON(NewReceiptView(a.reports, r))
}

// BalanceView is the answer of GET /v1/balance. Amounts are decimal strings.
type BalanceView struct {
	Account   string         `json:"account,omitempty"`
	Currency  string         `json:"currency"`
	Posted    *billing.Money `json:"posted,omitempty"`
	Held      *billing.Money `json:"held,omitempty"`
	Available *billing.Money `json:"available,omitempty"`
	Billing   string         `json:"billing,omitempty"` // "count" where no money moves
}

// NewBalanceView shows a balance.
func NewBalanceView(reports billing.Reports, b billing.Balance) BalanceView {
	v := BalanceView{Currency: reports.Currency()}
	if reports.Counting() {
		v.Billing = "count"
		return v
	}
	available := b.Available()
	v.Posted, v.Held, v.Available = &b.Posted, &b.Held, &available
	return v
}

// ReceiptView is the answer of GET /v1/receipts/{id}.
type ReceiptView struct {
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

// NewReceiptView shows a receipt.
func NewReceiptView(reports billing.Reports, r billing.Receipt) ReceiptView {
	return ReceiptView{
		ID: r.ID, CreatedAt: r.CreatedAt.Unix(), Model: r.Model, Operation: r.Operation, Status: r.Status,
		Units: units(r.Usage), Estimated: r.Usage.Estimated, PriceVersion: r.PriceVersion,
		Hold: r.Hold, Charge: r.Charge, Currency: reports.Currency(), Reason: r.Reason, Channel: r.Channel,
	}
}

func units(u billing.Usage) map[billing.Unit]int64 {
	m := make(map[billing.Unit]int64)
	for unit, count := range u.Units {
		m[unit] = count
	}
	return m
}

// UsageView is the answer of GET /v1/usage.
type UsageView struct {
	Object string           `json:"object"` // "list"
	By     billing.GroupBy  `json:"by"`
	Data   []map[string]any `json:"data"` // the group under the name of By, requests, units, charge
}

// NewUsageView shows sums of usage.
func NewUsageView(by billing.GroupBy, rows []billing.UsageRow) UsageView {
	v := UsageView{Object: "list", By: by, Data: make([]map[string]any, len(rows))}
	for i, r := range rows {
		v.Data[i] = map[string]any{
			string(by): r.Group, "requests": r.Requests, "units": units(r.Usage), "charge": r.Charge,
		}
	}
	return v
}

// usageCSV writes one line a group, with a column for each unit.
func usageCSV(by billing.GroupBy, rows []billing.UsageRow) []byte {
	columns := []billing.Unit{
		billing.Input, billing.CachedInput, billing.CacheWrite, billing.Output, billing.Reasoning, billing.ImageInput,
		billing.ImageOutput, billing.Image, billing.Second, billing.Character,
	}
	head := []string{string(by), "requests"}
	for _, c := range columns {
		head = append(head, string(c))
	}
	var buf bytes.Buffer
	w := csv.NewWriter(&buf)
	_ = w.Write(append(head, "charge")) // a buffer takes everything
	for _, r := range rows {
		counts := units(r.Usage)
		line := []string{r.Group, strconv.FormatInt(r.Requests, 10)}
		for _, c := range columns {
			line = append(line, strconv.FormatInt(counts[c], 10))
		}
		_ = w.Write(append(line, r.Charge.String()))
	}
	w.Flush()
	return buf.Bytes()
}

// UsageQuery reads since, until, by and format of a usage request. Moments are
// RFC 3339 or Unix seconds; format is json or csv.
func UsageQuery(r *http.Request) (billing.Query, string, error) {
	values := r.URL.Query()
	q := billing.Query{By: billing.GroupBy(values.Get("by"))}
	if q.By == "" {
		q.By = billing.ByModel
	}
	if !slices.Contains([]billing.GroupBy{billing.ByModel, billing.ByKey, billing.ByDay}, q.By) {
		return q, "", fault.Invalid("by", `"by" must be "model", "key" or "day".`)
	}
	var err error
	if q.Since, err = parseTime("since", values.Get("since")); err != nil {
		return q, "", err
	}
	if q.Until, err = parseTime("until", values.Get("until")); err != nil {
		return q, "", err
	}
	format := values.Get("format")
	switch format {
	case "":
		format = "json"
	case "json", "csv":
	default:
		return q, "", fault.Invalid("format", `"format" must be "json" or "csv".`)
	}
	return q, format, nil
}

// The years of which usage may be asked for: a number beyond is in the wrong
// unit, and would mean all or nothing.
const (
	firstYear = 1900
	lastYear  = 9999
)

func parseTime(name, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
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
